"""What is known about generated values: their type, how exactly both runs must agree on them, how large they get.

    Value("x + y", FLOAT16, noise=0.0, bound=6, peak=6.0)

Single operations are rounded alike everywhere, so most results must be equal to the last bit. Only sums in another order and
transcendental functions differ: their `noise` is the relative precision in which they may. `bound` is set for whole numbers
of at most that size, whose sums are exact in any order as long as they fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tilec.ir.dtypes import BOOL, DType, Kind, int_range
from tilec.ir.dtypes import lookup as dtype_named

FLOATS = ("float32", "float16", "bfloat16", "float64")
FP8 = ("float8_e4m3fn", "float8_e5m2")
INTS = ("int32", "int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64")
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 0.125, "float8_e5m2": 0.25}
LARGEST = {"float64": 1e300, "float32": 1e37, "float16": 6e4, "bfloat16": 1e37, "float8_e4m3fn": 448, "float8_e5m2": 57344}


def dtype(name: str) -> DType:
    """The type of that name, which exists."""
    found = dtype_named(name)
    assert found is not None
    return found


def whole_range(d: DType) -> int:
    """Up to which size every whole number has a place in the type."""
    if d.is_float:
        return int(2 / EPSILON[d.name])
    return 1 if d is BOOL else int_range(d)[1]


def noise_of(d: DType) -> float:
    """The relative precision of a type; 0 for integers."""
    return EPSILON.get(d.name, 0.0)


@dataclass(frozen=True, slots=True)
class Value:
    """An expression's text and what is known about it; `noise` 0 means that both runs agree to the last bit."""

    text: str
    dtype: DType
    noise: float = 0.0
    bound: int | None = None
    peak: float = inf

    @property
    def exact(self) -> bool:
        """Whether both runs must agree to the last bit."""
        return self.noise == 0


@dataclass(slots=True)
class Tile:
    """A tile of a block, or a tensor: what it holds is described as for Value. `level` is the nesting depth of its Alloc."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    scope: str
    level: int = 0
    ready: bool = False
    noise: float = 0.0
    bound: int | None = None
    peak: float = inf
    frozen: bool = False

    def element(self, *index: str) -> Value:
        """One element."""
        return Value(f"{self.name}[{', '.join(index)}]", self.dtype, self.noise, self.bound, self.peak)

    def learn(self, value: Value, whole: bool) -> None:
        """Records that elements now hold `value`: all of them, or some."""
        fits = value.bound is not None and value.bound <= whole_range(self.dtype)
        bound = value.bound if fits else None
        if self.dtype.is_int and value.dtype.is_float:
            bound = None
        noise = max(value.noise, noise_of(self.dtype)) if value.noise else 0.0
        if not whole:
            noise = max(noise, self.noise)
            bound = None if bound is None or self.bound is None else max(bound, self.bound)
        peak = value.peak if whole else max(value.peak, self.peak)
        self.ready, self.noise, self.bound, self.peak = True, noise, bound, peak

    def weaken(self) -> None:
        """Forgets sizes, so that later writes need not keep them."""
        self.bound, self.peak = None, (inf if self.noise == 0 else 100.0)


@dataclass(slots=True)
class Context:
    """Where an expression stands: index variables with their extents, what must not be read, values bound before."""

    indices: list[tuple[str, int]]
    hidden: set[str] = field(default_factory=set)
    leaves: list[Value] = field(default_factory=list)


def is_unsigned(d: DType) -> bool:
    """Unsigned integers and bool."""
    return d.kind in (Kind.UINT, Kind.BOOL)
