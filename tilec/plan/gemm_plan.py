"""How one matrix product is done: instruction, warps, layouts, loads. Data only; `instructions.choose` fills it.

    a plan of kind "mma" for 128x256x32 with 256 threads: warps (2, 4), warp_tile (64, 64), 2 k-steps of m16n8k16
"""

from __future__ import annotations


from tilec.record import record
from tilec.ir.dtypes import DType
from tilec.layout.fragment import FragmentLayout


@record
class GemmShape:
    """What is asked for: c[m][n] += op(a)[m][k] @ op(b)[k][n] by one block.

    `trans_a`: a is stored k x m; `trans_b`: b is stored n x k. Sources are "shared" or "register". `policy` is square, full_row
    or full_col. `a_aligned` / `b_aligned`: rows of the shared operand start at multiples of 16 bytes (ldmatrix needs it).
    `ieee` forbids the truncation of float32 operands to TF32. A `sparse` a holds two of every four elements of op(a).
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    trans_a: bool = False
    trans_b: bool = False
    a_source: str = "shared"
    b_source: str = "shared"
    policy: str = "square"
    a_aligned: bool = True
    b_aligned: bool = True
    ieee: bool = False
    sparse: bool = False


@record
class GemmPlan:
    """How it is done.

    `kind` is "mma" (tensor cores) or "fma" (one multiply-add at a time; `reason` says why). `instruction` is the prelude's name
    of the mma and `step` its (m, n, k), both empty for fma. `warps` is the grid of warps along (m, n) (of threads for fma); a
    block with more of them computes copies. `warp_tile` is what one of them owns. `c_layout` is required of the accumulator,
    `a_layout` and `b_layout` of operands in registers: whole operand tiles in their stored orientation, with copies along the
    other axis. `load_a` and `load_b` are "ldmatrix", "ldmatrix_trans", "elementwise" or "register". `registers` estimates what
    a thread needs. A fragment with 16-bit elements computed element by element from an earlier accumulator of the same rows
    and warps has the very map of `a_layout` when that product's warps lie along m only (policy full_row).
    """

    op: GemmShape
    kind: str
    instruction: str
    step: tuple[int, int, int]
    threads: int
    warps: tuple[int, int]
    warp_tile: tuple[int, int]
    c_layout: FragmentLayout
    a_layout: FragmentLayout
    b_layout: FragmentLayout
    load_a: str
    load_b: str
    registers: int
    reason: str = ""

    @property
    def used_warps(self) -> int:
        """Warps (threads for fma) that hold different parts of c."""
        return self.warps[0] * self.warps[1]

    @property
    def k_steps(self) -> int:
        """Instructions along k."""
        return self.op.k // self.step[2]

    @property
    def can_prefetch(self) -> bool:
        """True when fragments can be double-buffered in registers across the steps of a pipeline: both operands in shared
        memory and an even number of k-steps, so that the buffer of a k-step is known when compiling."""
        return self.kind == "mma" and not self.op.sparse and self.op.a_source == self.op.b_source == "shared" and self.k_steps % 2 == 0
