"""The forms a kernel may be written in, how one is chosen, and where its parameters get their values."""

from __future__ import annotations

import pytest

from tilec.diagnostics import CompileError
from tilec.frontend import ArgSpec
from tilec.ir.text import show

FACTORY = """
def make(n, m=2, dtype="float32"):
    assert n % m == 0, "n must be a multiple of m"
    @T.prim_func
    def inner(A: T.Tensor((n, m), dtype)):
        with T.Kernel(n // m, threads=32) as b:
            A[b, 0] = n
    return inner
"""


def symbols(module) -> list[str]:
    return [k.symbol for k in module.kernels]


def described(module) -> list[str]:
    return [show(k).strip().splitlines()[0] for k in module.kernels]


def test_a_factory_needs_its_parameters(reading, fails) -> None:
    assert described(reading(FACTORY, defines={"n": 8})) == ["kernel make(A: float32[8, 2]):"]
    assert described(reading(FACTORY, defines={"n": 8, "dtype": "float16", "m": 4})) == ["kernel make(A: float16[8, 4]):"]
    first = fails(FACTORY, "TL0209", line=2, word="`n`")
    assert first.help == "give -D n=VALUE"
    fails(FACTORY, "TL0209", line=2, word="-D n=VALUE", kernels=("make",))
    fails(FACTORY, "TL0111", line=3, word="multiple", defines={"n": 3})


def test_a_factory_given_to_jit_goes_by_the_name_it_is_bound_to(reading) -> None:
    text = FACTORY + "made = tilelang.jit(make, out_idx=[0])\n"
    assert symbols(reading(text, defines={"n": 8})) == ["made"]
    assert symbols(reading(text, defines={"n": 8}, kernels=("make",))) == ["make"]


def test_module_level_names_are_the_symbols(reading) -> None:
    text = FACTORY + "k8 = make(8)\nk4, k2 = make(4), make(2)\nalias = tilelang.compile(make(16), out_idx=[0])\nprint(k8)\n"
    module = reading(text)
    assert symbols(module) == ["k8", "k4", "k2", "alias"]
    assert [k.outputs for k in module.kernels] == [(), (), (), ("A",)]
    assert module.kernels[0].bindings == (("n", "8"), ("m", "2"), ("dtype", "float32"))


def test_kernels_left_out_are_told(reading) -> None:
    module = reading(FACTORY + FACTORY.replace("make(n, ", "other(n=4, "))
    assert symbols(module) == ["other"]
    assert [(n.code, n.span.line) for n in module.notes] == [("TL0209", 4)]


SEVERAL = """
def pair(n=4, second=False):
    @T.prim_func
    def one(A: T.Tensor((n,), "int32")):
        with T.Kernel(1):
            A[0] = 1
    @T.prim_func
    def two(A: T.Tensor((n,), "int32")):
        with T.Kernel(1):
            A[0] = 2
    if second:
        return two
    return one
@T.prim_func
def main(A: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        A[0] = 3
"""


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, ["pair_one", "main"]),
        ({"defines": {"second": True}}, ["pair_two", "main"]),
        ({"kernels": ("pair:two",)}, ["pair_two"]),
        ({"kernels": ("two",)}, ["pair_two"]),
        ({"kernels": ("main", "pair:one")}, ["main", "pair_one"]),
    ],
)
def test_choosing_kernels(reading, options: dict, wanted: list[str]) -> None:
    assert symbols(reading(SEVERAL, **options)) == wanted


def test_unknown_kernels_and_duplicates(fails) -> None:
    assert "pair:one, pair:two, main" in fails(SEVERAL, "TL0212", kernels=("nothing",)).help
    fails(SEVERAL, "TL0212", kernels=("pair:three",))
    fails(SEVERAL, "TL0211", kernels=("main", "main"))


