"""The configurations that a body of a kernel may have, best first, and which of them are known to fit the registers: data.

    LADDERS["product"][1].why -> what depends on the number of a thread waits in registers through the products
    next_rung("product", 0, effect of a rung on a body with one consumer) -> 1

The planner starts at the top. Where the rules here vouch for the first choice nobody is asked. Otherwise who has asked ptxas
(`tilec.settle`) has it take the next rung for the body that spills; who cannot ask takes the first one that the rules vouch for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilec.record import record


@record
class Rung:
    """One configuration, as what differs from the planner's first choice.

    Hopper's own bodies: `parts` are iterations of element loops behind the products, in portable bodies of all loops over registers, whose
    loads may go together (0: all); `anew` reads the number of a thread again there; without `lag` both consumers start a tile at once;
    `take` are registers of the producer and of a consumer (0: as the rules say); without `pairs` blocks do not work in pairs; without
    `held` the held tile stays in shared memory; without `lags` the maximum of an online softmax is exact; without `carries` no product runs
    on into the next step; `portable` gives the body up.
    Portable bodies: `short` loads operands when they are used, and elements round by round; `rolled` leaves the steps of a product a
    loop; `threads` are those of the block (0: as many as planned); without `bound`, no number of blocks is to fit a multiprocessor;
    `alone`, one is enough; `plain` spelling does not tell that numbers of threads are not negative, and has steps along rows
    in one piece; `shelved` are hundredths of the registers: what tiles take beyond those lies in shared memory (see `shelves`), and
    where it `settles` statements read it there anew.
    Both: `cut` makes so many blocks of one (see `plan.cut`). Portable bodies: without `groups` no products are done by warp groups in
    place. Bodies written by hand: the one that stands in for Hopper's own `keeps` its products and does the copies by threads; `deals`
    gives warp groups other numbers of registers than the author; `anew` makes the descriptors of operands again at each product.
    """

    name: str
    why: str
    parts: int = 0
    anew: bool = False
    lag: bool = True
    take: tuple[int, int] = (0, 0)
    pairs: bool = True
    held: bool = True
    lags: bool = True
    carries: bool = True
    portable: bool = False
    short: bool = False
    rolled: bool = False
    threads: int = 0
    bound: bool = True
    alone: bool = False
    plain: bool = False
    cut: int = 1
    groups: bool = True
    keeps: bool = False
    deals: bool = False
    shelved: int = 0
    settles: bool = False


FIRST = Rung("first choice", "")
_PARTS = "the assembler moves all that element loops behind the products load to their front"
_ANEW = "what is made of the number of a thread would wait in registers through the products"
_LAG = "the state of the lag takes registers"
_PORTABLE = "nothing else is left: mma.sync and the author's copies"
_SHORT = "operands in front of their use take registers"
_ROLLED = "the assembler moves loads of later steps of a product to the front"
_THREADS = "256 threads are the most of which each may have 255 registers"
_MORE = "each of more threads holds less of the tiles"
_WARPS = "by mma.sync warps share a tile otherwise than warp groups must"
_BLOCKS = "the assembler gives up registers so that more blocks fit"
_SPELLED = "what the compiler makes of thread numbers that it knows not to be negative waits in registers"
_DESCRIPTORS = "the descriptors of the operands of several products wait in registers"
_DEALS = "one warp group has too few of the registers that others, or none, make use of"
_CUT = "all threads together have too few registers for the tile"
_SHELF = "all threads together have too few registers for the tiles"
_ANEW_SHELF = "what lies in shared memory would wait in registers from statement to statement"
_BOTH = "registers and shared memory together do not hold the tiles"

_PLAIN = (
    FIRST,
    Rung("no bound on registers", "the blocks that the author wants at once leave too few registers", bound=False),
    Rung("one block at a time", _BLOCKS, bound=False, alone=True),
    Rung("spelled plainly", _SPELLED, bound=False, plain=True),
    Rung("loads late", _SHORT, bound=False, short=True),
    Rung("steps one by one", _ROLLED, bound=False, short=True, rolled=True),
    Rung("256 threads", _THREADS, bound=False, threads=256),
    Rung("256 threads, loads late", _SHORT, bound=False, threads=256, short=True),
    Rung("256 threads, steps one by one", _ROLLED, bound=False, threads=256, short=True, rolled=True),
    Rung("384 threads, loads late", "rows of three times 64 go evenly to 12 warps", bound=False, threads=384, short=True),
    Rung("512 threads, loads late", _MORE, bound=False, alone=True, threads=512, short=True),
    Rung("512 threads, steps one by one", _MORE, bound=False, alone=True, threads=512, short=True, rolled=True),
    Rung("1024 threads, loads late", _MORE, bound=False, alone=True, threads=1024, short=True),
    Rung("half blocks", _CUT, bound=False, alone=True, threads=256, cut=2),
    Rung("half blocks, steps one by one", _CUT, bound=False, alone=True, threads=256, short=True, rolled=True, cut=2),
    Rung("thirds of blocks, steps one by one", _CUT, bound=False, alone=True, threads=256, short=True, rolled=True, cut=3),
    Rung("quarters of blocks, steps one by one", _CUT, bound=False, alone=True, threads=256, short=True, rolled=True, cut=4),
)

_SHELVED = (
    Rung("a part in shared memory", _SHELF, bound=False, alone=True, shelved=90),
    Rung("a part in shared memory, read anew", _ANEW_SHELF, bound=False, alone=True, parts=8, shelved=80, settles=True),
    Rung("a larger part in shared memory", _ANEW_SHELF, bound=False, alone=True, parts=8, shelved=65, settles=True),
    *(
        Rung(f"{n} threads, a part in shared memory", _SHELF, bound=False, alone=True, threads=n, parts=8, shelved=65, settles=True)
        for n in (512, 256)
    ),
    Rung("256 threads, steps one by one, a part in shared memory", _SHELF, bound=False, alone=True, threads=256, short=True, rolled=True,
         shelved=90),
    *(
        Rung(f"{part} of blocks, {n} threads, a part in shared memory", _BOTH, bound=False, alone=True, threads=n, cut=cut, parts=8,
             shelved=65, settles=True)
        for part, cut, n in (("halves", 2, 512), ("halves", 2, 256), ("thirds", 3, 512), ("quarters", 4, 512))
    ),
)  # fmt: skip


def _without_groups(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The same rungs with products by mma.sync."""
    return tuple(replace(r, name=f"mma.sync, {r.name}", why=r.why or _WARPS, groups=False) for r in rungs)


