"""Every name that kernels are known to use is compiled, ignored, or refused for one of a few reasons."""

from __future__ import annotations

import pytest

from tests.language.kit import fault, kernel_builder
from tilec.ir.dtypes import DType
from tilec.language.bind import State
from tilec.language.catalogue import entries, modules
from tilec.language.unsupported import EMITTERS, LAYOUTS, TYPES, VECTOR_TYPES
from tilec.language.values import Marker, Namespace, Primitive

USED = """
Kernel Tensor copy alloc_fragment alloc_shared ceildiv float32 Pipelined Parallel gemm clear float16 prim_func if_then_else reduce_sum exp2
empty const int32 fill max reduce_max infinity serial bfloat16 GemmWarpPolicy min use_swizzle log2 alloc_var annotate_layout
get_thread_binding atomic_add alloc_barrier dtype dynamic tma_copy floordiv float uint32 mbarrier_wait_parity Layout alloc_local cast exp
float8_e4m3fn unroll mbarrier_arrive int8 vectorized access_ptr uint8 reinterpret disable_warp_group_reg_alloc barrier_arrive barrier_wait
macro call_extern uint16 bool reduce_absmax thread_binding set_max_nreg ws import_source sync_threads floormod wgmma_gemm wait_wgmma
evaluate uint64 attr comm_reducer tvm_thread_allreduce clamp float4_e2m1fn fence_proxy_async fp8 alloc_global ptx_cp_async
cp_async_barrier_noinc rsqrt Buffer im2col reshape shift_left Cast dp4a tfloat32 SharedBuffer int4 log get_block_binding int16 int Fragment
uint alloc_buffer device_assert int64 make_tensor ptr symbolic view cumsum ptx_wait_group alloc_reducer finalize_reducer ptx_commit_group
rng_init rng_rand Persistent atomic_addx4 float8_e4m3 parallel sync_grid FragmentBuffer Serial annotate_consumer_reg_alloc
annotate_producer_reg_dealloc index_to_coordinates no_set_max_nreg sigmoid tvm_warp_shuffle float8_e5m2 ceil ClusterKernel
alloc_cluster_barrier block_rank_in_cluster assume atomic_load any_sync atomic_store mbarrier_arrive_expect_tx gemm_sp dtypes StridedTensor
float64 Var pdl_sync pdl_trigger reduce_min annotate_l2_hit_ratio async_copy cluster_sync float8_e8m0fnu get_warp_idx_sync reads sblock
tma_store_wait writes Ramp Select annotate_safe_value float32x2 float4_e2m1fnx2 grid handle isfinite ldg128 ldg256 ldg64 match_buffer
shuffle_elect Broadcast CUDASourceCodeKernel PrimExpr Ref Shuffle __cos __exp __exp10 __ffs __fns __ldg __log __log10 __log2 __sin __tan
activemask align_up all_of all_sync annotate_compile_flags annotate_min_blocks_per_sm annotate_pass_configs any_of atomic_addx2 atomic_max
atomic_min atomic_or ballot ballot_sync bfloat16x2 cluster_arrive cluster_wait cos cummax extract_lane float16x2 float32x4 float32x8
func_attr get_lane_idx get_warp_group_idx get_warp_idx half ldg32 lds128 lds32 lds64 long match_all_sync match_any_sync mbarrier_expect_tx
named_barrier_arrive reduce_abssum reducer_init reducer_update rng_rand_float round shfl_sync short sin stg128 stg256 stg32 stg64 sts128
sts32 sts64 sync_warp syncthreads_and syncthreads_count syncthreads_or tma_store_arrive transpose warp_reduce_bitand warp_reduce_bitor
warp_reduce_max warp_reduce_min warp_reduce_sum
""".split()
"""Names of kernels for these GPUs, from most to least used: all of them must be compiled."""

ELSEWHERE = """
alloc_tmem tcgen05_gemm tcgen05_mma_arrive PersistentTileScheduler tcgen05_cp_warpx4 tcgen05_gemm_blockscaled tcgen05_sf_warp_transpose
WSID WSPipeline WSRole WSSchedule WSScope WSSync annotate_ws_schedule ws_op float4_e2m1_unpacked clc_get_first_ctaid_x clc_is_canceled
mma_gemm_blockscaled clc_try_cancel_multicast tcgen05_after_thread_sync tcgen05_before_thread_sync alloc_tcgen05_smem_desc
alloc_wgmma_desc float8_e4m3fnuz float8_e5m2fnuz tma_gather4 tma_gather4_bytes tma_scatter4
""".split()
"""Names of kernels for later or other GPUs, and of another style of writing kernels: each is refused with what to use instead."""

