"""The body of `tilec tune`: from the options of the command line to a winner, its .cu and the table.

    run(given, options, tell, out) -> exit code
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilec import files
from tilec.diagnostics import CompileError
from tilec.driver import Compiled, Options, compile_source
from tilec.options import OptionError
from tilec.runtime.progress import Progress
from tilec.runtime.report import Report
from tilec.runtime.request import RunError
from tilec.runtime.tune import space
from tilec.runtime.tune.pool import DaskPool, LocalPool, Pool, gpus
from tilec.runtime.tune.search import Search, Settings
from tilec.runtime.tune.table import Table, key_of

SHOWN = 10
Compile = Callable[[Options], Compiled]
Guard = Callable[[Mapping[str, str], Sequence[str]], None]


def run(given: Mapping[str, Any], options: Options, compile: Compile, guard: Guard) -> Report:
    """Searches and writes. `compile` is asked where the user must be told of errors in the file itself, and `guard` before anything
    else whether the outputs may be written."""
    progress = Progress(sys.stderr, given["quiet"])
    candidates, sources = _candidates(given, options, compile)
    path = Path(given["table"] or f"{Path(options.path).stem}.tuned.json")
    output = given["output"] or f"{Path(options.path).stem}.cu"
    guard({"--output": output, "--table": str(path)}, tuple(sources))
    measuring, device = _measuring(given)
    key = key_of(options, f"{device} {given['seed']}", sources)
    table = Table(key) if given["again"] else Table.load(path, key)
    table.kernel, table.device = options.path, device
    known = sum(table.answered(c) for c in candidates)
    settings = Settings(
        given["meter"] or {"cuda": "gpu", "cpu": "cpu"}[given["device"]], given["seconds"], given["final_seconds"], given["timeout"],
        given["seed"], given["nvcc"], given["keep_spills"], given["check_seconds"],
    )  # fmt: skip
    search = Search(options, candidates, table, path, settings, progress)
    compiling = LocalPool([{}] * (given["jobs"] or os.cpu_count() or 1))
    try:
        winner = search.run(compiling, measuring)
    except OSError as fault:
        raise RunError(f"--table {path}: {fault.strerror}") from None
    finally:
        compiling.close()
        measuring.close()
    lines = _lines(table, candidates, f"{device}, written for {options.target.name}", known)
    if winner is None:
        return Report(lines, [f"no candidate of {len(candidates)} could be measured; {path} has the reasons"], False)
    _write(output, replace(options, defines={**options.defines, **winner["config"]}))
    arch = "" if options.target.name == "sm_80" else f"--arch {options.target.name} "
    return Report([*lines, "", f"{output} is the fastest one; tilec compile ... {arch}-D @{path} gives it again"], [], True)


def _measuring(given: Mapping[str, Any]) -> tuple[Pool, str]:
    """Where candidates are measured, and a name for it. Raises MissingError without a GPU."""
    if given["dask"]:
        return DaskPool(given["dask"]), f"the cluster at {given['dask']}"
    if given["meter"]:
        return LocalPool([{}]), given["meter"]
    if given["device"] == "cpu":
        return LocalPool([{}]), "the CPU emulator, whose times say nothing about a GPU"
    from tilec.runtime.gpu import need_gpu

    runtime = need_gpu().cuda.runtime
    count, name = int(runtime.getDeviceCount()), runtime.getDeviceProperties(0)["name"].decode()
    return LocalPool(gpus(count)), name


def _candidates(given: Mapping[str, Any], options: Options, compile: Compile) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The candidates, and the texts of all files that the kernel is made of."""
    spaces = [*given["spaces"], *given["more"]]
    if not spaces:
        compiled = compile(options)
        if len(compiled.plans) != 1:
            raise OptionError(f"{options.path} holds {len(compiled.plans)} kernels: choose one with -k")
        return space.configurations(compiled.module.kernels[0], options.defines), _texts(compiled.module.sources, options)
    candidates = space.product(spaces)
    try:
        compiled = compile_source(replace(options, defines={**options.defines, **candidates[0]}))
    except CompileError:
        return candidates, _texts((options.path,), options)
    for name in candidates[0]:
        if any(d.code == "TL0204" and d.message.startswith(f"-D {name} ") for d in compiled.diagnostics):
            raise OptionError(f"--space {name}: {options.path} has no parameter of this name")
    return candidates, _texts(compiled.module.sources, options)


def _texts(sources: Sequence[str], options: Options) -> dict[str, bytes]:
    out = {options.path: options.text}
    for name in sources:
        if name != options.path and Path(name).is_file():
            out[name] = Path(name).read_bytes()
    return out


def _write(output: str, options: Options) -> None:
    try:
        files.write_all({output: compile_source(options).cu})
    except OSError as fault:
        raise RunError(f"-o {output}: {fault.strerror}") from None


def _lines(table: Table, candidates: Sequence[Mapping[str, Any]], device: str, known: int) -> list[str]:
    """The fastest candidates, and how many were dropped for which reason."""
    ranked = table.ranked()
    measured = f"{len(ranked)} of {len(candidates)} candidates measured on {device}"
    lines = [measured + (f", {known} known from before" if known else "")]
    for row in ranked[:SHOWN]:
        registers = f"  {row['registers']} registers" if row.get("registers") else ""
        lines.append(f"  {row['median_us']:10.2f} us  {space.text(row['config'])}{registers}")
    dropped: dict[tuple[str, str], int] = {}
    for row in table.rows.values():
        if row["status"] not in ("measured", "fine"):
            key = (row["status"], row["reason"])
            dropped[key] = dropped.get(key, 0) + 1
    return [*lines, *(f"  {count} {status}: {reason}" for (status, reason), count in sorted(dropped.items(), key=lambda x: -x[1])[:SHOWN])]