LADDERS: Mapping[str, tuple[Rung, ...]] = {
    "": (FIRST,),
    "product": (
        FIRST,
        Rung("loads of results in parts", _PARTS, parts=16),
        Rung("loads of results in smaller parts", _PARTS, parts=4),
        Rung("thread numbers anew", _ANEW, parts=4, anew=True),
        Rung("no lag", _LAG, parts=4, anew=True, lag=False),
        Rung("240 registers", "the producer can do with 24", parts=4, anew=True, lag=False, take=(24, 240)),
        Rung("half blocks", _CUT, parts=4, anew=True, lag=False, take=(24, 240), cut=2),
        Rung("portable", _PORTABLE, portable=True),
    ),
    "pairs": (
        FIRST,
        Rung("loads of results in parts", _PARTS, parts=16),
        Rung("loads of results in smaller parts", _PARTS, parts=4),
        Rung("thread numbers anew", _ANEW, parts=4, anew=True),
        Rung("no lag", _LAG, parts=4, anew=True, lag=False),
        Rung("no pairs", "the state of a pair takes registers", pairs=False),
    ),
    "lines": (
        FIRST,
        Rung("thread numbers anew", _ANEW, parts=4, anew=True),
        Rung("80 registers", "who brings operands can do with 80, and the assembler spills some of 88", parts=4, anew=True, take=(80, 0)),
        Rung("no lag", _LAG, parts=4, anew=True, lag=False, take=(80, 0)),
        Rung("portable", _PORTABLE, portable=True),
    ),
    "stream": (
        FIRST,
        Rung("held tile in shared memory", "its words take registers", held=False),
        Rung("exact maximum", "an old maximum beside the new one takes registers", held=False, lags=False),
        Rung("half blocks", _CUT, held=False, lags=False, cut=2),
        Rung("portable", _PORTABLE, portable=True),
    ),
    "chain": (
        FIRST,
        Rung("products end in their step", "what a product of the step before reads takes registers", carries=False),
        Rung("half blocks", _CUT, carries=False, cut=2),
        Rung("portable", _PORTABLE, portable=True),
    ),
    "by hand": (
        FIRST,
        Rung("products by warp groups", "by mma.sync they take more registers than the author lets their threads have", keeps=True),
        Rung("registers dealt anew", _DEALS, keeps=True, deals=True),
        Rung("descriptors anew", _DESCRIPTORS, keeps=True, deals=True, anew=True),
        Rung("one block at a time", _BLOCKS, bound=False, alone=True),
        Rung("loads late", _SHORT, bound=False, alone=True, short=True, keeps=True),
        Rung("loads late, registers dealt anew", _SHORT, bound=False, alone=True, short=True, keeps=True, deals=True),
        Rung("loads late, descriptors anew", _SHORT, bound=False, alone=True, short=True, keeps=True, deals=True, anew=True),
    ),
    "portable": (*_PLAIN, *_without_groups(_PLAIN), *_SHELVED, *_without_groups(_SHELVED)),
}
"""The rungs of each kind of body: products of Hopper's own, those whose blocks work in pairs, those whose operands threads bring, streamed
tiles, chains, those of an author who orders the work, all others."""

