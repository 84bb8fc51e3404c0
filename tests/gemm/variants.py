"""The table of GEMM variants: every kernel form, transposes, types, accumulators, tails, stages, thread counts.

The table is the same on every run: the first rows cover each value of each property, the rest are drawn with a fixed seed.
`source` writes the Python of a row; tests run it on the CPU, `benchmarks/make_bundle.py` packs it for a GPU.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

FORMS = ("prim_func", "factory", "lazy", "eager", "implicit")
TYPES = (  # operands, accumulator, result
    ("float16", "float32", "float16"), ("float16", "float32", "float32"), ("float16", "float16", "float16"), ("bfloat16", "float32", "bfloat16"),
    ("bfloat16", "float32", "float32"), ("float32", "float32", "float32"), ("int8", "int32", "int32"),
)  # fmt: skip
TILES = ((32, 32, 32), (64, 64, 32), (64, 32, 64), (128, 64, 32), (64, 128, 64), (32, 64, 64), (128, 128, 32))
SIZES = ((64, 64, 64), (96, 80, 72), (33, 47, 61), (128, 96, 33), (70, 64, 31), (1, 130, 40), (65, 1, 1), (64, 72, 128), (130, 70, 0), (40, 56, 160))
ROWS = 168


@dataclass(frozen=True)
class GemmVariant:
    """One row: `form` of the source, sizes, tile, types, and how the author wrote the loop."""

    form: str
    trans_a: bool
    trans_b: bool
    dtype: str
    accumulator: str
    result: str
    size: tuple[int, int, int]
    tile: tuple[int, int, int]
    stages: int
    dynamic: bool
    threads: int

    @property
    def name(self) -> str:
        """A short name that is a valid identifier."""
        m, n, k = self.size
        order = ("T" if self.trans_a else "N") + ("T" if self.trans_b else "N")
        kind = "d" if self.dynamic else "s"
        tile = "x".join(map(str, self.tile))
        return f"{self.form}_{order}_{self.dtype}_{self.accumulator}_{self.result}_{m}x{n}x{k}_t{tile}_s{self.stages}_{self.threads}{kind}"

    @property
    def exact_inputs(self) -> bool:
        """Whether operands are to be small integers: a few products of truncated TF32 numbers average out no error."""
        return self.dtype == "float32" and self.size[2] < 8

    @property
    def a_shape(self) -> tuple[int, int]:
        """The stored shape of A."""
        m, _, k = self.size
        return (k, m) if self.trans_a else (m, k)

    @property
    def b_shape(self) -> tuple[int, int]:
        """The stored shape of B."""
        _, n, k = self.size
        return (n, k) if self.trans_b else (k, n)


def _possible(v: GemmVariant) -> bool:
    """The implicit form states shapes through the copies alone: a zero extent leaves nothing to infer there."""
    if v.form == "implicit":
        return v.dynamic and v.threads == 128 and v.result == v.accumulator
    return v.dynamic or 0 not in v.size


def _row(r: random.Random, **fixed: object) -> GemmVariant:
    while True:
        dtype, accumulator, result = r.choice(TYPES)
        values: dict[str, object] = {
            "form": r.choice(FORMS), "trans_a": r.random() < 0.4, "trans_b": r.random() < 0.5, "dtype": dtype, "accumulator": accumulator,
            "result": result, "size": r.choice(SIZES), "tile": r.choice(TILES), "stages": r.randrange(5), "dynamic": r.random() < 0.5,
            "threads": r.choice((64, 128, 256)),
        } | fixed  # fmt: skip
        v = GemmVariant(**values)  # type: ignore[arg-type]
        if _possible(v):
            return v


def table() -> list[GemmVariant]:
    """All rows, each once."""
    r = random.Random(20261129)
    rows: dict[GemmVariant, None] = {}
    for form, (ta, tb) in product(FORMS, product((False, True), repeat=2)):
        rows.setdefault(_row(r, form=form, trans_a=ta, trans_b=tb))
    for (dtype, accumulator, result), stages in product(TYPES, range(5)):
        rows.setdefault(_row(r, dtype=dtype, accumulator=accumulator, result=result, stages=stages, form=r.choice(FORMS[:4])))
    for size, threads in product(SIZES, (64, 128, 256)):
        rows.setdefault(_row(r, size=size, threads=threads, dynamic=True, form=r.choice(FORMS[:4])))
    while len(rows) < ROWS:
        rows.setdefault(_row(r))
    return list(rows)


def source(v: GemmVariant) -> str:
    """The Python of one row: a kernel called `gemm`."""
    return {"prim_func": _prim_func, "factory": _factory, "lazy": _lazy, "eager": _eager, "implicit": _implicit}[v.form](v)


def defines(v: GemmVariant) -> dict[str, int]:
    """Compile-time values that the row's source asks for."""
    return dict(zip("MNK", v.size, strict=True)) if v.form in ("lazy", "eager", "factory") and not v.dynamic else {}


