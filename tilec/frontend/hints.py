"""What to do about the mistakes that a newcomer makes: the help lines of names, attributes, modules and loops.

    unknown_name("alloc_shared", {}) -> "did you mean `T.alloc_shared`?";  attribute("to") -> "T.cast(x, dtype) converts ..."
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tilec.ir.expr import Binary, Buffer, Call, Cast, Compare, Const, Load, Logical, Reinterpret, Select, Unary, Var
from tilec.language.catalogue import modules
from tilec.language.values import Ref, Value

_BLOCKS, _THREADS = ("bx", "by", "bz"), ("tx", "ty", "tz", "tid")
_CAST = "T.cast(x, dtype) converts, as in `T.cast(x, \"float32\")`"
_REDUCE = "T.reduce_sum, T.reduce_max and T.reduce_min combine the elements of a tile into a smaller tile"
_ATTRIBUTES = {
    **dict.fromkeys(("to", "type", "float", "half", "int", "bfloat16", "double", "long"), _CAST),
    **dict.fromkeys(("sum", "max", "min", "mean", "amax", "amin", "abs", "norm"), _REDUCE),
    **dict.fromkeys(("T", "t", "mT", "transpose", "permute"), "index it the other way round; T.gemm has transpose_A and transpose_B"),
    **dict.fromkeys(("view", "reshape", "flatten", "ravel"), "T.reshape(tile, shape) and T.view(tile, shape, dtype) give another view"),
    **dict.fromkeys(("size", "numel", "len"), "the extents are `.shape[0]`, `.shape[1]`, ..."),
    **dict.fromkeys(("zero_", "fill_", "copy_", "fill", "copy", "clone"), "write T.clear, T.fill or T.copy"),
    "item": "index it, as in `x[0]`",
}
_NOT_RUN = ("numpy", "torch", "cupy", "jax", "scipy", "triton", "math")


def unknown_name(name: str, names: Iterable[str]) -> str:
    """What may have been meant by a name that nothing binds; `names` are those in sight."""
    near = get_close_matches(name, sorted(names), 1)
    if name in _BLOCKS:
        return f"name the block indices in `with T.Kernel(...) as {name}:`, one for each extent of the grid"
    if name in _THREADS:
        return f"`{name} = T.get_thread_binding()` gives the index of the thread"
    if name in ("T", "tilelang"):
        return "write `import tilelang.language as T` at the top of the file"
    if name == "input":
        return "values from outside come with -D NAME=VALUE, or from run-time parameters of the kernel"
    if near:
        return f"did you mean `{near[0]}`?"
    language = modules().get("tilelang.language")
    return f"did you mean `T.{name}`?" if language is not None and name in language.members else ""


def attribute(name: str) -> str:
    """What a kernel writes for an attribute that arrays have in other libraries."""
    near = get_close_matches(name, ("shape", "dtype", "astype"), 1)
    return _ATTRIBUTES.get(name, f"did you mean `.{near[0]}`?" if near else "")


def foreign(module: str, name: str) -> str:
    """What a kernel writes for the function `name` of a library that it cannot call."""
    if module in ("sys", "os", "argparse"):
        return "values from outside come with -D NAME=VALUE, or from run-time parameters of the kernel"
    if module.split(".")[0] not in _NOT_RUN:
        return ""
    language = modules().get("tilelang.language")
    text = f"{module} does not run in a kernel; write the computation with T"
    if name == "relu":
        return f"{text}: T.max(x, 0)"
    return f"{text}: T.{name}" if language is not None and name in language.members else f"{text}, as in T.exp, T.max or T.reduce_sum"


def iterate(value: Value) -> str:
    """What to do about a value that cannot be walked while compiling."""
    if isinstance(value, Buffer | Ref):
        return f"index it in T.Parallel or T.serial; {_REDUCE}"
    return "use T.serial, T.Parallel, range, or a list, tuple, zip or enumerate of known values"


def variable(name: str, value: Value | None) -> str:
    """How to declare a name that run-time control flow assigns; `value` is one that it takes, if that is known."""
    match value:
        case Ref():
            shown = str(value.buffer.dtype)
        case Const() | Var() | Load() | Unary() | Binary() | Compare() | Logical() | Select() | Cast() | Reinterpret() | Call():
            shown = str(value.dtype)
        case bool():
            shown = "bool"
        case float():
            shown = "float32"
        case _:
            shown = "int32"
    return f'declare it as `{name} = T.alloc_var("{shown}")` (or another dtype) before, and assign to it: that makes it a run-time variable'
