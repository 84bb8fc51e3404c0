"""Loads the kernels of a generated file on a GPU through CuPy, by its manifest alone: what SYMBOL_launch does, in Python.

    module = Module(cu_text, manifest);  module.kernel("matmul")({"A": a, "B": b, "C": c}, {"M": 128, "N": 128, "K": 32})

Arrays are CuPy arrays of any type with the right item size; bf16 and fp8 tensors travel as unsigned integers. The machine code is made
by `cubin`, because CuPy's own compilation turns small float32 numbers into zeros. Needs CuPy and NumPy only: a bundle for another
machine carries this file, `hosteval` and `cubin` as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.emit.hosteval import evaluate
from tilec.runtime.cubin import cubin_file

GRID_LIMITS = (2147483647, 65535, 65535)
_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
_PLAIN_SHARED = 48 * 1024


class Refused(ValueError):
    """The arguments are not what the kernel can be launched with; the text says why."""


class Module:
    """A .cu, compiled for the current device; `options` are further ones of NVRTC and nvcc. MissingError without either."""

    def __init__(self, cu: str, manifest: Mapping[str, Any], options: Sequence[str] = ()) -> None:
        import cupy

        variants = [v for k in manifest["kernels"] for launch in k["launches"] for v in launch["variants"]]
        # Bodies for an architecture with a letter use instructions that only it has, which the compiler must be told.
        self.exact = {v["arch"] for v in variants if v["arch"][-1:].isalpha()}
        number = cupy.cuda.Device().compute_capability
        self.exact &= {f"sm_{number}a"}
        together = any(launch.get("cooperative") for k in manifest["kernels"] for launch in k["launches"])
        path = cubin_file(cu, next(iter(self.exact), f"sm_{number}"), options)
        self.raw = cupy.RawModule(path=str(path), **({"enable_cooperative_groups": True} if together else {}))
        self.manifest = manifest

    def kernel(self, symbol: str) -> Kernel:
        """The kernel with this symbol; KeyError if the file has none."""
        for entry in self.manifest["kernels"]:
            if entry["symbol"] == symbol:
                return Kernel(self, entry)
        raise KeyError(symbol)


class Kernel:
    """One kernel of a loaded file: called with arrays by name and numbers by name, it queues its launches on a stream."""

    def __init__(self, module: Module, entry: Mapping[str, Any]) -> None:
        self.module, self.entry = module, entry
        self._functions: dict[str, Any] = {}

    def __call__(self, arrays: Mapping[str, Any], numbers: Mapping[str, int | float], stream: Any = None) -> None:
        """Queues the kernel. Raises Refused for what the launcher of the file refuses too."""
        for launch in self.prepare(arrays, numbers):
            launch(stream)

    def prepare(self, arrays: Mapping[str, Any], numbers: Mapping[str, int | float]) -> list[PreparedLaunch]:
        """The launches with everything that can be computed once, so that they may be timed or repeated cheaply."""
        import cupy

        env = {n: int(v) for n, v in numbers.items() if isinstance(v, int | np.integer)}
        self._check(env)
        scratch = str(self.entry["workspace"])  # the size may be 0 for these extents and not for others
        workspace = None if scratch == "0" else cupy.zeros(max(evaluate(scratch, env), 1), cupy.uint8)
        addresses = {name: int(a.data.ptr) for name, a in {**arrays, "workspace": workspace}.items() if a is not None}
        values = self._arguments(arrays, numbers, workspace)
        found = (self._launch(launch, {**env, **addresses}, values) for launch in self.entry["launches"])
        return [launch for launch in found if launch is not None]

    def _check(self, env: Mapping[str, int]) -> None:
        for extent in self.entry["extents"]:
            if env[extent["name"]] < 0:
                raise Refused(f"the extent {extent['name']} is negative")
        for check in self.entry.get("checks", []):
            if not evaluate(check["holds"], env):
                raise Refused(check["message"])

    def _arguments(self, arrays: Mapping[str, Any], numbers: Mapping[str, int | float], workspace: Any) -> dict[str, Any]:
        """Every argument by name, exactly of the type that the kernel declares: CuPy passes Python numbers too wide."""
        out: dict[str, Any] = {"workspace": workspace}
        for p in self.entry["params"]:
            out[p["name"]] = scalar(numbers[p["name"]], p["dtype"]) if p["role"] == "scalar" else arrays[p["name"]]
        for e in self.entry["extents"]:
            out[e["name"]] = scalar(numbers[e["name"]], e["dtype"])
        return out

    def _launch(self, launch: Mapping[str, Any], env: Mapping[str, int], values: Mapping[str, Any]) -> PreparedLaunch | None:
        mixed = len({v["arch"] for v in launch["variants"]}) > 1
        special = [v for v in launch["variants"] if v["tensor_maps"] or _persistent(v) or (mixed and v["arch"][-1:].isalpha())]
        fitting = (v for v in launch["variants"] if v not in special or v["arch"] in self.module.exact)
        variant = next((v for v in fitting if evaluate(v["when"], env)), None)
        if variant is None:
            raise Refused("no variant of the kernel fits the alignment of these arrays")
        if _persistent(variant):
            env = {**env, "multiprocessors": self._multiprocessors()}
        grid = tuple(evaluate(str(g), env) for g in variant["grid"])
        if any(not 0 <= n <= limit for n, limit in zip(grid, GRID_LIMITS, strict=True)):
            raise Refused(f"a grid of {' x '.join(map(str, grid))} blocks is not possible")
        if not math.prod(grid):
            return None
        values = {**values, **self._maps(variant, env)}
        function = self._function(variant["symbol"], int(variant["shared_bytes"]))
        arguments = tuple(values[name] for name in variant["args"])
        return PreparedLaunch(function, grid, tuple(variant["block"]), int(variant["shared_bytes"]), arguments)

    @staticmethod
    def _multiprocessors() -> int:
        import cupy

        return int(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["multiProcessorCount"])

    @staticmethod
    def _maps(variant: Mapping[str, Any], env: Mapping[str, int]) -> dict[str, Any]:
        """The tensor maps that a body takes in front of the caller's arguments, by name."""
        if not variant["tensor_maps"]:
            return {}
        from tilec.runtime.tensor_maps import tensor_map

        at = {m["name"]: env[m["param"]] + evaluate(str(m.get("offset", "0")), env) for m in variant["tensor_maps"]}
        return {m["name"]: tensor_map(m, at[m["name"]], env) for m in variant["tensor_maps"]}

    def _function(self, symbol: str, shared_bytes: int) -> Any:
        if symbol not in self._functions:
            function = self.module.raw.get_function(symbol)
            if shared_bytes > _PLAIN_SHARED:
                function.max_dynamic_shared_size_bytes = shared_bytes
            self._functions[symbol] = function
        return self._functions[symbol]


