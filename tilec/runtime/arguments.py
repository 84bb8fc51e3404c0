"""Checks the arguments of a call against the manifest: types, shapes, strides, devices, alignment; finds sizes and the variant.

    checked = check(entry, views, {"M": 128})  ->  integers by name, tensors to make
    choose(entry, checked.env, capability)     ->  the variant of each launch and its grid

Every message names the parameter. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.record import record
from tilec.emit.hosteval import HostExprError, evaluate
from tilec.ir.dtypes import lookup
from tilec.runtime.arrays import View, describe
from tilec.runtime.dlpack import dense_strides
from tilec.runtime.numbers import ArgumentError

GRID_LIMITS = (2147483647, 65535, 65535)
_ALSO = {"bfloat16": ("uint16",), "float8_e4m3fn": ("uint8",), "float8_e5m2": ("uint8",), "tfloat32": ("float32",),
         "uint8": ("float8_e8m0fnu", "float4_e2m1fn_x2")}  # fmt: skip
"""Types of arrays that hold the same bits; kernels take exponents and pairs of 4-bit floats as bytes."""

Json = Mapping[str, Any]


@record
class Checked:
    """Integers by name (extents, integer scalars), and the shapes of the tensors that are to be made, by name."""

    env: dict[str, int]
    made: dict[str, tuple[int, ...]]


@record
class Chosen:
    """A variant of one launch and its grid, whether its blocks wait for each other, and whether it waits for the launches in front."""

    variant: Json
    grid: tuple[int, int, int]
    cooperative: bool
    overlaps: bool = False


def check(entry: Json, views: Mapping[str, View], integers: Mapping[str, int], allocated: Sequence[str]) -> Checked:
    """Checks the tensors that are given and finds every size; `allocated` are the outputs that are not given. ArgumentError."""
    params = {p["name"]: p for p in entry["params"] if p["role"] != "scalar"}
    for name, v in views.items():
        _check_type(params[name], v)
    _check_devices(views)
    env = _sizes(entry, params, views, integers)
    for name, v in views.items():
        _check_shape(params[name], v, env)
    for name in (e["name"] for e in entry["extents"]):
        if env[name] < 0:
            raise ArgumentError(f"the extent `{name}` is negative: {env[name]}")
    made = {name: tuple(_value(str(e), env, name) for e in params[name]["shape"]) for name in allocated}
    for condition in entry.get("checks", []):
        if not _value(condition["holds"], env, entry["symbol"]):
            raise ArgumentError(str(condition["message"]))
    return Checked(env, made)


def _check_type(param: Json, v: View) -> None:
    name, dtype = param["name"], param["dtype"]
    if v.dtype != dtype and v.dtype not in _ALSO.get(dtype, ()):
        raise ArgumentError(f"`{name}` must be {dtype}, not {v.dtype}")
    rank = len(param["shape"])
    if len(v.shape) != rank:
        raise ArgumentError(f"`{name}` must have {rank} dimension{'s' * (rank != 1)}, not {len(v.shape)} ({describe(v.shape)})")
    if v.read_only and param["role"] != "in":
        raise ArgumentError(f"`{name}` is written, and this array may only be read")
    kind = lookup(dtype)
    if kind is not None and v.address % kind.bytes:
        raise ArgumentError(f"`{name}` must lie at a multiple of {kind.bytes} bytes, the size of its elements")


def _check_devices(views: Mapping[str, View]) -> None:
    first = next(iter(views.items()), None)
    for name, v in views.items():
        if first is not None and v.device != first[1].device:
            raise ArgumentError(f"`{name}` lies on GPU {v.device} and `{first[0]}` on GPU {first[1].device}; all must lie on one")


def _sizes(entry: Json, params: Mapping[str, Json], views: Mapping[str, View], integers: Mapping[str, int]) -> dict[str, int]:
    """Extents and integer scalars: those that are given, else from the shapes and strides that name them."""
    env = dict(integers)
    for name, v in views.items():
        for text, extent in zip(params[name]["shape"], v.shape, strict=True):
            if str(text).isidentifier():
                env.setdefault(str(text), extent)
        for text, stride in zip(params[name].get("strides", ()), v.strides, strict=False):
            if str(text).isidentifier():
                env.setdefault(str(text), stride)
    wanted = [e["name"] for e in entry["extents"]] + [p["name"] for p in entry["params"] if p["role"] == "scalar" and _is_integer(p)]
    if missing := [n for n in wanted if n not in env]:
        raise ArgumentError(f"`{missing[0]}` has no value: pass {missing[0]}=..., it does not follow from the arrays")
    return env


def _is_integer(param: Json) -> bool:
    kind = lookup(param["dtype"])
    return kind is not None and not kind.is_float


def _check_shape(param: Json, v: View, env: Mapping[str, int]) -> None:
    name = param["name"]
    for d, (text, extent) in enumerate(zip(param["shape"], v.shape, strict=True)):
        wanted = _value(str(text), env, name)
        if wanted != extent:
            why = "" if str(text).lstrip("-").isdecimal() else f" ({text} = {wanted})"
            raise ArgumentError(f"`{name}` is {describe(v.shape)}: dimension {d} must be {wanted}{why}, not {extent}")
    strides = tuple(_value(str(e), env, name) for e in param["strides"]) if "strides" in param else dense_strides(v.shape)
    if math.prod(v.shape) == 0:
        return
    for extent, wanted, got in zip(v.shape, strides, v.strides, strict=True):
        if extent > 1 and wanted != got:
            how = "have" if "strides" in param else "be row-major without gaps,"
            raise ArgumentError(f"`{name}` must {how} strides {strides}, not {v.strides} (in elements); make a contiguous copy")


def choose(entry: Json, env: Mapping[str, int], capability: int) -> list[Chosen]:
    """The first variant of each launch that this GPU and these addresses allow; launches without blocks are left out."""
    found = []
    for launch in entry["launches"]:
        fitting = [v for v in launch["variants"] if runs_on(v["arch"], capability)]
        if not fitting:
            raise ArgumentError(f"{entry['symbol']} was written for {launch['variants'][0]['arch']}; this GPU is sm_{capability}")
        variant = next((v for v in fitting if _value(v["when"], env, entry["symbol"])), None)
        if variant is None:
            needs = f"{fitting[-1]['when']} (a tensor's name is its address)"
            raise ArgumentError(f"no variant of {entry['symbol']} fits these arrays: it needs {needs}")
        sizes = [_value(str(g), env, entry["symbol"]) for g in variant["grid"]]
        for axis, size, limit in zip("xyz", sizes, GRID_LIMITS, strict=True):
            if not 0 <= size <= limit:
                raise ArgumentError(f"{entry['symbol']} would have {size} blocks along {axis}; 0 to {limit} are possible")
        if all(sizes):
            found.append(Chosen(variant, (sizes[0], sizes[1], sizes[2]), bool(launch.get("cooperative")), bool(launch.get("overlaps"))))
    return found


def runs_on(arch: str, capability: int) -> bool:
    """Whether code for `arch` may run on a GPU: from its number on, or on exactly that GPU where the name ends with a letter."""
    digits = arch.removeprefix("sm_")
    return capability == int(digits[:-1]) if digits[-1:].isalpha() else capability >= int(digits)


def best_arch(archs: Sequence[str], capability: int) -> str:
    """What to compile machine code for: the GPU itself, with the letter that one of the variants asks for."""
    exact = [a for a in archs if a[-1:].isalpha() and runs_on(a, capability)]
    return exact[0] if exact else f"sm_{capability}"


def _value(text: str, env: Mapping[str, int], where: str) -> int:
    try:
        return evaluate(text, env)
    except HostExprError as fault:
        raise ArgumentError(f"`{where}`: {fault}") from None
