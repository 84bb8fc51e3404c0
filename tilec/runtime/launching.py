"""A call that has been checked: which functions to launch how, and the memory that the driver reads the arguments from.

    plan.launch(driver, values, workspace, stream)

Values are 64-bit slots in the order of parameters and extents: addresses, and the bits of scalars. The driver copies what it needs
before a launch returns, so a frame (slots and pointers to them) serves one call at a time and is then free for the next; threads that
call at once take different frames.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.record import record
from tilec.runtime.driver_api import Driver

MAP_BYTES = 128
_KEPT_MAPS = 64


@record
class Output:
    """A tensor that a call makes: the slot of its address, its name, shape and type."""

    slot: int
    name: str
    shape: tuple[int, ...]
    dtype: str


@record
class Launch:
    """One grid of one function. `slots` are the arguments after the tensor maps; `maps` describe those by manifest entry and slot.

    The blocks of a `cooperative` one wait for each other, so all of them must fit on the device at once. One that `overlaps` waits
    for the launches in front of it itself, so that it may begin early.
    """

    symbol: str
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    slots: tuple[int, ...]
    maps: tuple[tuple[Mapping[str, Any], int], ...] = ()
    cooperative: bool = False
    overlaps: bool = False


class _Attribute(ctypes.Structure):
    """A property of a launch: its number, then a value of up to 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """What the driver calls a CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


_COOPERATIVE, _EARLY = 2, 6


class Frame:
    """The slots of one call and, for each launch, what the driver is given: made once, so that a call only fills in values.

    `calls` has each launch with the driver's arguments: its configuration, the function, the array of pointers to walk.
    """

    def __init__(self, count: int, launches: Sequence[Launch]) -> None:
        maps = sum(len(launch.maps) for launch in launches)
        self.buffer = ctypes.create_string_buffer(8 * count + MAP_BYTES * maps)
        base, at = ctypes.addressof(self.buffer), 8 * count
        self.current = ctypes.c_void_p()
        self.current_address = ctypes.byref(self.current)
        self.stream = 0
        self.map_offsets: list[list[int]] = []
        self.configs: list[_Config] = []
        self.calls: list[tuple[Launch, Any, ctypes.c_void_p, Any]] = []
        for launch in launches:
            offsets = [at + MAP_BYTES * i for i in range(len(launch.maps))]
            at += MAP_BYTES * len(offsets)
            addresses = [base + o for o in (*offsets, *(8 * s for s in launch.slots))]
            self.map_offsets.append(offsets)
            config = _Config(launch.grid, launch.block, launch.shared_bytes)
            if launch.cooperative or launch.overlaps:
                config.attributes = ctypes.pointer(_Attribute(_COOPERATIVE if launch.cooperative else _EARLY, 0, (1,)))
                config.attribute_count = 1
            self.configs.append(config)
            pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
            self.calls.append((launch, ctypes.byref(config), ctypes.c_void_p(launch.function), pointers))

    def aim(self, stream: int) -> None:
        """Makes the next launches go to this stream."""
        for config in self.configs:
            config.stream = stream
        self.stream = stream


@dataclass(slots=True)
class Plan:
    """Everything about calls with arguments of these shapes and types: `fixed` slots, `outputs` to make, `launches`.

    `formats` says how `struct` writes each slot. `env` has the integers by name, for tensor maps; `stream` tells the current stream
    of the arrays' library. `workspace_bytes` of scratch memory go into the last slot, the first `zeroed` of which start as zeros.
    """

    gpu: Driver
    device: int
    context: int
    formats: tuple[str, ...]
    fixed: tuple[tuple[int, int], ...]
    outputs: tuple[Output, ...]
    workspace_bytes: int
    launches: tuple[Launch, ...]
    env: Mapping[str, int]
    stream: Callable[[], int]
    zeroed: int = 0
    allocator: Any = None
    _frames: list[Frame] = field(default_factory=list)
    _maps: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _pack: Any = None

    def __post_init__(self) -> None:
        self._pack = struct.Struct("<" + "".join(self.formats)).pack_into

    def launch(self, values: Sequence[int | float], stream: int | None) -> None:
        """Queues every launch, on the current stream of the arrays' library where none is given.

        Raises OverflowError for a float that does not fit its slot, GpuError where the driver refuses a launch.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(len(self.formats), self.launches)
        self._pack(frame.buffer, 0, *values)
        gpu = self.gpu
        gpu.get_current(frame.current_address)
        if frame.current.value == self.context:
            self._queue(frame, values, self.stream() if stream is None else stream)
        else:
            with gpu.on(self.device):
                self._queue(frame, values, self.stream() if stream is None else stream)
        self._frames.append(frame)

    def _queue(self, frame: Frame, values: Sequence[int | float], stream: int) -> None:
        gpu = self.gpu
        if self.zeroed:
            gpu.clear(int(values[-1]), self.zeroed, stream)
        if frame.stream != stream:
            frame.aim(stream)
        for launch, config, function, pointers in frame.calls:
            if launch.maps:
                self._write_maps(frame, launch, values)
            result = gpu.launch(config, function, pointers, None)
            if result:
                gpu.check(result, f"the launch of {launch.symbol}")

    def _write_maps(self, frame: Frame, launch: Launch, values: Sequence[int | float]) -> None:
        from tilec.emit.hosteval import evaluate
        from tilec.runtime.tensor_maps import encode

        index = self.launches.index(launch)
        for number, ((entry, slot), offset) in enumerate(zip(launch.maps, frame.map_offsets[index], strict=True)):
            address = int(values[slot])
            key = (64 * index + number, address)
            data = self._maps.get(key)
            if data is None:
                if len(self._maps) >= _KEPT_MAPS:
                    self._maps.clear()
                begin = address + evaluate(str(entry.get("offset", "0")), self.env)  # of a tensor in the workspace
                data = self._maps[key] = encode(entry, begin, self.env)
            ctypes.memmove(ctypes.addressof(frame.buffer) + offset, data, MAP_BYTES)
