"""The host part of a kernel: `SYMBOL_launch`, which checks its arguments, chooses a variant and queues it on a stream.

Plain C++ over the CUDA runtime, so that nvcc and the emulator's g++ both take it; nothing is allocated, printed or waited for.

    launcher_text(render, plan) -> 'extern "C" cudaError_t matmul_launch(const void* A, ..., cudaStream_t stream) { ... }'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tilec.record import record
from tilec.emit.hopper import maps as tensor_maps
from tilec.emit.hostexpr import HELPERS, Cxx, CxxWriter, variables
from tilec.emit.names import LAUNCHER_NAMES, Names, parameter_names
from tilec.ir.dtypes import FLOAT32, FLOAT64, UINT64, DType, Kind
from tilec.ir.expr import Buffer, Const, Var, VarKind
from tilec.ir.kernel import Kernel, Param
from tilec.ir.visit import storage
from tilec.layout.shared import CHUNK
from tilec.plan.hopper.plan import MULTIPROCESSORS
from tilec.plan.plan import LaunchPlan, Plan, Variant
from tilec.plan.walk import specialised

Render = Callable[..., str]
"""`render(template, **context) -> text`."""

GRID_LIMITS = (2147483647, 65535, 65535)
"""Most blocks along x, y and z."""

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory a block may have without asking."""

_INTEGERS = {8: "signed char", 16: "short", 32: "int", 64: "long long"}
_UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}


@record
class Helper:
    """A lambda that a function declares for its expressions."""

    name: str
    text: str


@record
class Check:
    """A reason to refuse the call: C++ condition, name of the cudaError_t, and a comment (empty or starting with two blanks)."""

    condition: str
    error: str
    comment: str = ""


@record
class Choice:
    """A variant: `branch` is `if (...)`, `else if (...)` or `else`; `when` is its condition, empty for always."""

    symbol: str
    when: str
    branch: str
    shared_bytes: int


@record
class Map:
    """A tensor map that a launcher fills in: the driver's numbers, and C++ texts, innermost dimension first."""

    name: str
    tensor: str
    type: int
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int


@record
class Special:
    """A body with a grid, threads and tensor maps of its own, chosen before all others when `when` holds."""

    symbol: str
    when: str
    maps: tuple[Map, ...]
    grid: str
    block: str
    threads: int
    shared_bytes: int
    optional: bool  # not every architecture that the file is for has it


@record
class Grid:
    """One launch. `sizes` declares the run-time extents of the grid, `axes` names those that may be 0."""

    sizes: str
    checks: tuple[Check, ...]
    axes: tuple[str, ...]
    choices: tuple[Choice, ...]
    refusal: str
    dims: str
    block: str
    shared_bytes: str
    raises_shared_limit: bool
    cooperative: bool = False
    overlaps: bool = False
    special: tuple[Special, ...] = ()

    @property
    def shared_bytes_vary(self) -> bool:
        """Whether the amount of shared memory depends on the variant."""
        return self.shared_bytes == "shared_bytes"


@record
class Workspace:
    """The size query of a kernel that needs scratch memory: C++ text of the size, what makes it 0, and its helpers."""

    bytes: str
    checks: tuple[str, ...]
    helpers: tuple[Helper, ...]


@record
class Signature:
    """What callers see: parameter lists as C text (the same in C and C++) and the C name of every parameter."""

    symbol: str
    parameters: str
    workspace_parameters: str
    names: Mapping[Param, str]
    uses_bool: bool

    @property
    def arguments(self) -> str:
        """The addresses of the kernel's arguments, in order."""
        extra = ["&workspace"] if "void* workspace" in self.parameters else []
        return ", ".join([*(f"&{n}" for n in self.names.values()), *extra])


def scalar_type(dtype: DType) -> str:
    """The C type of a scalar argument; 16- and 8-bit floats travel as their bits."""
    if dtype.kind is Kind.BOOL:
        return "bool"
    if dtype.kind is Kind.INT:
        return _INTEGERS[dtype.bits]
    if dtype.kind is Kind.UINT or dtype.bits < 32:
        return _UNSIGNED[dtype.bits]
    return {FLOAT32: "float", FLOAT64: "double"}.get(dtype, "float" if dtype.bits == 32 else "void*")


def is_written(plan: Plan, tensor: Buffer) -> bool:
    """Whether the kernel writes the tensor."""
    return any(storage(b) is tensor for b in plan.written)


