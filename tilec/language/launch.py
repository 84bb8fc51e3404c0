"""T.Kernel, the indices of blocks and threads, rasterisation and the options of a compilation.

with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=256) as (bx, by)  ->  KernelSpec(grid, (256, 1, 1))
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tilec.diagnostics import Diagnostic, Severity
from tilec.ir.dtypes import INT32
from tilec.ir.expr import Const, Expr, Var
from tilec.language.access import as_expr, host_int, is_device, is_number, unknown_sizes
from tilec.language.arith import binary
from tilec.language.bind import Entry, ignored, works
from tilec.language.builder import Builder
from tilec.language.context import host_flag, in_kernel
from tilec.language.extern import import_source
from tilec.language.show import describe
from tilec.language.values import KernelSpec

MOST_THREADS = 1024
MOST_RESIDENT = 32  # blocks of a multiprocessor
MOST_BLOCKS = 8
"""Blocks of a cluster that every GPU with clusters can run at once."""

THREAD_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
AXES = "xyz"

FLAGS = {"tl.enable_fast_math": "fast_math", "tl.disable_thread_storage_sync": "no_auto_sync"}
"""Pass configurations that change what is compiled; all others are hints."""


def Kernel(
    b: Builder, *blocks: Any, threads: Any = None, is_cpu: Any = False, prelude: Any = None, cluster_dims: Any = None
) -> KernelSpec:
    """Launches a grid of blocks along x, y, z with `threads` threads each (an int or up to three, None: chosen).

    `cluster_dims` (an int or up to three) groups neighbouring blocks into clusters, whose blocks run at once (sm_90).
    """
    if b.launch is not None:
        raise b.error("TL0404", "T.Kernel inside T.Kernel", help="write the launches one after the other")
    if not 1 <= len(blocks) <= 3:
        raise b.error("TL0401", f"T.Kernel takes one to three grid extents, got {len(blocks)}")
    if is_cpu:
        raise b.error("TL0204", "T.Kernel(is_cpu=True) is not supported", help="leave is_cpu out")
    if prelude is not None:
        import_source(b, prelude)
    grid = tuple(extent_of(b, axis, v) for axis, v in enumerate(blocks))
    return KernelSpec(grid, thread_counts(b, threads), b.span, cluster_counts(b, cluster_dims, grid))


def cluster_counts(b: Builder, cluster: Any, grid: tuple[Any, ...]) -> tuple[int, int, int]:
    """`cluster_dims` as (x, y, z); the grid must be whole clusters."""
    items = tuple(cluster) if isinstance(cluster, (tuple, list)) else (1 if cluster is None else cluster,)
    if not 1 <= len(items) <= 3:
        raise b.error("TL0407", f"`cluster_dims` takes one to three counts, got {len(items)}")
    counts = [host_int(b, v, "cluster_dims") for v in items] + [1] * (3 - len(items))
    total = counts[0] * counts[1] * counts[2]
    if min(counts) < 1 or total > MOST_BLOCKS:
        raise b.error("TL0407", f"a cluster has 1 to {MOST_BLOCKS} blocks, got {' x '.join(map(str, counts))}")
    for axis, count in enumerate(counts):
        extent = grid[axis] if axis < len(grid) else 1
        if isinstance(extent, int) and extent % count:
            text = f"{extent} block{'s' if extent > 1 else ''} along {AXES[axis]} are not a whole number of clusters of {count}"
            raise b.error("TL0407", text, help="round the grid up, and let the blocks beyond the end find nothing to do")
    return counts[0], counts[1], counts[2]


def extent_of(b: Builder, axis: int, value: Any) -> Any:
    """One grid extent: an int of at least 0 (then there are no blocks) within the limit of its axis, or an integer expression."""
    name = AXES[axis]
    if isinstance(value, Const) and value.dtype.is_int:
        value = int(value.value)
    if is_number(value) and not isinstance(value, (float, bool)):
        if not 0 <= value <= GRID_LIMITS[axis]:
            text = f"the grid extent along {name} must be between 0 and {GRID_LIMITS[axis]}, got {value}"
            raise b.error("TL0401", text, help="fold it into the first extent" if axis and value > 0 else "")
        if value == 0:
            text = f"the grid extent along {name} is 0: there are no blocks, and nothing is computed"
            b.notes.append(Diagnostic(Severity.WARNING, "TL0408", text, b.span, help="if that is not meant, `//` may be a T.ceildiv"))
        return value
    if not is_device(value):
        hint = "T.ceildiv or `//` give whole numbers"
        raise b.error("TL0401", f"the grid extent along {name} must be an integer, got {describe(value)}", help=hint)
    e = as_expr(b, value)
    if not e.dtype.is_int:
        raise b.error("TL0401", f"the grid extent along {name} must be an integer, got {e.dtype}")
    return e


def thread_counts(b: Builder, threads: Any) -> tuple[int, int, int] | None:
    """`threads` as (x, y, z); None when the author gave none."""
    if threads is None:
        return None
    items = tuple(threads) if isinstance(threads, (tuple, list)) else (threads,)
    if not 1 <= len(items) <= 3:
        raise b.error("TL0402", f"`threads` takes one to three counts, got {len(items)}")
    counts = [_count(b, v) for v in items] + [1] * (3 - len(items))
    total = counts[0] * counts[1] * counts[2]
    for axis, count in enumerate(counts):
        if count > THREAD_LIMITS[axis]:
            raise b.error("TL0402", f"`threads` along {AXES[axis]} must be at most {THREAD_LIMITS[axis]}, got {count}")
    if total > MOST_THREADS:
        raise b.error("TL0402", f"`threads` must be at most {MOST_THREADS} in all, {' x '.join(map(str, counts[: len(items)]))} is {total}")
    return counts[0], counts[1], counts[2]


def _count(b: Builder, value: Any) -> int:
    if isinstance(value, Const) and value.dtype.is_int:
        value = int(value.value)
    if isinstance(value, Expr):
        raise b.error("TL0402", f"`threads` must be known while compiling, got {describe(value)}", help=unknown_sizes(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise b.error("TL0402", f"`threads` must be a whole number, got {describe(value)}")
    if not 1 <= value <= MOST_THREADS:
        raise b.error("TL0402", f"`threads` must be between 1 and {MOST_THREADS}, got {value}")
    return value


def use_swizzle(b: Builder, panel_size: Any, order: Any = "row", enable: Any = True) -> None:
    """Visits the blocks in panels of `panel_size` for better use of the L2 cache; every block still runs once."""
    launch = in_kernel(b, "use_swizzle")
    size = host_int(b, panel_size, "panel_size")
    if order not in ("row", "column", "col"):
        raise b.error("TL0206", f'the order of T.use_swizzle is "row" or "column", got {describe(order)}')
    if size < 1:
        raise b.error("TL0206", f"panel_size must be positive, got {size}")
    if host_flag(b, enable, "enable"):
        launch.panel, launch.panel_order = size, "row" if order == "row" else "column"


def annotate_min_blocks_per_sm(b: Builder, n: Any) -> None:
    """How many blocks should fit one multiprocessor: CUDA's compiler gives each thread as many registers as that leaves."""
    least = host_int(b, n, "n")
    if not 1 <= least <= MOST_RESIDENT:
        raise b.error("TL0206", f"between 1 and {MOST_RESIDENT} blocks fit a multiprocessor, got {least}")
    in_kernel(b, "annotate_min_blocks_per_sm").min_blocks = least


