"""`tilec run --device cpu`: the generated file on the emulator, entered through its launcher, against the reference.

Two runs by default: asynchronous copies as late as a wait allows with every shared tile fenced off, then copies at once with
the tiles at the plan's real offsets. What hides from one shows in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilec.emit.hosteval import HostExprError, evaluate
from tilec.emit.manifest import find_kernel, parse
from tilec.runtime import report
from tilec.runtime.bind import Bound, bind
from tilec.runtime.report import Report
from tilec.runtime.request import MissingError, RunError, RunRequest

if TYPE_CHECKING:
    from tilec.driver import Compiled
    from tilec.emulator import Mode, Outcome, Program

ERRORS = {1: "cudaErrorInvalidValue", 9: "cudaErrorInvalidConfiguration", 716: "cudaErrorMisalignedAddress"}
_WHEN = {"lazy": "as late as they may be", "eager": "as early as they may be", "random": "at random times"}


def run(compiled: Compiled, request: RunRequest, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Runs the one kernel of `compiled`; `tell` hears what is being done, for large sizes take long.

    Raises RunError when the run fails or is refused, MissingError without a compiler.
    """
    plan, chosen = compiled.plans[0], modes(request)
    bound = bind(plan.kernel, request)
    own = report.own_cuda(plan.kernel)
    tell("building the program for the CPU")
    program = _build(compiled.cu, own or next(iter(plan.kernel.sources), ""))
    tell("computing the reference")
    want = report.reference(plan.kernel, bound) if request.check and not own else None
    lines = [report.title(plan.kernel, "the CPU", bound, request.seed)]
    if own and request.check:
        lines.append(report.not_compared(own) + (", only one run with the other" if len(chosen) > 1 else ""))
    faults: list[str] = []
    first: Bound | None = None
    for number, mode in enumerate(chosen, 1):
        tell(f"run {number} of {len(chosen)}: copies {_WHEN[mode.asynchrony]}")
        result = bound.copy()
        _succeed(program.run(f"{plan.symbol}_launch", {**result.arrays, **result.scalars, **result.extents}, mode, request.timeout_s),
                 plan.symbol, compiled.cu, bound)  # fmt: skip
        if own and request.check and first is not None:
            told, wrong = report.comparison(plan, bound, result.arrays, first.arrays, "", "that of the other run")
            lines, faults = lines + told, faults + wrong
        elif want is not None:
            told, wrong = report.comparison(plan, bound, result.arrays, want, f" ({mode.asynchrony}, {mode.shared})" if first else "")
            lines += told if first is None or wrong else []
            faults += wrong
        first = first or result
    if first is not None:
        report.write_outputs(plan.kernel, request, first.arrays)
    return Report(lines, faults, not faults)


def modes(request: RunRequest) -> list[Mode]:
    """How the emulator is to run, one entry a run. Raises RunError for words that are no mode."""
    from tilec.emulator import Mode

    if not request.mode:
        return [Mode("lazy", "apart", request.seed), Mode("eager", "real", request.seed + 1)]
    asynchrony, shared = "lazy", "apart"
    for word in request.mode.split(","):
        if word in ("lazy", "eager", "random"):
            asynchrony = word
        elif word in ("apart", "real"):
            shared = word
        else:
            raise RunError(f"--mode {word}: expected lazy, eager or random, and apart or real")
    return [Mode(asynchrony, shared, request.seed)]  # type: ignore[arg-type]


def _build(cu: str, own: str) -> Program:
    """The program of a generated file; `own` tells that there is CUDA of the author's in it, which may be at fault."""
    from tilec.driver import InternalFault
    from tilec.emulator import BuildError, ToolMissing, build

    try:
        return build(cu)
    except ToolMissing as fault:
        raise MissingError(str(fault)) from None
    except BuildError as fault:
        if own:
            said = next((line.partition("error:")[2] for line in str(fault).splitlines() if "error:" in line), str(fault)).strip()
            text = f"the kernel holds CUDA of the author's own, which does not compile for the CPU: {said}"
            raise RunError(f"{text}; --device cuda runs it on a GPU") from None
        raise InternalFault("the build of the generated file for the CPU", "its C++ compiler", fault) from fault


def _succeed(outcome: Outcome, symbol: str, cu: str, bound: Bound) -> None:
    """Raises RunError unless the run ended well."""
    if outcome.output:
        print(outcome.output, end="" if outcome.output.endswith("\n") else "\n")
    if outcome.ok:
        return
    if outcome.status.startswith("launch error"):
        number = int(outcome.status.split()[-1])
        reason = refusal(find_kernel(parse(cu), symbol), bound) or outcome.message
        raise RunError(f"{symbol}_launch refused the call with {ERRORS.get(number, f'error {number}')}{': ' if reason else ''}{reason}")
    raise RunError(f"{symbol} on the CPU: {outcome.status}: {outcome.message}")


def refusal(kernel: Mapping[str, Any], bound: Bound) -> str:
    """Why the launcher refuses these arguments, as far as the manifest tells; empty if it does not."""
    env = bound.integers
    if negative := [f"{n} = {v}" for n, v in bound.extents.items() if v < 0]:
        return f"{negative[0]} is negative"
    for check in kernel.get("checks", []):
        try:
            if not evaluate(check["holds"], env):
                return str(check["message"])
        except HostExprError as fault:
            return str(fault)
    for launch in kernel["launches"]:
        for axis, text, limit in zip("xyz", launch["variants"][0]["grid"], (2147483647, 65535, 65535), strict=True):
            size = evaluate(text, env)
            if not 0 <= size <= limit:
                return f"the grid would have {size} blocks along {axis}; 0 to {limit} are possible"
    return ""
