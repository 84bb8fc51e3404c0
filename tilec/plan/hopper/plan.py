"""How a GEMM kernel runs on Hopper: what each warp group does, how operands arrive, where they lie. Data only.

One warp group (the producer) keeps a ring of `stages` tile pairs filled through the copy engine; the others (the consumers)
multiply them, each for its own rows, and write the result. Blocks are persistent: one a multiprocessor, each taking tile after
tile. `gemm` fills this in.

    a 128x256x64 product of halves: 2 consumers of 64 rows, 4 stages of 48 KB, 8 products m64n256k16 a k-block, 40/232 registers
"""

from __future__ import annotations


from tilec.record import record
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Buffer, Expr, Var, VarKind
from tilec.layout.fragment import FragmentLayout

MULTIPROCESSORS = Var("multiprocessors", INT32, VarKind.EXTENT)
"""The multiprocessors of the device, as host expressions mention it."""

WARP_GROUP = Var("warp_group", INT32, VarKind.THREAD)
"""The number of a consumer, as expressions of a body that streams tiles mention it."""


@record
class TensorMap:
    """A tensor as the copy engine sees it: boxes of `box` elements (innermost first), `swizzle` bytes (0 for none)."""

    tensor: Buffer
    box: tuple[int, ...]
    swizzle: int


@record
class Box:
    """One load of a tile: `offset` elements into the tile, its first coordinate `shift` further along the innermost dimension."""

    offset: int
    shift: int


@record
class Operand:
    """A tile of the ring.

    `at` are the coordinates of its first element, innermost first, over block indices and the loop variable. It lies as blocks
    of `span` bytes times all its rows, swizzled over `span`. `leading` and `stride` are the distances in bytes that a descriptor
    names, `group_step` the bytes between the parts of two consumers (0 for b, which all of them read).
    """

    tile: Buffer
    map: TensorMap
    at: tuple[Expr, ...]
    boxes: tuple[Box, ...]
    shape: tuple[int, int]
    k_major: bool
    span: int
    leading: int
    stride: int
    group_step: int
    halved: bool = False  # two blocks load half of its rows each, for both of them

    @property
    def elements(self) -> int:
        """Elements of one version."""
        return self.shape[0] * self.shape[1]

    @property
    def bytes(self) -> int:
        """Bytes of one version."""
        return self.elements * self.tile.dtype.bytes

    @property
    def mode(self) -> int:
        """The number of the swizzle in a descriptor."""
        return {128: 1, 64: 2, 32: 3}[self.span]


@record
class Product:
    """One instruction of a k-block: bytes into both operands, and registers into the accumulator."""

    a: int
    b: int
    register: int


@record
class Pair:
    """Two blocks of a cluster, neighbours along the block index `axis`: the operand that does not depend on it, `a` or `b`, arrives
    once for both. `when` says for which tensors that pays."""

    axis: int
    shared: str
    when: Expr


@record
class WarpGroups:
    """The numbers of every kernel with a producer warp group and `consumers` others.

    `stages` are the versions of what is streamed, `give` and `take` the registers of a producer's and of a consumer's thread,
    `barriers` is the byte offset of the barriers in shared memory, `shared_bytes` all of it.
    """

    consumers: int
    stages: int
    give: int
    take: int
    barriers: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of the block: the consumers' first, then the producer's."""
        return 128 * (self.consumers + 1)


@record
class Lines:
    """How operands arrive whose rows start anywhere: `producers` warp groups copy the 16-byte words around each line of a tile, and
    move its bytes into place steps later.

    The words lie in the shared tiles `a` and `b`, either [line][bytes of a ring] or [version][line][bytes].
    """

    producers: int
    a: Buffer
    b: Buffer


@record
class Schedule(WarpGroups):
    """The numbers of a GEMM; see the table of rules in `gemm`.

    `lag` lets the second consumer start each tile that many k-blocks after the first, so that one's epilogue runs beside the
    other's products. `group` is the height of a raster panel in tiles, or in pairs of them. `anew`: behind the products a thread
    asks again for its number. `lines`: threads bring the operands, not the copy engine.
    """

    lag: int
    group: int
    pair: Pair | None = None
    anew: bool = False
    lines: Lines | None = None

    @property
    def threads(self) -> int:
        """Threads of the block: the consumers' first, then the producers'."""
        return 128 * (self.consumers + (1 if self.lines is None else self.lines.producers))


@record
class WarpGroupGemm:
    """The products: `instruction` is the prelude's name, `products` are those of one k-block in order."""

    instruction: str
    m: int
    n: int
    k: int
    layout: FragmentLayout
    products: tuple[Product, ...]
    transposes: tuple[int, int] | None  # trans-a, trans-b; None for types that have neither


@record
class Staging:
    """How results leave: through `buffers` chunks of 64 x `columns` a consumer in the shared tile `tile`, swizzled over `span`."""

    tile: Buffer
    columns: int
    buffers: int
    span: int


@record
class StreamSchedule(WarpGroups):
    """The numbers of a kernel that streams tiles past a held one.

    `row_axis` is the block index that runs fastest over the tiles, because blocks that differ in it alone stream the same
    tiles; `longest_first` lets it run slowest and downwards inside sections of `section` others, whose streamed tiles fit the L2
    cache together, where tiles of a high index take longer. `held_words`: words a thread in which the held tile, or its
    first columns, wait in registers (0: products read all of it from shared memory). `turns`: consumers take turns at issuing
    their products.
    """

    row_axis: int
    longest_first: bool
    section: Expr
    held_words: int
    turns: bool


@record
class RowProduct:
    """A product of a consumer's 64 rows: `instruction` is the prelude's name; `a` and `b` say how far into the operands each
    instruction of it goes: bytes, or words for the first `held`, which take a from registers. `trans_b`: rows of b run along n."""

    instruction: str
    n: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    trans_b: bool
    held: int
