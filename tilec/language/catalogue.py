"""The names an author can reach: what `import tilelang`, `import tilelang.language as T`, `import torch` give.

    modules()["tilelang.language"].members["copy"]  ->  Primitive("copy", ...)
    suggest(modules()["tilelang.language"], "cpoy")  ->  "copy"

`FAMILIES` lists every callable by the file that declares it; docs/language.md is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from tilec.ir.dtypes import ALL, HANDLE, LANES, STORED, lookup
from tilec.language import (
    alloc,
    atomics,
    autotuner,
    axes,
    bits,
    clusters,
    copy,
    emitter,
    extern,
    gemm,
    hopper,
    host,
    host_tensors,
    ieee,
    launch,
    layouts,
    lets,
    loops,
    machine,
    mathfns,
    metadata,
    moves,
    pointers,
    random,
    reduce,
    reducers,
    source_kernel,
    sparse,
    sync,
    tensors,
    threads,
    tirx,
    unsupported,
    vectors,
    warp,
)  # fmt: skip
from tilec.language.bind import Entry, State, ignored, nearest, works
from tilec.language.builder import Builder
from tilec.language.values import Marker, Namespace, Primitive

FAMILIES: Mapping[str, tuple[Entry, ...]] = {
    "Launch": launch.ENTRIES + axes.ENTRIES,
    "Tensors, sizes and views": tensors.ENTRIES + pointers.ENTRIES + layouts.ENTRIES,
    "Tiles": alloc.ENTRIES,
    "Copies and fills": copy.ENTRIES,
    "GEMM": gemm.ENTRIES + sparse.ENTRIES + emitter.ENTRIES,
    "Reductions and scans": reduce.ENTRIES + reducers.ENTRIES,
    "Loops": loops.ENTRIES,
    "Mathematics": mathfns.ENTRIES + vectors.CONVERSIONS + ieee.ENTRIES,
    "Vectors": vectors.ENTRIES,
    "Sizes": host.ENTRIES + machine.ENTRIES,
    "Atomics": atomics.ENTRIES,
    "Barriers, assertions, printing": sync.ENTRIES,
    "Threads, warps, exchanges": warp.ENTRIES + bits.ENTRIES + threads.ENTRIES,
    "Clusters": clusters.ENTRIES,
    "The author's own CUDA": extern.ENTRIES + source_kernel.ENTRIES,
    "Particular instructions": moves.ENTRIES,
    "Hopper by hand": hopper.ENTRIES,
    "Random numbers": random.ENTRIES,
    "TVM's names": tirx.ENTRIES + lets.ENTRIES,
    "Not compiled": unsupported.ENTRIES + unsupported.TYPES,
}
"""Title of each family and its names, in the order of the documentation."""

DTYPE_NAMES = (
    *(d.name for d in (*ALL, *STORED)), "half", "float", "double", "int", "uint", "long", "short", "float8_e4m3", "float8_e5m2fn",
)  # fmt: skip
"""Names of element types in the language; each is also a cast."""

VECTORS = {f"{n}x{k}": lookup(f"{n}x{k}") for n in (*(d.name for d in (*ALL[1:], *STORED)), "float8_e4m3", "half") for k in LANES}
"""Types of several lanes; each is also a cast, and makes a vector of as many numbers."""

MARKERS = {
    "prim_func": "a kernel function", "macro": "a function inlined where it is called", "jit": "a kernel factory, or an eager kernel",
    "lazy_jit": "as jit", "autotune": "configurations to try; defaults are used", "compile": "compiles a kernel factory's result",
    "lower": "as compile",
}  # fmt: skip
"""Decorators and functions that the evaluator gives meaning to."""

ANNOTATIONS = (
    "SharedBuffer", "FragmentBuffer", "LocalBuffer", "Ref", "PrimExpr", "PrimFunc", "JITKernel", "JITFunc", "Any", "AnyDType",
    "KernelLaunchFrame", "WarpSpecializeFrame",
)  # fmt: skip
"""Names that only occur in annotations."""

_TORCH = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float32": "float32", "float": "float32", "float64": "float64",
    "double": "float64", "int8": "int8", "int16": "int16", "short": "int16", "int32": "int32", "int": "int32", "int64": "int64",
    "long": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "bool": "bool",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip


class PassConfigs(dict[str, Any]):
    """Members of tilelang.PassConfigKey: every name is known, TL_ENABLE_FAST_MATH is "tl.enable_fast_math"."""

    def __missing__(self, key: str) -> str:
        return "tl." + key.removeprefix("TL_").lower() if key.startswith("TL_") else key.lower()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and not key.startswith("_")

    def get(self, key: str, default: Any = None) -> Any:
        """The option's key as a string."""
        return default if key.startswith("_") else self[key]


