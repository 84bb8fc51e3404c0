"""A whole .cu file from the plans of its kernels.

    emit([plan], EmitOptions("gemm.py", source_lines)) -> the CUDA text, the same bytes every time
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from math import prod

from tilec.diagnostics import Span
from tilec.emit.hopper import attention as stream_kernel
from tilec.emit.hopper import chain as chain_kernel
from tilec.emit.hopper import maps as tensor_maps
from tilec.emit.hopper.gemm import GemmWriter
from tilec.emit import gemm, gemm_sparse, pipeline, prelude
from tilec.emit.banner import banner_text
from tilec.emit.body import BodyWriter
from tilec.emit.by_hand import numbered
from tilec.emit.cliteral import ctype
from tilec.emit.launcher import launcher_text, scalar_type, signature
from tilec.emit.manifest import comment, manifest
from tilec.emit.memory import Spelling, swizzle_period
from tilec.emit.names import Names, printable
from tilec.emit.render import indent, render
from tilec.emit.unused import mentions
from tilec.ir.expr import Buffer, Scope, Var
from tilec.ir.kernel import Param
from tilec.ir.visit import storage
from tilec.layout.shared import CHUNK, SharedLayout
from tilec.plan.plan import THREAD, Chained, LaunchPlan, PGemm, PIf, Pipeline, Plan, SharedTile, Streamed, Variant
from tilec.plan.walk import specialised, walk_plan
from tilec.record import record

AXES = "xyz"
KERNEL_NAMES = frozenset("thread warp lane block workspace panel_blocks panel_top in_panel panel_rows chunk".split())
"""C names that every kernel body keeps for itself."""


@record
class EmitOptions:
    """`file` is the source as the user spelled it, `source` its lines; `line_directives` asks for #line."""

    file: str
    source: tuple[str, ...] = ()
    line_directives: bool = False


@dataclass(slots=True)
class _File:
    """What the kernels of one file share: the prelude entries they use and the layout functions."""

    options: EmitOptions
    needs: set[str] = field(default_factory=set)
    layouts: dict[str, str] = field(default_factory=dict)

    def define(self, plain: bool, function: str, tile: str, layout: SharedLayout) -> bool:
        """Adds a layout function, spelled plainly or not; false when the file has another one of that name."""
        text = _layout_function(function, tile, layout, plain)
        return self.layouts.setdefault(function, text) == text

    def mark(self, span: Span) -> str:
        """The #line of a place, where the user asked for them."""
        return f'#line {span.line} "{_escaped(span.file)}"' if self.options.line_directives and span.line > 0 else ""

    def comment(self, span: Span) -> str:
        """The line that names the source of a statement."""
        if self.options.line_directives:
            return self.mark(span)
        where = f"// {_base(span.file)}:{span.line}"
        if span.file != self.options.file or not 0 < span.line <= len(self.options.source):
            return where
        text = " ".join(self.options.source[span.line - 1].split()).removesuffix("\\")
        return f"{where}  {_ascii(text[:120])}"


@record
class Written:
    """The kernels of a file by symbol, the prelude entries that each needs, and what stands around them."""

    plans: tuple[Plan, ...]
    options: EmitOptions
    kernels: Mapping[str, str]
    needs: Mapping[str, AbstractSet[str]]
    layouts: Mapping[str, str]

    def text(self) -> str:
        """The text of the .cu."""
        launchers = [indent(launcher_text(render, plan)) for plan in self.plans]
        if any(v.tensor_maps for p in self.plans for v in _bodies(p)):
            launchers.insert(0, indent(render("kernel/encode_tensor_map.cu.jinja")))
        return self._file(self.kernels, banner_text(self.plans, _base(self.options.file)), comment(manifest(self.plans)), launchers)

    def about(self, symbols: Iterable[str]) -> str:
        """Some of the kernels alone, without launchers and comments: what decides on the registers that these take."""
        kernels = {s: self.kernels[s] for s in sorted(symbols)}
        lines = self._file(kernels, "", "", ()).splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith(("//", "#line"))) + "\n"

    def _file(self, kernels: Mapping[str, str], banner: str, manifest: str, launchers: Sequence[str]) -> str:
        """A file with these kernels."""
        texts, plans = list(kernels.values()), [p for p in self.plans if any(v.symbol in kernels for v in _bodies(p))]
        target = min((p.target for p in plans), key=lambda t: t.number)
        selected = prelude.select(sorted(set().union(*(self.needs[s] for s in kernels))))
        text = render(
            "kernel/file.cu.jinja", banner=banner, manifest=manifest, minimum=target.number * 10, target=target.name.removesuffix("a"),
            symbols=", ".join(p.symbol for p in plans), prelude=selected, ampere=prelude.needs_ampere(selected),
            prints=any("printf(" in k for k in texts), launchers=launchers, kernels=texts,
            layouts=[text for name, text in self.layouts.items() if any(mentions(k, name) for k in texts)],
            sources=dict.fromkeys(t for p in plans for t in p.kernel.sources),
            partial=any(v.tensor_maps or v.hopper for p in plans for v in _bodies(p)),
        )  # fmt: skip
        return text + "\n"