LAZY = """
def configs():
    import itertools
    return [dict(zip(("BM", "BN"), c)) for c in itertools.product([64, 128], [32])]
@tilelang.autotune(configs=configs(), warmup=3)
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True, "tl.other": 3}, target=unknown())
def scale(M, N, BM=None, BN=None, op: "int" = 3):
    @T.prim_func
    def main(A: T.Tensor((M, N), T.float16), f: T.float32, n: T.int64, flag: T.bool, B: T.Tensor([M, N], "float32")):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            for i, j in T.Parallel(BM, BN):
                B[by * BM + i, bx * BN + j] = A[by * BM + i, bx * BN + j] * f
    return main
"""


def test_a_lazy_factory_with_its_decorators(reading) -> None:
    kernel = reading(LAZY, defines={"M": 100, "N": 64}).kernels[0]
    assert show(kernel).splitlines()[0] == "kernel scale(A: float16[100, 64], f: float32, n: int64, flag: bool, B: float32[100, 64]) -> B:"
    assert kernel.flags == ("fast_math",)
    assert kernel.configs == ((("BM", "64"), ("BN", "32")), (("BM", "128"), ("BN", "32")))
    assert dict(kernel.bindings)["BM"] == "64"
    assert dict(reading(LAZY, defines={"M": 100, "N": 64, "BM": 32}).kernels[0].bindings)["BM"] == "32"


EAGER = """
@tilelang.jit
def add(A, B, s: T.float32, block: int = 64, double=False):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float16)
    B: T.Tensor[[N], T.float32]
    C = T.empty((M, N), T.float32)
    D = T.empty(M, dtype="int32")
    with T.Kernel(T.ceildiv(M, block), threads=block) as (bx,):
        for i, j in T.Parallel(block, 8):
            C[bx * block + i, j] = A[bx * block + i, j] + B[j] * (2 if double else 1)
        if N % 2 == 0:
            D[bx] = N
    return D, C
"""


def test_an_eager_kernel(reading) -> None:
    kernel = reading(EAGER).kernels[0]
    assert show(kernel).splitlines()[0] == "kernel add[M, N](A: float16[M, N], B: float32[N], s: float32, C: float32[M, N], D: int32[M]) -> D, C:"
    fixed = reading(EAGER, defines={"N": 8, "block": 32}).kernels[0]
    assert show(fixed).splitlines()[0] == "kernel add[M](A: float16[M, 8], B: float32[8], s: float32, C: float32[M, 8], D: int32[M]) -> D, C:"
    assert "if" not in show(fixed.launches[0].body)


def test_arg_binds_what_a_call_would_bind(reading, fails) -> None:
    kernel = reading(EAGER, args={"A": ArgSpec("float16", (128, "N"))}).kernels[0]
    assert show(kernel).splitlines()[0].startswith("kernel add[N](A: float16[128, N], B: float32[N]")
    fails(EAGER, "TL0208", word="float32", args={"A": ArgSpec("float32", (1, 2))})
    fails(EAGER, "TL0208", word="dimensions", args={"A": ArgSpec("float16", (1,))})
    both = {"A": ArgSpec("float16", (128, 8)), "B": ArgSpec("float32", (9,))}
    fails(EAGER, "TL0208", word="9", args=both)


@pytest.mark.parametrize(
    ("old", "new", "code", "word"),
    [
        ("    return D, C", "    return C", "TL0207", "`D`"),
        ("    B: T.Tensor[[N], T.float32]\n", "", "TL0207", "`B` is not declared"),
        ("        if N % 2", "        s = T.alloc_shared((N,), 'int32')\n        if N % 2", "TL0309", "-D N=VALUE"),
        ("    with T.Kernel", "    if N > 3:\n        block = 32\n    with T.Kernel", "TL0213", "-D N=VALUE"),
        ("    with T.Kernel", "    assert N % 2 == 0\n    with T.Kernel", "TL0213", "-D N=VALUE"),
        ("block: int = 64", "block: int", "TL0209", "-D block=VALUE"),
    ],
)
def test_faults_of_eager_kernels(fails, old: str, new: str, code: str, word: str) -> None:
    fails(EAGER.replace(old, new), code, word=word)


