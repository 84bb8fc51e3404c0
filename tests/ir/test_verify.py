"""Every rule of the Tile IR is missed when it is broken."""

import pytest

from tests.counting import calls
from tilec.diagnostics import CompileError
from tilec.ir import dtypes as dt
from tilec.ir import tile
from tilec.ir.expr import Binary, Buffer, Const, Load, Scope, Select, Unary, Var, VarKind
from tilec.ir.kernel import Kernel, Launch
from tilec.ir.text import parse
from tilec.ir.verify import verify


def told(text):
    """The messages for a kernel of these statements; none when it is well-formed."""
    body = "\n".join("    " + line for line in text.strip("\n").splitlines())
    kernel = parse(
        "kernel k[M, n: int64](A: float16[M, 64], B: float32[64], I: int32[8], s: int32, x: float32):\n"
        f"  launch (bx) in (M) threads (128, 1, 1) index (x = tx):\n{body}"
    )
    return messages(kernel)


def messages(kernel):
    try:
        verify(kernel)
    except CompileError as e:
        assert all(d.code == "TL0901" for d in e.diagnostics)
        return [d.message for d in e.diagnostics]
    return []


TILES = "alloc S: shared float16[32, 64]\nalloc R: fragment float32[32]\nalloc F: fragment float32[32, 32]\n"


@pytest.mark.parametrize(
    "text",
    [
        "B[tx] = float32(A[bx, tx])", "copy A[bx * 32 +: 32, 0 +: 64] -> S", "copy A[bx, 0 +: 32] -> R", "reduce sum S -> R dim 1",
        "gemm F += S @ S.T square", "for i in serial(0, s, 1):\n  if i == 3:\n    break", "parallel i in 64:\n  B[i] = 0.0",
        "alloc v: var int32[]\nv[] = v[] + 1", "let y: int32 = I[0] << 3:int64\nI[y] = y",
        "view V: shared int16[2048] of S\nV[0] = 1:int16",
        "workspace W: global float32[64]\nW[0] = x", "reduce max F[0 +: 1, 0 +: 32] -> R dim 0", "atomic add B[0] (x) relaxed",
        "parallel i in 64:\n  for j in serial(0, 4, 1):\n    continue", 'trap unless s > 0, ""\nprint "x", x', "copy R -> B[s +: s]",
    ],
)  # fmt: skip
def test_well_formed(text):
    assert told(TILES + text) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("B[0, 1] = 0.0", "`B` has 1 dimensions, but 2 indices"),
        ("B[x] = 0.0", "an index of `B` is float32"),
        ("B[0] = 1", "what is stored to `B` is int32, not float32"),
        ("B[0] = x + float32(1) * 2", "`mul` of float32 and int32"),
        ("B[0] = select(s, x, x)", "a condition is int32"),
        ("B[0] = select(true, x, 1)", "an arm of a select is int32"),
        ("I[0] = s / 2", "`div` of int32"),
        ("B[0] = x ^ x", "`xor` of float32"),
        ("I[0] = s << x", "`shl` of int32 and float32"),
        ("I[0] = select(s < x, 1, 2)", "`lt` compares int32 with float32"),
        ("I[0] = select(s and true, 1, 2)", "a condition is int32"),
        ("B[0] = bits<float32>(A[0, 0])", "float16 bits read as float32"),
        ("B[0] = ~x", "`invert` of float32"),
        ("if true:\n  let y: int32 = 1\nI[0] = y", "`y` is used before it is declared"),
        ("for i in serial(0, 4, 1):\n  pass\nI[0] = i", "`i` is used before it is declared"),
        ("if true:\n  alloc T: shared float32[4]\nT[0] = x", "`T` is used before it is declared"),
        ("let y: int32 = x", "the value of `y` is float32, not int32"),
        ("for i in serial(0, n, 1):\n  pass", "a bound of the loop over `i` is int64"),
        ("for i in serial(0, 4, 0):\n  pass", "in steps of `0`"),
        ("for i in backwards(0, 4, 1):\n  pass", "a backwards loop"),
        ("while s:\n  pass", "a condition is int32"),
        ("break", "break outside of a loop"),
        ("for i in serial(0, 4, 1):\n  parallel j in 4:\n    break", "break outside of a loop"),
        ("parallel i in 4:\n  parallel j in 4:\n    pass", "a parallel loop inside a parallel loop"),
        ("parallel i in 4:\n  fill B = 0.0", "a fill inside a parallel loop"),
        ("parallel i in 4:\n  barrier block", "a barrier inside a parallel loop"),
        ("parallel i in x:\n  pass", "an extent of a parallel loop is float32"),
        ("copy A[0 +: 32, 0 +: 63] -> S", "extents that do not agree: `A` (32, 63) to `S` (32, 64)"),
        ("copy A[0 +: 32, 0] -> S", "extents that do not agree"),
        ("copy B[0 +: 32, 1] -> R", "a region of `B` has 2 starts and 2 extents for 1 dimensions"),
        ("copy B[x +: 32] -> R", "a start in `B` is float32"),
        ("fill R = 0.0:float16", "what fills `R` is float16, not float32"),
        ("gemm F += S @ S square", "a GEMM of 32x64 and 32x64 into 32x32"),
        ("alloc Q: shared int16[32, 2]\nalloc P: shared float16[128, 32]\ngemm F += S @ P square marks Q", "marks of `Q`"),
        ("alloc P: shared float16[128, 32]\ngemm F += S @ P square marks S", "marks of float16"),
        ("gemm F += S.T @ S square", "a GEMM of 64x32 and 32x64 into 32x32"),
        ("gemm F += R @ S.T square", "`R` is not a matrix"),
        ("gemm F += S @ S.T round", "no warp policy is called `round`"),
        ("gemm F += S @ S.T square clear s", "a condition is int32"),
        ("alloc Q: fragment int32[32, 32]\ngemm Q += S @ S.T square", "a GEMM of float16 into int32"),
        ("alloc Q: shared int8[32, 64]\ngemm F += S @ Q.T square", "a GEMM of float16 and int8"),
        ("reduce sum S -> R dim 0", "extents that do not agree"),
        ("reduce sum S -> R dim 2", "along dimension 2 of 2"),
        ("reduce mean S -> R dim 1", "the reduction `mean`"),
        ("scan min S -> S dim 1", "the scan `min`"),
        ("alloc T: shared float32[s]", "an extent that is not constant"),
        ("alloc T: var float32[4]", "the variable `T` has dimensions"),
        ("alloc T: global float32[4]", "is global and cannot be allocated"),
        ("view V: shared float32[4096] of S\nV[0] = x", "has 16384 bytes, but views `S` of 4096"),
        ("view V: fragment float16[32, 64] of S\nV[0, 0] = 0.0:float16", "is fragment, but views the shared `S`"),
        ("atomic add R[0] (x) relaxed", "an atomic on the fragment `R`"),
        ("atomic cas B[0] (x) relaxed", "the atomic `cas` with 1 operands"),
        ("atomic add B[0] (1) relaxed", "an operand of an atomic on `B` is int32"),
        ("atomic add B[0] (x) relaxed -> old: int32", "the old value of `B` as int32"),
        ("barrier round", "no barrier is called `round`"),
        ("barrier named id x", "an operand of a barrier is float32"),
        ('trap unless s, ""', "a condition is int32"),
    ],
)  # fmt: skip
def test_broken(text, part):
    found = told(TILES + text)
    assert len(found) == 1 and part in found[0], found


