"""The command line: parses options, calls the driver or the runtime, prints, and chooses the exit code. The only user of click.

    tilec compile gemm.py -D M=4096 -o gemm.cu;  tilec run gemm.py -D M=128;  tilec explain TL0312
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tilec.version import __version__
from tilec.diagnostics import CompileError, Diagnostic, Severity, Span
from tilec.options import MAX_BYTES, OptionError

if TYPE_CHECKING:
    from tilec.aside import Reader
    from tilec.driver import Compiled, Options
    from tilec.runtime.request import RunRequest

F = TypeVar("F", bound=Callable[..., Any])


def run(args: Sequence[str], reader: Reader | None = None) -> int:
    """Runs the command line; the result is the exit code. Faults of tilec itself are raised. `reader` is a process that reads the file."""
    try:
        result = main.main(list(args), prog_name="tilec", standalone_mode=False, obj=reader)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.Abort:
        return 130
    except click.ClickException as fault:
        fault.show()
        return fault.exit_code
    except OptionError as fault:
        click.echo(f"Error: {fault}", err=True)
        return 2
    return result if isinstance(result, int) else 0


def _completion(context: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Prints click's script for a shell: `eval "$(tilec --completion bash)"`, or a file that the shell reads when it starts."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell) if shell else None
    if found is not None:
        click.echo(found(main, {}, "tilec", "_TILEC_COMPLETE").source())
        context.exit()


class _InOrder(click.Group):
    """Commands in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = ("compile", "check", "explain", "run", "bench", "tune", "doctor")
        return sorted(self.commands, key=known.index)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message="tilec %(version)s")
@click.option("--make-include", is_flag=True, expose_value=False, is_eager=True, help="Print the makefile to include, and exit.")
@click.option("--cmake-dir", is_flag=True, expose_value=False, is_eager=True, help="Print the folder for find_package(tilec), and exit.")
@click.option("--completion", type=click.Choice(["bash", "zsh", "fish"]), expose_value=False, is_eager=True, callback=_completion,
              help="Print a script that completes commands, options and files in this shell, and exit.")
def main() -> None:
    """Turns tile kernels written in Python into plain, readable CUDA. The Python is read, never run.

    \b
    tilec compile gemm.py -o gemm.cu              writes the CUDA file
    tilec run gemm.py -D M=128 -D N=96 -D K=64    runs it on the CPU and compares: no GPU is needed
    tilec explain gemm.py                         tells how it is done: tiles, layouts, stages, barriers
    tilec COMMAND --help                          more, with examples
    """


# ---- options that several commands share


