"""TensorCoreIntrinEmitter: products written warp by warp, as tiles of the block.

    mma = TensorCoreIntrinEmitter(a_dtype="float16", ..., block_row_warps=2, warp_row_tiles=64, ...)
    mma.ldmatrix_a(A_local, A_shared, ki)       ->  a copy of 16 columns of A_shared into a fragment of 128 x 16
    mma.mma(A_local, B_local, C_local)          ->  Gemm of the fragments that the private arrays stand for

The private arrays of the author's threads are parts of a tile, in an order that only the instructions know: a fragment takes the
place of each, and the planner chooses instruction, loads and layout as for T.gemm. The arrays may be cleared and passed on, no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from tilec.diagnostics import Label
from tilec.ir.dtypes import INT32, DType
from tilec.ir.expr import Buffer, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.tile import Alloc, Copy, Fill, For, Parallel, Region, Seq, Stmt, Store
from tilec.ir.visit import buffers_of, map_stmt, stmt_exprs, walk_expr
from tilec.language.access import as_expr, dtype_of, host_int
from tilec.language.arith import binary, convert_to
from tilec.language.bind import Entry, invoke, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, tile_statement
from tilec.language.gemm import product
from tilec.language.regions import region
from tilec.language.show import describe
from tilec.language.values import Primitive
from tilec.language.warp import DEFAULT_THREADS
from tilec.record import record

WARP = 32
ROWS = 16
"""Rows of one instruction's tile."""