def _bodies(plan: Plan) -> Iterator[Variant]:
    return (v for launch in plan.launches for v in launch.variants)


def emit(plans: Sequence[Plan], options: EmitOptions) -> str:
    """The text of the .cu."""
    return write(plans, options).text()


def write(plans: Sequence[Plan], options: EmitOptions) -> Written:
    """The kernels of a .cu, each spelled once."""
    file, kernels, needs = _File(options), {}, {}
    for plan in plans:
        for launch in plan.launches:
            for v in launch.variants:
                file.needs = set()
                kernels[v.symbol] = _kernel(file, plan, launch, v)
                needs[v.symbol] = file.needs
    return Written(tuple(plans), options, kernels, needs, file.layouts)


def _kernel(file: _File, plan: Plan, launch: LaunchPlan, variant: Variant) -> str:
    """One __global__ function."""
    kept = KERNEL_NAMES | set(prelude.entries())
    inside = tuple(walk_plan(variant.body))
    kept |= gemm.RESERVED if any(isinstance(s, PGemm) for s in inside) else frozenset()
    kept |= gemm_sparse.RESERVED if any(isinstance(s, PGemm) and s.marks is not None for s in inside) else frozenset()
    kept |= pipeline.RESERVED if any(isinstance(s, Pipeline) for s in inside) else frozenset()
    if specialised(variant):
        kept |= tensor_maps.RESERVED | stream_kernel.RESERVED | chain_kernel.RESERVED
    kept |= {"warp_group"} if variant.hopper else set()
    names = _parameter_names(signature(plan).names, kept)
    reserved = kept | set(names.values())
    reserved |= {v.symbol for g in plan.launches for v in g.variants}
    reserved |= {word for text in plan.kernel.sources for word in re.findall(r"[A-Za-z_]\w*", text)}
    define = partial(file.define, variant.configuration.plain)
    spell = Spelling(variant, Names(reserved), file.needs.add, define, "fast_math" in plan.kernel.flags, variant.facts, file.mark)
    for p, name in names.items():
        if isinstance(p, Buffer):
            spell.buffers[p] = name
        else:
            spell.variables[p] = name
    spell.variables[THREAD] = "thread"
    if specialised(variant):
        return _hopper_kernel(file, plan, spell, names)
    values = _scalar_values(file, spell, plan)
    maps = tensor_maps.map_names(variant, list(names.values()))
    spell.names.reserve(maps)
    declared = dict(zip(variant.tensor_maps, maps, strict=True))
    writer = BodyWriter(spell, file.comment, prod(launch.threads), maps=declared, number=_thread_number(launch))
    if maps:
        spell.need("tensor_map")
    for v in (*launch.launch.block_vars, *launch.launch.thread_vars):
        spell.var(v)
    body = writer.sequence(variant.body, variant.facts)
    tiles = _tiles(spell, variant, body)
    lines = [v for v in values if mentions(body, v.split()[2])] + _thread_lines(body, launch, variant.configuration.plain)
    if variant.hopper and mentions(body, "warp_group"):
        spell.need("warp_group_index")
        lines.append("const int warp_group = warp_group_index();")
    lines += _places(spell, launch, body, variant.configuration.plain) + _scratch_lines(spell, plan, body) + _order_lines(spell, launch)
    text = render(
        "kernel/kernel.cu.jinja", threads=writer.threads, symbol=variant.symbol,
        parameters=", ".join([*(f"const __grid_constant__ TensorMap {name}" for name in maps), *_listed(_parameters(file, plan, names))]),
        tiles=tiles, places=lines, body=body, hopper=variant.hopper, arch=variant.arch, cluster=launch.launch.cluster,
        least=launch.launch.min_blocks if variant.least is None else variant.least,
    )  # fmt: skip
    return indent(text)


def _order_lines(spell: Spelling, launch: LaunchPlan) -> list[str]:
    """What makes a launch wait for those in front of it, and lets the next one begin."""
    names = [n for n, wanted in (("await_launches", launch.overlaps), ("release_launches", launch.releases)) if wanted]
    for name in names:
        spell.need(name)
    return [f"{name}();" for name in names]


def _parameter_names(names: Mapping[Param, str], kept: AbstractSet[str]) -> dict[Param, str]:
    """The names of the parameters inside a kernel: the launcher's, but for those that the kernel's text keeps for itself."""
    free = Names(kept | set(names.values()))
    return {p: free.fresh(name) if name in kept else name for p, name in names.items()}


