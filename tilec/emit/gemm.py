"""The CUDA text of one matrix product, from its `GemmPlan` and the places of its operands.

`gemm_text` writes a whole product; `fragment_text` gives the pieces (declarations, loads of one k-step, multiplication of one
k-step) from which `pipeline` builds the loop that loads fragments ahead of their use.

    with 64-byte swizzled rows a lane loads `ldmatrix_x4(a_frag[mi], a_tile + (a_at ^ kk) + mi * 512);`
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.record import record
from tilec.emit import gemm_fma
from tilec.emit.gemm_operands import Loop, Operand, RegisterOperand, Render, SharedOperand, joined, lines, scaled
from tilec.ir.dtypes import FLOAT16
from tilec.layout import atoms
from tilec.layout.fragment import Digit
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.gemm_plan import GemmPlan

Need = Callable[[str], None]

RESERVED = frozenset("a_frag b_frag a_tile b_tile a_at b_at warp_row warp_col along k mi ni j r kk".split()) | gemm_fma.RESERVED
"""C names that the text declares for itself: no array or variable of the kernel may be called so."""


@record
class Load:
    """One statement inside unrolled `loops` that brings fragments of a k-step into registers."""

    loops: tuple[Loop, ...]
    call: str


@record
class Side:
    """How one operand reaches the mma: declarations once, the tile's pointer, loads a k-step, and the mma's argument.

    `extents` are those of the register array of one k-step, empty when the operand is in registers already.
    """

    once: tuple[str, ...] = ()
    tile: tuple[str, ...] = ()
    loads: tuple[Load, ...] = ()
    extents: str = ""
    argument: str = ""


@record
class Fragments:
    """All pieces of an mma product, as text.

    `declarations` hold for the whole product, `pointers` for one version of the operands; `load` fills the arrays `a_frag` and
    `b_frag` (extents in C, "" for an operand that needs none) for k-step `kk`, `multiply` adds the k-step's products.
    """

    declarations: tuple[str, ...]
    pointers: tuple[str, ...]
    a_extents: str
    b_extents: str
    load: str
    multiply: str


def gemm_text(render: Render, need: Need, plan: GemmPlan, a: Operand, b: Operand, c: str, clear: str, rolled: bool = False) -> str:
    """Statements that compute c += op(a) @ op(b), in braces.

    `c` names the accumulator array in the order of `plan.c_layout`; `clear` is "" or the C condition under which c is zeroed
    first; `rolled` keeps the steps a loop. Kernel-scope names `thread`, `warp` and `lane` are used.
    """
    zero = clear_text(render, plan, c, clear)
    if plan.kind == "fma":
        product = gemm_fma.fma_text(render, need, plan, a, b, c)
    else:
        f = fragment_text(render, need, plan, a, b, c)
        held = RegisterOperand in map(type, (a, b))  # registers have no running number
        product = render("gemm/mma_sync.cu.jinja", f=f, k=plan.op.k, k_step=plan.step[2], rolled=rolled and not held)
    return lines(zero, product)


def clear_text(render: Render, plan: GemmPlan, c: str, clear: str) -> str:
    """Statements that zero the accumulator when the condition `clear` holds; none for ""."""
    if not clear:
        return ""
    return render("gemm/clear.cu.jinja", c=c, count=plan.c_layout.registers, condition="" if clear in ("1", "true") else clear)


def fragment_text(render: Render, need: Need, plan: GemmPlan, a: Operand, b: Operand, c: str) -> Fragments:
    """The pieces of an mma product; records the prelude entries they use."""
    need(plan.instruction)
    rows, cols = _tiles(plan, "a"), _tiles(plan, "b")
    accumulator = f"{c} + {scaled(joined(scaled('mi', cols), 'ni'), 4)}"
    if plan.op.c_dtype is FLOAT16:
        accumulator = f"reinterpret_cast<unsigned*>({accumulator})"
    sides = _side(need, plan, "a", a), _side(need, plan, "b", b)
    call = f"{plan.instruction}({accumulator}, {sides[0].argument}, {sides[1].argument});"
    return Fragments(
        declarations=_place(plan, a, b) + sides[0].once + sides[1].once,
        pointers=sides[0].tile + sides[1].tile,
        a_extents=sides[0].extents,
        b_extents=sides[1].extents,
        load="\n".join(render("gemm/load.cu.jinja", loops=load.loops, call=load.call) for side in sides for load in side.loads),
        multiply=render("gemm/multiply.cu.jinja", rows=rows, cols=cols, serpentine=rows > 1 and cols > 1, last=cols - 1, call=call),
    )


def _place(plan: GemmPlan, a: Operand, b: Operand) -> tuple[str, ...]:
    """Declarations of the warp's first row and column, where an address needs them.

    Warps past the grid compute what an earlier one does.
    """
    (down, across), (rows, cols) = plan.warps, plan.warp_tile
    number = "warp" if plan.used_warps * 32 >= plan.threads else f"warp % {plan.used_warps}"
    names = []
    if down > 1 and isinstance(a, SharedOperand):
        names.append(f"warp_row = {scaled(number if across == 1 else f'{number} / {across}', rows)}")
    if across > 1 and isinstance(b, SharedOperand):
        names.append(f"warp_col = {scaled(number if down == 1 else f'{number} % {across}', cols)}")
    return (f"const int {', '.join(names)};",) if names else ()


def _side(need: Need, plan: GemmPlan, name: str, operand: Operand) -> Side:
    """How the operand called `name` ("a" or "b") gets into the mma."""
    count = _tiles(plan, name)
    if isinstance(operand, RegisterOperand):
        step = "" if plan.k_steps == 1 else f"kk / {plan.step[2]}"
        tile, words = ("mi", 4) if name == "a" else ("ni", 2)
        index = scaled(joined(scaled(tile, plan.k_steps), step), words)
        return Side(argument=f"reinterpret_cast<const unsigned*>({operand.array}) + {index}")
    extents, argument = (f"[{count}][4]", "a_frag[mi]") if name == "a" else (f"[{2 * count}]", "b_frag + ni * 2")
    if _load(plan, name) == "elementwise":
        c_type = _BITS[operand.layout.itemsize]
        pointer = f"const {c_type}* const {name}_tile = reinterpret_cast<const {c_type}*>({operand.pointer});"
        return Side((), (pointer,), _elementwise(plan, name, operand), extents, argument)
    once, loads = _ldmatrix(need, plan, name, operand)
    return Side(once, (f"const {operand.c_type}* const {name}_tile = {operand.pointer};",), loads, extents, argument)


_BITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned"}


def _load(plan: GemmPlan, name: str) -> str:
    return plan.load_a if name == "a" else plan.load_b


def _tiles(plan: GemmPlan, name: str) -> int:
    """mma tiles of a warp along m (for a) or n (for b)."""
    return plan.warp_tile[0] // 16 if name == "a" else plan.warp_tile[1] // 8


def _k_major(plan: GemmPlan, name: str) -> bool:
    return not plan.op.trans_a if name == "a" else plan.op.trans_b


def _first(plan: GemmPlan, name: str) -> str:
    """The warp's first row of a or column of b; "" when that is 0."""
    if name == "a":
        return "warp_row" if plan.warps[0] > 1 else ""
    return "warp_col" if plan.warps[1] > 1 else ""