def get_thread_binding(b: Builder, dim: Any = 0) -> Var:
    """The index of the thread along x (0), y (1) or z (2)."""
    return _axis_var(b, "get_thread_binding", in_kernel(b, "get_thread_binding").thread_vars, dim)


def get_block_binding(b: Builder, dim: Any = 0) -> Var:
    """The index of the block along x (0), y (1) or z (2)."""
    return _axis_var(b, "get_block_binding", in_kernel(b, "get_block_binding").block_vars, dim)


def get_thread_bindings(b: Builder) -> tuple[Var, ...]:
    """The indices of the thread along all axes."""
    return in_kernel(b, "get_thread_bindings").thread_vars


def get_block_bindings(b: Builder) -> tuple[Var, ...]:
    """The indices of the block along all axes."""
    return in_kernel(b, "get_block_bindings").block_vars


def _axis_var(b: Builder, name: str, variables: tuple[Var, ...], dim: Any) -> Var:
    axis = host_int(b, dim, f"dim of T.{name}")
    if not 0 <= axis < len(variables):
        raise b.error("TL0206", f"T.{name} has no dimension {axis}", help=f"this launch has {len(variables)}")
    return variables[axis]


def get_thread_extent(b: Builder, dim: Any = 0) -> int:
    """The number of threads along x (0), y (1) or z (2)."""
    threads, axis = in_kernel(b, "get_thread_extent").threads, host_int(b, dim, "dim of T.get_thread_extent")
    if threads is None:
        raise b.error("TL0402", "the number of threads is not given", help="write T.Kernel(..., threads=128)")
    if not 0 <= axis < 3:
        raise b.error("TL0206", f"T.get_thread_extent has no dimension {axis}")
    return threads[axis]


def get_thread_extents(b: Builder) -> list[int]:
    """The numbers of threads along all axes."""
    return [get_thread_extent(b, d) for d in range(3)]


def get_block_extent(b: Builder, dim: Any = 0) -> Any:
    """The number of blocks along x (0), y (1) or z (2)."""
    grid, axis = in_kernel(b, "get_block_extent").grid, host_int(b, dim, "dim of T.get_block_extent")
    if not 0 <= axis < 3:
        raise b.error("TL0206", f"T.get_block_extent has no dimension {axis}")
    extent = grid[axis] if axis < len(grid) else Const(1, INT32)
    return int(extent.value) if isinstance(extent, Const) else extent