def _hopper_kernel(file: _File, plan: Plan, spell: Spelling, names: Mapping[Param, str]) -> str:
    """One warp-specialised __global__ function: its tensor maps are parameters in front of the others."""
    variant = spell.variant
    maps = tensor_maps.map_names(variant, list(names.values()))
    spell.names.reserve([*tensor_maps.RESERVED, *maps])
    assert variant.threads is not None
    writer = BodyWriter(spell, file.comment, variant.threads[0], maps=dict(zip(variant.tensor_maps, maps, strict=True)))

    def declarations(body: str) -> list[str]:
        return [*_tiles(spell, variant, body), *_scratch_lines(spell, plan, body)]

    kernel: GemmWriter | stream_kernel.StreamWriter | chain_kernel.ChainWriter
    if isinstance(variant.body.body[0], Chained):
        spell.names.reserve(chain_kernel.RESERVED)
        spell.fast_math = True  # as below
        kernel = chain_kernel.ChainWriter(spell, file.comment, writer.sequence, declarations)
    elif isinstance(variant.body.body[0], Streamed):
        spell.names.reserve(stream_kernel.RESERVED)
        spell.fast_math = True  # of row statements: see Streamed
        kernel = stream_kernel.StreamWriter(spell, file.comment, writer.sequence, declarations)
    else:
        kernel = GemmWriter(spell, file.comment, writer.sequence, declarations)
    declared = [f"const __grid_constant__ TensorMap {name}" for name in maps]
    return indent(kernel.text(variant.symbol, ", ".join([*declared, *_listed(_parameters(file, plan, names))]), maps))


def _parameters(file: _File, plan: Plan, names: Mapping[Param, str]) -> str:
    """The parameter list of the __global__ function."""
    written = {storage(b) for b in plan.written}
    out: list[str] = []
    for p, name in names.items():
        if isinstance(p, Buffer):
            kind = ctype(p.dtype)
            if kind.endswith("_t"):
                file.needs.add(kind)
            out.append(f"{kind}* __restrict__ {name}" if p in written else f"const {kind}* __restrict__ {name}")
        else:
            out.append(f"{scalar_type(p.dtype)} {name}")
    return ", ".join([*out, *(["unsigned char* workspace"] if plan.workspace is not None else [])])


def _scratch_lines(spell: Spelling, plan: Plan, body: str) -> list[str]:
    """Declarations of the scratch tensors that the body mentions, and of views of tensors."""
    out: list[str] = []
    for b in list(spell.buffers):
        owner = storage(b)
        if not (owner.workspace or (b is not owner and b.scope is Scope.GLOBAL)) or not mentions(body, spell.buffer(b)):
            continue
        spell.need_type(b.dtype)
        kind = ctype(b.dtype)
        if not owner.workspace:
            kind = kind if owner in map(storage, plan.written) else f"const {kind}"
            place = spell.buffer(owner)
            pointer = place if b.dtype == owner.dtype else f"reinterpret_cast<{kind}*>({place})"
        else:
            offset = spell.expr(plan.scratch.offsets[owner], spell.facts)
            place = "workspace" if offset in ("0", "0LL") else f"workspace + {offset}"
            pointer = f"reinterpret_cast<{kind}*>({place})"
        out.append(f"{kind}* const {spell.buffer(b)} = {pointer};")
    return out


def _scalar_values(file: _File, spell: Spelling, plan: Plan) -> list[str]:
    """Declarations of scalar parameters of a type that C has no name for: their bits travel as an integer."""
    out: list[str] = []
    for p in (*plan.kernel.params, *plan.kernel.extents):
        if isinstance(p, Var) and (kind := ctype(p.dtype)).endswith("_t"):
            file.needs.add(kind)
            bits = spell.variables[p]
            spell.variables[p] = spell.names.fresh(f"{bits}_value")
            out.append(f"const {kind} {spell.variables[p]} = {{{bits}}};")
    return out


def _thread_lines(body: str, launch: LaunchPlan, plain: bool) -> list[str]:
    """Declarations of the thread numbers that the body mentions; `plain` ones are not told to be non-negative."""
    parts = []
    if any(mentions(body, w) for w in ("thread", "warp", "lane")):
        parts.append(f"thread = {_told(_thread_number(launch), prod(launch.threads), plain)}")
    if mentions(body, "warp"):
        parts.append("warp = thread / 32")
    if mentions(body, "lane"):
        parts.append("lane = thread % 32")
    teams = any(any(s.teams) for v in launch.variants for s in walk_plan(v.body) if isinstance(s, PIf))  # which have numbers of their own
    return [f"{'[[maybe_unused]] ' if teams else ''}const int {', '.join(parts)};"] if parts else []