def _ldmatrix(need: Need, plan: GemmPlan, name: str, s: SharedOperand) -> tuple[tuple[str, ...], tuple[Load, ...]]:
    """Loads of 16 rows of a, or of two (and a last single) column tiles of b, by ldmatrix."""
    k_major = _k_major(plan, name)
    suffix = "" if k_major else "_trans"
    row, col = lane_place(atoms.ldmatrix_lanes(name, k_major, s.layout.itemsize))
    at = _Address(plan, name, s, row, col)
    count = _tiles(plan, name)
    whole = count if name == "a" else count // 2
    loads = []
    if whole:
        need(f"ldmatrix_x4{suffix}")
        target = "a_frag[mi]" if name == "a" else "b_frag + ni * 4" if whole > 1 else "b_frag"
        var = "mi" if name == "a" else "ni"
        loops = (Loop(var, whole),) if whole > 1 or name == "a" else ()
        loads.append(Load(loops, f"ldmatrix_x4{suffix}({target}, {at.text(var if whole > 1 else '', 0)});"))
    if name == "b" and count % 2:
        need(f"ldmatrix_x2{suffix}")
        loads.append(Load((), f"ldmatrix_x2{suffix}(b_frag + {2 * (count - 1)}, {at.text('', (count - 1) * 8)});"))
    return at.once, tuple(loads)


