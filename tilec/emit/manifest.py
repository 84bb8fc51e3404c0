"""The manifest: what a program must know to load and launch the kernels of a .cu, as JSON in a comment of the file.

    manifest([plan]) -> {"version": 1, "kernels": [{"symbol": "matmul", "params": [...], "launches": [...]}]}
    parse(cu_text) gives the same dictionary back; `manifest.schema.json` describes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tilec.emit.hopper import maps as tensor_maps
from tilec.emit.hostexpr import manifest_text
from tilec.emit.launcher import is_written
from tilec.ir.expr import Buffer, Expr
from tilec.ir.kernel import Param
from tilec.ir.visit import storage
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.plan import LaunchPlan, Plan, Variant
from tilec.plan.walk import specialised

Json: TypeAlias = dict[str, Any]

VERSION = 1
BEGIN, END = "tilec-manifest-begin", "tilec-manifest-end"


def manifest(plans: Sequence[Plan]) -> Json:
    """The manifest of a file that holds these kernels."""
    return {"version": VERSION, "kernels": [_kernel(p) for p in plans]}


def comment(data: Json, width: int = 122) -> str:
    """The manifest as the lines of a C++ comment, ASCII, at most about `width` columns."""
    lines = [BEGIN, *_lay(data, width), END]
    return "\n".join(f"// {line}" for line in lines)


def parse(text: str) -> Json:
    """The manifest in the text of a .cu; ValueError if there is none, or if it is broken."""
    lines = iter(text.splitlines())
    if not any(line.strip() == f"// {BEGIN}" for line in lines):
        raise ValueError(f"no `{BEGIN}` in the file")
    body: list[str] = []
    for line in lines:
        if line.strip() == f"// {END}":
            loaded = json.loads("\n".join(body))
            if not isinstance(loaded, dict) or loaded.get("version") != VERSION:
                raise ValueError(f"not a manifest of version {VERSION}")
            return loaded
        body.append(line.strip().removeprefix("//"))
    raise ValueError(f"no `{END}` in the file")


def _kernel(plan: Plan) -> Json:
    kernel, span = plan.kernel, plan.kernel.span
    names = [p.name for p in (*kernel.params, *kernel.extents)]

    def text(e: Expr | None) -> str:
        return "0" if e is None else manifest_text(e, span)

    out: Json = {
        "symbol": plan.symbol,
        "source": {"file": span.file.replace("\\", "/").rsplit("/", 1)[-1], "line": span.line},
        "launcher": f"{plan.symbol}_launch",
        "params": [_param(plan, p) for p in kernel.params],
        "extents": [{"name": e.name, "dtype": str(e.dtype)} for e in kernel.extents],
        "outputs": list(kernel.outputs),
        "workspace": text(plan.workspace),
        "flop": text(plan.flop),
        "bytes": text(plan.bytes),
        "checks": [{"holds": text(c.holds), "message": c.message} for c in plan.checks],
        "launches": [_launch(plan, g, names + (["workspace"] if plan.workspace is not None else [])) for g in plan.launches],
    }
    if plan.scratch.zeroed:
        out["workspace_zeroed"] = plan.scratch.zeroed
    if kernel.symbol != plan.symbol:
        out["name"] = kernel.symbol  # as the author wrote it
    return out


def _param(plan: Plan, p: Param) -> Json:
    if not isinstance(p, Buffer):
        return {"name": p.name, "dtype": str(p.dtype), "role": "scalar"}
    read, written = any(storage(b) is p for b in plan.read), is_written(plan, p)
    out: Json = {
        "name": p.name,
        "dtype": str(p.dtype),
        "shape": [manifest_text(e, p.span) for e in p.shape],
        "role": "inout" if read and written else "out" if written else "in",
    }
    if p.strides is not None:
        out["strides"] = [manifest_text(e, p.span) for e in p.strides]
    return out


def _launch(plan: Plan, grid: LaunchPlan, args: Sequence[str]) -> Json:
    out: Json = {"variants": [_variant(plan, grid, v, args) for v in grid.variants]}
    out |= {"overlaps": True} if grid.overlaps else {}
    return {**out, "cooperative": True} if grid.cooperative else out


def _variant(plan: Plan, grid: LaunchPlan, variant: Variant, args: Sequence[str]) -> Json:
    span = grid.launch.span
    maps = tensor_maps.map_names(variant, list(args))
    return {
        "symbol": variant.symbol,
        "arch": variant.arch or plan.target.name,
        "when": "1" if variant.when is None else manifest_text(variant.when, span),
        "grid": [manifest_text(e, span) for e in variant.grid or grid.grid],
        "block": list(variant.threads or grid.threads),
        "cluster": [variant.cluster, 1, 1] if specialised(variant) else list(grid.launch.cluster),
        "shared_bytes": variant.shared_bytes,
        "args": [*maps, *args],
        "tensor_maps": [_tensor_map(plan, m, name) for m, name in zip(variant.tensor_maps, maps, strict=True)],
    }


def _tensor_map(plan: Plan, m: TensorMap, name: str) -> Json:
    """A tensor map: the driver's element type, extents, strides in bytes and box, innermost dimension first."""
    scratch = m.tensor.workspace
    return {
        "name": name,
        "param": "workspace" if scratch else m.tensor.name,
        **({"offset": manifest_text(plan.scratch.offsets[m.tensor])} if scratch else {}),
        "type": tensor_maps.data_type(m.tensor.dtype),
        "dims": [manifest_text(e) for e in tensor_maps.map_extents(m)],
        "strides": [manifest_text(e) for e in tensor_maps.map_strides(m)],
        "box": list(m.box),
        "swizzle": m.swizzle,
    }


def _lay(value: object, width: int) -> list[str]:
    """JSON text of `value` in lines: on one line where it fits, else filled, an entry that needs several on lines of its own."""
    whole = json.dumps(value)
    if len(whole) <= width or not isinstance(value, dict | list) or not value:
        return [whole]
    pairs = [(f"{json.dumps(k)}: ", v) for k, v in value.items()] if isinstance(value, dict) else [("", v) for v in value]
    opener, closer = "{}" if isinstance(value, dict) else "[]"
    lines, line = [], opener
    for i, (key, entry) in enumerate(pairs):
        first, *rest = _lay(entry, width - 2)
        comma = "," if i + 1 < len(pairs) else closer
        if line != opener and (rest or len(line) + len(key) + len(first) + 3 > width):
            lines.append(line)
            line = ""
        line += (" " if line[-1:] != opener or i else "") + key + first
        if rest:
            lines += [line, *(f" {inner}" for inner in rest[:-1])]
            line = f" {rest[-1]}"
        line += comma
    return [*lines, line]


def find_kernel(data: Json, symbol: str) -> Mapping[str, Any]:
    """The entry of the kernel with this symbol; KeyError if the file has none."""
    for kernel in data["kernels"]:
        if kernel["symbol"] == symbol:
            return dict(kernel)
    raise KeyError(symbol)