def signature(plan: Plan) -> Signature:
    """The parameters of the launcher, of the size query and of the header."""
    kernel = plan.kernel
    taken = {v.symbol for launch in plan.launches for v in launch.variants}
    names = parameter_names(kernel, Names(LAUNCHER_NAMES | taken | HELPERS.keys()))
    scalars = {p: f"{scalar_type(p.dtype)} {n}" for p, n in names.items() if isinstance(p, Var)}
    listed = [scalars[p] if isinstance(p, Var) else f"{'' if is_written(plan, p) else 'const '}void* {n}" for p, n in names.items()]
    needs = [] if plan.workspace is None else ["void* workspace"]
    sizes = ", ".join(t for p, t in scalars.items() if isinstance(p, Var) and p.dtype.is_int)
    uses_bool = any(p.dtype.kind is Kind.BOOL for p in scalars)
    return Signature(plan.symbol, ", ".join([*listed, *needs, "cudaStream_t stream"]), sizes or "void", names, uses_bool)


def launcher_text(render: Render, plan: Plan) -> str:
    """The C++ text of the launcher, and of the workspace query when the kernel needs one."""
    sign = signature(plan)
    writer = _writer(plan.kernel, sign)
    scratch = {b.name: f"static_cast<unsigned char*>(workspace) + {writer.write(at).text}" for b, at in plan.scratch.offsets.items()}
    writer.addresses = {**scratch, **writer.addresses}
    grids = tuple(grid for grid in (_grid(g, writer, list(sign.names.values())) for g in plan.launches) if grid is not None)
    checks = _argument_checks(plan, sign, writer)
    return render(
        "launcher.cu.jinja",
        symbol=plan.symbol, summary=_summary(plan, sign), parameters=sign.parameters, arguments=sign.arguments,
        workspace_parameters=sign.workspace_parameters.replace("void", ""), workspace=_workspace(plan, sign),
        helpers=_helpers(writer), checks=checks, launches=grids, zeroed=plan.scratch.zeroed,
    ).lstrip("\n")  # fmt: skip


def size_parameters(kernel: Kernel) -> list[Var]:
    """The integer arguments that are extents: the run-time ones and the parameters that a tensor's shape names."""
    shapes = variables(*(e for p in kernel.params if isinstance(p, Buffer) for e in p.shape))
    return [p for p in (*kernel.params, *kernel.extents) if isinstance(p, Var) and (p in shapes or p.kind is VarKind.EXTENT)]


def _writer(kernel: Kernel, sign: Signature) -> CxxWriter:
    tensors = {p.name: n for p, n in sign.names.items() if isinstance(p, Buffer)}
    sizes = frozenset(size_parameters(kernel))
    return CxxWriter(lambda v: v.name if v is MULTIPROCESSORS else sign.names[v], tensors, kernel.span, nonnegative=sizes)


def _helpers(writer: CxxWriter) -> tuple[Helper, ...]:
    return tuple(Helper(name, text) for name, text in HELPERS.items() if name in writer.helpers)


def _summary(plan: Plan, sign: Signature) -> str:
    tensors = [n for p, n in sign.names.items() if isinstance(p, Buffer)]
    if not tensors:
        return f"Queues {plan.symbol} on `stream` and returns without waiting."
    which = f"{', '.join(tensors[:-1])} and {tensors[-1]} are device pointers" if len(tensors) > 1 else f"{tensors[0]} is a device pointer"
    return f"Queues {plan.symbol} on `stream` and returns without waiting. {which if len(tensors) < 9 else 'Tensors are device pointers'}."


def _argument_checks(plan: Plan, sign: Signature, writer: CxxWriter) -> tuple[Check, ...]:
    """What must hold before anything is launched; read after the grids, whose divisors it refuses at zero."""
    sizes = size_parameters(plan.kernel)
    out = []
    if signed := [sign.names[v] for v in sizes if v.dtype.kind is Kind.INT]:
        out.append(Check(" || ".join(f"{n} < 0" for n in signed), "cudaErrorInvalidValue"))
    if huge := [sign.names[v] for v in sizes if v.dtype == UINT64]:
        out.append(Check(" || ".join(f"{n} > 9223372036854775807ULL" for n in huge), "cudaErrorInvalidValue"))
    conditions = [(writer.write(c.holds), c.message) for c in plan.checks]
    if writer.divisors:
        out.append(Check(" || ".join(f"{text} == 0" for text in writer.divisors), "cudaErrorInvalidValue"))
    out += [Check(_negated(text), "cudaErrorInvalidValue", f"  // {message}") for text, message in conditions]
    if unaligned := [f"!aligned({n}, {p.dtype.bytes})" for p, n in sign.names.items() if isinstance(p, Buffer) and p.dtype.bytes > 1]:
        writer.helpers.add("aligned")
        out.append(Check(" || ".join(unaligned), "cudaErrorMisalignedAddress"))
    if plan.workspace is not None:
        writer.helpers.add("aligned")
        sizes_of = ", ".join(n for p, n in sign.names.items() if isinstance(p, Var) and p.dtype.is_int)
        absent = f"(workspace == nullptr && {plan.symbol}_workspace({sizes_of}) != 0)"
        out.append(Check(f"{absent} || !aligned(workspace, {CHUNK})", "cudaErrorInvalidValue"))
    return tuple(out)


