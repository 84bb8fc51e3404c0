"""What a GPU can do at most, and what a launch takes of it: the denominators of a benchmark.

    peaks("NVIDIA H200", 90, 132, 1980, 4800.0).tflops("float16") -> 989.4
    resources.text() -> "168 registers, 0 bytes spilled, 212992 bytes shared, 1 block of 384 threads (19 % occupancy)"

Figures of NVIDIA's data sheets (dense, without sparsity) where the name is known, else clock x multiprocessors x operations a
clock; the bandwidth then follows from the memory's clock and width.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.record import record

_HALF_SHEETS = {"H200": (989.4, 4800.0), "H100 PCIe": (756.0, 2039.0), "H100 NVL": (835.0, 3938.0), "H100": (989.4, 3352.0),
                "A100-SXM4-80GB": (312.0, 2039.0), "A100": (312.0, 1555.0), "L40S": (362.0, 864.0), "A10": (125.0, 600.0)}  # fmt: skip
"""float16 TFLOP/s and GB/s by a part of the name, longer parts first."""
_HALF_PER_CLOCK = {80: 2048, 86: 512, 87: 512, 89: 1024, 90: 4096, 100: 8192, 120: 1024}
"""float16 operations of the tensor cores a clock and multiprocessor by compute capability."""
_RELATIVE = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.5, "tfloat32": 0.5, "int8": 2.0, "uint8": 2.0}
_FLOAT8 = {80: 1.0, 86: 1.0, 87: 1.0}
_FLOAT64 = {80: 0.0625, 90: 0.0677}
_FLOAT64_ELSEWHERE = 0.008


@record
class Peaks:
    """The most that a GPU does: float16 TFLOP/s by its tensor cores, and GB/s of its memory; 0 where unknown."""

    half: float
    gb_per_s: float
    capability: int

    def tflops(self, dtype: str) -> float:
        """Operations on matrices of this type in units of 1e12 a second."""
        if dtype.startswith("float8"):
            return self.half * _FLOAT8.get(self.capability, 2.0)
        if dtype == "float64":
            return self.half * _FLOAT64.get(self.capability, _FLOAT64_ELSEWHERE)
        return self.half * _RELATIVE.get(dtype, 0.5)

    def attainable(self, dtype: str, flop: float, size: float) -> float:
        """Seconds that `flop` operations and `size` bytes take at least: the roofline. 0 where nothing is known."""
        compute = flop / (self.tflops(dtype) * 1e12) if self.half else 0.0
        memory = size / (self.gb_per_s * 1e9) if self.gb_per_s else 0.0
        return max(compute, memory)


def peaks(name: str, capability: int, multiprocessors: int, clock_mhz: float, gb_per_s: float) -> Peaks:
    """The peaks of a GPU by its name, or from its clock and the bandwidth that its attributes give."""
    for part, (half, bandwidth) in _HALF_SHEETS.items():
        if part in name and not (part == "A10" and "A100" in name):
            return Peaks(half, bandwidth, capability)
    per_clock = _HALF_PER_CLOCK.get(capability, 0)
    return Peaks(per_clock * multiprocessors * clock_mhz * 1e6 / 1e12, gb_per_s, capability)


@record
class Device:
    """A GPU: its name, compute capability times ten, multiprocessors, threads that one of them holds, and its peaks."""

    name: str
    capability: int
    multiprocessors: int
    threads_per_sm: int
    peaks: Peaks

    def __str__(self) -> str:
        most = f"; at most {self.peaks.half:.0f} TFLOP/s (float16) and {self.peaks.gb_per_s:.0f} GB/s" if self.peaks.half else ""
        return f"{self.name}, {self.multiprocessors} multiprocessors{most}"


@record
class Resources:
    """What one launch takes: registers and spilled bytes a thread, shared bytes and threads a block, blocks a multiprocessor."""

    symbol: str
    registers: int
    spilled: int
    shared: int
    threads: int
    blocks: int
    occupancy: float

    def text(self) -> str:
        """One line for a person."""
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        return (
            f"{self.registers} registers, {self.spilled} bytes spilled, {self.shared} bytes shared, "
            f"{blocks} of {self.threads} threads a multiprocessor ({self.occupancy:.0%} occupancy)"
        )

    def data(self) -> Mapping[str, object]:
        """The same as JSON."""
        return {name: getattr(self, name) for name in ("symbol", "registers", "spilled", "shared", "threads", "blocks", "occupancy")}