Choice = Mapping[tuple[str, str], int]
"""The rung of each body that does not have the first one, by ladder and symbol; and under BLOCKS how many blocks of a body are to fit a
multiprocessor."""

BLOCKS = "blocks"

def rung_of(choice: Choice, ladder: str, symbol: str) -> tuple[int, Rung]:
    """The rung that a body is to have, and its number."""
    n = choice.get((ladder, symbol), 0)
    return n, LADDERS[ladder][n]


def next_rung(ladder: str, n: int, effect: Callable[[Rung], object]) -> int:
    """The number of the next rung down whose effect on a body no rung so far has had, None for one that cannot be; 0 below the last."""
    rungs = LADDERS[ladder]
    had = [None, *(effect(r) for r in rungs[: n + 1])]
    return next((m for m in range(n + 1, len(rungs)) if effect(rungs[m]) not in had), 0)


def alike(ladder: str, n: int, threads: int) -> Iterator[int]:
    """The numbers of the rungs behind one that leave the same `threads` (0: whatever rungs ask for), blocks and kinds of products."""
    rungs = LADDERS[ladder]
    for m in range(n + 1, len(rungs)):
        if (threads and rungs[m].threads not in (0, threads)) or (rungs[m].cut, rungs[m].groups) != (rungs[n].cut, rungs[n].groups):
            return
        yield m


@record
class Vouched:
    """What is known to fit, in registers a thread, from sweeps that the tests repeat in part.

    `stores`, `computes`, `reads`, `parts`: accumulators and fragments beside them in a product of Hopper's own whose epilogue only stores;
    one that computes; one that reads a tensor besides; the same in parts, less the iterations whose loads go together. `beside`: what one
    that reads leaves at least. `tensor`: what each further tensor takes. `spare`: those that tiles of a streaming body must leave; `held`:
    how many more with the held tile among them; `statement`: for each statement between the products beyond `statements`. `chain`: those
    that fragments of a chain of products must leave. `plain`, `half`, `narrow`, `groups`: hundredths of the registers that the estimate of
    a portable body may take, if it has no products, products of 16 bits, others, products of warp groups with the loads of a step
    (`beside_groups`: with element loops beside them, without those loads); `several`: the same with up to `few_products`, of which not
    all tiles live at once, `many`: with more; `rolled`: the same for all whose steps go one by one (`rolled_beside`: with element loops,
    `rolled_reading`: that read tensors). `tensors`: how many tensors element loops beside products may read before the loads of a loop
    count as well, `ahead` registers for them (`ahead_words`: beside operands of 32 bits); `reading`: the share where they read any;
    `loose`: where elements are copied one by one and all loads may be in flight; `wide`: what goes off that for rows of 256 results;
    `crowd`: what goes off each share with more than `most_threads`, whose registers are so few that addresses tell; `one_by_one`: the same
    without products where elements are loaded one by one.
    `tiles`: registers that a body without products may need before it is asked about whatever the rules say; where half of what there is
    and `beside_tiles` are more, so many: elements of 16 bits may take a register each; `teams`: hundredths of those of a warp group in a
    body whose author parts the threads; `tight`: hundredths that one product of 16 bits by mma.sync may take, `tight_halves`: with sums
    of 16 bits. `fuller`: hundredths of the registers that one block more would leave which a body without products may take, as ptxas
    says, for that block to be worth a question; `few`: the most blocks of which the last one is. `flight`: registers that the loads of a
    copy take together from which on the assembler, which may give up some, is told how many blocks are to fit. `shelf`: hundredths of the
    registers that a body may take whose tiles lie in shared memory in part, and which reads them anew; it must leave `free` as well.
    """

    stores: int = 192
    beside: int = 96
    computes: int = 128
    reads: int = 96
    parts: int = 196
    tensor: int = 8
    spare: int = 32
    held: int = -4
    statements: int = 6
    statement: int = 2
    chain: int = 30
    plain: int = 100
    half: int = 105
    narrow: int = 60
    groups: int = 85
    beside_groups: int = 70
    several: int = 100
    few_products: int = 3
    many: int = 90
    rolled: int = 105
    rolled_beside: int = 104
    rolled_reading: int = 85
    tensors: int = 1
    ahead: int = 48
    ahead_words: int = 100
    reading: int = 90
    loose: int = 60
    wide: int = 5
    crowd: int = 20
    one_by_one: int = 40
    most_threads: int = 256
    tiles: int = 50
    beside_tiles: int = 12
    teams: int = 75
    tight: int = 90
    tight_halves: int = 80
    fuller: int = 120
    few: int = 4
    flight: int = 32
    shelf: int = 65
    free: int = 32


