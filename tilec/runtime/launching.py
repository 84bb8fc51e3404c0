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

    The blocks of a `cooperative` one wait for each other, so all of them must fit on the device at once.
    """

    symbol: str
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    slots: tuple[int, ...]
    maps: tuple[tuple[Mapping[str, Any], int], ...] = ()
    cooperative: bool = False


class Frame:
    """The slots of one call and, for each launch, the array of pointers that the driver walks."""

    def __init__(self, count: int, launches: Sequence[Launch]) -> None:
        maps = sum(len(launch.maps) for launch in launches)
        self.buffer = ctypes.create_string_buffer(8 * count + MAP_BYTES * maps)
        base, at = ctypes.addressof(self.buffer), 8 * count
        self.pointers: list[Any] = []
        self.map_offsets: list[list[int]] = []
        for launch in launches:
            offsets = [at + MAP_BYTES * i for i in range(len(launch.maps))]
            at += MAP_BYTES * len(offsets)
            addresses = [base + o for o in (*offsets, *(8 * s for s in launch.slots))]
            self.pointers.append((ctypes.c_void_p * max(1, len(addresses)))(*addresses))
            self.map_offsets.append(offsets)


@dataclass(slots=True)
class Plan:
    """Everything about calls with arguments of these shapes and types: `fixed` slots, `outputs` to make, `launches`.

    `env` has the integers by name, for tensor maps; `stream` tells the current stream of the arrays' library. `workspace_bytes` of
    scratch memory go into the last slot, the first `zeroed` of which start as zeros.
    """

    device: int
    context: int
    count: int
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
    _shapes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        self._pack = struct.Struct(f"<{self.count}Q").pack_into
        self._shapes = tuple((launch.function, *launch.grid, *launch.block, launch.shared_bytes) for launch in self.launches)

    def launch(self, gpu: Driver, values: Sequence[int], stream: int) -> None:
        """Queues every launch. Raises GpuError where the driver refuses one."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self.count, self.launches)
        self._pack(frame.buffer, 0, *values)
        current = ctypes.c_void_p()
        gpu.get_current(ctypes.byref(current))
        if current.value == self.context:
            self._queue(gpu, frame, values, stream)
        else:
            with gpu.on(self.device):
                self._queue(gpu, frame, values, stream)
        self._frames.append(frame)

    def _queue(self, gpu: Driver, frame: Frame, values: Sequence[int], stream: int) -> None:
        if self.zeroed:
            gpu.clear(values[-1], self.zeroed, stream)
        for index, launch in enumerate(self.launches):
            if launch.maps:
                self._write_maps(frame, index, launch, values)
            shape, pointers = self._shapes[index], frame.pointers[index]
            if launch.cooperative:
                result = gpu.launch_cooperative(*shape, stream, pointers)
            else:
                result = gpu.launch_kernel(*shape, stream, pointers, None)
            if result:
                gpu.check(result, f"the launch of {launch.symbol}")

    def _write_maps(self, frame: Frame, index: int, launch: Launch, values: Sequence[int]) -> None:
        from tilec.runtime.tensor_maps import encode

        for number, ((entry, slot), offset) in enumerate(zip(launch.maps, frame.map_offsets[index], strict=True)):
            key = (64 * index + number, values[slot])
            data = self._maps.get(key)
            if data is None:
                if len(self._maps) >= _KEPT_MAPS:
                    self._maps.clear()
                data = self._maps[key] = encode(entry, values[slot], self.env)
            ctypes.memmove(ctypes.addressof(frame.buffer) + offset, data, MAP_BYTES)
