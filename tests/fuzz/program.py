"""A random program under construction: its tensors, tiles, lines, and the statements that concern single tiles.

    program = Program.start(choices); program.copy_in(); program.text() -> the kernel's source
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tests.fuzz.choices import Choices
from tests.fuzz.expressions import Expressions
from tests.fuzz.values import FLOATS, FP8, INTS, Context, Tile, Value, dtype, noise_of, whole_range
from tilec.ir.dtypes import INT32, DType, int_range
from tilec.reference.values import Array, cast, np_dtype, poison

EXTENTS = (16, 1, 2, 3, 7, 8, 32, 33, 48, 64, 96, 128, 229)
MOST_ELEMENTS = 4096
HEADER = "import tilelang.language as T\n\n"
TYPES = (*FLOATS[:3], *INTS[:2], *FLOATS[3:], *INTS[2:], "bool", *FP8)


@dataclass(slots=True)
class Tensor:
    """A tensor argument: what its elements are, and how its shape is written.

    Inputs hold small whole numbers, quarters or anything (wild); outputs poison, or small whole numbers that are updated (counted).
    """

    tile: Tile
    written: str
    contents: str

    @property
    def is_input(self) -> bool:
        """Whether its elements may be read."""
        return self.contents in ("small", "quarters", "wild")

    @property
    def is_output(self) -> bool:
        """Whether the kernel writes it."""
        return not self.is_input

    def array(self, rng: np.random.Generator) -> Array:
        """Fresh contents."""
        d, shape = self.tile.dtype, self.tile.shape
        if self.contents == "poison":
            return poison(shape, d)
        if d.is_float:
            small = rng.integers(-3, 4, shape)
            return np.asarray(cast(small / {"small": 1, "counted": 1, "quarters": 4, "wild": 0.37}[self.contents], d))
        low, high = int_range(d) if self.contents == "wild" else (max(int_range(d)[0], -3), min(int_range(d)[1], 3))
        return rng.integers(low, high, shape, np_dtype(d), endpoint=True) if d.name != "bool" else rng.integers(0, 2, shape) != 0


@dataclass(slots=True)
class Program:
    """The program so far. `earlier` are the lines of launches that are complete, `results` tensors that they wrote."""

    choices: Choices
    threads: int = 128
    grid: tuple[int, ...] = (1,)
    arch: str = "sm_80"
    tensors: list[Tensor] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    scalars: list[Value] = field(default_factory=list)
    blocks: list[tuple[str, int]] = field(default_factory=list)
    loops: list[tuple[str, int]] = field(default_factory=list)
    arguments: dict[str, tuple[str, int | float]] = field(default_factory=dict)
    head: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    level: int = 0
    names: int = 0
    grid_text: tuple[str, ...] = ()
    earlier: list[str] = field(default_factory=list)
    results: list[Tile] = field(default_factory=list)

    @classmethod
    def start(cls, c: Choices) -> Program:
        """A program with a launch and a few input tensors."""
        grid = tuple(c.pick((2, 1, 3)) for _ in range(c.pick((1, 2, 1, 3))))
        p = cls(c, c.pick((128, 32, 64, 256, 1, 96, 160, 48, 100)), grid, "sm_90a" if c.chance(20) else "sm_80")
        p.blocks = list(zip(("bx", "by", "bz"), grid, strict=False))
        p.scalars = [Value(v, INT32, bound=n - 1, peak=n) for v, n in p.blocks]
        for _ in range(c.between(1, 4)):
            p.tensor(dtype(c.pick(TYPES)))
        if c.chance(20):
            p.arguments["n0"] = "int32", c.between(0, 9)
            p.scalars.append(Value("n0", INT32, bound=9, peak=9))
        if c.chance(20):
            kind = c.pick(("float32", "int64", "uint8", "float16", "bool", "int8", "float64", "uint32", "bfloat16"))
            p.arguments["x0"] = kind, c.pick((1, 0)) if kind == "bool" else c.pick((2, 0, 1, 77, *((0.5, -3) if "f" in kind else ())))
            p.scalars.append(Value("x0", dtype(kind)))
        return p

    def relaunch(self) -> None:
        """The kernel's next launch, which reads what those before it wrote."""
        c = self.choices
        self.earlier += self.launch_text()
        self.results += [t.tile for t in self.tensors if t.contents == "poison" and t.tile.noise == 0 and t.tile not in self.results]
        for tile in self.results:
            tile.weaken()
        self.lines, self.tiles = [], []
        gone = {v for v, _ in self.blocks}
        self.grid, self.threads = tuple(c.pick((2, 1, 3)) for _ in range(c.pick((1, 2)))), c.pick((128, 32, 64, 256, 96))
        self.blocks = list(zip(("bx", "by"), self.grid, strict=False))
        known = {line.split(" ")[0] for line in self.head} | set(self.arguments)
        self.scalars = [v for v in self.scalars if v.text in known and v.text not in gone]
        self.scalars += [Value(v, INT32, bound=n - 1, peak=n) for v, n in self.blocks]

    # names, lines, nests

    def name(self, stem: str) -> str:
        """A fresh name."""
        self.names += 1
        return f"{stem}{self.names}"

    def line(self, text: str) -> None:
        """One more line at the present depth."""
        self.lines.append("    " * (self.level + 2) + text)

    @contextmanager
    def nest(self, header: str, keep: list[Tile], loop: tuple[str, int] | None = None) -> Iterator[None]:
        """A block under `header`, which may run any number of times; of the tiles there are, it writes only `keep`."""
        outer = list(self.tiles)
        frozen = [t for t in outer if not t.frozen and t not in keep]
        scalars = list(self.scalars)
        for t in keep:
            t.weaken()
        for t in frozen:
            t.frozen = True
        self.line(header)
        self.level += 1
        if loop:
            self.loops.append(loop)
            self.scalars.append(Value(loop[0], INT32, bound=loop[1], peak=loop[1] + 1))
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        if loop:
            self.loops.pop()
        self.level -= 1
        for t in frozen:
            t.frozen = False
        for t in keep:
            t.weaken()
        self.tiles, self.scalars = outer, scalars

    @property
    def sources(self) -> list[Tile]:
        """Tensors that hold something."""
        return [*(t.tile for t in self.tensors if t.is_input), *self.results]

    @property
    def expressions(self) -> Expressions:
        """The maker of expressions over all that can be read here."""
        inputs = self.sources
        return Expressions(self.choices, [*(t for t in self.tiles if t.ready and t.scope != "local"), *inputs], self.scalars)

    def context(self, *more: tuple[str, int]) -> Context:
        """Where an expression outside Parallel stands, with more index variables."""
        return Context([*more, *self.blocks, *self.loops])

    # tensors and tiles

    def tensor(self, d: DType, shape: tuple[int, ...] | None = None, contents: str = "", written: str = "") -> Tile:
        """A new tensor argument; by default an input of any shape, perhaps with extents known at run time only."""
        c = self.choices
        if shape is None:
            shape = self.shape(c.pick((2, 1, 2, 3)))
        contents = contents or c.pick(("small", "quarters", "wild"))
        sizes = [str(n) for n in shape]
        if not written and contents not in ("poison", "counted") and c.chance(25):
            at = c.below(len(shape))
            sizes[at] = f"d{len(self.head)}"
            self.head.append(f'{sizes[at]} = T.dynamic("{sizes[at]}")')
            self.scalars.append(Value(sizes[at], INT32, bound=shape[at], peak=shape[at]))
        stem = {"poison": "out", "counted": "all"}.get(contents, "in")
        tile = Tile(self.name(stem), d, shape, "global", ready=stem == "in")
        if contents == "small" or d.name == "bool":
            tile.bound, tile.peak = (3 if d.name != "bool" else 1), 3
        elif contents == "quarters":
            tile.peak = 1
        elif contents == "wild" and d.is_float:
            tile.peak = 9
        self.tensors.append(Tensor(tile, written or f"({', '.join(sizes)},)", contents))
        return tile

    def shape(self, rank: int, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        """Extents of a tile of at most so many elements."""
        made: list[int] = []
        for _ in range(rank):
            left = most // prod(made)
            made.append(self.choices.pick([n for n in EXTENTS if n <= left] or [1]))
        return tuple(self.choices.shuffled(made))

    def alloc(self, d: DType | None = None, shape: tuple[int, ...] | None = None, scope: str = "") -> Tile:
        """A new shared tile or fragment."""
        c = self.choices
        shape = shape or self.shape(c.pick((2, 1, 2, 2, 3)))
        scope = scope or c.pick(("fragment", "shared"))
        tile = Tile(self.name("f" if scope == "fragment" else "s"), d or dtype(c.pick(TYPES)), shape, scope, self.level)
        self.line(f"{tile.name} = T.alloc_{scope}(({', '.join(map(str, shape))},), '{tile.dtype}')")
        self.tiles.append(tile)
        return tile

    def readable(self, exact: bool = False) -> list[Tile]:
        """Tiles that hold something."""
        return [t for t in self.tiles if t.ready and t.scope in ("shared", "fragment") and (t.noise == 0 or not exact)]

    def writable(self) -> list[Tile]:
        """Tiles that may be written here."""
        return [t for t in self.tiles if not t.frozen and t.scope in ("shared", "fragment")]

    def target(self, like: tuple[int, ...] | None = None, d: DType | None = None) -> Tile:
        """A tile to write: an old one of that shape, or a new one."""
        old = [t for t in self.writable() if (like is None or t.shape == like) and (d is None or t.dtype is d)]
        return self.choices.pick(old) if old and self.choices.chance(50) else self.alloc(d, like)

    def bound_here(self, tile: Tile) -> bool:
        """Whether what is known about the tile must stay true, because the block may run again or not at all."""
        return tile.level < self.level

    def admits(self, tile: Tile, noise: float) -> bool:
        """Whether a value of that noise may be written."""
        if noise == 0:
            return True
        return tile.dtype.is_float and tile.dtype.bits > 8 and not (self.bound_here(tile) and tile.noise == 0)

    def fitted(self, tile: Tile, value: Value) -> Value:
        """The value within what must stay true of the tile."""
        if self.bound_here(tile) and tile.noise and value.peak > tile.peak:
            return self.expressions.clamped(value, int(tile.peak))
        return value

    def learn(self, tile: Tile, value: Value, whole: bool) -> None:
        """Records a write."""
        tile.learn(value, whole and not self.bound_here(tile))

    # copies and fills

    def start_of(self, extent: int, tile: int) -> str:
        """Where a copy of `tile` elements starts in a dimension of a tensor: perhaps such that it passes an end."""
        c = self.choices
        moving = [*self.blocks, *self.loops]
        kind = c.pick(("zero", "tiled", "tiled", "constant", "before"))
        if kind == "tiled" and moving:
            return f"{c.pick(moving)[0]} * {c.pick((tile, max(1, tile // 2), 1))}"
        if kind == "constant":
            return str(c.below(extent))
        if kind == "before" and moving:
            return f"{c.pick(moving)[0]} * {tile} - {c.between(1, 3)}"
        return "0"

    def copy_in(self, target: Tile | None = None, source: Tile | None = None) -> None:
        """A tile of a tensor, with tails, into a whole tile; dimensions of the tensor left over are indexed."""
        c = self.choices
        sources = self.sources
        if target is None:
            target = self.target()
        source = source or c.pick([s for s in sources if len(s.shape) >= len(target.shape)] or sources)
        if not self.admits(target, source.noise):
            return None
        kept = [d for d in range(len(target.shape)) if target.shape[d] != 1] if len(source.shape) < len(target.shape) else None
        shape = target.shape if kept is None else tuple(target.shape[d] for d in kept)
        if len(shape) > len(source.shape):
            return self.fill(target)
        lead = len(source.shape) - len(shape)
        index = [self.expressions.index(n, self.context(), 0) for n in source.shape[:lead]]
        starts = [self.start_of(n, t) for n, t in zip(source.shape[lead:], shape, strict=True)]
        if kept is None and c.chance(40):
            region = ", ".join([*index, *starts])
        else:
            region = ", ".join([*index, *(f"{s}:{s} + {n}" for s, n in zip(starts, shape, strict=True))])
        self.line(f"T.copy({source.name}[{region}], {target.name})")
        self.learn(target, source.element(), True)
        return None

    def copy_tile(self) -> None:
        """A whole tile, or a part of one, to another."""
        c = self.choices
        sources = self.readable()
        if not sources:
            return self.copy_in()
        source = c.pick(sources)
        target = self.target(source.shape if c.chance(60) else None)
        if target is source or not self.admits(target, source.noise) or (source.noise and source.peak > 1e4):
            return None
        if target.shape == source.shape and not c.chance(30):
            self.line(f"T.copy({source.name}, {target.name})")
            return self.learn(target, source.element(), True)
        if not target.ready or len(source.shape) != len(target.shape):
            return self.copy_in(target)
        sizes = [c.between(1, min(a, b)) for a, b in zip(source.shape, target.shape, strict=True)]
        sides = []
        for t in (source, target):
            sides.append(f"{t.name}[{self.part(t.shape, sizes)}]")
        self.line(f"T.copy({sides[0]}, {sides[1]})")
        return self.learn(target, source.element(), False)

    def part(self, shape: Sequence[int], sizes: Sequence[int]) -> str:
        """A part of a tile: each dimension starts at a number, or where block and loop indices say."""
        c, ends = self.choices, []
        for n, size in zip(shape, sizes, strict=True):
            if c.chance(30):
                start = self.expressions.index(n - size + 1, self.context(), 0)
                ends.append(f"{start}:{start} + {size}")
            else:
                at = c.below(n - size + 1)
                ends.append(f"{at}:{at + size}")
        return ", ".join(ends)

    def fill(self, target: Tile | None = None) -> None:
        """T.fill or T.clear of a tile or of a part."""
        c = self.choices
        target = target or self.target()
        value = self.expressions.value(target.dtype, self.context(), c.below(2), not self.admits(target, 1))
        value = self.fitted(target, value)
        if target.ready and c.chance(30):
            part = self.part(target.shape, [c.between(1, n) for n in target.shape])
            self.line(f"T.fill({target.name}[{part}], {value.text})")
            return self.learn(target, value, False)
        if c.chance(40):
            value = Value("0", target.dtype, bound=0, peak=0)
            self.line(f"T.clear({target.name})")
        else:
            self.line(f"T.fill({target.name}, {value.text})")
        return self.learn(target, value, True)

    # reductions and scans

    def summed(self, source: Tile, target: Tile, count: int, clear: bool) -> Value | None:
        """What is known about sums of `count` elements; None when they could overflow or may not be written there."""
        d = target.dtype
        if not d.is_float:
            return Value("", d) if not source.dtype.is_float else None
        before, peak = (0, 0.0) if clear else (target.bound, target.peak)
        known = source.bound is not None and before is not None
        bound = (source.bound or 0) * count + (before or 0) if known else None
        peak = source.peak * count + peak
        if bound is not None and bound <= whole_range(d) and source.noise == 0 and (clear or target.noise == 0):
            return Value("", d, 0.0, bound, bound)
        if peak > 3e3 or not self.admits(target, 1):
            return None
        return Value("", d, max(source.noise, noise_of(d), target.noise), None, peak)

    def reduce(self) -> None:
        """One of the reductions, over any dimension."""
        c = self.choices
        sources = [t for t in self.readable() if t.noise == 0 or t.dtype.is_float]
        if not sources:
            return self.copy_in()
        source = c.pick(sources)
        op = c.pick(("sum", "max", "min", "absmax", "abssum", "any", "all", "bitand", "bitor", "bitxor"))
        whole = not source.dtype.is_float
        if (op in ("any", "all") and source.noise) or (op.startswith("bit") and not whole):
            op = "max"
        if source.dtype.name == "bool" and op not in ("any", "all", "bitand", "bitor", "bitxor"):
            op = "any"
        if source.dtype.name in FP8:
            return None
        dim, extents, part = c.below(len(source.shape)), source.shape, ""
        if c.chance(15):
            extents = tuple(c.between(1, n) for n in extents)
            part = f"[{self.part(source.shape, extents)}]"
        rest = extents[:dim] + extents[dim + 1 :]
        shape = extents[:dim] + (1,) + extents[dim + 1 :] if not rest or c.chance(20) else rest
        d = dtype("bool") if op in ("any", "all") and c.chance(50) else source.dtype
        if d.is_float and c.chance(30):
            d = dtype("float32")
        target = self.target(shape, d)
        clear = not (target.ready and c.chance(50))
        if target is source:
            return None
        if op in ("sum", "abssum"):
            known = self.summed(source, target, extents[dim], clear)
            if known is None or (self.bound_here(target) and known.noise and known.peak > target.peak):
                return None
        else:
            known = Value("", d, source.noise, source.bound, source.peak)
            if not self.admits(target, source.noise):
                return None
        shown = c.pick((dim, dim - len(extents)))
        self.line(f"T.reduce_{op}({source.name}{part}, {target.name}, dim={shown}{'' if clear else ', clear=False'})")
        return self.learn(target, known, clear)

    def scan(self) -> None:
        """T.cumsum or T.cummax, perhaps in place."""
        c = self.choices
        sources = [t for t in self.readable() if t.dtype.name not in ("bool", *FP8)]
        if not sources:
            return self.copy_in()
        source = c.pick(sources)
        target = source if source in self.writable() and c.chance(30) else self.target(source.shape, source.dtype)
        dim, op = c.below(len(source.shape)), c.pick(("cumsum", "cummax"))
        known = self.summed(source, target, source.shape[dim], True) if op == "cumsum" else source.element()
        if known is None or not self.admits(target, known.noise) or (self.bound_here(target) and known.noise and known.peak > target.peak):
            return None
        out = "" if target is source else f", {target.name}"
        self.line(f"T.{op}({source.name}{out}, dim={dim}{', reverse=True' if c.chance(40) else ''})")
        return self.learn(target, known, True)

    # results

    def dump(self, tile: Tile) -> None:
        """What a tile holds, into a tensor of its own: each block has a part, perhaps smaller than the tile."""
        c = self.choices
        cut = tuple(max(1, n - c.pick((0, 0, 0, 1, 5))) for n in tile.shape)
        if len(tile.shape) == 2 and len(self.grid) == 2 and c.chance(40):
            shape = tuple(n * g - (n - k) for n, g, k in zip(tile.shape, reversed(self.grid), cut, strict=True))
            region = f"by * {tile.shape[0]}, bx * {tile.shape[1]}"
        else:
            shape = (*reversed(self.grid), *cut)
            ends = ", ".join(f"0:{n}" for n in tile.shape)
            region = f"{', '.join(v for v, _ in reversed(self.blocks))}, {ends}"
        d = tile.dtype if tile.noise or c.chance(80) else dtype(c.pick((*FLOATS, *INTS)))
        out = self.tensor(d, shape, "poison")
        out.learn(tile.element(), True)
        if len(shape) > len(tile.shape) and c.chance(20):
            return self.dump_elements(tile, out)
        return self.line(f"T.copy({tile.name}, {out.name}[{region}])")

    def dump_elements(self, tile: Tile, out: Tile) -> None:
        """What a tile holds, element by element; what falls out of the tensor is dropped."""
        c = self.choices
        names = [self.name("i") for _ in tile.shape]
        lead = [v for v, _ in reversed(self.blocks)]
        shifted = [v if c.chance(60) else f"{v} {c.pick('+-')} {c.between(1, 3)}" for v in names]
        self.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape))}):")
        self.line(f"    {out.name}[{', '.join((*lead, *shifted))}] = {tile.name}[{', '.join(names)}]")

    def launch_text(self) -> list[str]:
        """The lines of the present launch."""
        grid, names = ", ".join(map(str, self.grid_text or self.grid)), ", ".join(v for v, _ in self.blocks)
        names = f"({names})" if len(self.blocks) > 1 else names
        return [f"    with T.Kernel({grid}, threads={self.threads}) as {names}:", *self.lines]

    def kernel_text(self, name: str) -> str:
        """The kernel's function under this name, and the run-time extents before it."""
        scalars = "".join(f", {n}: T.{kind}" for n, (kind, _) in self.arguments.items())
        params = ", ".join(f"{t.tile.name}: T.Tensor({t.written}, '{t.tile.dtype}')" for t in self.tensors) + scalars
        lines = [*self.head, "", "", "@T.prim_func", f"def {name}({params}):", *self.earlier, *self.launch_text()]
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        """The source of a file with the kernel alone."""
        return HEADER + self.kernel_text("kernel")