VOUCHED = Vouched()

KNOWN_PRODUCTS = frozenset({(128, 256, 16)})
"""Products of Hopper's own that fit beside element loops that read one tensor: rows, columns, bits of what is stored."""

SPILLS: Mapping[str, int] = {"chain": 5}
"""Registers beyond what is known to fit with more of which all that were tried spill."""

Accumulators = tuple[tuple[int, int], ...]

KNOWN: Mapping[tuple[Accumulators, int], int] = {
    (((128, 128), (128, 128)), 256): 278,
    (((64, 128), (64, 128)), 128): 278,
    (((192, 128), (192, 64)), 384): 246,
}
"""Portable bodies with 16-bit products that fit although the estimate is beyond the rules: their accumulators and threads, and the
estimate up to which they are known to."""

KNOWN_LATE: Mapping[tuple[Accumulators, int], int] = {**KNOWN, (((128, 64), (128, 256)), 256): 358}
"""The same for bodies that load late."""

KNOWN_NARROW: Mapping[tuple[Accumulators, int], int] = {
    (((128, 256),), 256): 228,
    (((256, 128),), 256): 228,
    (((64, 128),), 128): 180,
    (((32, 32),), 128): 256,
}
"""The same for products of other elements."""


def product_strain(tile: tuple[int, int, int], held: int, computes: bool, tensors: int, rung: Rung, there: int) -> int:
    """By how many registers a product of Hopper's own exceeds what is known to fit.

    `tile`: its rows and columns, and the bits of what is stored (0: by the threads, not by the copy engine, which takes addresses as a
    tensor more does); `held`: registers of accumulators and other fragments; `computes`: there are element loops behind the products,
    which read so many `tensors`; `there`: registers of a thread.
    """
    if not computes:
        return held - VOUCHED.stores
    if tile in KNOWN_PRODUCTS and tensors < 2:
        return 0
    known = VOUCHED.computes if not tensors else VOUCHED.parts - rung.parts if rung.parts else min(VOUCHED.reads, there - VOUCHED.beside)
    more = tensors - 1 + (not tile[2])
    return held - known + VOUCHED.tensor * max(0, more if tensors else 0)


def lines_strain(strain: int, read: int, written: int, there: int) -> int:
    """The same for one whose operands threads bring, where `strain` is what is known of it otherwise: threads that store results as well
    hold an address more for each tensor that the epilogue writes, but for the first if it reads none. What must be left anyway has room
    for those."""
    ample = read and there - VOUCHED.beside < VOUCHED.reads
    return strain if ample else strain + VOUCHED.tensor * (written - (not read))


def stream_strain(spare: int, held: int, statements: int) -> int:
    """The same for a body that streams tiles, which leave `spare` registers to all else; the held tile takes `held` of those, and
    row statements some more."""
    more = VOUCHED.statement * max(0, statements - VOUCHED.statements)
    return VOUCHED.spare + more + (held + VOUCHED.held if held else 0) - spare


