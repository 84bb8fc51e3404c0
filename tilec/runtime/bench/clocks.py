"""Watches the clocks of a GPU while something is measured: a chip that slows down half-way makes medians worthless.

    with Watch(source()) as watch: ...
    watch.seen().warning() -> "the clock moved between 1365 and 1980 MHz (sw_power_cap)", or "" if it stood still

Reads through NVML where the package `pynvml` (nvidia-ml-py) is there, else through nvidia-smi, else not at all.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilec.record import record

STEADY = 0.05
"""A clock that moves by less than this part is steady."""
_REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
_QUERY = "clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"


@record
class Reading:
    """One look at a GPU: MHz, watts, degrees Celsius, and the bits that say why it runs slower than it could."""

    mhz: float
    watts: float
    degrees: float
    reasons: int


@record
class Seen:
    """All readings of a measurement; none where nothing can be read."""

    readings: tuple[Reading, ...]

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest clock in MHz; zeros without readings."""
        clocks = [r.mhz for r in self.readings]
        return (min(clocks), max(clocks)) if clocks else (0.0, 0.0)

    def warning(self) -> str:
        """What to tell a person; empty if the clock stood still."""
        low, high = self.spread
        if not high or (high - low) / high <= STEADY:
            return ""
        bits = {name for r in self.readings for bit, name in _REASONS.items() if r.reasons & bit}
        why = f" ({', '.join(sorted(bits))})" if bits else ""
        return f"the clock moved between {low:.0f} and {high:.0f} MHz{why}: compare only what was measured in turns"

    def data(self) -> dict[str, Any]:
        """The same as JSON."""
        low, high = self.spread
        watts = max((r.watts for r in self.readings), default=0.0)
        degrees = max((r.degrees for r in self.readings), default=0.0)
        return {"mhz_low": low, "mhz_high": high, "watts": watts, "degrees": degrees, "readings": len(self.readings)}


Source = Callable[[], Reading | None]


def source(bus: str) -> Source:
    """How to read the clocks of the GPU at this PCI address, such as 0000:1b:00.0: what numbers it has differs between libraries."""
    try:
        import pynvml
    except ImportError:
        return _smi(bus) if shutil.which("nvidia-smi") else lambda: None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
    except pynvml.NVMLError:
        return lambda: None

    def read() -> Reading | None:
        try:
            clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
            degrees = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            return Reading(clock, watts, degrees, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        except pynvml.NVMLError:
            return None

    return read


def _smi(bus: str) -> Source:
    command = ["nvidia-smi", f"--id={bus}", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]

    def read() -> Reading | None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return parse(done.stdout)

    return read


def parse(line: str) -> Reading | None:
    """A reading from a line of nvidia-smi; None for anything else."""
    try:
        mhz, watts, degrees, reasons = (part.strip() for part in line.strip().split(","))
        return Reading(float(mhz), float(watts), float(degrees), int(reasons, 16))
    except ValueError:
        return None


@dataclass(slots=True)
class Watch:
    """Reads in a thread of its own every `every` seconds between entering and leaving."""

    read: Source
    every: float = 0.2
    _found: list[Reading] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=6)

    def _loop(self) -> None:
        while not self._stop.wait(self.every):
            found = self.read()
            if found is None:
                return
            self._found.append(found)

    def seen(self) -> Seen:
        """Everything read so far."""
        return Seen(tuple(self._found))
