"""The C++ compiler behind the emulator, and the cache of what it has built.

The runtime (fibers, scheduler, instructions, the stand-in for CUDA) is one program, built once for each version of its
sources and of the compiler; a generated file becomes a small library that this program loads. Both lie in the cache folder,
under names that are hashes of everything that went into them, and appear there by an atomic rename.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilec.record import record
from tilec import templates_dir
from tilec.files import cache_dir, usable_cache_dir

CHECKS = "bounds,alignment,null,shift,signed-integer-overflow,integer-divide-by-zero"
"""What -fsanitize watches in a generated file; the runtime has the handlers, so no sanitizer library is needed."""

RUNTIME_FLAGS = ("-std=c++20", "-O2", "-fno-strict-aliasing", "-fno-exceptions", "-U_FORTIFY_SOURCE", "-rdynamic", "-fno-stack-protector")
PROGRAM_FLAGS = (
    "-std=c++20", "-O0", "-fPIC", "-shared", "-nostdlib", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fno-threadsafe-statics",
    "-ffp-contract=off", "-fno-math-errno", "-fno-stack-protector", "-fvisibility=hidden", "-Wno-attributes", "-Wno-unknown-pragmas",
    f"-fsanitize={CHECKS}", f"-fno-sanitize-recover={CHECKS}",
)  # fmt: skip
"""Without optimisation a program is compiled in half the time, and a run takes as long: its work is done in the runtime."""

OPTIONAL_FLAGS = ("-ftrivial-auto-var-init=pattern", "-fcf-protection=none")
"""Used where the compiler knows them: variables that are read before they are written hold a pattern, and no shadow stacks."""

RACE_FLAGS = ("-O1", "-fsanitize=thread")
"""What makes the compiler tell the runtime of every access; optimised, so that local variables are none."""

KEPT_PROGRAMS = 2000
"""Built programs that stay in the cache; the oldest go first."""


class ToolMissing(Exception):
    """This machine has no C++ compiler for the CPU run."""


class BuildError(Exception):
    """The C++ compiler refused a file; the text is what it said."""


@record
class Runtime:
    """The built runtime: its program, the compiler, the flags for generated files, and the hash of all of that."""

    runner: Path
    compiler: str
    flags: tuple[str, ...]
    key: str


def find_compiler() -> str:
    """The path of $TILEC_CXX, g++ or clang++, the first that is there; ToolMissing if none is."""
    for name in (os.environ.get("TILEC_CXX", ""), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path is not None:
            return path
    raise ToolMissing("the CPU run needs a C++20 compiler: install g++ 11 or newer, or set TILEC_CXX to one")


def runtime() -> Runtime:
    """The runtime for the present sources and compiler, built if the cache has none. ToolMissing, BuildError."""
    compiler = find_compiler()
    folder = templates_dir.path() / "emulator"
    key = _hash_sources(folder, compiler)
    home = cache_dir() / "emulator" / key
    if not (home / "flags.json").is_file():
        home = usable_cache_dir("emulator") / key
    if not (home / "flags.json").is_file():
        with (home.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes start at once in a test run; one builds, the others wait
            if not (home / "flags.json").is_file():
                _build_runtime(home, folder, compiler)
    flags = tuple(json.loads((home / "flags.json").read_text(encoding="utf-8")))
    return Runtime(home / "runner", compiler, (*PROGRAM_FLAGS, *flags, f"-I{folder}"), key)


def build_program(base: Runtime, cu_text: str, *extra: str) -> Path:
    """The library of a generated file that source.py has prepared, from the cache or built now. BuildError."""
    digest = hashlib.sha256("\0".join((base.key, *base.flags, *extra, cu_text)).encode()).hexdigest()[:32]
    library = cache_dir() / "programs" / f"{digest}.so"
    if not library.is_file():
        library = usable_cache_dir("programs") / library.name
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            compile_program(base, cu_text, Path(scratch) / "program.so", *extra)
            (Path(scratch) / "program.so").replace(library)
        _prune(library.parent)
    return library


def compile_program(base: Runtime, cu_text: str, output: Path, *extra: str) -> None:
    """Compiles the text of a file to `output`. BuildError."""
    source = output.with_suffix(".cpp")
    source.write_text(cu_text, encoding="utf-8")
    _run(base.compiler, *base.flags, *extra, "-include", "tilec_emulator.h", "-o", str(output), str(source), "-lgcc")


def lines_of(base: Runtime, cu_text: str, instructions: Sequence[int], *extra: str) -> list[int]:
    """The lines of the file that the instructions at these offsets of its library come from; 0 where that cannot be told."""
    tool = shutil.which("addr2line")
    if tool is None:
        return [0] * len(instructions)
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "program.so"
        compile_program(base, cu_text, library, "-g1", *extra)
        return [_line_of(tool, library, instruction) for instruction in instructions]


def _line_of(tool: str, library: Path, instruction: int) -> int:
    said = subprocess.run([tool, "-i", "-e", str(library), hex(instruction)], capture_output=True, text=True, check=False).stdout
    inside = [entry.rpartition(":")[2].split(" ")[0] for entry in said.splitlines() if "program.cpp:" in entry]
    return int(inside[0]) if inside and inside[0].isdigit() else 0


def _build_runtime(home: Path, folder: Path, compiler: str) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        work = Path(scratch) / "runtime"
        work.mkdir()
        probe = work / "probe.cpp"
        probe.write_text("int probe;\n", encoding="utf-8")
        flags = [flag for flag in OPTIONAL_FLAGS if _accepts(compiler, flag, probe)]
        sources = sorted(str(p) for p in (folder / "runtime").glob("*.cpp"))
        own = [flag for flag in flags if flag.startswith("-fcf")]
        _run(compiler, *RUNTIME_FLAGS, *own, "-o", str(work / "runner"), *sources, "-Wl,--no-as-needed", "-ldl", "-lm")
        probe.unlink()
        (work / "flags.json").write_text(json.dumps(flags), encoding="utf-8")
        if home.is_dir():
            shutil.rmtree(home)
        work.rename(home)


def _accepts(compiler: str, flag: str, probe: Path) -> bool:
    command = [compiler, "-Werror", flag, "-c", "-o", str(probe.with_suffix(".o")), str(probe)]
    accepted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    probe.with_suffix(".o").unlink(missing_ok=True)
    return accepted


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")


def _hash_sources(folder: Path, compiler: str) -> str:
    state = Path(compiler).resolve().stat()
    digest = hashlib.sha256(f"{compiler}\0{state.st_size}\0{state.st_mtime_ns}\0{RUNTIME_FLAGS}".encode())
    shared = folder.parent / "prelude" / "reduce.cuh"
    for file in (*sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp")), *([shared] if shared.is_file() else [])):
        digest.update(f"\0{file.relative_to(folder.parent)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


def _prune(folder: Path) -> None:
    files = list(folder.glob("*.so"))
    if len(files) > KEPT_PROGRAMS:
        files.sort(key=_age)
        for file in files[: len(files) - KEPT_PROGRAMS * 3 // 4]:
            file.unlink(missing_ok=True)


def _age(file: Path) -> float:
    """When a file was last written; 0 for one that another process has just removed."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