MODULES = {
    "tilelang": "jit autotune compile lower cdiv next_power_of_2 PassConfigKey DataType language math layout autotuner transform tools",
    "tilelang.math": "next_power_of_2 cdiv",
    "tilelang.layout": "Layout Fragment make_swizzled_layout make_mma_swizzle_layout make_linear_layout",
    "tilelang.autotuner": "autotune",
    "tilelang.transform": "PassConfigKey simplify_prim_func",
    "tilelang.tools.cuda.iket": "mark",
    "tilelang.cuda.intrinsics": "make_mma_swizzle_layout",
    "tilelang.cuda.intrinsics.layout.mma_layout": "make_mma_swizzle_layout",
    "tilelang.cuda.intrinsics.macro.mma_macro_generator": "TensorCoreIntrinEmitter",
    "tilelang.carver.arch.driver": "get_num_sms",
    "tilelang.utils": "is_fragment is_global is_shared is_local",
    "tilelang.language.fp8": "determine_fp8_type determine_torch_fp8_type",
    "tilelang.language.dtypes": "dtype float16 float32x4",
    "tilelang.language.GemmWarpPolicy": "Square FullRow FullCol",
    "tilelang.language.loop": "Parallel serial",
    "tvm": "DataType tirx",
    "tvm.tirx": "const Cast Select reinterpret PrimExpr Var if_then_else floordiv floormod",
    "torch": "float16 bfloat16 float8_e4m3fn",
}
OPTIONS = """
TL_ENABLE_FAST_MATH TL_DISABLE_WARP_SPECIALIZED TL_DISABLE_TMA_LOWER TL_DISABLE_THREAD_STORAGE_SYNC TL_PTXAS_REGISTER_USAGE_LEVEL
TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE TL_DISABLE_FAST_MATH TL_ENABLE_PTXAS_VERBOSE_OUTPUT
""".split()

REASONS = (
    "this is for later architectures", "the compiler spreads the work over warps", "use T.gemm", "use T.alloc_barrier", "use T.wgmma_gemm",
    "use T.tma_copy", "the other compiler's host code", "write ", "use T.", "subscript", "assign to a name", "put what follows",
    "launch a kernel of your own", "leave the layout out", "call a device function", "use the buffer's own",
)  # fmt: skip
"""How the help of a refused name begins or what it contains: another architecture, another way to write it."""


def member(name: str, path: str = "tilelang.language") -> object:
    spaces = modules()
    if path in spaces:
        return spaces[f"{path}.{name}"] if f"{path}.{name}" in spaces else spaces[path].members.get(name)
    outer = member(path.rpartition(".")[2], path.rpartition(".")[0])
    assert isinstance(outer, Namespace)
    return outer.members.get(name)


@pytest.mark.parametrize("name", USED)
def test_every_used_name_is_compiled(name: str) -> None:
    states = {e.name: e.state for _, e in entries()}
    found = member(name)
    assert isinstance(found, (Primitive, DType, Marker, Namespace)), f"T.{name} is not known"
    assert states.get(name) is not State.REFUSED, f"T.{name} is refused"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_other_names_are_refused_with_what_to_use(name: str) -> None:
    found = member(name)
    assert isinstance(found, Primitive)
    refusal = fault(lambda: found.call(kernel_builder(), (), {}))
    assert refusal.code == "TL0204" and any(r in refusal.help for r in REASONS)


@pytest.mark.parametrize(("path", "names"), MODULES.items())
def test_names_of_other_modules(path: str, names: str) -> None:
    unknown = [n for n in names.split() if member(n, path) is None]
    assert unknown == []


def test_options_of_a_compilation_are_known() -> None:
    options = modules()["tilelang"].members["PassConfigKey"].members
    assert [n for n in OPTIONS if n not in options] == []


def test_whatever_is_refused_says_what_to_use() -> None:
    refused = [e for _, e in entries() if e.state is State.REFUSED] + [*EMITTERS, *TYPES, *VECTOR_TYPES, *LAYOUTS]
    assert [e.name for e in refused if not any(r in e.instead for r in REASONS)] == []
    wanted = {"T." + n for n in USED}
    named = {w.strip(",;.:)") for e in refused for w in e.instead.split() if w.startswith("T.")}
    assert named - wanted - {"T.alloc_barrier", "T.gemm_sp"} == set()


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e3m2fnx4", "int1"])
def test_types_without_instructions_are_refused_where_they_are_used(name: str) -> None:
    allocate = modules()["tilelang.language"].members["alloc_local"]
    for given in (name, member(name)):
        if given is not None:
            assert fault(lambda given=given: allocate.call(kernel_builder(), ((4,), given), {})).code == "TL0204"