def test_run_time_sizes(reading) -> None:
    text = """
n, m = T.dynamic("n, m")
@T.prim_func
def k(A: T.StridedTensor((n, 10), (p, 1), "float32"), B: T.Tensor((m * 2, n), "float32"), C: T.Tensor((), "int32")):
    with T.Kernel(T.ceildiv(q, 4), threads=32) as b:
        A[b, 0] = p
        C[()] = 1
p = T.dynamic("p")
q = T.symbolic("q", "int64")
"""
    kernel = reading(text).kernels[0]
    assert [(v.name, str(v.dtype)) for v in kernel.extents] == [("n", "int32"), ("m", "int32"), ("q", "int64"), ("p", "int64")]
    assert kernel.params[0].strides[0] is kernel.extents[3]
    assert "A[b, 0] = float32(int32(p))" in show(kernel)
    fixed = reading(text, defines={"n": 6, "p": 13}).kernels[0]
    assert [v.name for v in fixed.extents] == ["m", "q"]


@pytest.mark.parametrize("quoted", [True, False])
def test_annotations_are_syntax(reading, quoted: bool) -> None:
    text = FACTORY.replace("T.Tensor((n, m), dtype)", '"T.Tensor((n, m), dtype)"') if quoted else FACTORY
    assert symbols(reading(text, defines={"n": 4})) == ["make"]


@pytest.mark.parametrize(
    ("signature", "code", "word"),
    [
        ("A", "TL0207", "no annotation"),
        ("A: list", "TL0207", "neither"),
        ("A: 'T.Tensor(('", "TL0101", "not a Python expression"),
        ("A: T.Tensor((nope,), 'int8')", "TL0201", "nope"),
        ("A: T.Tensor((4,), 'int3')", "TL0302", "int3"),
    ],
)
def test_annotations_that_say_nothing(fails, signature: str, code: str, word: str) -> None:
    fails(f"@T.prim_func\ndef k({signature}):\n    with T.Kernel(1):\n        pass\n", code, line=2, word=word)


def test_statements_outside_of_a_launch(fails) -> None:
    fails("@T.prim_func\ndef k(A: T.Tensor((4,), 'int32')):\n    A[0] = 1\n    with T.Kernel(1):\n        pass\n", "TL0205", line=3)
    fails("@T.prim_func\ndef k(A: T.Tensor((4,), 'int32')):\n    x = 3\n", "TL0205", line=2, word="launches nothing")
    fails("@T.prim_func\ndef k(A: T.Tensor((4,), 'int32')):\n    s = T.alloc_shared((4,), 'int32')\n", "TL0205", line=2, word="launches nothing")


def test_unused_defines_are_told(reading) -> None:
    module = reading(FACTORY, defines={"n": 4, "zeta": 1}, args={"Q": ArgSpec("int8", (1,))})
    assert [n.message.split()[1] for n in module.notes] == ["zeta", "Q"]


def test_errors_of_all_kernels_come_together(reading) -> None:
    text = SEVERAL.replace("A[0] = 1", "A[0] = x1").replace("A[0] = 3", "A[0] = x3")
    with pytest.raises(CompileError) as caught:
        reading(text)
    assert [d.message for d in caught.value.diagnostics] == ["unknown name `x1`", "unknown name `x3`"]


@pytest.mark.parametrize(
    "head",
    [
        "from tilelang import jit\nimport tilelang.language as L\n@jit\n",
        "import tilelang as L\n@L.jit\n",
        "import tilelang\nfrom tilelang import language as L\n@tilelang.jit(target='cuda')\n",
        "import tilec.language as L\n@L.jit\n",
    ],
)
def test_ways_to_import_the_language(reading, head: str) -> None:
    text = head + "def f(A):\n    A: L.Tensor((4,), L.int32)\n    with L.Kernel(1):\n        A[0] = L.max(A[1], 2)\n"
    assert described(reading(text)) == ["kernel f(A: int32[4]):"]