@record(eq=False)
class Emitter:
    """What an emitter was made with: types, whether operands lie transposed, and the tiles of the warps."""

    a_dtype: DType
    b_dtype: DType
    accum_dtype: DType
    a_transposed: bool
    b_transposed: bool
    row_warps: int
    col_warps: int
    row_tiles: int
    col_tiles: int
    chunk: int

    @property
    def m(self) -> int:
        """Rows of the block's tile."""
        return self.row_warps * self.row_tiles

    @property
    def n(self) -> int:
        """Columns of the block's tile."""
        return self.col_warps * self.col_tiles

    @property
    def k(self) -> int:
        """How far one instruction reaches along the dimension that is summed."""
        return min(256 // self.a_dtype.bits, self.chunk)

    def numbers(self) -> dict[str, Any]:
        """The attributes that kernels read."""
        columns = 16 if self.col_tiles % 16 == 0 else 8
        return {
            "micro_size_x": ROWS, "micro_size_y": columns, "micro_size_k": self.k, "M_DIM": ROWS, "n_dim": columns, "k_dim": self.k,
            "WARP_SIZE": WARP, "warp_rows": self.row_tiles // ROWS, "warp_cols": self.col_tiles // columns,
            "local_size_a": ROWS * self.k // WARP, "local_size_b": columns * self.k // WARP, "local_size_out": ROWS * columns // WARP,
            "threads": WARP * self.row_warps * self.col_warps, "block_row_warps": self.row_warps, "block_col_warps": self.col_warps,
            "warp_row_tiles": self.row_tiles, "warp_col_tiles": self.col_tiles, "chunk": self.chunk, "a_dtype": self.a_dtype,
            "b_dtype": self.b_dtype, "accum_dtype": self.accum_dtype, "a_transposed": self.a_transposed, "b_transposed": self.b_transposed,
            "reduce_k": 1,
        }  # fmt: skip


def TensorCoreIntrinEmitter(
    b: Builder, a_dtype: Any = "float16", b_dtype: Any = "float16", accum_dtype: Any = "float16", a_transposed: Any = False,
    b_transposed: Any = False, block_row_warps: Any = 2, block_col_warps: Any = 2, warp_row_tiles: Any = 8, warp_col_tiles: Any = 8,
    chunk: Any = 16, reduce_k: Any = 1, num_elems_per_byte: Any = 1, is_m_first: Any = False, thread_var: Any = None,
) -> Emitter:  # fmt: skip
    """Products warp by warp: its ldmatrix_a, ldmatrix_b, mma and stmatrix are copies and products of tiles of the block."""
    if host_int(b, reduce_k, "reduce_k") != 1 or host_int(b, num_elems_per_byte, "num_elems_per_byte") != 1:
        raise b.error("TL0204", "TensorCoreIntrinEmitter with reduce_k or packed elements is not supported", help="use T.gemm")
    numbers = {"block_row_warps": block_row_warps, "block_col_warps": block_col_warps, "warp_row_tiles": warp_row_tiles,
               "warp_col_tiles": warp_col_tiles, "chunk": chunk}  # fmt: skip
    sizes = [host_int(b, v, name) for name, v in numbers.items()]
    if min(sizes) < 1 or sizes[2] % ROWS or sizes[3] % 8:
        raise b.error("TL0320", f"warps have whole multiples of {ROWS} rows and 8 columns, got {sizes[2]} and {sizes[3]}")
    a, w, c = (dtype_of(b, d) for d in (a_dtype, b_dtype, accum_dtype))
    first, second = (host_flag(b, f, "a transposition") for f in (a_transposed, b_transposed))
    return Emitter(a, w, c, first, second, *sizes)


def ldmatrix_a(b: Builder, e: Emitter, A_local_buf: Any, A_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
    """The rows of A that belong to step `ki` of a chunk."""
    _load(b, e, _a(b, e, A_local_buf), A_shared_buf, (ki, rk), e.a_transposed)


def ldmatrix_b(b: Builder, e: Emitter, B_local_buf: Any, B_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
    """The columns of B that belong to step `ki` of a chunk."""
    _load(b, e, _b(b, e, B_local_buf), B_shared_buf, (ki, rk), not e.b_transposed)


def _load(b: Builder, e: Emitter, tile: Buffer, source: Any, step: tuple[Any, Any], rows: bool) -> None:
    """Copies a slice, `step` (ki, rk) along the rows or along the columns, into the fragment of an array."""
    tile_statement(b, "ldmatrix")
    whole = region(b, source, "the tile of ldmatrix")
    if len(whole.starts) < 2:
        raise b.error("TL0320", f"`{whole.buffer.name}` must have two dimensions", Label(whole.buffer.span, "allocated here"))
    at = binary(b, "add", binary(b, "mul", step[1], e.chunk), binary(b, "mul", step[0], e.k))
    first = as_expr(b, binary(b, "add", whole.starts[-2], at) if rows else whole.starts[-2])
    second = as_expr(b, whole.starts[-1] if rows else binary(b, "add", whole.starts[-1], at))
    ones = (Const(1, INT32),) * (len(whole.starts) - 2)
    part = Region(whole.buffer, (*whole.starts[:-2], first, second), (*ones, *tile.shape), b.span)
    b.emit(Copy(part, _full(tile, b), b.span))


def _a(b: Builder, e: Emitter, local: Any) -> Buffer:
    return _tile(b, e, local, (e.k, e.m) if e.a_transposed else (e.m, e.k), e.row_tiles * e.k)


def _b(b: Builder, e: Emitter, local: Any) -> Buffer:
    return _tile(b, e, local, (e.n, e.k) if e.b_transposed else (e.k, e.n), e.col_tiles * e.k)


def _c(b: Builder, e: Emitter, local: Any) -> Buffer:
    return _tile(b, e, local, (e.m, e.n), e.row_tiles * e.col_tiles)


def mma(b: Builder, e: Emitter, A_local_buf: Any, B_local_buf: Any, C_local_buf: Any, k_inner: Any = 0) -> None:
    """C += A @ B of the fragments that the arrays stand for."""
    tile_statement(b, "mma")
    if not isinstance(k_inner, int) or k_inner:
        raise b.error("TL0204", "mma of a later part of its arrays is not supported", help="load each step with ldmatrix_a and ldmatrix_b")
    tiles = _a(b, e, A_local_buf), _b(b, e, B_local_buf), _c(b, e, C_local_buf)
    b.emit(product(b, "mma", tiles, e.a_transposed, e.b_transposed, "square", False))


def stmatrix(b: Builder, e: Emitter, C_local_buf: Any, C_buf: Any, pid_m: Any = None, pid_n: Any = None) -> None:
    """The accumulators into a tile of two dimensions, or of four in blocks of 16 x 16; with `pid_m` and `pid_n` into a tensor."""
    tile_statement(b, "stmatrix")
    tile, to = _c(b, e, C_local_buf), region(b, C_buf, "the tile of stmatrix")
    if len(to.starts) == 2:
        first, second = to.starts
        if pid_m is not None and pid_n is not None:
            first, second = (as_expr(b, binary(b, "mul", p, size)) for p, size in ((pid_m, e.m), (pid_n, e.n)))
        b.emit(Copy(_full(tile, b), Region(to.buffer, (first, second), _sizes((e.m, e.n)), b.span), b.span))
        return
    if len(to.starts) != 4:
        raise b.error("TL0320", f"`{to.buffer.name}` must have two or four dimensions")
    i, j = (Var(name, INT32, VarKind.LOOP, span=b.span) for name in "ij")
    height, width = (int(n.value) if isinstance(n, Const) else ROWS for n in to.buffer.shape[2:])
    places = tuple(
        as_expr(b, binary(b, op, v, size)) for op in ("floordiv", "mod") for v, size in ((i, height), (j, width))
    )
    value = convert_to(b, Load(tile, (i, j)), to.buffer.dtype)
    b.emit(Parallel((i, j), _sizes((e.m, e.n)), Store(to.buffer, places, value, b.span), b.span))


def _sizes(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(Const(n, INT32) for n in shape)


def _full(tile: Buffer, b: Builder) -> Region:
    return Region(tile, (Const(0, INT32),) * tile.rank, tile.shape, b.span)


def _tile(b: Builder, e: Emitter, local: Any, shape: tuple[int, int], of_warp: int) -> Buffer:
    """The fragment that a private array stands for, of which a warp works on `of_warp` elements."""
    assert b.launch is not None
    if isinstance(local, Buffer) and local.scope is Scope.FRAGMENT and local.shape == _sizes(shape):
        return local
    if not isinstance(local, Buffer) or local.scope is not Scope.LOCAL:
        raise b.error("TL0322", f"the emitter's operands are arrays of T.alloc_local, got {describe(local)}")
    threads = WARP * e.row_warps * e.col_warps
    if prod(b.launch.threads or DEFAULT_THREADS) != threads:
        text = f"this emitter is for {threads} threads, the kernel has {prod(b.launch.threads or DEFAULT_THREADS)}"
        raise b.error("TL0402", text, help="block_row_warps * block_col_warps warps of 32 threads")
    made = b.launch.registers.get(local)
    if made is None:
        made = replace(local, scope=Scope.FRAGMENT, shape=_sizes(shape))
        b.launch.registers[local] = made
    held, mine = prod(int(n.value) if isinstance(n, Const) else 0 for n in local.shape), of_warp // WARP
    if made.shape != _sizes(shape) or held != mine:
        text = f"`{local.name}` holds {held} elements a thread, of a tile of {shape[0]} x {shape[1]} each thread has {mine}"
        raise b.error("TL0320", text, Label(local.span, "allocated here"))
    return made


METHODS: dict[str, Callable[..., Any]] = {"ldmatrix_a": ldmatrix_a, "ldmatrix_b": ldmatrix_b, "mma": mma, "stmatrix": stmatrix}


def attribute(e: Emitter, name: str) -> Any:
    """A number of an emitter, or a method as something to call; None for what it does not have."""
    if name not in METHODS:
        return e.numbers().get(name)

    def call(b: Builder, args: tuple[Any, ...], kwargs: Any) -> Any:
        return invoke(name, METHODS[name], b, (e, *args), kwargs)  # type: ignore[arg-type]

    return Primitive(name, call)


def settle_registers(b: Builder, body: Stmt, tiles: dict[Buffer, Buffer]) -> Stmt:
    """`body` with fragments in place of the arrays that emitters were given. Raises TL0204 for what else is done to these."""

    def visit(s: Stmt) -> Stmt:
        match s:
            case Alloc(buffer) if buffer in tiles:
                return replace(s, buffer=tiles[buffer])
            case Fill(dst) if dst.buffer in tiles and dst.extents == dst.buffer.shape:
                tile = tiles[dst.buffer]
                return replace(s, dst=Region(tile, (Const(0, INT32),) * 2, tile.shape, s.span))
            case For() | Parallel() if (found := _set(s)) is not None and found.buffer in tiles:
                tile = tiles[found.buffer]
                return Fill(Region(tile, (Const(0, INT32),) * 2, tile.shape, s.span), found.value, s.span)
        used = [x for x in buffers_of(s) if x in tiles] if not isinstance(s, Seq | For | Parallel) else []
        used += [x.buffer for e in stmt_exprs(s) for x in walk_expr(e) if hasattr(x, "buffer") and x.buffer in tiles]
        if used:
            text = f"`{used[0].name}` holds a part of a tile in an order that only the emitter knows: it can be cleared, and passed to it"
            raise b.error("TL0204", text, Label(used[0].span, "allocated here"), span=s.span, help="use T.alloc_fragment and T.gemm")
        return map_stmt(s, lambda e: e, visit)

    return visit(body) if tiles else body


def _set(s: Stmt) -> Store | None:
    """The store of a loop, or of a nest of them, that sets every element of an array to one value."""
    count, inner = 1, s
    while isinstance(inner, For | Parallel | Seq):
        match inner:
            case For(start=Const(0), stop=Const(n), step=Const(1)):
                count *= int(n)
            case Parallel(extents=sizes) if all(isinstance(n, Const) for n in sizes):
                count *= prod(int(n.value) for n in sizes if isinstance(n, Const))
            case Seq(body=(_,)):
                pass
            case _:
                return None
        inner = inner.body[0] if isinstance(inner, Seq) else inner.body
    whole = isinstance(inner, Store) and isinstance(inner.value, Const) and count == prod(
        int(n.value) if isinstance(n, Const) else 0 for n in inner.buffer.shape
    )
    return inner if whole and isinstance(inner, Store) else None


ENTRIES: tuple[Entry, ...] = works(TensorCoreIntrinEmitter, host=True)
