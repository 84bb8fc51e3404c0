"""Kernels as Python functions: `tilec.load("k.cu")` and `tilec.compile("k.py", M=...)`.

    gemm = tilec.compile("gemm.py", dtype="bfloat16")
    C = gemm(A, B)                    # torch tensors, CuPy arrays, anything with DLPack or __cuda_array_interface__
    gemm(A, B, C=C, stream=stream)    # into an array of yours, on a stream of yours

A first call with arguments of new shapes and types is checked at length and leaves a plan; later ones look the plan up, put the
addresses in and launch. The plan's key has everything that the checks depend on, so nothing is checked less.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilec.emit.hosteval import evaluate
from tilec.runtime import arguments, arrays, numbers
from tilec.runtime.arrays import Reading, View
from tilec.runtime.cubin import cubin
from tilec.runtime.driver_api import MULTIPROCESSORS, GpuError, driver
from tilec.runtime.launching import Launch, Output, Plan
from tilec.runtime.numbers import ArgumentError

ALIGNMENT = 128
"""Conditions on addresses look at remainders by divisors of this many bytes."""

_KEPT_PLANS = 512
_TENSOR, _INTEGER, _FLOAT = range(3)


class _Missing:
    """Stands for an argument that is not given."""

    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


class Kernel:
    """A kernel of a generated file. Calling it queues it on a GPU and returns its outputs without waiting.

    Positional arguments are the parameters in their order, without the outputs that the call makes (`out_idx`, `T.empty`); all may be
    given by name, and outputs too. Sizes follow from the arrays. It may be called from several threads, for several GPUs, and while a
    CUDA graph is captured. `close` gives the machine code back; so does dropping the last reference.
    """

    def __init__(self, source: str, entry: Mapping[str, Any], outputs: Iterable[str] | None = None) -> None:
        self.source = source
        self.entry = entry
        self.symbol: str = entry["symbol"]
        params = [*entry["params"], *entry["extents"]]
        self._names = [p["name"] for p in params]
        self._dtypes = [p["dtype"] for p in params]
        self._kinds = [_kind(p) for p in params]
        self._formats = ["Q" if k != _FLOAT else numbers.pack_format(d) for k, d in zip(self._kinds, self._dtypes, strict=True)]
        self._slots = {name: i for i, name in enumerate(self._names)}
        self.outputs: tuple[str, ...] = tuple(entry["outputs"] if outputs is None else outputs)
        for name in self.outputs:
            if name not in self._slots or self._kinds[self._slots[name]] != _TENSOR:
                raise ArgumentError(f"{self.symbol} has no tensor `{name}` to make; its parameters are {', '.join(self._names)}")
        count = len(entry["params"])
        self._all = list(range(count))
        self._unnamed = [_MISSING] * (len(params) - count)
        self._inputs = [i for i in self._all if self._names[i] not in self.outputs]
        self._returned = [self._slots[n] for n in self.outputs]
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._readers: dict[type, Callable[[Any], Reading]] = {}
        self._modules: dict[int, int] = {}
        self._functions: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._finalizer = weakref.finalize(self, _unload, self._modules)
        self._finalizer.atexit = False  # when the process ends, the driver takes everything back by itself

    def __repr__(self) -> str:
        return f"<tilec kernel {self.signature}>"

    @property
    def signature(self) -> str:
        """What it takes and returns: `gemm(A: float16[M, K], B: float16[K, N]) -> C: float32[M, N]`."""
        entry = [*self.entry["params"], *self.entry["extents"]]
        texts = [f"{p['name']}: {p['dtype']}" + (f"[{', '.join(map(str, p['shape']))}]" if "shape" in p else "") for p in entry]
        taken = ", ".join(texts[i] for i in self._inputs)
        made = ", ".join(texts[i] for i in self._returned)
        return f"{self.symbol}({taken})" + (f" -> {made}" if made else "")

    def __call__(self, *args: Any, stream: Any = None, **named: Any) -> Any:
        """Queues the kernel on `stream` (the current one of the arrays' library) and returns the outputs: none, one, or a tuple.

        Raises ArgumentError, which names the parameter at fault, and GpuError where the driver refuses.
        """
        given = self._arrange(args, named)
        number = None if stream is None else arrays.stream_number(stream)
        values, key, owners = self._read(given, number)
        try:
            plan = self._plans.get(key)
        except TypeError:  # a scalar that cannot be looked up, such as an array of one number
            plan = None
        if plan is None:
            plan = self._plan(given, key, number)
        return self._finish(plan, given, values, number, owners)

    def prepare(self, device: int = 0) -> Kernel:
        """Loads the machine code onto a GPU now, compiling it if the cache lacks it, so that no call has to."""
        self._module(device)
        return self

    def close(self) -> None:
        """Gives the machine code back. The kernel must not be running any more and cannot be called again."""
        with self._lock:
            self._closed = True
            self._plans.clear()
            self._functions.clear()
            self._finalizer()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- from arguments to a plan

    def _arrange(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in slots, in the order of parameters and extents."""
        if len(args) == len(self._all) and not named:
            return [*args, *self._unnamed]
        order = self._inputs if len(args) <= len(self._inputs) else self._all
        if len(args) > len(order):
            raise ArgumentError(f"{self.symbol} takes {len(order)} arguments, {len(args)} were given: {self.signature}")
        given: list[Any] = [_MISSING] * len(self._names)
        for i, value in zip(order, args, strict=False):
            given[i] = value
        for name, value in named.items():
            at = self._slots.get(name)
            if at is None:
                raise ArgumentError(f"{self.symbol} has no parameter `{name}`: {self.signature}")
            if given[at] is not _MISSING:
                raise ArgumentError(f"`{name}` is given twice")
            given[at] = value
        return given

    def _read(self, given: Sequence[Any], stream: int | None) -> tuple[list[int | float], tuple[Any, ...], list[Any]]:
        """The values of the slots as far as they are known, the key of the plan, and what must stay alive until the launch."""
        values: list[int | float] = []
        key: list[Any] = []
        owners: list[Any] = []
        for i, (kind, a) in enumerate(zip(self._kinds, given, strict=True)):
            if a is _MISSING or kind == _INTEGER:
                values.append(0)
                key.append(a)
            elif kind == _FLOAT:
                quick = type(a) is float and self._formats[i] != "Q"
                values.append(a if quick else numbers.packable(self._names[i], a, self._dtypes[i]))
            else:
                read = self._readers.get(type(a)) or self._reader(a)
                if read is not None:
                    address, about = read(a)
                else:
                    v = arrays.view(self._names[i], a, self._stream_for(given, stream))
                    address, about = v.address, (v.shape, v.strides, v.dtype, v.device, v.read_only)
                    owners.append(v)
                values.append(address)
                key += (about, address % ALIGNMENT)
        return values, tuple(key), owners

    def _reader(self, array: Any) -> Callable[[Any], Reading] | None:
        found = arrays.reader(array)
        if found is not None:
            self._readers[type(array)] = found
        return found

    def _stream_for(self, given: Sequence[Any], stream: int | None) -> int:
        return arrays.stream_source(self._tensors(given), driver().current_device())() if stream is None else stream

    def _tensors(self, given: Sequence[Any]) -> list[Any]:
        return [a for a, kind in zip(given, self._kinds, strict=True) if kind == _TENSOR and a is not _MISSING]

    def _plan(self, given: Sequence[Any], key: tuple[Any, ...], stream: int | None) -> Plan:
        """Checks everything, makes a plan and keeps it."""
        views, integers, allocated = self._sort(given, stream)
        checked = arguments.check(self.entry, views, integers, allocated)
        device = next((v.device for v in views.values()), driver().current_device())
        plan = self._make(views, checked, device, given)
        if len(self._plans) >= _KEPT_PLANS:
            self._plans.clear()
        with contextlib.suppress(TypeError):
            self._plans[key] = plan
        return plan

    def _sort(self, given: Sequence[Any], stream: int | None) -> tuple[dict[str, View], dict[str, int], list[str]]:
        """Tensors, integers and the outputs to make, by name. ArgumentError for what is missing."""
        views, integers, allocated = {}, {}, []
        for name, dtype, kind, a in zip(self._names, self._dtypes, self._kinds, given, strict=True):
            if kind == _TENSOR and a is _MISSING:
                if name not in self.outputs:
                    raise ArgumentError(f"`{name}` is missing: {self.signature}")
                allocated.append(name)
            elif kind == _TENSOR:
                views[name] = arrays.view(name, a, 0 if stream is None else stream)
            elif kind == _INTEGER and a is not _MISSING:
                numbers.bits(name, a, dtype)  # that it fits
                integers[name] = numbers.integer(name, a, dtype)
            elif a is _MISSING and kind == _FLOAT:
                raise ArgumentError(f"`{name}` is missing: {self.signature}")
        return views, integers, allocated

    def _make(self, views: Mapping[str, View], checked: arguments.Checked, device: int, given: Sequence[Any]) -> Plan:
        gpu = driver()
        env = {**checked.env, **dict.fromkeys(checked.made, 0), **{n: v.address for n, v in views.items()}}
        env.setdefault("multiprocessors", gpu.attribute(device, MULTIPROCESSORS))
        chosen = arguments.choose(self.entry, env, gpu.capability(device))
        slots = {**self._slots, "workspace": len(self._names)}
        outputs = tuple(Output(slots[n], n, shape, self._dtypes[slots[n]]) for n, shape in checked.made.items())
        fixed = [(i, numbers.bits(n, checked.env[n], self._dtypes[i])) for i, n in enumerate(self._names) if self._kinds[i] == _INTEGER]
        size = evaluate(str(self.entry["workspace"]), env)
        launches = tuple(self._launch(device, c, slots) for c in chosen)
        tensors = self._tensors(given)
        stream = arrays.stream_source(tensors, device)
        allocator = arrays.Allocator(tensors, device) if outputs or size else None
        zeroed = int(self.entry.get("workspace_zeroed", 0))
        formats = (*self._formats, "Q")
        return Plan(gpu, device, gpu.context(device), formats, tuple(fixed), outputs, size, launches, env, stream, zeroed, allocator)

    def _launch(self, device: int, chosen: arguments.Chosen, slots: Mapping[str, int]) -> Launch:
        v = chosen.variant
        maps = {m["name"]: m for m in v["tensor_maps"]}
        x, y, z = v["block"]
        return Launch(
            v["symbol"], self._function(device, v["symbol"], int(v["shared_bytes"])), chosen.grid, (x, y, z), int(v["shared_bytes"]),
            tuple(slots[n] for n in v["args"] if n not in maps), tuple((m, slots[m["param"]]) for m in maps.values()), chosen.cooperative,
            chosen.overlaps,
        )  # fmt: skip

    # ---- from a plan to the GPU

    def _finish(self, plan: Plan, given: list[Any], values: list[int | float], stream: int | None, owners: list[Any]) -> Any:
        """Makes outputs and scratch memory and launches; `owners` keep borrowed memory alive until the launch is queued."""
        for slot, number in plan.fixed:
            values[slot] = number
        for o in plan.outputs:
            made = given[o.slot] = plan.allocator.empty(o.shape, o.dtype, stream)
            values[o.slot] = plan.allocator.address(made)
            if values[o.slot] % ALIGNMENT:  # the plan counts on what allocators give; a stranger one is asked about its arrays
                return self(**{n: a for n, a in zip(self._names, given, strict=True) if a is not _MISSING}, stream=stream)
        scratch = plan.allocator.empty((plan.workspace_bytes,), "uint8", stream) if plan.workspace_bytes else None
        values.append(0 if scratch is None else plan.allocator.address(scratch))
        if plan.launches:
            try:
                plan.launch(values, stream)
            except OverflowError:
                for name, a, dtype, kind in zip(self._names, given, self._dtypes, self._kinds, strict=True):
                    if kind == _FLOAT:
                        numbers.bits(name, a, dtype)  # says which one does not fit
                raise
        del owners
        if not self._returned:
            return None
        return given[self._returned[0]] if len(self._returned) == 1 else tuple(given[i] for i in self._returned)

    def _module(self, device: int) -> int:
        """The loaded machine code on a device; a damaged entry of the cache is compiled anew."""
        with self._lock:
            if self._closed:
                raise ArgumentError(f"{self.symbol} has been closed")
            if device not in self._modules:
                gpu = driver()
                archs = [v["arch"] for launch in self.entry["launches"] for v in launch["variants"]]
                arch = arguments.best_arch(archs, gpu.capability(device))
                try:
                    self._modules[device] = gpu.load(device, cubin(self.source, arch))
                except GpuError as fault:
                    if not fault.is_bad_image:
                        raise
                    self._modules[device] = gpu.load(device, cubin(self.source, arch, fresh=True))
            return self._modules[device]

    def _function(self, device: int, symbol: str, shared_bytes: int) -> int:
        module = self._module(device)
        found = self._functions.get((device, symbol))
        if found is None:
            found = self._functions[device, symbol] = driver().function(device, module, symbol, shared_bytes)
        return found


def _kind(param: Mapping[str, Any]) -> int:
    if param.get("role", "scalar") != "scalar":
        return _TENSOR
    return _INTEGER if numbers.is_integer(param["dtype"]) else _FLOAT


def _unload(modules: dict[int, int]) -> None:
    while modules:
        device, module = modules.popitem()
        driver().unload(device, module)


def load(path: str | Path, kernel: str | None = None, outputs: Iterable[str] | None = None) -> Kernel:
    """The kernel in a generated file. See `tilec.load`."""
    return of_text(Path(path).read_text(encoding="utf-8"), str(path), kernel, outputs)


def of_text(source: str, where: str, kernel: str | None = None, outputs: Iterable[str] | None = None) -> Kernel:
    """The kernel in the text of a generated file; `where` names it in messages. ValueError for any other file."""
    from tilec.emit.manifest import parse

    try:
        entries = parse(source)["kernels"]
    except ValueError as fault:
        raise ValueError(f"{where} is no file of tilec's: {fault}") from None
    fitting = [e for e in entries if kernel in (None, e["symbol"], e.get("name"))]
    if len(fitting) != 1:
        names = ", ".join(e["symbol"] for e in entries)
        raise ArgumentError(f"{where} holds {names}: " + ("say which, kernel=NAME" if kernel is None else f"there is no `{kernel}`"))
    return Kernel(source, fitting[0], outputs)


def compile_kernel(path: str | Path, options: Mapping[str, Any], defines: Mapping[str, Any]) -> Kernel:
    """Compiles the one kernel of a Python file. See `tilec.compile`, whose keyword arguments are `options`."""
    from tilec import options as read
    from tilec.driver import Options, compile_source

    file, kernel = str(path), options["kernel"]
    project, _ = read.from_project(file)
    args = {}
    for name, text in options["args"].items():
        _, dtype, shape = read.argument(f"{name}={text}")
        args[name] = (dtype, shape)
    target, *also = read.architectures(options["arch"] or this_arch())
    compiled = compile_source(Options(
        path=file, text=Path(path).read_bytes(), target=target, also=tuple(also), include=tuple(map(str, options["include"])),
        defines={**project, **{n: _plain(v) for n, v in defines.items()}}, args=args, kernels=(kernel,) if kernel else (),
        opt_level=options["opt_level"], fp32_gemm=options["fp32_gemm"], pairs=options["pairs"], ptxas=options["ptxas"],
    ))  # fmt: skip
    for name in defines:
        if any(d.code == "TL0204" and d.message.startswith(f"-D {name} ") for d in compiled.diagnostics):
            raise ArgumentError(f"{file} has no compile-time parameter `{name}`")
    return of_text(compiled.cu, file, outputs=options["outputs"])


def this_arch(device: int | None = None) -> str:
    """The newest architecture that tilec writes for and a GPU runs, by default the current one; sm_80 without a GPU."""
    from tilec.runtime.request import MissingError
    from tilec.targets import ALL

    try:
        gpu = driver()
        capability = gpu.capability(gpu.current_device() if device is None else device)
    except MissingError:
        return "sm_80"
    return next((t.name for t in reversed(ALL) if arguments.runs_on(t.name, capability)), "sm_80")


def _plain(value: Any) -> Any:
    """A type of torch or NumPy as its name; anything else as it is."""
    module = type(value).__module__.partition(".")[0]
    if module == "torch":
        return str(value).removeprefix("torch.")
    return value.name if module == "numpy" and hasattr(value, "name") else value
