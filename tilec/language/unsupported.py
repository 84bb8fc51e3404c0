"""Names of the language that are not compiled, each with what to write instead: those of later architectures, those that the other
compiler keeps for itself, and types that no instruction of these GPUs computes with.

T.tcgen05_gemm(A_s, B_s, acc)  ->  error[TL0204]: `T.tcgen05_gemm` is not supported; help: this is for later architectures ...
"""

from __future__ import annotations

from tilec.ir.dtypes import LANES
from tilec.language.access import LATER_DTYPES
from tilec.language.bind import Entry, refused

_COPIES = "use T.tma_copy, or T.copy, which chooses the mechanism and waits for it; they make the descriptors"
_GATHERS = "this is for later architectures; index the rows in T.Parallel, or T.copy them one by one"
_ROLES = "use T.Pipelined; the compiler spreads the work over warps"
_BLACKWELL = "this is for later architectures; use T.gemm and T.copy"
_INSTRUCTIONS = "use T.gemm, which chooses the instruction and loads its operands"
_BARRIERS = "use T.alloc_barrier with T.mbarrier_arrive, T.mbarrier_expect_tx and T.mbarrier_wait_parity"
_DESCRIPTORS = "use T.wgmma_gemm or T.gemm on shared tiles, which make the descriptors"
_HOST = "this belongs to the other compiler's host code; write device code, or call your own CUDA with T.call_extern"

ENTRIES: tuple[Entry, ...] = (
    refused(_COPIES, "tma_load", "tma_store", "create_tma_descriptor", "ptx_cp_async_bulk")
    + refused(_GATHERS, "tma_gather4", "tma_gather4_bytes", "tma_scatter4", "tma_load_2sm")
    + refused(
        _ROLES, "WSID", "WSPipeline", "WSRole", "WSSchedule", "WSScope", "WSSync", "WSInstr", "WSOpRef", "WSSyncKind",
        "annotate_ws_schedule", "ws_op",
    )
    + refused(
        _BLACKWELL, "alloc_tmem", "deallocate_tmem", "tcgen05_mma", "tcgen05_mma_blockscaled", "tcgen05_mma_arrive", "tcgen05_cp_warpx4",
        "tcgen05_sf_warp_transpose", "tcgen05_after_thread_sync", "tcgen05_before_thread_sync", "alloc_tcgen05_smem_desc",
        "alloc_tcgen05_instr_desc", "alloc_tcgen05_instruction_desc", "initialize_tcgen05_descriptor", "compute_umma_descriptor",
        "ptx_tcgen05_mma_ss", "ptx_tcgen05_mma_ts", "ptx_tcgen05_mma_blockscaled_ss", "TCGEN05DescriptorParams",
        "TCGEN05TensorCoreIntrinEmitter", "TensorCoreIntrinEmitterSM120", "clc_is_canceled", "clc_try_cancel", "clc_get_first_ctaid_x",
        "clc_get_first_ctaid_y", "clc_get_first_ctaid_z", "clc_try_cancel_multicast", "PersistentTileScheduler", "BaseTileScheduler",
        "gemm_blockscaled", "make_blockscaled_gemm_layout", "ptx_mma_block_scale",
    )
    + refused(
        _INSTRUCTIONS, "ptx_mma", "ptx_mma_sm70", "ptx_mma_sp", "ptx_ldmatrix", "mma_fill", "mma_store", "mma_store_index_map",
        "get_ldmatrix_offset", "get_mma_micro_size", "tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync", "tvm_bmma_sync",
        "tvm_store_matrix_sync", "ptx_wgmma_ss", "ptx_wgmma_rs", "ptx_wgmma_sp_ss", "ptx_wgmma_sp_rs",
    )
    + refused(
        _BARRIERS, "create_barriers", "ptx_init_barrier_thread_count", "ptx_arrive_barrier", "ptx_arrive_barrier_expect_tx",
        "ptx_wait_barrier", "ptx_cp_async_barrier", "ptx_fence_barrier_init",
    )
    + refused(
        _DESCRIPTORS, "alloc_wgmma_desc", "alloc_descriptor", "initialize_wgmma_descriptor", "increase_descriptor_offset",
        "compute_gmma_descriptor", "WGMMADescriptorParams",
    )
    + refused(
        _HOST, "TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace", "anylist_getitem", "anylist_resetitem", "anylist_setitem_call_packed",
        "anylist_setitem_call_cpacked", "call_cpacked", "call_cpacked_lowered", "call_packed_lowered", "tvm_call_packed",
        "tvm_call_packed_lowered", "tvm_call_cpacked", "tvm_call_cpacked_lowered", "call_llvm_intrin", "call_llvm_pure_intrin",
        "llvm_lookup_intrinsic_id", "lookup_param", "start_profile_intrinsic", "end_profile_intrinsic", "tvm_stack_alloca",
        "tvm_stack_make_array", "tvm_stack_make_shape", "tvm_struct_get", "tvm_struct_set", "tvm_throw_last_error", "tvm_tuple", "undef",
        "vscale", "get_active_lane_mask", "handle_add_byte_offset", "isnullptr", "Call", "CallEffectKind",
    )
    + refused("launch a kernel of your own with T.CUDASourceCodeKernel", "call_kernel")
)  # fmt: skip

TYPES: tuple[Entry, ...] = refused(
    "use T.int8, T.float8_e4m3fn, T.float8_e5m2 or T.float4_e2m1fn", *LATER_DTYPES
)
"""Types that the tensor cores and conversions of these GPUs do not know: other 8-bit and the 6-bit floats, single bits."""

VECTOR_TYPES: tuple[Entry, ...] = refused(
    TYPES[0].instead, *(f"{name}x{n}" for name in LATER_DTYPES if name.startswith("float") and "_unpacked" not in name for n in LANES)
)
"""Vectors of them."""

EMITTERS: tuple[Entry, ...] = refused(
    _INSTRUCTIONS, "TensorCoreIntrinEmitterWithLadderTransform", "INT4TensorCoreIntrinEmitter",
    "INT4TensorCoreIntrinEmitterWithLadderTransform", "SparseTensorCoreIntrinEmitter", "WGMMATensorCoreIntrinEmitter",
    "WGSparseTensorCoreIntrinEmitter",
)  # fmt: skip
"""Classes that write instructions one by one."""

LAYOUTS: tuple[Entry, ...] = refused(
    "leave the layout out: the plan chooses", "make_tcgen05mma_swizzled_layout", "FractalLayoutInfo", "make_ascend_compact_nz_layout",
    "make_ascend_l0c_layout", "make_ascend_major_k_layout", "make_ascend_major_mn_layout", "make_ascend_nz_layout",
    "make_ascend_sf_layout", "make_strided_slice", "try_extract_fractal_layout",
)  # fmt: skip
"""Names of tilelang.layout for other machines."""