def _listed(text: str) -> list[str]:
    return [text] if text else []


def _thread_number(launch: LaunchPlan) -> str:
    """The number of a thread in its block, as C text."""
    x, y, z = launch.threads
    return "threadIdx.x" if y == z == 1 else f"threadIdx.x + {x} * threadIdx.y" + (f" + {x * y} * threadIdx.z" if z > 1 else "")


def _told(number: str, count: int, plain: bool) -> str:
    """A number of one of `count` threads, told to be non-negative unless it is spelled plainly."""
    return number if plain else numbered(number, 0, count)


def _places(spell: Spelling, launch: LaunchPlan, body: str, plain: bool) -> list[str]:
    """Declarations of the block and thread indices that the body mentions."""
    blocks = [(axis, spell.var(v)) for axis, v in enumerate(launch.launch.block_vars)]
    used = [(axis, n) for axis, n in blocks if mentions(body, n)]
    out: list[str] = []
    if launch.panel and used[:2] == blocks[:2] and len(used) > 1:
        out.append(render("kernel/raster.cu.jinja", panel=launch.panel, x=blocks[0][1], y=blocks[1][1]))
        used = used[2:]
    out += [f"const int {n} = blockIdx.{AXES[axis]};" for axis, n in used]
    for v in launch.launch.thread_vars:
        if mentions(body, spell.var(v)):
            out.append(f"const int {spell.var(v)} = {_told(f'threadIdx.{AXES[v.axis]}', launch.threads[v.axis], plain)};")
    return out


def _tiles(spell: Spelling, variant: Variant, body: str) -> list[str]:
    """Declarations of the shared tiles that the body mentions; a view points into the tile whose bytes it looks at."""
    placed = {b: p for b, p in variant.placements.items() if isinstance(p, SharedTile) and b.peer is None}
    used = [b for b in placed if mentions(body, spell.buffer(b))]
    owners = dict.fromkeys(storage(b) for b in used)
    views = [b for b in used if storage(b) is not b]
    out: list[str] = []
    for b in (*owners, *views):
        place, name, kind = placed[b], spell.buffer(b), ctype(b.dtype)
        spell.need_type(b.dtype)
        spell.need("shared_tile")
        shape = "".join(f"[{n}]" for n in ((place.stages, *place.layout.shape) if place.stages > 1 else place.layout.shape))
        pointer = f"shared_tile<{kind}, {place.layout.elements * place.stages}>({place.offset})"
        if b in views:
            owner = spell.buffer(storage(b))
            pointer = owner if kind == ctype(storage(b).dtype) else f"reinterpret_cast<{kind}*>({owner})"
        out.append(f"{kind}* const {name} = {pointer};  // {shape or 'one element'}")
    return out


def _layout_function(function: str, name: str, layout: SharedLayout, plain: bool) -> str:
    """The function that turns (row, column) of a tile into an offset; a `plain` one counts chunks."""
    if layout.panel:
        rows, per = prod(layout.shape[:-1]), CHUNK // layout.itemsize
        _, shared, count = swizzle_period(layout)
        row = f"row % {count}" if shared == 1 else f"row / {shared} % {count}"
        return render(
            "kernel/panel_at.cu.jinja", function=function, name=name, panel=layout.panel, size=rows * layout.panel, per=per, row=row,
        )  # fmt: skip
    if layout.swizzle is None:
        return render("kernel/plain_at.cu.jinja", function=function, name=name, pitch=layout.pitch)
    per = max(1, CHUNK // layout.itemsize)
    chunks = layout.pitch // per
    period, divide = layout.swizzle.mask + 1, 1 << layout.swizzle.shift
    if len(layout.shape) < 2 or layout.pitch % per or chunks & (chunks - 1) or period > chunks or chunks > divide:
        return render("kernel/flat_at.cu.jinja", function=function, name=name, pitch=layout.pitch, per=per, divide=divide, period=period)
    _, rows, count = swizzle_period(layout)
    row = f"row % {count}" if rows == 1 else f"row / {rows} % {count}"
    rule = f"row % {count}" if rows == 1 else f"(row / {rows}) % {count}"
    return render("kernel/chunk_at.cu.jinja", function=function, name=name, pitch=layout.pitch, per=per, row=row, rule=rule, plain=plain)


def _base(path: str) -> str:
    return printable(path.replace("\\", "/").rsplit("/", 1)[-1])


def _escaped(path: str) -> str:
    return printable(path).replace("\\", "\\\\").replace('"', '\\"')


def _ascii(text: str) -> str:
    """Text that is safe in a comment of a C file in any encoding."""
    return text.replace("??/", "? ?/")