class _Address:
    """The address a lane hands to ldmatrix: a lane offset computed once, then one step along m or n and one along k.

    Stepping whole rows adds; stepping along a swizzled row is an exclusive-or, as long as the step's bits are free in the lane's
    column. Where they are not, the offset is asked anew of the tile's own function.
    """

    def __init__(self, plan: GemmPlan, name: str, s: SharedOperand, row: str, col: str) -> None:
        self.plan, self.name, self.s, self.row, self.col = plan, name, s, row, col
        self.k_major = _k_major(plan, name)
        self.hoisted = self._can_hoist()
        self.once = (f"const int {name}_at = {self._at('', '')};",) if self.hoisted else ()

    def _at(self, tile: str, k: str) -> str:
        """The offset by the tile's own function, `tile` and `k` steps further."""
        first = joined(_first(self.plan, self.name), tile)
        row, col = (first, k) if self.k_major else (k, first)
        return f"{self.s.at}({joined(self.s.row0, row, self.row) or '0'}, {joined(self.s.col0, col, self.col) or '0'})"

    def _can_hoist(self) -> bool:
        layout = self.s.layout
        if layout.swizzle is None:
            return True
        rows_step = (8 if self.k_major else self.plan.step[2]) * layout.pitch
        period = (layout.swizzle.mask + 1 << layout.swizzle.shift) * CHUNK // layout.itemsize
        span = self.plan.warp_tile[0] if self.name == "a" else self.plan.warp_tile[1]
        free = self.k_major or span & (span - 1) == 0
        return self.s.col0 in ("", "0") and rows_step % period == 0 and free and _whole_rows(layout)

    def text(self, tile: str, fixed: int) -> str:
        """The address for tile number `tile` (a variable, or "" with the constant step `fixed`) and k-step `kk`."""
        along = scaled(tile, 16) if tile else str(fixed) if fixed else ""
        k = "kk" if self.plan.k_steps > 1 else ""
        name = self.name
        if not self.hoisted:
            return f"{name}_tile + {self._at(along, k)}"
        pitch = self.s.layout.pitch
        row_step = _row_step(along, k, tile, fixed, pitch, self.k_major)
        col_step = k if self.k_major else along
        lane = f"{name}_at"
        if not col_step or self.s.layout.swizzle is None:
            return joined(f"{name}_tile", joined(lane, col_step), row_step)
        exchanged, further = self._exchanged(col_step)
        lane = f"({lane} ^ {f'({exchanged})' if '*' in exchanged or '%' in exchanged else exchanged})"
        return joined(f"{name}_tile", lane, row_step, further)

    def _exchanged(self, step: str) -> tuple[str, str]:
        """The part of a step along a row that the exchange of its chunks reaches, and what it leaves alone: whole spans of 128 bytes or
        less. Apart, the latter become constants of the instructions, where each would be an address of its own."""
        layout = self.s.layout
        assert layout.swizzle is not None
        span = (layout.swizzle.mask + 1) * CHUNK // layout.itemsize
        wide = step == "kk" and not self.s.plain and self.plan.k_steps * self.plan.step[2] > span
        return (f"kk % {span}", f"kk / {span} * {span}") if wide else (step, "")


def _row_step(along: str, k: str, tile: str, fixed: int, pitch: int, k_major: bool) -> str:
    """Elements to step over whole rows: 16 rows a tile when k runs along the row, else a row for each k."""
    if not k_major:
        return scaled(k, pitch) if k else ""
    return (scaled(tile, 16 * pitch) if tile else str(fixed * pitch)) if along else ""


def _whole_rows(layout: SharedLayout) -> bool:
    """True when the swizzle is read off whole rows, so that a step along a row leaves it alone."""
    chunks = layout.pitch * layout.itemsize // CHUNK
    return layout.swizzle is None or (chunks & (chunks - 1) == 0 and 1 << layout.swizzle.shift >= chunks)


def _elementwise(plan: GemmPlan, name: str, s: SharedOperand) -> tuple[Load, ...]:
    """Loads of fragment words element by element, for operands that ldmatrix cannot turn."""
    per = 4 // s.layout.itemsize
    var, tile, words = ("mi", 16, 4) if name == "a" else ("ni", 8, 2)
    count = _tiles(plan, name)
    step = scaled(var, tile) if count > 1 else ""
    other = "r % 2 * 8" if name == "a" else ""
    along = joined(_first(plan, name), step, "lane / 4", other)
    k = joined("kk" if plan.k_steps > 1 else "", scaled("lane % 4", per), scaled("r / 2" if name == "a" else "r", 4 * per))
    parts = [_element(s, name, _k_major(plan, name), i, per) for i in range(per)]
    word = "\n".join(p if i == 0 else f"| {p}" for i, p in enumerate(parts))
    target = "a_frag[mi][r]" if name == "a" else "b_frag[ni * 2 + r]"
    call = f"const int along = {along}, k = {k};\n{target} = {word};"
    return (Load((Loop(var, count), Loop("r", words)), call),)


def _element(s: SharedOperand, name: str, k_major: bool, i: int, per: int) -> str:
    """Element i of a word, shifted into its place."""
    k = "k" if i == 0 else f"k + {i}"
    row, col = ("along", k) if k_major else (k, "along")
    value = f"{name}_tile[{s.at}({joined(s.row0, row)}, {joined(s.col0, col)})]"
    if per == 1:
        return value
    shift = i * 32 // per
    return f"static_cast<unsigned>({value})" + (f" << {shift}" if shift else "")


def lane_place(digits: tuple[Digit, ...]) -> tuple[str, str]:
    """Row and column (C texts over `lane`) that a lane points at, from the digits of the lane."""
    terms: tuple[list[str], list[str]] = ([], [])
    place = 1
    for i, d in enumerate(digits):
        value = "lane" if place == 1 else f"lane / {place}"
        if i + 1 < len(digits):
            value += f" % {d.size}"
        terms[d.dim].append(scaled(value, d.stride))
        place *= d.size
    return joined(*terms[0]), joined(*terms[1])