def test_every_broken_rule_is_listed():
    found = told("B[0] = 1\nbreak\nI[x] = s")
    assert len(found) == 3
    assert len(told("break\n" * 50)) == 20


A = Buffer("A", dt.FLOAT32, (Const(4, dt.INT32),), Scope.GLOBAL)
BX = Var("bx", dt.INT32, VarKind.BLOCK)
ZERO = Const(0, dt.INT32)


def kernel_of(*body, params=(A,), **changes):
    launch = {"block_vars": (BX,), "grid": (Const(1, dt.INT32),), "threads": (32, 1, 1), "thread_vars": (), "body": tile.Seq(body)}
    outputs = changes.pop("outputs", ())
    return Kernel("k", params, (), (Launch(**(launch | changes)),), outputs)


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (kernel_of(tile.Store(Buffer("A", dt.FLOAT32, A.shape, Scope.SHARED), (ZERO,), Const(0.0, dt.FLOAT32))), "`A` is used before"),
        (kernel_of(tile.Evaluate(Var("bx"))), "`bx` is used before"),
        (kernel_of(tile.Evaluate(Binary("plus", ZERO, ZERO, dt.INT32))), "`plus` is no operator"),
        (kernel_of(tile.Evaluate(Binary("add", ZERO, ZERO, dt.INT64))), "`add` of int32 and int32 gives int64"),
        (kernel_of(tile.Evaluate(Select(Const(True, dt.BOOL), Const(0, dt.INT8), ZERO, dt.INT8))), "an arm of a select is int32, not int8"),
        (kernel_of(tile.Evaluate(Unary("not", ZERO, dt.INT32))), "`not` of int32"),
        (kernel_of(tile.Evaluate(Const(1, dt.FLOAT32))), "a literal 1 of type float32"),
        (kernel_of(tile.Evaluate(Const(300, dt.UINT8))), "a literal 300 of type uint8"),
        (kernel_of(tile.Copy(tile.Region(A, (), A.shape), tile.Region(A, (ZERO,), A.shape))), "has 0 starts and 1 extents for 1"),
        (kernel_of(params=(A, A)), "two parameters have one name"),
        (kernel_of(outputs=("Z",)), "the outputs Z are not parameters"),
        (kernel_of(params=(Buffer("S", dt.INT8, (), Scope.SHARED),)), "the parameter `S` is not global"),
        (kernel_of(params=(Buffer("S", dt.INT8, A.shape, Scope.GLOBAL, strides=()),)), "1 dimensions and 0 strides"),
        (kernel_of(grid=()), "1 block indices for a grid of 0 axes"),
        (kernel_of(grid=(Const(1.0, dt.FLOAT32),)), "an extent of the grid is float32"),
        (kernel_of(threads=(0, 1, 1)), "threads are (0, 1, 1)"),
        (kernel_of(tile.Evaluate(Load(A, ()))), "`A` has 1 dimensions, but 0 indices"),
    ],
)  # fmt: skip
def test_broken_in_ways_the_text_cannot_say(kernel, part):
    found = messages(kernel)
    assert len(found) == 1 and part in found[0], found


def test_twice_as_many_statements_are_twice_the_work():
    def work(count):
        lines = "    C[bx * 4 + 3] = C[bx] * 2.0 + C[bx // 2] - 1.0\n" * count
        kernel = parse("kernel k(C: float32[8]):\n  launch (bx) in (8):\n" + lines)
        return calls(lambda: verify(kernel))

    few, many = work(200), work(400)
    assert few > 200 and many < 2.1 * few
