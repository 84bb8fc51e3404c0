"""Bodies of kernels: what each statement records, against Tile IR written by hand."""

from __future__ import annotations

import pytest

KERNEL = """
@T.prim_func
def k(A: T.Tensor((4, 8), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
{body}
"""
EXPECTED = """
kernel k(A: int32[4, 8], B: int32[8]):
  launch (b) in (1) threads (32, 1, 1) index (x = tx, y = ty, z = tz):
{body}
"""


def indent(text: str, by: int) -> str:
    lines = text.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(" " * by + line[margin:] for line in lines)


BODIES = {
    "a name is a snapshot": (
        "old = A[0, 0]\nA[0, 0] = 7\nB[0] = old",
        "let old: int32 = A[0, 0]\nA[0, 0] = 7\nB[0] = old",
    ),
    "host values stay in the compiler": (
        "x = 3\nx += 2\ny = x * 2 if x > 4 else 0\nB[x] = y",
        "B[5] = 10",
    ),
    "rebinding makes a new variable": (
        "x = A[0, 0]\nx = x + 1\nB[0] = x",
        "let x: int32 = A[0, 0]\nlet x.1: int32 = x + 1\nB[0] = x.1",
    ),
    "alloc_var is mutable": (
        'v = T.alloc_var("int32")\nv = 3\nv += A[0, 1]\nw = v\nv = 0\nB[0] = w + v',
        "alloc v: var int32[]\nv[] = 3\nv[] = v[] + A[0, 1]\nlet w: int32 = v[]\nv[] = 0\nB[0] = w + v[]",
    ),
    "tuple assignment takes all values first": (
        "A[0, 0], A[0, 1] = A[0, 1], A[0, 0]",
        "let value: int32 = A[0, 1]\nlet value.1: int32 = A[0, 0]\nA[0, 0] = value\nA[0, 1] = value.1",
    ),
    "chained assignment computes once": (
        "x = y = A[1, 1]\nB[0] = x + y",
        "let x: int32 = A[1, 1]\nB[0] = x + x",
    ),
    "augmented assignment of an element": (
        "B[b + 1] *= 3\nB[0] -= b",
        "B[b + 1] = B[b + 1] * 3\nB[0] = B[0] - b",
    ),
    "a host condition takes one branch": (
        "FLAG = False\nif FLAG:\n    B[0] = 1\nelif 2 > 1:\n    B[0] = 2\nelse:\n    B[0] = 3",
        "B[0] = 2",
    ),
    "a run-time condition records both": (
        "if A[0, 0] > 0:\n    B[0] = 1\nelif b == 1:\n    B[0] = 2\nelse:\n    pass",
        "if A[0, 0] > 0:\n  B[0] = 1\nelse:\n  if b == 1:\n    B[0] = 2",
    ),
    "names that both branches leave alike live on": (
        "if b > 0:\n    x = 4\n    B[1] = x\nelse:\n    x = 4\nB[0] = x",
        "if b > 0:\n  B[1] = 4\nB[0] = 4",
    ),
    "range is a run-time loop": (
        "for i in range(1, 8, 3):\n    B[i] = i\nfor i in range(7, -1, -2):\n    B[i] = 0",
        "for i in serial(1, 8, 3):\n  B[i] = i\nfor i in serial(7, -1, -2):\n  B[i] = 0",
    ),
    "loops over Python values unroll": (
        "for k, (off, name) in enumerate(zip([0, 3], ['a', 'b'])):\n    B[k] = A[0, off]\nfor t in {'x': 5}.values():\n    B[t] = 1",
        "B[0] = A[0, 0]\nB[1] = A[0, 3]\nB[5] = 1",
    ),
    "the language's loops": (
        "for i in T.unroll(4):\n    B[i] = 0\nfor i in T.vectorized(4):\n    B[i] = 1\n"
        "for k in T.Pipelined(2, num_stages=3):\n    B[k] = 2\nfor i, j in T.grid(2, 3):\n    A[i, j] = 4\nfor i, j in T.Parallel(4, 8):\n    A[i, j] = 5",
        "for i in unroll(0, 4, 1):\n  B[i] = 0\nfor i in vectorized(0, 4, 1):\n  B[i] = 1\nfor k in pipelined(0, 2, 1) stages 3:\n  B[k] = 2\n"
        "for i in serial(0, 2, 1):\n  for j in serial(0, 3, 1):\n    A[i, j] = 4\nparallel i, j in 4, 8:\n  A[i, j] = 5",
    ),
    "break, continue and else": (
        "for i in T.serial(8):\n    if A[0, i] < 0:\n        break\n    if A[0, i] == 1:\n        continue\n    B[i] = 1\nelse:\n    B[0] = 9",
        "alloc left_early: var int32[]\nleft_early[] = 0\nfor i in serial(0, 8, 1):\n  if A[0, i] < 0:\n    left_early[] = 1\n    break\n"
        "  if A[0, i] == 1:\n    continue\n  B[i] = 1\nif left_early[] == 0:\n  B[0] = 9",
    ),
    "else of a loop that nothing leaves": (
        "for i in T.serial(8):\n    B[i] = 1\nelse:\n    B[0] = 9",
        "for i in serial(0, 8, 1):\n  B[i] = 1\nB[0] = 9",
    ),
    "while": (
        'n = T.alloc_var("int32")\nwhile n < 3 and A[0, n] > 0:\n    n += 1\nwhile True:\n    if A[0, 0] > 3:\n        break\n    A[0, 0] += 1\nk = 2\nwhile k > 0:\n    k -= 1\n    B[k] = k',
        "alloc n: var int32[]\nwhile n[] < 3 and A[0, n[]] > 0:\n  n[] = n[] + 1\nwhile true:\n  if A[0, 0] > 3:\n    break\n  A[0, 0] = A[0, 0] + 1\nB[1] = 1\nB[0] = 0",
    ),
    "ternary, and, or, not, chains": (
        "q = A[0, 0]\nB[0] = q if q > 1 else -q\nif 0 < q < 5 and not q == 3 or b > 1:\n    B[1] = 1\nB[2] = True and q\nB[3] = 0 or q",
        "let q: int32 = A[0, 0]\nB[0] = select(q > 1, q, -q)\nif 0 < q and q < 5 and not q == 3 or b > 1:\n  B[1] = 1\nB[2] = q\nB[3] = q",
    ),
    "lists of tiles": (
        'ts = [T.alloc_fragment((4,), "float32") for _ in range(2)]\nfor t in ts:\n    T.clear(t)\nu = ts[1]\nT.fill(u, 2)',
        "alloc ts: fragment float32[4]\nalloc ts.1: fragment float32[4]\nfill ts = 0.0\nfill ts.1 = 0.0\nfill ts.1 = 2.0",
    ),
    "slices and copies": (
        's = T.alloc_shared((8,), "int32")\nT.copy(A[b, 0:8], s)\nT.copy(s[0:4], B[4:8])',
        "alloc s: shared int32[8]\ncopy A[b, 0 +: 8] -> s\ncopy s[0 +: 4] -> B[4 +: 4]",
    ),
    "methods and attributes of tensors": (
        "n = A.shape[0] * len(A.shape)\nB[n - 8] = A[0, 0].astype('int8') if A.dtype == 'int32' else 0",
        "B[0] = int32(int8(A[0, 0]))",
    ),
    "one name for tile, loop and scalar": (
        'for j in T.serial(2):\n    d = T.alloc_var("int32")\n    d = j\n    B[j] = d\nfor d in T.Parallel(8):\n    B[d] = d',
        "for j in serial(0, 2, 1):\n  alloc d: var int32[]\n  d[] = j\n  B[j] = d[]\nparallel d.1 in 8:\n  B[d.1] = d.1",
    ),
    "values in containers are snapshots": (
        "xs = []\nxs.append(A[0, 0])\nd = {'k': A[0, 1]}\nd['z'] = A[0, 2]\nA[0, 0] = 1\nfor v in [A[1, 0], A[1, 1]]:\n    A[1, 1] = v\nB[0] = xs[0] + d['k'] + d['z']",
        "let item: int32 = A[0, 0]\nlet d: int32 = A[0, 1]\nlet item.1: int32 = A[0, 2]\nA[0, 0] = 1\nlet v_0: int32 = A[1, 0]\nlet v_1: int32 = A[1, 1]\n"
        "A[1, 1] = v_0\nA[1, 1] = v_1\nB[0] = item + d + item.1",
    ),
    "strings and bare expressions do nothing": ('"""doc"""\n1 + 2\nb\nprint("x")\nB[0] = 1', "B[0] = 1"),
    "Parallel inside Parallel is a serial loop": (
        "for i in T.Parallel(4):\n    for j in T.Parallel(8):\n        A[i, j] = 0",
        "parallel i in 4:\n  for j in serial(0, 8, 1):\n    A[i, j] = 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), BODIES.values(), ids=BODIES.keys())
def test_bodies(same, body: str, wanted: str) -> None:
    same(KERNEL.format(body=indent(body, 8)), EXPECTED.format(body=indent(wanted, 4)))


REFUSED = {
    "carried through a loop": ("x = 0\nfor i in T.serial(4):\n    x = x + 1\nB[0] = x", 3, "TL0107", "T.alloc_var"),
    "carried through a range": ("x = 0\nfor i in range(4):\n    x += 1\nB[0] = x", 3, "TL0107", "T.alloc_var"),
    "used after the loop": ("for i in T.serial(4):\n    w = A[0, i]\nB[0] = w", 3, "TL0107", "T.alloc_var"),
    "the loop variable after the loop": ("for i in T.serial(4):\n    pass\nB[0] = i", 3, "TL0107", "over"),
    "different in two branches": ("x = 0\nif b > 0:\n    x = 1\nB[0] = x", 4, "TL0107", "T.alloc_var"),
    "only in one branch": ("if b > 0:\n    y = 1\nB[0] = y", 3, "TL0107", "condition"),
    "swapped tiles in a loop": (
        's = T.alloc_shared((8,), "int32")\nt = T.alloc_shared((8,), "int32")\nfor i in T.serial(4):\n    T.copy(s, t)\n    s, t = t, s',
        4, "TL0107", "carry over",
    ),
    "a list changed in a loop": ("xs = []\nfor i in T.serial(4):\n    xs.append(i)\nB[0] = len(xs)", 3, "TL0106", "container"),
    "a dict changed in a branch": ("d = {}\nif b > 0:\n    d['a'] = 1", 3, "TL0106", "container"),
    "break in Parallel": ("for i in T.Parallel(8):\n    if B[i] > 0:\n        break\n    B[i] = 1", 3, "TL0105", "T.Parallel"),
    "break in vectorized": ("for i in T.vectorized(8):\n    if B[i] > 0:\n        break\n    B[i] = 1", 3, "TL0105", "T.vectorized"),
    "break in an unrolled loop": ("for i in [1, 2]:\n    if B[i] > 0:\n        break\n    B[i] = 1", 3, "TL0105", "T.serial"),
    "a loop that nothing leaves": ("while True:\n    for i in T.serial(4):\n        if B[i] > 0:\n            break\n    B[0] = 1", 1, "TL0105", "never ends"),
    "return in a launch": ("if b > 0:\n    return\nB[0] = 1", 2, "TL0105", "T.Kernel"),
    "step 0": ("for i in range(0, 4, 0):\n    B[i] = 1", 1, "TL0108", "step"),
    "an assertion at run time": ("assert A[0, 0] > 3", 1, "TL0213", "device_assert"),
    "a table indexed at run time": ("t = [1, 2, 3]\nB[0] = t[b]", 2, "TL0301", "run time"),
    "too many loop variables": ("for i, j in T.Parallel(8):\n    B[i] = 1", 1, "TL0203", "extent"),
    "unknown primitive": ("T.cpoy(A, B)", 1, "TL0201", "T.copy"),
    "unknown name": ("B[0] = blub", 1, "TL0201", "blub"),
    "wrong number of indices": ("A[0] = 1", 1, "TL0304", "2 dimensions"),
    "an attribute misspelled": ("B[0] = A.shap[0]", 1, "TL0201", ".shape"),
    "the largest of one": ("B[0] = T.max(A[0, 0])", 1, "TL0203", "two numbers"),
    "a layout that is a number": ("T.annotate_layout({T.alloc_shared((8,), 'int32'): 3})", 1, "TL0206", "T.Layout"),
    "a hint that is a tile": ("T.copy(B, T.alloc_shared((8,), 'int32'), A)", 1, "TL0206", "coalesced_width"),
    "try": ("try:\n    B[0] = 1\nexcept Exception:\n    pass", 1, "TL0102", "try"),
    "matrix product": ("B[0] = A[0, 0] @ B[1]", 1, "TL0102", "T.gemm"),
    "iterating a tile": ("for x in B:\n    B[0] = 1", 1, "TL0108", "T.Parallel"),
    "used before it is bound": ("B[0] = late\nlate = 3", 1, "TL0201", "before it has a value"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "line", "code", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_not_mean_what_python_means_is_an_error(fails, body: str, line: int, code: str, word: str) -> None:
    fails(KERNEL.format(body=indent(body, 8)), code, line + 4, word)


def test_a_failed_call_or_store_hides_no_later_error(reading) -> None:
    """The module and the tiles that a failed statement names are still what they were."""
    from tilec.diagnostics import CompileError

    text = """
import tilelang.language as T
@T.prim_func
def k(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((8,), "float32")
        T.cpoy(A, s)
        s[0] = nothing
        s[1, 2] = 1.0
        T.fill(s, 1.0, stride=2)
"""
    with pytest.raises(CompileError) as caught:
        reading(text)
    lines = [d.span.line for d in caught.value.diagnostics]
    assert lines == list(range(lines[0], lines[0] + 4))


def test_several_errors_in_one_run(reading) -> None:
    from tilec.diagnostics import CompileError

    body = "x = nope\nB[0] = x\nT.cpoy(A, B)\nA[0] = 1\nB[1] = other"
    with pytest.raises(CompileError) as caught:
        reading(KERNEL.format(body=indent(body, 8)))
    assert [d.span.line for d in caught.value.diagnostics] == [7, 9, 10, 11]


MACROS = """
BIAS = 3
@T.macro
def split(total, parts, idx, extra=1):
    per = T.ceildiv(total, parts) + extra - 1
    lo = idx * per
    return lo, T.min(lo + per, total)
@T.macro
def bump(x: T.Ref, by=1, *, scale=2):
    x = x + by * scale
@T.macro
def load(src, dst):
    T.copy(src, dst)
def twice(v):
    w = v + BIAS
    return w * w
"""


def test_macros_and_helpers(same) -> None:
    body = (
        "lo, hi = split(8, idx=b, parts=4)\nn = T.alloc_var('int32')\nbump(n, n, scale=3)\n"
        "s = T.alloc_shared((8,), 'int32')\nload(A[b, 0], s)\nB[lo] = twice(A[0, 0]) + hi + n"
    )
    wanted = (
        "let lo: int32 = b * 2\nlet result: int32 = min(lo + 2, 8)\nalloc n: var int32[]\nlet by: int32 = n[]\nn[] = n[] + by * 3\n"
        "alloc s: shared int32[8]\ncopy A[b, 0 +: 8] -> s\nlet v: int32 = A[0, 0]\nlet w: int32 = v + 3\nB[lo] = w * w + result + n[]"
    )
    same(MACROS + KERNEL.format(body=indent(body, 8)), EXPECTED.format(body=indent(wanted.replace("result", "hi"), 4)))


def test_an_error_in_a_helper_names_the_call_sites(fails) -> None:
    text = "def inner(v):\n    return v + nope\ndef outer(v):\n    return inner(v)\n" + KERNEL.format(body="        B[0] = outer(b)")
    first = fails(text, "TL0201", line=2)
    assert [s.line for s in first.chain] == [6, 11]


def test_two_launches(same) -> None:
    text = """
@T.prim_func
def k(A: T.Tensor((4,), "int32")):
    with T.Kernel(1) as bx:
        A[bx] = 1
    with T.Kernel(4, threads=64) as bx:
        t = T.get_thread_binding()
        if t == 0:
            A[bx] = 2
"""
    wanted = """
kernel k(A: int32[4]):
  launch (bx) in (1) index (x = tx, y = ty, z = tz):
    A[bx] = 1
  launch (bx.1) in (4) threads (64, 1, 1) index (x = tx.1, y = ty.1, z = tz.1):
    if tx.1 == 0:
      A[bx.1] = 2
"""
    same(text, wanted)


def test_persistent_loops_visit_every_tile_once(reading) -> None:
    from tilec.ir.expr import Const, Var
    from tilec.ir.tile import For, If, Let, Store
    from tilec.ir.visit import walk_stmt

    text = """
@T.prim_func
def k(A: T.Tensor((5, 7), "int32")):
    with T.Kernel(4, threads=32) as b:
        for i, j in T.Persistent([5, 7], 4, b, group_size=3):
            A[i, j] += 1
"""
    launch = reading(text).kernels[0].launches[0]
    loop = next(s for s in walk_stmt(launch.body) if isinstance(s, For))
    hits: dict[tuple[int, int], int] = {}
    for block in range(4):
        for wave in range(_value(loop.stop, {})):
            env: dict[Var, int] = {launch.block_vars[0]: block, loop.var: wave}
            for s in loop.body.body:
                if isinstance(s, Let):
                    env[s.var] = _value(s.value, env)
                elif isinstance(s, If) and _value(s.cond, env):
                    store = next(x for x in walk_stmt(s.then) if isinstance(x, Store))
                    place = tuple(_value(e, env) for e in store.indices)
                    hits[place] = hits.get(place, 0) + 1
    assert hits == {(i, j): 1 for i in range(5) for j in range(7)}
    assert isinstance(loop.start, Const)


def _value(e, env) -> int:
    from tilec.ir.expr import Binary, Call, Compare, Const, Logical, Var

    match e:
        case Const(value=v):
            return int(v)
        case Var():
            return env[e]
        case Binary(op=op, a=a, b=b):
            x, y = _value(a, env), _value(b, env)
            return {"add": x + y, "sub": x - y, "mul": x * y, "floordiv": x // y if y else 0, "mod": x % y if y else 0, "min": min(x, y)}[op]
        case Compare(op=op, a=a, b=b):
            x, y = _value(a, env), _value(b, env)
            return {"lt": x < y, "ge": x >= y, "le": x <= y, "gt": x > y}[op]
        case Logical(op=op, a=a, b=b):
            return bool(_value(a, env)) and bool(_value(b, env)) if op == "and" else bool(_value(a, env)) or bool(_value(b, env))
        case Call(name="ceildiv", args=(a, b)):
            return -(-_value(a, env) // _value(b, env))
    raise AssertionError(e)
