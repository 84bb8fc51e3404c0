"""Output files: written whole or not at all, and the dependency files that make reads.

    write("gemm.cu", text);  depfile("out dir/gemm.cu", ["gemm.py"], phony=False) -> "out\\\\ dir/gemm.cu: gemm.py\\n"
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tilec import templates_dir

_NOT_COMPILING = ("emulator", "reference", "runtime")
"""Rooms that run kernels."""


def write_all(texts: Mapping[str, str]) -> None:
    """Writes every file under a temporary name first and renames them all once each is complete. OSError, which names the file,
    leaves none new.

    What is no regular file, such as /dev/null or a pipe, is written straight. Names of files that are no UTF-8 keep their bytes.
    """
    pending: list[tuple[Path, Path]] = []
    name = ""
    try:
        for name, text in texts.items():
            path = Path(os.path.realpath(name))
            data = text.encode("utf-8", "surrogateescape")
            if path.exists() and not path.is_file():
                path.write_bytes(data)
                continue
            draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            pending.append((draft, path))
            draft.write_bytes(data)
        for draft, path in pending:
            name = str(path)
            draft.replace(path)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, name) from None
    finally:
        for draft, _ in pending:
            with contextlib.suppress(OSError):
                draft.unlink()


def to_stdout(text: str) -> None:
    """Writes UTF-8 text to standard output, all of it. Raises OSError, also when it is closed."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered must not fail again at the exit
        raise OSError(fault.errno, fault.strerror, "standard output") from None


def clash(outputs: Iterable[str], inputs: Iterable[str]) -> str:
    """The first output that is the same file as an input, also by another name or through a link; "" if none is."""
    taken = {(s.st_dev, s.st_ino) for s in map(_status, inputs) if s is not None}
    return next((n for n in outputs if (s := _status(n)) is not None and (s.st_dev, s.st_ino) in taken), "")


def unwritable(name: str) -> str:
    """Why a file cannot be written, as far as its folder tells beforehand; "" if nothing is against it."""
    path = Path(os.path.realpath(name))
    if path.is_dir():
        return os.strerror(errno.EISDIR)
    if not path.parent.is_dir():
        return os.strerror(errno.ENOENT)
    return "" if os.access(path.parent, os.W_OK) or path.exists() else os.strerror(errno.EACCES)


def _status(name: str) -> os.stat_result | None:
    with contextlib.suppress(OSError, ValueError):
        return Path(name).stat()
    return None


def depfile(targets: str | Sequence[str], sources: Sequence[str], phony: bool) -> str:
    """A rule that makes each target depend on `sources`; with `phony`, an empty rule for each source but the first, so that
    make does not stop when one of them is deleted."""
    names = [quoted(s) for s in dict.fromkeys(sources)]
    left = " ".join(map(quoted, [targets] if isinstance(targets, str) else targets))
    rule = " \\\n  ".join([f"{left}:", *names]) + "\n"
    return rule + "".join(f"\n{n}:\n" for n in names[1:] if phony)


def quoted(name: str) -> str:
    """A file name as make reads it in a rule: blanks, `#` and `$` are escaped, backslashes before a blank doubled."""
    escaped = re.sub(r"(\\*)([ \t])", r"\1\1\\\2", name)
    return escaped.replace("#", "\\#").replace("$", "$$")


def own_files() -> list[str]:
    """The files of tilec itself that decide an output: the modules that a compilation may load, in whatever process, and the templates."""
    here = Path(__file__).parent
    modules = (f for f in here.rglob("*.py") if f.relative_to(here).parts[0] not in _NOT_COMPILING)
    templates = (f for f in templates_dir.path().rglob("*") if f.suffix in (".jinja", ".cuh"))
    return sorted(map(str, {*modules, *templates}))


def cache_dir() -> Path:
    """$TILEC_CACHE_DIR, else tilec's folder in the user's cache folder, else, for a user without a home, one of this process."""
    own, base = os.environ.get("TILEC_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if own or base:
        return Path(own) if own else Path(str(base)) / "tilec"
    try:
        return Path.home() / ".cache" / "tilec"
    except RuntimeError:
        return _folder_of_this_process()


def usable_cache_dir(part: str) -> Path:
    """A folder of the cache that exists, or where the cache cannot be written one that lives as long as this process."""
    place = Path()
    for folder in (cache_dir, _folder_of_this_process):
        place = folder() / part
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            if os.access(place, os.W_OK):
                break
    return place


@cache
def _folder_of_this_process() -> Path:
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="tilec-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