def _negated(x: Cxx) -> str:
    return f"!({x.text})" if not x.text.startswith("aligned(") else f"!{x.text}"


def _grid(grid: LaunchPlan, writer: CxxWriter, names: Sequence[str]) -> Grid | None:
    """The context of one launch; None for a grid that never has blocks."""
    sizes = [writer.write(e) for e in grid.grid]
    open_axes = [(f"grid_{axis}", x, limit) for axis, x, limit in zip("xyz", sizes, GRID_LIMITS, strict=True) if x.low != x.high]
    checks = [Check(f"{name} < 0", "cudaErrorInvalidValue") for name, x, _ in open_axes if x.low < 0]
    if any(x.low == x.high == 0 for x in sizes):
        return None
    beyond = [f"{name} > {limit}" for name, x, limit in open_axes if x.high > limit]
    if beyond:
        checks.append(Check(" || ".join(beyond), "cudaErrorInvalidConfiguration"))
    choices = _choices(grid, writer)
    shared = {c.shared_bytes for c in choices}
    return Grid(
        sizes=", ".join(f"{name} = {x.text}" for name, x, _ in open_axes),
        checks=tuple(checks),
        axes=tuple(name for name, x, _ in open_axes if x.low <= 0),
        choices=choices,
        refusal=_refusal(choices),
        dims=", ".join(x.text if x.low == x.high else f"static_cast<unsigned>(grid_{axis})" for axis, x in zip("xyz", sizes, strict=True)),
        block=", ".join(map(str, grid.threads)),
        shared_bytes=str(shared.pop()) if len(shared) == 1 else "shared_bytes",
        raises_shared_limit=any(c.shared_bytes > PLAIN_SHARED_BYTES for c in choices),
        cooperative=grid.cooperative,
        overlaps=grid.overlaps,
        special=tuple(_special(v, writer, names) for v in grid.variants if _comes_first(v)),
    )


def _refusal(choices: Sequence[Choice]) -> str:
    """What a call gets that no body is for; empty where the last one takes all. Without any, only bodies with tensor maps are there."""
    if choices and not choices[-1].when:
        return ""
    return "cudaErrorMisalignedAddress" if not choices or "aligned(" in choices[-1].when else "cudaErrorInvalidValue"


def _special(v: Variant, writer: CxxWriter, names: Sequence[str]) -> Special:
    """A body that goes through tensor maps, as the launcher needs it."""
    assert v.grid is not None and v.threads is not None
    maps = []
    for m, name in zip(v.tensor_maps, tensor_maps.map_names(v, names), strict=True):
        extents = tuple(f"static_cast<unsigned long long>({writer.write(e).text})" for e in tensor_maps.map_extents(m))
        strides = tuple(f"static_cast<unsigned long long>({writer.write(e).text})" for e in tensor_maps.map_strides(m))
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[m.swizzle]
        maps.append(Map(name, writer.addresses[m.tensor.name], tensor_maps.data_type(m.tensor.dtype), extents, strides, m.box, swizzle))
    grid = _dim3([f"static_cast<unsigned>({writer.write(e).text})" if not isinstance(e, Const) else str(e.value) for e in v.grid])
    when = ("true" if v.arch else "") if v.when is None else writer.condition(v.when)
    block = _dim3([str(n) for n in v.threads])
    return Special(_named(v.symbol), when, tuple(maps), grid, block, prod(v.threads), v.shared_bytes, bool(v.arch))


def _dim3(axes: list[str]) -> str:
    """The arguments of a dim3, without trailing ones."""
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return ", ".join(axes)


def _comes_first(v: Variant) -> bool:
    """True for a body with a grid of its own, which the launcher tries before all others."""
    return bool(specialised(v) or v.tensor_maps or v.arch)


def _named(symbol: str) -> str:
    """How the launcher names a __global__ function, which may be called as one of its own variables."""
    return f"::{symbol}" if symbol in LAUNCHER_NAMES else symbol


def _choices(grid: LaunchPlan, writer: CxxWriter) -> tuple[Choice, ...]:
    """The variants up to the first that always fits."""
    out: list[Choice] = []
    for variant in (v for v in grid.variants if not _comes_first(v)):
        when = "" if variant.when is None else writer.condition(variant.when)
        branch = ("else " if out else "") + (f"if ({when})" if when else "")
        out.append(Choice(_named(variant.symbol), when, branch.strip(), variant.shared_bytes))
        if not when:
            break
    return tuple(out)


def _workspace(plan: Plan, sign: Signature) -> Workspace | None:
    if plan.workspace is None:
        return None
    writer = _writer(plan.kernel, sign)
    size = writer.write(plan.workspace)
    named = variables(plan.workspace)
    negative = [f"{sign.names[v]} < 0" for v in size_parameters(plan.kernel) if v in named and v.dtype.kind is Kind.INT]
    return Workspace(size.text, (*negative, *(f"{d} == 0" for d in writer.divisors)), _helpers(writer))