def get_block_extents(b: Builder) -> list[Any]:
    """The numbers of blocks along all axes."""
    return [get_block_extent(b, d) for d in range(3)]


def get_cluster_dims(b: Builder) -> list[int]:
    """The blocks of a cluster along all axes; 1 without clusters."""
    return list(in_kernel(b, "get_cluster_dims").cluster)


def get_cluster_size(b: Builder) -> int:
    """The number of blocks of a cluster; 1 without clusters."""
    return prod(get_cluster_dims(b))


def get_cluster_id(b: Builder, dim: Any = 0) -> Any:
    """The index of the block's cluster along x (0), y (1) or z (2)."""
    block = get_block_binding(b, dim)
    return binary(b, "floordiv", block, in_kernel(b, "get_cluster_id").cluster[block.axis])


def get_cluster_ids(b: Builder) -> list[Any]:
    """The indices of the block's cluster along the axes of the grid."""
    return [get_cluster_id(b, d) for d in range(len(in_kernel(b, "get_cluster_ids").block_vars))]


def get_cluster_extent(b: Builder, dim: Any = 0) -> Any:
    """The number of clusters along x (0), y (1) or z (2)."""
    extent, axis = get_block_extent(b, dim), host_int(b, dim, "dim of T.get_cluster_extent")
    count = in_kernel(b, "get_cluster_extent").cluster[axis]
    return extent // count if isinstance(extent, int) else binary(b, "floordiv", extent, count)


def get_cluster_extents(b: Builder) -> list[Any]:
    """The numbers of clusters along all axes."""
    return [get_cluster_extent(b, d) for d in range(3)]


def thread_binding(b: Builder, start: Any, stop: Any = None, thread: Any = "threadIdx.x", annotations: Any = None) -> Var:
    """The index along `thread` ("threadIdx.x", "blockIdx.y", ...), bound by assignment."""
    launch = in_kernel(b, "thread_binding")
    kind, _, axis = str(thread).partition(".")
    variables = {"threadIdx": launch.thread_vars, "blockIdx": launch.block_vars}.get(kind)
    if variables is None or axis not in tuple(AXES):
        raise b.error("TL0206", f"unknown thread axis {describe(thread)}", help='use "threadIdx.x" or the like')
    given = host_int(b, start if stop is None else stop, "the extent of T.thread_binding")
    at = AXES.index(axis)
    if kind == "threadIdx" and launch.threads is not None and launch.threads[at] != given:
        raise b.error("TL0402", f"T.thread_binding over {given} threads, the kernel has {launch.threads[at]} along {axis}")
    return _axis_var(b, "thread_binding", variables, at)


def flags_of(pass_configs: Mapping[Any, Any]) -> tuple[str, ...]:
    """The flags of a kernel that a `pass_configs` dictionary sets."""
    return tuple(FLAGS[k] for k, v in pass_configs.items() if k in FLAGS and v)


def _hint(doc: str) -> Any:
    def hint(b: Builder, *args: Any, **kwargs: Any) -> None:
        return None

    hint.__doc__ = doc
    return hint


_HINTS = {
    "annotate_l2_hit_ratio": "How much of a tensor should stay in the L2 cache.",
    "annotate_compile_flags": "Flags for nvcc.",
    "annotate_pass_configs": "Options of the other compiler's passes.",
    "annotate_producer_reg_dealloc": "Register counts of warp roles; the plan decides.",
    "annotate_consumer_reg_alloc": "Register counts of warp roles; the plan decides.",
    "disable_warp_group_reg_alloc": "Register counts of warp roles; the plan decides.",
    "no_set_max_nreg": "Register counts of warp roles; the plan decides.",
    "annotate_restrict_buffers": "Buffers that may overlap; the kernels are right either way.",
    "annotate_ws_pipeline_depth": "Depths of pipelines; the plan decides.",
    "func_attr": "Attributes of the function.",
    "reads": "Regions that a block reads; they are found from the code.",
    "writes": "Regions that a block writes; they are found from the code.",
}
ENTRIES: tuple[Entry, ...] = (
    works(Kernel, "ClusterKernel", host=True)
    + works(use_swizzle)
    + works(annotate_min_blocks_per_sm)
    + works(get_thread_binding)
    + works(get_thread_bindings)
    + works(get_block_binding)
    + works(get_block_bindings)
    + tuple(
        e
        for fn in (
            get_thread_extent, get_thread_extents, get_block_extent, get_block_extents, get_cluster_dims, get_cluster_size, get_cluster_id,
            get_cluster_ids, get_cluster_extent, get_cluster_extents,
        )
        for e in works(fn)
    )
    + works(thread_binding)
    + tuple(e for name, doc in _HINTS.items() for e in ignored(_hint(doc), name=name, host=True))
)  # fmt: skip