def entries() -> Iterable[tuple[str, Entry]]:
    """Every callable name with the title of its family."""
    return ((family, entry) for family, group in FAMILIES.items() for entry in group)


@cache
def modules() -> Mapping[str, Namespace]:
    """Every module a kernel may import from, by its dotted path."""
    language = _language()
    sizes = {e.name: e.primitive() for e in host.ENTRIES}
    layout = {name: _hint(name) for name in _LAYOUTS} | {"Layout": works(layouts.Layout, host=True)[0].primitive()}
    layout |= {e.name: e.primitive() for e in metadata.LAYOUTS + unsupported.LAYOUTS}
    emitters = {e.name: e.primitive() for e in emitter.ENTRIES + unsupported.EMITTERS}
    utils = {e.name: e.primitive() for e in tirx.UTILS} | {name: Marker("annotation") for name in _HOST}
    supplies: dict[str, Any] = {"TensorSupplyType": autotuner.SUPPLIES}
    hints: dict[str, Any] = {name: Marker("annotation") for name in _HOST}
    hints |= {name: _hint(name) for name in ("disable_cache", "enable_cache", "set_log_level")}
    root = language | sizes | hints | supplies | {"PassConfigKey": Namespace("tilelang.PassConfigKey", PassConfigs())}
    groups = {
        "tilelang": root,
        "tilelang.language": language,
        "tilelang.math": sizes,
        "tilelang.layout": layout,
        "tilelang.cuda.intrinsics": layout,
        "tilelang.cuda.intrinsics.layout.mma_layout": layout,
        "tilelang.cuda.intrinsics.macro.mma_macro_generator": emitters,
        "tilelang.intrinsics": layout | emitters,
        "tilelang.intrinsics.mma_macro_generator": emitters,
        "tilelang.autotuner": autotuner.AUTOTUNER,
        "tilelang.jit": {"jit": Marker("jit"), "JITKernel": Marker("annotation")},
        "tilelang.transform": {"PassConfigKey": root["PassConfigKey"], "simplify_prim_func": Marker("ignore")},
        "tilelang.tools.cuda.iket": {name: _hint(name) for name in _MARKS} | {e.name: e.primitive() for e in threads.MARKED},
        "tilelang.carver.arch.driver": machine.DRIVER,
        "tilelang.contrib.nvcc": machine.NVCC,
        "tilelang.utils": utils | supplies,
        "tilelang.utils.language": utils | supplies,
        "torch": {name: lookup(d) for name, d in _TORCH.items()} | machine.TORCH | host_tensors.TORCH,
        "torch.cuda": machine.TORCH_CUDA,
        "torch.version": {"hip": None},
        **{f"{at}tvm": {"DataType": works(tensors.dtype, host=True, name="DataType")[0].primitive()} for at in ("", "tilelang.")},
        **{f"{at}tvm.{name}": _tirx() for at in ("", "tilelang.") for name in ("tirx", "tir")},
        "tilelang.language.fp8": language["fp8"].members,
        "tilelang.language.dtypes": language["dtypes"].members,
        "tilelang.cuda.intrinsics.sparse_layout": {e.name: e.primitive() for e in sparse.FACTORS},
        "tilec": root,
        "tilec.language": language,
    }
    return _nest({f"tilelang.language.{name}": language for name in _FILES} | groups)


def _nest(groups: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Namespace]:
    """Namespaces by path; a module is also a member of the package it lies in, unless a name of the package hides it."""
    members: dict[str, dict[str, Any]] = {}
    for path, own in groups.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            members.setdefault(".".join(parts[:depth]), {})
        members[path] |= own
    spaces = {path: Namespace(path, own) for path, own in members.items()}
    for path, space in spaces.items():
        parent, _, name = path.rpartition(".")
        if parent:
            members[parent].setdefault(name, space)
    return spaces