class PreparedLaunch:
    """A grid with its arguments, ready to be queued any number of times."""

    def __init__(self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, arguments: tuple[Any, ...]) -> None:
        self.function, self.grid, self.block, self.shared_bytes, self.arguments = function, grid, block, shared_bytes, arguments

    def __call__(self, stream: Any = None) -> None:
        """Queues the grid on `stream` (the current one by default)."""
        self.function(self.grid, self.block, self.arguments, shared_mem=self.shared_bytes, stream=stream)


def _persistent(variant: Mapping[str, Any]) -> bool:
    """True for a body of Hopper's own: its blocks take tile after tile, one a multiprocessor."""
    return any("multiprocessors" in str(g) for g in variant["grid"])


def scalar(value: int | float, dtype: str) -> Any:
    """A number as the NumPy scalar of a manifest's type; bf16 and fp8 as their bits."""
    if dtype in _BITS:
        import ml_dtypes  # only these types need it

        return np.asarray(value, np.dtype(getattr(ml_dtypes, dtype))).view(_BITS[dtype])[()]
    return np.dtype("float32" if dtype == "tfloat32" else dtype).type(value)


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A host array that CuPy can hold: types that it lacks as unsigned integers of the same width."""
    known = array.dtype.kind in "biuf" and array.dtype.name not in _BITS
    return array if known else array.view(f"u{array.dtype.itemsize}")
