"""Each keyword that a function of the language has elsewhere is accepted here: with its meaning, or as a hint."""

from __future__ import annotations

import pytest

from tests.language.kit import call, fault, kernel_builder, tensor
from tilec.ir.dtypes import FLOAT32, INT32
from tilec.ir.expr import Const, Var
from tilec.language.bind import Entry, parameters
from tilec.language.catalogue import entries
from tilec.language.keywords import ALIASES, ORDERED, accepts, settle

SIGNATURES = """
Add: a b; And: a b; Broadcast: value lanes;
Buffer: shape dtype data strides elem_offset scope align offset_factor buffer_type axis_separators; BufferLoad: buffer indices predicate;
CUDASourceCodeKernel: threads source_code_or_path entry_name cluster_dims prelude; Cast: dtype value;
ClusterKernel: cluster_dims threads prelude; Div: a b; EQ: a b; FloatImm: dtype value; FloorDiv: a b; FloorMod: a b;
Fragment: shape forward_fn forward_thread_fn replicate forward_index_fn; GE: a b; GT: a b; IntImm: dtype value;
Kernel: threads prelude cluster_dims; LE: a b; LT: a b; Layout: shape forward_fn; Max: a b; Min: a b; Mod: a b; Mul: a b; NE: a b;
Or: a b; Parallel: coalesced_width loop_layout prefer_async; Persistent: domain wave_size index group_size num_stages;
Pipelined: start stop num_stages order stage; Ramp: base stride lanes; Select: condition true_value false_value; Serial: start stop step;
Shuffle: vectors indices; StridedTensor: shape strides dtype scope data; Sub: a b; Tensor: shape dtype data scope;
Unroll: start stop step explicit unroll_factor; Vectorized: start stop; __fns: mask base offset; __ldg: load_or_buf index;
access_ptr: base access_type offset extent ignore_last_ndim; add2: x y; align_up: x y; all_sync: predicate mask;
alloc_buffer: shape dtype scope; alloc_fragment: shape dtype scope; alloc_global: shape dtype scope; alloc_local: shape dtype scope;
alloc_reducer: shape dtype op replication; alloc_shared: shape dtype scope; alloc_var: dtype scope init; allocate: shape dtype scope;
any_sync: predicate mask; async_copy: src dst coalesced_width loop_layout; atan2: x1 x2;
atomic_add: dst value memory_order return_prev use_tma; atomic_addx2: dst value return_prev; atomic_addx4: dst value return_prev;
atomic_load: src memory_order; atomic_max: dst value memory_order return_prev; atomic_min: dst value memory_order return_prev;
atomic_or: dst value memory_order; atomic_store: dst src memory_order; attr: node attr_key value; ballot_sync: predicate mask;
barrier_wait: mbarrier parity; bind: value type_annotation var; bitwise_and: x y; bitwise_or: x y; bitwise_xor: x y;
broadcast: value lanes; buffer: shape dtype data strides elem_offset scope align offset_factor buffer_type axis_separators;
buffer_store: buffer value indices predicate; c2d_im2col: img col nhw_step c_step kernel stride dilation pad eviction_policy;
call_extern: dtype func_name; call_intrin: dtype func_name; call_pure_extern: dtype func_name; cast: value dtype round sat rbits;
cdiv: lhs rhs; ceildiv: lhs rhs; clamp: dst min_val max_val; comm_reducer: combiner identity; const: name dtype;
copy: src dst coalesced_width disable_tma eviction_policy prefer_instruction loop_layout;
copy_cluster: src dst dst_block cluster_mask remote_barrier eviction_policy coalesced_width loop_layout; copysign: x1 x2;
cummax: src dst dim reverse; cumsum: src dst dim reverse;
decl_buffer: shape dtype data strides elem_offset scope align offset_factor buffer_type axis_separators; dp4a: A B C; dynamic: name dtype;
env_thread: thread_tag dtype; extract_lane: vector lane; fill: buffer value; finalize_reducer: reducer dst batch; floordiv: a b;
floormod: a b; fma: x y z; fma2: x y z; fmod: x y; fmul: x y; gemm: A B C transpose_A transpose_B policy clear_accum mbar;
gemm_sp: A_sparse E B C transpose_A transpose_E transpose_B policy clear_accum wg_wait; get_warp_group_idx: warp_size warps_per_group;
hypot: x1 x2; ieee_add: x y rounding_mode; ieee_fdiv: x y rounding_mode; ieee_fmaf: x y z rounding_mode; ieee_frcp: x rounding_mode;
ieee_fsqrt: x rounding_mode; ieee_mul: x y rounding_mode; ieee_sub: x y rounding_mode; if_then_else: cond t f;
im2col: img col nhw_step c_step kernel stride dilation pad eviction_policy; index_to_coordinates: index shape; ldexp: x1 x2;
ldg128: src pred; ldg256: src pred; ldg32: src pred; ldg64: src pred; make_tensor: ptr shape dtype strides;
make_tensor_from_addr: addr shape dtype strides storage_scope; match_all_sync: value mask; match_any_sync: value mask;
match_buffer: param shape dtype data strides elem_offset scope align offset_factor buffer_type axis_separators; max: a b; max2: x y;
mbarrier_arrive: mbarrier cta_id; mbarrier_arrive_expect_tx: mbarrier tx; mbarrier_expect_tx: mbarrier tx;
mbarrier_wait_parity: mbarrier parity; min: a b; min2: x y; mul2: x y; named_barrier_arrive: barrier_id thread_count; nextafter: x1 x2;
parallel: start stop; pow: x y; print: obj msg warp_group_id warp_id; ptx_arrive_cluster_barrier: mbarrier cta_id;
ptx_cp_async: dst_access_ptr src_access_ptr num_elems predicate; q_multiply_shift: x y q s;
q_multiply_shift_per_axis: x y ls rs q is_lshift_required is_rshift_required; ramp: base stride lanes;
reduce: buffer out reduce_type dim clear batch; reduce_absmax: buffer out dim clear batch nan_propagate;
reduce_abssum: buffer out dim batch; reduce_bitand: buffer out dim clear batch; reduce_bitor: buffer out dim clear batch;
reduce_bitxor: buffer out dim clear batch; reduce_max: buffer out dim clear batch nan_propagate;
reduce_min: buffer out dim clear batch nan_propagate; reduce_sum: buffer out dim clear batch; reducer_init: reducer init;
reducer_update: target value; reinterpret: value dtype; reshape: src shape; rng_init: seed seq off generator; rng_rand_float: bit dist;
round: x rounding_mode; sblock: name no_realize;
sblock_alloc_buffer: shape dtype data strides elem_offset scope align offset_factor buffer_type axis_separators; serial: start stop step;
set_max_nreg: reg_count is_inc; shfl_down: value delta width mask; shfl_sync: value srcLane width mask; shfl_up: value delta width mask;
shfl_xor: value delta width mask; shift_left: x y; shift_right: x y; stg128: dst value pred; stg256: dst value pred;
stg32: dst value pred; stg64: dst value pred; sts128: dst value; sts32: dst value; sts64: dst value; sub2: x y; symbolic: name dtype;
sync_threads: barrier_id arrive_count; thread_binding: start stop thread;
tma_copy: src dst barrier cluster_mask leader_scope_threads eviction_policy; tma_store_wait: count read; transpose: src dst;
truncdiv: a b; truncmod: a b; tvm_warp_shuffle: mask value warp_id width warp_size;
tvm_warp_shuffle_down: mask value offset width warp_size; tvm_warp_shuffle_up: mask value offset width warp_size;
unroll: start stop step explicit unroll_factor; use_swizzle: panel_size order enable; vectorcombine: dtype vec1 vec2;
vectorhigh: dtype vec; vectorized: start stop; vectorlow: dtype vec; view: src shape dtype strides;
warpgroup_fence_operand: buffer_or_ptr offset num_regs dtype; wgmma_gemm: A B C transpose_A transpose_B policy clear_accum;
wgmma_mma: A B C transpose_A transpose_B policy clear_accum
"""
"""Names of functions and their parameters in order; `span` and `annotations`, which many have, are left out."""