_FILES = (
    "allocate", "annotations", "atomic", "builtin", "common", "copy_op", "customize", "eager", "experimental", "fill_op", "frame",
    "gemm_op", "kernel", "logical", "loop", "math_intrinsics", "meta", "overrides", "proxy", "reduce_op", "scan_op", "symbolics",
    "tile_schedule", "tir", "utils", "warp_specialize",
)  # fmt: skip
"""Modules that the names of tilelang.language come from; here each has all of them."""

_MARKS = ("mark", "payload", "PayloadSpec", "range_push", "range_pop", "range_start", "range_end")
"""Functions of tilelang.tools.cuda.iket that mark a place for a profiler."""

_HOST = (
    "Profiler", "par_compile", "register_c_postproc", "register_cuda_postproc", "register_hip_postproc", "env",
    "is_cache_enabled", "build_date", "deprecated", "torch_assert_close", "do_bench", "autodd",
)  # fmt: skip
"""What programs around kernels use; nothing a kernel could need."""

_LAYOUTS = (
    "make_swizzled_layout", "make_mma_swizzle_layout", "make_volta_swizzled_layout", "make_wgmma_swizzled_layout", "make_linear_layout",
    "make_full_bank_swizzled_layout", "make_half_bank_swizzled_layout", "make_quarter_bank_swizzled_layout", "get_swizzle_layout",
    "make_gemm_fragment_8x8", "make_gemm_fragment_8x8_transposed", "make_fully_replicated_layout_fragment",
    "make_fully_replicated_partial_fragment", "SwizzleMode", "PartialFragment", "Fragment",
)  # fmt: skip


def _language() -> dict[str, Any]:
    """Members of tilelang.language."""
    members: dict[str, Any] = {entry.name: entry.primitive() for _, entry in reversed(tuple(entries()))}
    members |= {name: lookup(name) for name in DTYPE_NAMES} | {"ptr": HANDLE, "handle": HANDLE}
    members |= VECTORS
    members |= {e.name: e.primitive() for e in (*unsupported.VECTOR_TYPES, *unsupported.EMITTERS)}
    members |= {"boolean": members["bool"], "void": HANDLE, "Ptr": HANDLE}
    members |= {name: Marker(name) for name in MARKERS} | {name: Marker("annotation") for name in ANNOTATIONS}
    members["GemmWarpPolicy"] = Namespace("tilelang.language.GemmWarpPolicy", gemm.POLICIES)
    fp8 = works(determine_fp8_type, "determine_torch_fp8_type", host=True)
    members["fp8"] = Namespace("tilelang.language.fp8", {e.name: e.primitive() for e in fp8})
    kinds = {name: members[name] for name in (*DTYPE_NAMES, *VECTORS)} | {"dtype": members["dtype"]}
    members["dtypes"] = Namespace("tilelang.language.dtypes", kinds)
    members |= {name: _hint(name) for name in (*_LAYOUTS, "validate_gemm_ab_dtypes") if name != "Fragment"}
    return members


def determine_fp8_type(b: Builder, fp8_format: Any = "e4m3") -> Any:
    """The 8-bit float of NVIDIA GPUs for a format: e4m3 or e5m2."""
    found = lookup(str(fp8_format))
    if found is None or found.bits != 8 or not found.is_float:
        raise b.error("TL0302", f"unknown 8-bit float format {fp8_format!r}", help='use "e4m3" or "e5m2"')
    return found


def _hint(name: str) -> Primitive:
    """A callable whose result only hints."""
    return ignored(layouts.Fragment, name=name, host=True)[0].primitive()


def _tirx() -> dict[str, Any]:
    """The pieces of TVM that kernels' helpers name: literals, casts and selects."""
    names = {e.name: e.primitive() for e in mathfns.ENTRIES + vectors.CONVERSIONS}
    keep = {n: names[n] for n in ("Cast", "Select", "reinterpret", "if_then_else", "max", "min", "floordiv", "floormod", "exp", "log2")}
    return keep | {"const": works(mathfns.const, host=True)[0].primitive(), "PrimExpr": Marker("annotation"), "Var": Marker("annotation")}


def suggest(namespace: Namespace, name: str) -> str | None:
    """The member most like `name`, for "did you mean": names that are compiled come before those that are refused."""
    refused = {e.name for _, e in entries() if e.state is State.REFUSED}
    members = [m for m in namespace.members if not m.startswith("_")]
    return nearest(name, [m for m in members if m not in refused]) or nearest(name, members)
