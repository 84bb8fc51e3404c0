"""Parallel bodies and per-thread code: masks, loops that differ between lanes, private arrays, atomics, barriers."""

import numpy as np
import pytest

from tilec.ir import dtypes as dt
from tilec.ir.text import parse
from tilec.ir.verify import verify
from tilec.reference import MeaningError, TrapError, poisoned, run


def body(signature, lines, grid="1", threads=64):
    inner = "\n".join("    " + line for line in lines.strip("\n").splitlines())
    kernel = parse(f"kernel k{signature}:\n  launch (bx) in ({grid}) threads ({threads}, 1, 1) index (x = tx):\n{inner}")
    verify(kernel)
    return kernel


def test_elementwise_with_a_tail():
    kernel = body(
        "[n](A: float32[n], B: float32[n], C: float32[n])",
        """
parallel i in 128:
  let at: int32 = bx * 128 + i
  if at < n:
    C[at] = select(A[at] > 0.0, A[at] * B[at], exp(B[at]))
""",
        grid="ceildiv(n, 128)",
    )
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    c = poisoned(dt.FLOAT32, (300,))
    run(kernel, {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(c, np.where(a > 0, a * b, np.exp(b.astype(np.float64)).astype(np.float32)))


def test_stores_out_of_range_are_dropped_and_loads_are_zero():
    kernel = body("(A: int32[10], B: int32[10])", "parallel i in 16:\n  B[i - 3] = A[i] + 1")
    a, b = np.arange(10, dtype=np.int32), np.full(10, -1, np.int32)
    run(kernel, {"A": a, "B": b})
    assert b.tolist() == [4, 5, 6, 7, 8, 9, 10, 1, 1, 1]


def test_only_the_chosen_arm_is_evaluated():
    """The tile is out of range in the arm not taken, which must neither fault nor leak."""
    kernel = body(
        "(A: int32[16], B: int32[16])",
        """
alloc t: shared int32[8]
copy A[0 +: 8] -> t
parallel i in 16:
  B[i] = select(i < 8 and t[i] > 3, t[i], -1)
""",
    )
    a, b = np.arange(16, dtype=np.int32), poisoned(dt.INT32, (16,))
    run(kernel, {"A": a, "B": b})
    assert b.tolist() == [-1] * 4 + [4, 5, 6, 7] + [-1] * 8


def test_loops_inside_parallel_may_differ_per_iteration():
    """Row sums of a lower triangle, with continue on odd columns and break once a row's limit is met."""
    kernel = body(
        "(A: int32[12, 12], B: int32[12])",
        """
parallel i in 12:
  alloc s: var int32[]
  for j in serial(0, i + 1, 1):
    if j % 2 == 1:
      continue
    if s[] > 40:
      break
    s[] = s[] + A[i, j]
  B[i] = s[]
""",
    )
    a = np.random.default_rng(2).integers(0, 30, (12, 12)).astype(np.int32)
    b = poisoned(dt.INT32, (12,))
    run(kernel, {"A": a, "B": b})
    want = []
    for i in range(12):
        s = 0
        for j in range(i + 1):
            if j % 2 == 1:
                continue
            if s > 40:
                break
            s += int(a[i, j])
        want.append(s)
    assert b.tolist() == want


def test_while_per_iteration():
    """Lengths of Collatz sequences."""
    kernel = body(
        "(B: int32[30])",
        """
parallel i in 30:
  alloc n: var int64[]
  alloc steps: var int32[]
  n[] = int64(i + 1)
  while n[] != 1:int64:
    if n[] % 2:int64 == 0:int64:
      n[] = n[] // 2:int64
    else:
      n[] = 3:int64 * n[] + 1:int64
    steps[] = steps[] + 1
  B[i] = steps[]
""",
    )
    b = poisoned(dt.INT32, (30,))
    run(kernel, {"B": b})

    def length(n):
        return 0 if n == 1 else 1 + length(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert b.tolist() == [length(i + 1) for i in range(30)]


def test_downward_and_empty_loops():
    kernel = body(
        "(B: int32[10], n: int32)",
        """
alloc k: var int32[]
for i in serial(n, 0, -3):
  B[k[]] = i
  k[] = k[] + 1
for i in serial(5, n - 10, 1):
  B[9] = 99
""",
    )
    b = np.full(10, -1, np.int32)
    run(kernel, {"B": b}, {"n": 10})
    assert b.tolist() == [10, 7, 4, 1] + [-1] * 6


def test_threads_scan_through_shared_memory():
    """A Hillis-Steele prefix sum, one element per thread, as a CUDA author writes it."""
    kernel = body(
        "(A: int32[64], B: int32[64])",
        """
alloc s: shared int32[64]
alloc x: var int32[]
s[tx] = A[tx]
barrier block
for d in serial(0, 6, 1):
  x[] = 0
  if tx >= 1 << d:
    x[] = s[tx - (1 << d)]
  barrier block
  s[tx] = s[tx] + x[]
  barrier block
B[tx] = s[tx]
""",
    )
    a = np.random.default_rng(3).integers(-50, 50, 64).astype(np.int32)
    b = poisoned(dt.INT32, (64,))
    run(kernel, {"A": a, "B": b})
    np.testing.assert_array_equal(b, np.cumsum(a))


def test_private_arrays_belong_to_their_thread():
    kernel = body(
        "(A: float32[64, 4], B: float32[64, 4])",
        """
alloc r: local float32[4]
copy A[tx, 0 +: 4] -> r
for j in unroll(0, 4, 1):
  r[j] = r[j] * 2.0
if tx % 2 == 0:
  fill r[1 +: 2] = 0.0
copy r -> B[63 - tx, 0 +: 4]
""",
    )
    a = np.random.default_rng(4).standard_normal((64, 4)).astype(np.float32)
    b = poisoned(dt.FLOAT32, (64, 4))
    run(kernel, {"A": a, "B": b})
    want = a * 2
    want[::2, 1:3] = 0
    np.testing.assert_array_equal(b, want[::-1])


def test_thread_axes():
    kernel = parse("""
kernel k(B: int32[2, 3, 4]):
  launch (bx) in (1) threads (4, 3, 2) index (x = tx, y = ty, z = tz):
    B[tz, ty, tx] = tz * 100 + ty * 10 + tx
""")
    verify(kernel)
    b = poisoned(dt.INT32, (2, 3, 4))
    run(kernel, {"B": b})
    z, y, x = np.indices((2, 3, 4))
    np.testing.assert_array_equal(b, z * 100 + y * 10 + x)


def test_a_uniform_store_happens_once():
    kernel = body("(B: int32[2])", "B[0] = B[0] + 1\nif tx == 3:\n  B[1] = B[1] + 10")
    b = np.zeros(2, np.int32)
    run(kernel, {"B": b})
    assert b.tolist() == [1, 10]


@pytest.mark.parametrize(
    "lines",
    ["B[0] = tx", "parallel i in 8:\n  B[i // 2] = i", "parallel i in 8:\n  B[0] = B[0] + i", "alloc s: shared int32[]\ns[] = tx"],
)
def test_lanes_that_disagree_about_an_element_are_told(lines):
    with pytest.raises(MeaningError, match="different values to one element"):
        run(body("(B: int32[8])", lines), {"B": np.zeros(8, np.int32)})


def test_lanes_may_agree_about_an_element():
    b = np.zeros(4, np.float32)
    run(body("(B: float32[4])", "parallel i in 8:\n  B[i // 2] = float32(i // 2) / 0.0\nif tx > 3:\n  B[3] = nan"), {"B": b})
    np.testing.assert_array_equal(b, [np.nan, np.inf, np.inf, np.nan])


def test_private_values_in_parallel():
    """Agreed values may be used; values that differ between threads have no meaning there."""
    fine = body("(B: int32[8])", "alloc v: var int32[]\nv[] = 5\nparallel i in 8:\n  B[i] = v[] + i")
    b = poisoned(dt.INT32, (8,))
    run(fine, {"B": b})
    assert b.tolist() == list(range(5, 13))
    for value in ("v[]", "tx"):
        wrong = body("(B: int32[8])", f"alloc v: var int32[]\nv[] = tx\nparallel i in 8:\n  B[i] = {value} + i")
        with pytest.raises(MeaningError, match="differs between threads"):
            run(wrong, {"B": b})


def test_scratch_written_in_parallel_is_private_to_the_iteration_and_undefined_after():
    kernel = body(
        "(A: float32[8], B: float32[8], C: float32[1])",
        """
alloc s: local float32[2]
parallel i in 8:
  s[0] = A[i]
  s[1] = s[0] * s[0]
  B[i] = s[0] + s[1]
C[0] = s[0]
""",
    )
    a = np.random.default_rng(5).standard_normal(8).astype(np.float32)
    b, c = poisoned(dt.FLOAT32, (8,)), np.zeros(1, np.float32)
    run(kernel, {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(b, a + a * a)
    assert np.isnan(c[0])


def test_atomics_in_parallel():
    kernel = body(
        "(A: int32[200], H: int32[8], M: float32[8], P: int32[200])",
        """
parallel i in 200:
  atomic add H[A[i]] (1) relaxed -> old: int32
  P[i] = old
  atomic max M[A[i]] (float32(i)) relaxed
""",
    )
    a = np.random.default_rng(6).integers(-2, 10, 200).astype(np.int32)
    h, m, p = np.zeros(8, np.int32), np.full(8, np.nan, np.float32), poisoned(dt.INT32, (200,))
    run(kernel, {"A": a, "H": h, "M": m, "P": p})
    inside = a[(a >= 0) & (a < 8)]
    np.testing.assert_array_equal(h, np.bincount(inside, minlength=8))
    for v in range(8):
        at = np.flatnonzero(a == v)
        assert p[at].tolist() == list(range(len(at))) and m[v] == at.max()


@pytest.mark.parametrize(
    ("op", "operands", "want"),
    [
        ("add", "3", 3 * 64 + 5), ("min", "2", 2), ("max", "9", 9), ("and", "4", 4), ("or", "8", 13), ("xor", "1", 5),
        ("exch", "tx", 63), ("store", "tx", 63), ("cas", "5, 7", 7), ("load", "", 5),
    ],
)  # fmt: skip
def test_every_thread_executes_an_atomic(op, operands, want):
    kernel = body("(B: int32[1])", f"atomic {op} B[0] ({operands}) relaxed")
    b = np.array([5], np.int32)
    run(kernel, {"B": b})
    assert b[0] == want


def test_half_atomics_round_each_time():
    kernel = body("(B: float16[1])", "atomic add B[0] (1.0:float16) relaxed")
    b = np.array([2048], np.float16)
    run(kernel, {"B": b})
    assert b[0] == 2048


def test_traps_and_prints():
    kernel = body("(A: int32[64])", 'print "100%", A[tx], 0.5\nprint once "block"\ntrap unless A[tx] < 9, "too big"\nA[tx] = 0')
    lines = []
    a = np.full(64, 3, np.int32)
    run(kernel, {"A": a}, printed=lines.append)
    assert lines == ["100% 3 0.5"] * 64 + ["block"] and (a == 0).all()
    a[40] = 9
    with pytest.raises(TrapError, match="too big"):
        run(kernel, {"A": a})


def test_divergent_barriers_are_told():
    kernel = body("(A: int32[1])", "if tx < 32:\n  barrier block")
    with pytest.raises(MeaningError, match="only some threads"):
        run(kernel, {"A": np.zeros(1, np.int32)})


def test_endless_loops_end():
    kernel = body("(A: int32[1])", "while A[0] == 0:\n  A[0] = 0")
    for limits, told in (({"max_steps": 1000}, "still going"), ({"max_turns": 1000}, "this loop has not ended")):
        with pytest.raises(MeaningError, match=told):
            run(kernel, {"A": np.zeros(1, np.int32)}, **limits)


def test_grid_barriers_let_blocks_exchange():
    kernel = body("(A: int32[6], B: int32[6])", "A[bx] = bx * bx\nbarrier grid\nB[bx] = A[5 - bx]", grid="6")
    a, b = np.zeros(6, np.int32), np.zeros(6, np.int32)
    run(kernel, {"A": a, "B": b})
    assert b.tolist() == [25, 16, 9, 4, 1, 0]


def test_a_fault_in_one_block_ends_a_grid_that_waits():
    kernel = body("(A: int32[6])", 'trap unless bx != 2, "no"\nbarrier grid', grid="6")
    with pytest.raises(TrapError):
        run(kernel, {"A": np.zeros(6, np.int32)})


@pytest.mark.parametrize("seed", range(6))
def test_divergent_control_flow_equals_one_thread_at_a_time(seed):
    """Random branches and loops over thread-dependent values, against plain Python for each thread."""
    rng = np.random.default_rng(seed)
    c = [int(x) for x in rng.integers(1, 7, 6)]
    kernel = body(
        "(A: int32[64], B: int32[64])",
        f"""
alloc x: var int32[]
alloc y: local int32[3]
fill y = 0
x[] = A[tx]
for i in serial(tx % {c[0]}, tx % {c[1]} + {c[2]}, {c[3]}):
  if (x[] + i) % {c[4]} == 0:
    x[] = x[] * 3 - i
    if x[] > 1000:
      break
    continue
  y[i % 3] = y[i % 3] + x[]
  while x[] % {c[5]} != 0:
    x[] = x[] - 1
    if x[] % 5 == 4:
      break
B[tx] = x[] + y[0] * 3 + y[1] * 5 + y[2] * 7
""",
    )
    a = rng.integers(-200, 200, 64).astype(np.int32)
    b = poisoned(dt.INT32, (64,))
    run(kernel, {"A": a, "B": b})
    for tx in range(64):
        x, y = int(a[tx]), [0, 0, 0]
        for i in range(tx % c[0], tx % c[1] + c[2], c[3]):
            if (x + i) % c[4] == 0:
                x = x * 3 - i
                if x > 1000:
                    break
                continue
            y[i % 3] += x
            while x % c[5] != 0:
                x -= 1
                if x % 5 == 4:
                    break
        assert b[tx] == x + y[0] * 3 + y[1] * 5 + y[2] * 7