def chain_strain(spare: int) -> int:
    """The same for a body that chains products, whose fragments leave `spare` registers at the fullest place."""
    return VOUCHED.chain - spare


@record
class Load:
    """What is known of a portable body before it is written: the registers that a thread is expected to need, and has; the shapes of
    its accumulators; how wide what it multiplies is; how many tensors its element loops read, and how many loops there are; whether it
    loads late; whether it copies element by element, round after round in flight, or from padded rows in the workspace; whether warp
    groups do its products; what the loads of its largest copy take together, or those of a step around products; whether sums are of 16
    bits; whether an operand of each product waits in registers."""

    need: int
    there: int
    threads: int
    products: Accumulators = ()
    bits: frozenset[int] = frozenset()
    tensors: int = 0
    loops: int = 0
    late: bool = False
    loose: bool = False
    strewn: bool = False
    groups: bool = False
    flight: int = 0
    halves: bool = False
    in_place: bool = False

    @property
    def narrow(self) -> bool:
        """True when any of what it multiplies is not 16 bits wide."""
        return bool(self.bits - {16})

    @property
    def crowded(self) -> bool:
        """True for more threads than have all registers each."""
        return self.threads > VOUCHED.most_threads


def shelf_room(there: int, threads: int) -> int:
    """The registers of a thread that a body may take whose tiles lie in shared memory in part; none where `threads` are too few to have all
    registers, as they hold more there than here."""
    return min(there * VOUCHED.shelf // 100, there - VOUCHED.free) if threads >= VOUCHED.most_threads else 0


def portable_strain(x: Load, rung: Rung) -> int:
    """The same for a portable body."""
    if not x.products:
        return x.need - x.there * (VOUCHED.plain - (VOUCHED.one_by_one if x.late and x.crowded else 0)) // 100
    if x.groups:
        alone = x.need - x.there * (VOUCHED.beside_groups if x.loops else VOUCHED.groups) // 100
        return max(alone, x.need + x.flight - x.there * VOUCHED.groups // 100)
    heavy = 32 in x.bits and x.loops and not (x.late or x.in_place)  # loads of element loops among those of operands of 32 bits
    known = KNOWN_NARROW if x.narrow else KNOWN_LATE if x.late else KNOWN
    if not heavy and x.need <= known.get((x.products, x.threads), 0):
        return 0
    one_by_one = VOUCHED.rolled_reading if x.tensors else VOUCHED.rolled_beside if x.loops else VOUCHED.rolled
    share = one_by_one if rung.rolled else VOUCHED.narrow if x.narrow else VOUCHED.half
    if len(x.products) > 1:
        share = min(share, VOUCHED.many if many_products(x) else VOUCHED.several)
    share = min(share, VOUCHED.reading) if x.tensors and not rung.short else share
    loose = VOUCHED.loose - (VOUCHED.wide if any(n >= 256 for _, n in x.products) else 0)
    share = min(share, loose) if x.loose else share
    share -= VOUCHED.crowd if x.crowded else 0
    strain = x.need - x.there * share // 100
    if (x.tensors > VOUCHED.tensors or (x.narrow and x.loops)) and not rung.short:  # to the front, all that element loops load
        ahead = VOUCHED.ahead_words if 32 in x.bits else VOUCHED.ahead
        strain = max(strain, 1 if x.crowded else x.need + ahead - x.there * VOUCHED.reading // 100)
    waits = x.strewn and 32 in x.bits  # the address of each of many copies
    return max(1, strain) if waits else strain


def many_products(x: Load) -> bool:
    """True for so many products that the assembler, told of no number of blocks, may spill registers so that more fit."""
    return len(x.products) > VOUCHED.few_products


def tight(x: Load) -> bool:
    """True for a body that leaves so little, or of which the assembler may give up so much for more blocks, that a question is worth its
    second although the rules vouch for it."""
    if not x.products:
        return x.need > max(VOUCHED.tiles, x.there // 2 + VOUCHED.beside_tiles)
    if len(x.products) > 1 or x.late or x.groups or x.narrow:
        return False
    return x.need * 100 > x.there * (VOUCHED.tight_halves if x.halves else VOUCHED.tight)
