"""Keywords that TileLang's functions have under other names than tilec's, and those that only hint.

    T.align_up(x=n, y=8)  ->  align_up(value=n, alignment=8);   T.fill(A, 0, annotations={...})  ->  fill(A, 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HINTS = ("annotations", "span")
"""Keywords of many functions that say nothing of what is computed."""

_TWO = {"x1": "x", "x2": "y"}
_SHORT = {"x": "a", "y": "b"}

ALIASES: Mapping[str, Mapping[str, str]] = {
    "align_up": {"x": "value", "y": "alignment"}, "address_of": {"obj": "element"}, "all_of": {"buffer": "values"},
    "any_of": {"buffer": "values"}, "allocate": {"shape": "extents"},
    "annotate_layout": {"layout_map": "layouts"}, "annotate_safe_value": {"safe_value_map": "values"}, "assume": {"cond": "condition"},
    "atan2": _TWO, "copysign": _TWO, "hypot": _TWO, "nextafter": _TWO, "bitwise_and": _SHORT, "bitwise_or": _SHORT,
    "bitwise_xor": _SHORT, "pow": _SHORT, "shift_left": _SHORT, "shift_right": _SHORT, "comm_reducer": {"combiner": "fcombine"},
    "const": {"name": "names"}, "dynamic": {"name": "names"}, "symbolic": {"name": "names"},
    "cp_async_barrier_noinc": {"barrier": "mbarrier"}, "extract_lane": {"vector": "value"},
    "ignore_loop_partition": {"predicate": "cond"}, "make_tensor_from_addr": {"addr": "ptr"}, "sblock_attr": {"attrs": "cond"},
    "ptx_cp_async": {"dst_access_ptr": "dst", "src_access_ptr": "src", "num_elems": "count"},
    "tvm_storage_sync": {"storage_scope": "scope"},
}  # fmt: skip
"""Of each function: TileLang's name of an argument, and the one here."""

ORDERED: Mapping[str, tuple[str, ...]] = {
    "max": ("a", "b"), "min": ("a", "b"), "parallel": ("start", "stop"), "call_extern": ("dtype", "func_name"),
    "call_pure_extern": ("dtype", "func_name"), "call_intrin": ("dtype", "func_name"),
}  # fmt: skip
"""The first arguments of functions that take any number; given by keyword they come to stand in front."""

UNUSED: Mapping[str, Mapping[str, Any]] = {
    name: {"elem_offset": 0, "align": None, "offset_factor": None, "buffer_type": None, "axis_separators": None}
    for name in ("Buffer", "Tensor", "buffer", "buffer_decl", "decl_buffer", "match_buffer", "sblock_alloc_buffer", "alloc_buffer")
}
"""Arguments of declarations that do not matter, except an offset, which must be the value given here."""


def settle(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], own: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call under tilec's names, without hints; `own` are the names that the function has itself."""
    first = ORDERED.get(name, ())
    if any(k in kwargs for k in first):
        args = (*args, *(kwargs[k] for k in first[len(args) :] if k in kwargs))
    aliases, unused = ALIASES.get(name, {}), UNUSED.get(name, {})
    kept = {aliases.get(k, k) if k not in own else k: v for k, v in kwargs.items() if k not in first or k in own}
    for key, value in tuple(kept.items()):
        idle = key in unused and (unused[key] is None or value is None or (isinstance(value, int) and value == unused[key]))
        if key not in own and (key in HINTS or idle):
            del kept[key]
    return args, kept


def accepts(name: str, own: tuple[str, ...], key: str) -> bool:
    """True when a call of a function may have a keyword: its own, one under TileLang's name, or a hint."""
    return key in own or key in HINTS or key in ALIASES.get(name, {}) or key in ORDERED.get(name, ()) or key in UNUSED.get(name, {})