_SOURCE_OPTIONS = (
    click.argument("file", type=click.Path(allow_dash=True)),
    click.option("-k", "--kernel", "kernels", multiple=True, metavar="NAME",
                 help="Take this kernel: NAME or FACTORY:KERNEL; may be repeated."),
    click.option("-D", "defines", multiple=True, metavar="NAME=VALUE",
                 help="Give a compile-time parameter a value, a Python literal or a bare word; -D @file.json gives many."),
    click.option("--arg", "args", multiple=True, metavar="A=float16[4096,K]",
                 help="Bind the names in A's annotation as a call with such an array would."),
    click.option("-I", "include", multiple=True, metavar="DIR", help="Look for modules that the file imports here too."),
    click.option("--arch", default="", metavar="ARCH[,ARCH]",
                 help="GPU architecture to write for. [default: sm_80; the GPU's own where one is used]"),
    click.option("-O", "opt_level", type=click.IntRange(1, 3), default=2, show_default=True,
                 help="1 takes every number of the source literally, 3 may join blocks."),
    click.option("--fp32-gemm", type=click.Choice(["tf32", "ieee"]), default="tf32", show_default=True,
                 help="How T.gemm multiplies float32."),
    click.option("--pairs", type=click.Choice(["auto", "on", "off"]), default="auto", show_default=True,
                 help="Whether two blocks of a GEMM on Hopper fetch the tile that both need together."),
    click.option("--ptxas", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                 help="Ask nvcc for spilled registers: where they are to be feared, of every kernel, or leave it to rules."),
    click.option("--name", default="", metavar="SYMBOL", help="Symbol of the kernel in the CUDA file."),
    click.option("-Werror", "werror", is_flag=True, help="Treat warnings as errors."),
    click.option("-v", "--verbose", is_flag=True, help="Tell remarks and the time of each pass."),
    click.option("-q", "--quiet", is_flag=True, help="Tell errors and warnings only."),
    click.option("--error-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
)  # fmt: skip


def _source_options(command: F) -> F:
    """The file and everything that decides how it is read and planned."""
    for option in reversed(_SOURCE_OPTIONS):
        command = option(command)
    return command


class _Session:
    """The shared options of one command: reads the file, compiles it, tells what there is to tell."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.file: str = given["file"]
        self.werror: bool = given["werror"]
        self.verbose: bool = given["verbose"]
        self.quiet: bool = given["quiet"]
        self.error_format: str = given["error_format"]
        self.option_files: list[str] = []
        self.text = b""
        self._given = given

    def options(self, line_directives: bool = False) -> Options:
        """The compiler's options. Raises OptionError; a file that cannot be read is a click error with exit code 1."""
        from tilec import options as parse
        from tilec.driver import Options

        given = self._given
        if not self.file:
            raise OptionError("FILE is empty")
        if given["name"] and not given["name"].isidentifier():
            raise OptionError(f"--name {given['name']}: not a name")
        project, project_file = parse.from_project(self.file)
        defines, files = parse.defines(given["defines"])
        self.option_files = [*files, *([project_file] if project_file else [])]
        args = {name: (dtype, shape) for name, dtype, shape in map(parse.argument, given["args"])}
        self.text = self._read()
        target, *also = parse.architectures(given["arch"] or _own_arch(given))
        return Options(
            path=self.file, text=self.text, target=target, also=tuple(also), include=given["include"], defines=project | defines,
            args=args, kernels=given["kernels"], opt_level=given["opt_level"], fp32_gemm=given["fp32_gemm"], pairs=given["pairs"],
            ptxas=given["ptxas"], name=given["name"], line_directives=line_directives,
        )  # fmt: skip

    def _read(self) -> bytes:
        if self.file == "-":
            if sys.stdin is None:
                raise click.ClickException("cannot read standard input: it is closed")
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        try:
            with Path(self.file).open("rb") as file:
                return file.read(MAX_BYTES + 1)  # one more than the frontend takes: /dev/zero has no end
        except OSError as fault:
            message = f"cannot read {self.file}: {fault.strerror}"
            if self.error_format == "text":
                raise click.ClickException(message) from None
            self.tell([Diagnostic(Severity.ERROR, "TL0103", message, Span(self.file, 1, 1, 1, 1))])
            raise click.exceptions.Exit(1) from None

    def compile(self, options: Options, silent: bool = False) -> Compiled:
        """Compiles and tells notes and warnings, unless `silent`. Ends the command with code 1 if the input is at fault."""
        from tilec.driver import as_errors, compile_source

        try:
            reader = cast("Reader | None", click.get_current_context().obj)
            compiled = compile_source(options, reader.read if reader else None)
            shown = [d for d in compiled.diagnostics if not (self.werror and d.severity is Severity.WARNING)]
            self.tell([] if silent else shown)
            if self.werror and (fault := as_errors(compiled.diagnostics)):
                raise fault
        except CompileError as fault:
            self.tell(fault.diagnostics)
            raise click.exceptions.Exit(1) from None
        if self.verbose:
            click.echo("  ".join(f"{stage} {1000 * s:.0f} ms" for stage, s in compiled.seconds.items()), err=True)
        return compiled

    def guard(self, outputs: Mapping[str, str], sources: Sequence[str]) -> None:
        """Ends the command before work that would be lost: outputs by their option must not be inputs, and their folders must exist."""
        from tilec import files

        for option, name in outputs.items():
            if files.clash([name], [*sources, *self.option_files]):
                raise OptionError(f"{option}: {name} is read by this command: it would be overwritten")
            if fault := files.unwritable(name):
                raise click.ClickException(f"{option}: cannot write {name}: {fault}")

    def tell(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Writes diagnostics to standard error in the chosen format."""
        from tilec.diagnostics import render

        for d in diagnostics:
            if (d.severity is Severity.REMARK and not self.verbose) or (d.severity is Severity.NOTE and self.quiet):
                continue
            if self.error_format == "json":
                import json

                click.echo(json.dumps(render.as_json(d)), err=True)
            else:
                click.echo(render.text(d, self._lines, _colour()), err=True)

    def _lines(self, file: str) -> Sequence[str] | None:
        if file == self.file:
            return self.text.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        try:
            return Path(file).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return None


def _own_arch(given: Mapping[str, Any]) -> str:
    """What to write for where nobody says: sm_80, which runs everywhere; for a command that uses the GPU of this machine, its own."""
    if given.get("device") != "cuda" or given.get("dask") or given.get("meter"):
        return "sm_80"
    from tilec.runtime.callable import this_arch

    return this_arch()


def _colour() -> bool:
    import os

    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


# ---- compile, check, explain


@main.command("compile", short_help="Writes the CUDA file.")
@_source_options
@click.option("-o", "--output", metavar="FILE", help="The CUDA file to write; - for standard output. [default: FILE with .cu, here]")
@click.option("--header", metavar="FILE", help="Also write a header with the prototypes of the launchers.")
@click.option("--emit", "extra", default="", metavar="ir,plan,json", help="Also write the Tile IR, the plan, the manifest.")
@click.option("--line-directives", is_flag=True, help="Map the CUDA code to the lines of the Python source (#line).")
@click.option("-MD", "depfile", is_flag=True, help="Also write a dependency file for make: modules, options, tilec itself.")
@click.option("-MMD", "depfile_user", is_flag=True, help="The same without the files of tilec itself.")
@click.option("-MF", "depfile_name", metavar="FILE", help="Name of the dependency file. [default: the output with .d]")
@click.option("-MT", "depfile_targets", multiple=True, metavar="TARGET", help="Target named in it; may be repeated. [default: the outputs]")
@click.option("-MP", "depfile_phony", is_flag=True, help="Add an empty rule for every imported module.")
@click.option("-MA", "depfile_absolute", is_flag=True, help="Write absolute paths.")
def compile_command(**given: Any) -> None:
    """Writes one CUDA file for the kernels of FILE.

    \b
    tilec compile gemm.py -o gemm.cu --header gemm.h
    tilec compile gemm.py -D M=4096 -D dtype=bfloat16 --arch sm_90a
    """
    from tilec import files

    session = _Session(given)
    kinds = [k for k in given["extra"].split(",") if k]
    if unknown := [k for k in kinds if k not in ("ir", "plan", "json")]:
        raise OptionError(f"--emit {unknown[0]}: expected ir, plan or json")
    output = given["output"] or ("-" if session.file == "-" else f"{Path(session.file).stem}.cu")
    if output == "-" and (kinds or given["header"] or (_wants_depfile(given) and not given["depfile_name"])):
        raise OptionError("--emit, --header and -MD need a file name: give -o FILE")
    compiled = session.compile(session.options(given["line_directives"]))
    texts = _depfile(given, compiled, session, output) if _wants_depfile(given) else {}  # first, so that make never finds it newer
    texts |= _beside(compiled, output, kinds)
    if given["header"]:
        texts[given["header"]] = _header(compiled, session.file)
    if output != "-":
        if output in texts:
            raise OptionError(f"{output} would be two outputs at once")
        texts[output] = compiled.cu
    if lost := files.clash(texts, compiled.module.sources):
        raise OptionError(f"{lost} is read by this compilation: it would be overwritten")
    try:
        if output == "-":
            files.to_stdout(compiled.cu)
        files.write_all(texts)
    except OSError as fault:
        raise click.ClickException(f"cannot write {fault.filename2 or fault.filename or output}: {fault.strerror}") from None


def _wants_depfile(given: dict[str, Any]) -> bool:
    return bool(given["depfile"] or given["depfile_user"])


def _depfile(given: dict[str, Any], compiled: Compiled, session: _Session, output: str) -> dict[str, str]:
    """The dependency file by its name: everything that decided the output."""
    from tilec import files

    own = [] if given["depfile_user"] else files.own_files()
    sources = [*compiled.module.sources, *session.option_files, *own]
    targets = given["depfile_targets"] or [output, *([given["header"]] if given["header"] else [])]
    if given["depfile_absolute"]:
        sources = [str(Path(s).absolute()) for s in sources]
    return {given["depfile_name"] or str(Path(output).with_suffix(".d")): files.depfile(targets, sources, given["depfile_phony"])}


def _beside(compiled: Compiled, output: str, kinds: Sequence[str]) -> dict[str, str]:
    """The further outputs of --emit by file name."""
    texts = {}
    for kind in kinds:
        name = str(Path(output).with_suffix({"ir": ".ir", "plan": ".plan.txt", "json": ".json"}[kind]))
        if kind == "ir":
            from tilec.ir.show import show

            texts[name] = show(compiled.module)
        elif kind == "plan":
            from tilec.emit.explain import explain_text

            texts[name] = "\n".join(explain_text(p) for p in compiled.plans)
        else:
            import json

            from tilec.emit.manifest import manifest

            texts[name] = json.dumps(manifest(compiled.plans), indent=1) + "\n"
    return texts


def _header(compiled: Compiled, source: str) -> str:
    from tilec.emit.header import header_text
    from tilec.emit.render import render

    return header_text(render, compiled.plans, source)


@main.command(short_help="Reads, plans and checks; writes nothing.")
@_source_options
def check(**given: Any) -> None:
    """Reads, plans and checks FILE; writes nothing.

    \b
    tilec check gemm.py -Werror
    """
    session = _Session(given)
    compiled = session.compile(session.options())
    if session.verbose:
        click.echo(f"{session.file}: {', '.join(p.symbol for p in compiled.plans)} fine", err=True)


@main.command(short_help="Tells the plan, or what an error code means.")
@_source_options
def explain(**given: Any) -> None:
    """Tells the plan of the one kernel in FILE, or what an error code means.

    \b
    tilec explain gemm.py -D M=4096
    tilec explain TL0312
    """
    from tilec.diagnostics.codes import CODES

    file = given["file"]
    if file in CODES:
        click.echo(f"{file}: {CODES[file]}")
        return
    if file[:2] == "TL" and file[2:].isdigit():
        raise OptionError(f"there is no code {file}")
    session = _Session(given)
    compiled = session.compile(session.options())
    from tilec.emit.explain import explain_text

    _only(compiled, session)
    click.echo(explain_text(compiled.plans[0]), nl=False)


def _only(compiled: Compiled, session: _Session) -> None:
    """Ends the command unless exactly one kernel was compiled."""
    if len(compiled.plans) != 1:
        names = ", ".join(k.symbol for k in compiled.module.kernels)
        raise OptionError(f"{session.file} holds {len(compiled.plans)} kernels ({names}): choose one with -k")


# ---- run, bench


@main.command("run", short_help="Runs the code, on the CPU or a GPU, and compares.")
@_source_options
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="The emulator, or a GPU through CuPy.")
@click.option("--in", "inputs", multiple=True, metavar="A=a.npy", help="Take a tensor or scalar from a file; others are random.")
@click.option("--out", "outputs", multiple=True, metavar="C=c.npy", help="Write a tensor to a file after the run.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random inputs and of the order of threads.")
@click.option("--mode", default="", metavar="lazy,apart", help="CPU: one run so (lazy, eager, random; apart, real) and not the usual two.")
@click.option("--timeout", type=click.IntRange(1), default=60, show_default=True, metavar="SECONDS", help="CPU: longest time of a run.")
@click.option("--no-check", is_flag=True, help="Do not compare with the reference.")
def run_command(**given: Any) -> int:
    """Runs the generated code of the one kernel in FILE and compares the result with the reference.

    \b
    tilec run gemm.py -D M=256 -D N=256 -D K=128 --seed 7
    tilec run gemm.py --device cuda --in A=a.npy --in B=b.npy --out C=c.npy
    """
    session = _Session(given)
    options = session.options()
    compiled = session.compile(options)
    _only(compiled, session)
    from tilec.runtime import report
    from tilec.runtime.request import RunRequest, pairs

    outputs = pairs("--out", given["outputs"])
    session.guard({f"--out {name}={file}": file for name, file in outputs.items()}, compiled.module.sources)

    request = RunRequest(
        defines=options.defines, args=options.args, inputs=pairs("--in", given["inputs"]), outputs=outputs,
        seed=given["seed"], mode=given["mode"], timeout_s=given["timeout"], check=not given["no_check"],
    )  # fmt: skip
    return report.finish(lambda: _launch(compiled, request, given["device"], session.quiet), click.echo)


def _launch(compiled: Compiled, request: RunRequest, device: str, quiet: bool) -> Any:
    if device == "cuda":
        from tilec.runtime import cuda

        return cuda.run(compiled, request)
    from tilec.runtime import cpu
    from tilec.runtime.progress import Progress

    progress = Progress(sys.stderr, quiet)
    try:
        return cpu.run(compiled, request, progress.tell)
    finally:
        progress.done()


@main.command(short_help="Times it on a GPU beside a peer.")
@_source_options
@click.option("--sweep", "sweeps", multiple=True, metavar="M=1024:16384:*2",
              help="Measure for each value: FROM:TO:*FACTOR, FROM:TO:+STEP or a list; M,N,K=... moves together; several multiply.")
@click.option("--against", multiple=True, metavar="PEER",
              help="cublas, cudnn, torch, torch:EXPR, another .cu or .py, none. [default: what fits a GEMM or attention]")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="cpu checks only and times nothing.")
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="How long to measure a point.")
@click.option("--mode", type=click.Choice(["flush", "rotate"]), default="flush", show_default=True,
              help="Empty the L2 cache before each launch, or launch back to back on buffers in rotation.")
@click.option("--check-seconds", type=click.FloatRange(1.0), default=120.0, show_default=True, help="Longest time of the reference.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the figures as CSV.")
@click.option("--svg", default="", metavar="FILE", help="Also draw the sweep and the roofline.")
@click.option("--plot", is_flag=True, help="Also draw the sweep in the terminal.")
def bench(**given: Any) -> int:
    """Times the one kernel in FILE on a GPU beside a peer: checked first, L2 flushed, in turns, medians.

    \b
    tilec bench gemm.py -D M=8192 -D N=8192 -D K=8192
    tilec bench gemm.py --sweep M,N,K=1024:16384:*2 --svg gemm.svg
    tilec bench softmax.py -D N=4096 --against 'torch:torch.softmax(X, -1)'
    """
    from tilec.runtime import report
    from tilec.runtime.bench import command

    session = _Session(given)
    request = command.request(given, session.options())
    return report.finish(lambda: command.run(request, _recompile(session, given["svg"]), given["device"], given["quiet"]), click.echo)


def _recompile(session: _Session, svg: str) -> Any:
    """Compiles FILE, or another file, with some more `-D`; also gives all of them. Tells what there is to tell once."""
    from dataclasses import replace

    base, told = session.options(), set()

    def compile(point: Any, other: str) -> Any:
        options = replace(base, defines={**base.defines, **point})
        if other:
            try:
                options = replace(options, path=other, text=Path(other).read_bytes(), kernels=(), name="")
            except OSError as fault:
                raise click.ClickException(f"cannot read {other}: {fault.strerror}") from None
        compiled = session.compile(options, silent=other in told)
        session.guard({"--svg": svg} if svg else {}, compiled.module.sources)
        told.add(other)
        _only(compiled, session)
        return compiled, options.defines

    return compile


@main.command(short_help="Finds the fastest parameters on a GPU.")
@_source_options
@click.argument("more", nargs=-1, metavar="[NAME=VALUES]...")
@click.option("--space", "spaces", multiple=True, metavar="NAME=VALUES", help="Try these values, such as block_M=64,128; several multiply.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="cpu tries it on the emulator.")
@click.option("-o", "--output", metavar="FILE", help="The CUDA file of the fastest candidate. [default: FILE with .cu, here]")
@click.option("--table", metavar="FILE", help="The table that is written and resumed. [default: FILE with .tuned.json, here]")
@click.option("--again", is_flag=True, help="Begin anew, whatever the table holds.")
@click.option("--seconds", type=click.FloatRange(0.0), default=0.2, show_default=True, help="How long to measure a candidate.")
@click.option("--final-seconds", type=click.FloatRange(0.0), default=1.0, show_default=True, help="How long to measure each of the best.")
@click.option("--timeout", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Longest time of a candidate.")
@click.option("--check-seconds", type=click.FloatRange(1.0), default=60.0, show_default=True, help="Longest time of the reference.")
@click.option("--jobs", type=click.IntRange(0), default=0, help="Compilations at once. [default: as many as there are cores]")
@click.option("--nvcc/--no-nvcc", default=True, show_default=True, help="Ask nvcc, where it is, for spilled registers.")
@click.option("--keep-spills", is_flag=True, help="Measure candidates that spill registers, too.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--dask", default="", metavar="ADDRESS", help="Measure on the workers of this Dask cluster, such as tcp://host:8786.")
@click.option("--meter", default="", metavar="MODULE:FACTORY", help="Measure with a class of your own.")
def tune(**given: Any) -> int:
    """Tries the autotune configurations of the one kernel in FILE, or a --space, and writes the fastest that is right.

    \b
    tilec tune gemm.py -D M=8192 -D N=8192 -D K=8192
    tilec tune gemm.py -D M=8192 -D N=8192 -D K=8192 --space block_M=64,128 block_N=128,256 num_stages=2:4:+1
    tilec compile gemm.py -D @gemm.tuned.json
    """
    from tilec.runtime import report
    from tilec.runtime.tune import command

    session = _Session(given)
    options = session.options()
    return report.finish(lambda: command.run(given, options, session.compile, session.guard), click.echo)


@main.command(short_help="Says what is installed, and what to install.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Tell only what is missing.")
def doctor(as_json: bool, quiet: bool) -> int:
    """Says what this machine has, and what to install for what is missing: exit code 3 if anything is.

    \b
    tilec doctor
    """
    import json

    from tilec.runtime import doctor as examiner

    found = examiner.examine()
    click.echo(json.dumps(found.as_json(), indent=1) if as_json else "\n".join(examiner.lines(found, quiet)))
    return found.exit_code