def _shapes(v: GemmVariant) -> tuple[str, str]:
    return ("(K, M)" if v.trans_a else "(M, K)"), ("(N, K)" if v.trans_b else "(K, N)")


def _body(v: GemmVariant, indent: str) -> str:
    """The statements inside T.Kernel."""
    bm, bn, bk = v.tile
    a, b = ((bk, bm) if v.trans_a else (bm, bk)), ((bn, bk) if v.trans_b else (bk, bn))
    a_at = f"A[ko * {bk}, by * {bm}]" if v.trans_a else f"A[by * {bm}, ko * {bk}]"
    b_at = f"B[bx * {bn}, ko * {bk}]" if v.trans_b else f"B[ko * {bk}, bx * {bn}]"
    options = (", transpose_A=True" if v.trans_a else "") + (", transpose_B=True" if v.trans_b else "")
    lines = [
        f"A_s = T.alloc_shared({a}, '{v.dtype}')", f"B_s = T.alloc_shared({b}, '{v.dtype}')",
        f"acc = T.alloc_fragment(({bm}, {bn}), '{v.accumulator}')", "T.clear(acc)",
        f"for ko in T.Pipelined(T.ceildiv(K, {bk}), num_stages={v.stages}):", f"    T.copy({a_at}, A_s)", f"    T.copy({b_at}, B_s)",
        f"    T.gemm(A_s, B_s, acc{options})", f"T.copy(acc, C[by * {bm}, bx * {bn}])",
    ]  # fmt: skip
    return "\n".join(indent + line for line in lines)


def _kernel(v: GemmVariant, indent: str) -> str:
    bm, bn, _ = v.tile
    head = f"{indent}with T.Kernel(T.ceildiv(N, {bn}), T.ceildiv(M, {bm}), threads={v.threads}) as (bx, by):\n"
    return head + _body(v, indent + "    ")


def _signature(v: GemmVariant, name: str, indent: str) -> str:
    a, b = _shapes(v)
    return f"{indent}def {name}(A: T.Tensor({a}, '{v.dtype}'), B: T.Tensor({b}, '{v.dtype}'), C: T.Tensor((M, N), '{v.result}')):\n"


def _prim_func(v: GemmVariant) -> str:
    sizes = "M, N, K = T.dynamic('M, N, K')\n" if v.dynamic else f"M, N, K = {v.size[0]}, {v.size[1]}, {v.size[2]}\n"
    return f"import tilelang.language as T\n{sizes}@T.prim_func\n" + _signature(v, "gemm", "") + _kernel(v, "    ") + "\n"


def _factory(v: GemmVariant) -> str:
    sizes = "    M, N, K = T.dynamic('M, N, K')\n" if v.dynamic else ""
    parameters = "" if v.dynamic else "M, N, K"
    inner = sizes + "    @T.prim_func\n" + _signature(v, "main", "    ") + _kernel(v, "        ") + "\n    return main\n"
    return f"import tilelang.language as T\ndef gemm({parameters}):\n{inner}"


def _lazy(v: GemmVariant) -> str:
    head = "import tilelang.language as T\n"
    return _factory(v).replace(head, f"import tilelang\n{head}@tilelang.jit(out_idx=[-1])\n")


def _eager(v: GemmVariant) -> str:
    a, b = _shapes(v)
    make = "T.dynamic('M, N, K')" if v.dynamic else "T.const('M, N, K')"
    return (
        "import tilelang\nimport tilelang.language as T\n@tilelang.jit\ndef gemm(A, B):\n"
        f"    M, N, K = {make}\n    A: T.Tensor({a}, '{v.dtype}')\n    B: T.Tensor({b}, '{v.dtype}')\n"
        f"    C = T.empty((M, N), '{v.result}')\n" + _kernel(v, "    ") + "\n    return C\n"
    )


def _implicit(v: GemmVariant) -> str:
    return "import tilelang as T\n@T.jit(target='cuda')\ndef gemm(A, B, C, M, N, K):\n" + _body(v, "    ") + "\n"
