"""Names of the language that are not compiled yet, each with what to write instead, and names that only hint.

T.tma_load(A, A_s)  ->  error[TL0204]: `tma_load` is not supported yet; help: use T.copy ...
"""

from __future__ import annotations

from tilec.language.access import LATER_DTYPES
from tilec.language.bind import Entry, refused

_COPIES = "use T.tma_copy, or T.copy, which chooses the mechanism and waits for it"
_ROLES = "use T.Pipelined; the compiler spreads the work over warps"
_BLACKWELL = "this is for later architectures; use T.gemm and T.copy"

ENTRIES: tuple[Entry, ...] = (
    refused(
        _COPIES, "tma_load", "tma_store", "tma_gather4",
        "tma_gather4_bytes", "tma_scatter4", "create_tma_descriptor",
    )
    + refused(
        _ROLES, "WSID", "WSPipeline", "WSRole", "WSSchedule", "WSScope", "WSSync", "annotate_ws_schedule", "ws_op",
    )
    + refused(
        _BLACKWELL, "alloc_tmem", "tcgen05_mma_arrive", "tcgen05_cp_warpx4", "tcgen05_sf_warp_transpose", "tcgen05_after_thread_sync",
        "tcgen05_before_thread_sync", "alloc_tcgen05_smem_desc", "alloc_wgmma_desc", "clc_is_canceled", "clc_get_first_ctaid_x",
        "clc_try_cancel_multicast", "PersistentTileScheduler",
    )
    + refused("write `break`", "loop_break")
    + refused("put what follows under an `if`", "thread_return")
    + refused("use T.int8, T.float8_e4m3fn or T.float8_e5m2", *LATER_DTYPES)
)  # fmt: skip