PARSED = {n.strip(): p.split() for n, p in (line.split(":") for line in SIGNATURES.replace("\n", " ").split(";"))}


def own(entry: Entry) -> tuple[str, ...]:
    names, only, _ = parameters(entry.fn)
    return names + only


@pytest.mark.parametrize("name", PARSED)
def test_every_keyword_is_accepted(name: str) -> None:
    entry = next(e for _, e in entries() if e.name == name)
    anything = entry.fn.__code__.co_flags & 0x08
    assert [k for k in (*PARSED[name], "span", "annotations") if not anything and not accepts(name, own(entry), k)] == []


def test_names_of_the_tables_exist() -> None:
    known = {e.name: e for _, e in entries()}
    assert [n for n in ALIASES if n not in known] == [] and [n for n in ORDERED if n not in known] == []
    assert [(n, k) for n, table in ALIASES.items() for k in table.values() if k not in own(known[n])] == []


def test_arguments_come_to_their_places() -> None:
    assert settle("max", (), {"a": 1, "b": 2}, ()) == ((1, 2), {})
    assert settle("max", (1,), {"b": 2}, ()) == ((1, 2), {})
    assert settle("align_up", (7,), {"y": 4}, ("value", "alignment")) == ((7,), {"alignment": 4})
    assert settle("fill", (), {"annotations": {}, "value": 1}, ("buffer", "value")) == ((), {"value": 1})
    assert settle("match_buffer", (), {"elem_offset": 0, "align": 64}, ("param",)) == ((), {})
    assert settle("match_buffer", (), {"elem_offset": 4}, ("param",)) == ((), {"elem_offset": 4})
    b = kernel_builder()
    x = Var("x", INT32)
    assert call(b, "shift_left", x=x, y=3) == call(b, "shift_left", x, 3)
    assert call(b, "pow", x=x, y=2, span=None) == call(b, "pow", x, 2)
    assert call(b, "align_up", x=7, y=4) == 8


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "code"),
    [
        ("cast", (Var("x", FLOAT32), "float16"), {"round": "rz"}, "TL0206"),
        ("round", (Var("x", FLOAT32),), {"rounding_mode": "up"}, "TL0206"),
        ("match_buffer", (tensor("A", 8), (8,)), {"elem_offset": 2}, "TL0202"),
        ("view", (tensor("A", 8), (2, 4)), {"strides": (1, 2)}, "TL0342"),
        ("fill", (tensor("A", 8), 0), {"anotations": {}}, "TL0202"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, args: tuple[object, ...], kwargs: dict[str, object], code: str) -> None:
    assert fault(lambda: call(kernel_builder(), name, *args, **kwargs)).code == code


def test_dense_strides_are_no_strides() -> None:
    b = kernel_builder()
    made = call(b, "view", tensor("A", 8), (2, 4), strides=(4, 1))
    assert made.shape == (Const(2, INT32), Const(4, INT32))
