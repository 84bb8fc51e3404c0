"""What the command line says, as values: `-D`, `--arg`, pyproject.toml. No printing, no click.

    define("block_M=128") -> ("block_M", 128);  argument("A=float16[4096,K]") -> ("A", "float16", (4096, "K"))
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.targets import Target

LONGEST = 10_000
MAX_BYTES = 4 << 20
"""The largest file of kernels that is read."""
TUNED = "tilec-tuned"
"""The key that marks a table of `tilec tune`, of which `-D @FILE` takes the best candidate."""
_WORD = re.compile(r"[^\W\d][\w.]*\Z")
_INTEGER = re.compile(r"-?\d{1,18}\Z")
_ARGUMENT = re.compile(r"\s*([^\W\d]\w*)\s*=\s*([^\W\d][\w.]*)\s*\[([^\]]*)\]\s*\Z")


class OptionError(ValueError):
    """An option that cannot be read; the text says why. Exit code 2."""


def define(text: str) -> tuple[str, Any]:
    """The name and the value of `NAME=VALUE`: a Python literal, or a bare word for a string or dtype. Raises OptionError."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name.isidentifier():
        raise OptionError(f"-D {text}: expected NAME=VALUE")
    return name, literal(value.strip(), f"-D {name}")


def literal(text: str, where: str) -> Any:
    """A Python literal, or the text itself if it is a bare word. Raises OptionError, which names `where`."""
    if _INTEGER.match(text):
        return int(text)
    if len(text) > LONGEST:
        raise OptionError(f"{where}: the value is longer than {LONGEST} characters")
    if _WORD.match(text) and text not in ("True", "False", "None"):
        return text.removeprefix("T.")
    from ast import literal_eval  # not needed for numbers and words

    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise OptionError(f"{where}: `{text[:60]}` is neither a Python literal nor a bare word") from None


def defines(options: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all `-D` options in order, later ones win, and the JSON files read for `-D @file.json`."""
    values: dict[str, Any] = {}
    files: list[str] = []
    for text in options:
        if text.startswith("@"):
            values |= _from_json(text[1:])
            files.append(text[1:])
        else:
            name, value = define(text)
            values[name] = value
    return values, files


def _from_json(file: str) -> Mapping[str, Any]:
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as fault:
        raise OptionError(f"-D @{file}: {fault.strerror}") from None
    except RecursionError:
        raise OptionError(f"-D @{file}: nested too deeply") from None
    except ValueError as fault:
        raise OptionError(f"-D @{file}: not JSON: {fault}") from None
    if isinstance(data, dict) and TUNED in data and isinstance(data.get("best"), dict):
        data = data["best"]
    if not isinstance(data, dict) or not all(k.isidentifier() for k in data):
        raise OptionError(f"-D @{file}: expected one object with names as keys")
    return data


def argument(text: str) -> tuple[str, str, tuple[int | str, ...]]:
    """Name, dtype and extents of `NAME=DTYPE[EXTENT,...]`; an extent is a number or a name. Raises OptionError."""
    found = _ARGUMENT.match(text)
    if not found:
        raise OptionError(f"--arg {text}: expected NAME=DTYPE[EXTENT,...], such as A=float16[4096,K]")
    name, dtype, inside = found.groups()
    return name, dtype.removeprefix("T."), tuple(_extent(part.strip(), text) for part in inside.split(",") if inside.strip())


def _extent(text: str, whole: str) -> int | str:
    if text.isdecimal():
        if len(text) > 18:
            raise OptionError(f"--arg {whole[:60]}: an extent of {len(text)} digits is too large")
        return int(text)
    if text.isidentifier() and not iskeyword(text):
        return text
    raise OptionError(f"--arg {whole}: `{text}` is neither a number nor a name")


def architectures(text: str) -> tuple[Target, ...]:
    """The targets to plan for, from `sm_80` or `sm_80,sm_90a`, the oldest first: its code runs on the others too, which may have
    bodies of their own besides."""
    from tilec.targets import ALL, lookup

    found = []
    for name in text.split(","):
        target = lookup(name.strip())
        if target is None:
            raise OptionError(f"--arch {text}: `{name.strip()}` is none of {', '.join(t.name for t in ALL)}")
        found.append(target)
    return tuple(sorted(found, key=lambda t: (t.number, t.has_wgmma)))


def architecture(text: str) -> Target:
    """The oldest of the targets named, whose code runs on all of them."""
    return architectures(text)[0]


def from_project(source: str) -> tuple[dict[str, Any], str | None]:
    """`[tool.tilec.define]` of the nearest pyproject.toml above a source file, and that file whether it has any; nothing without one."""
    folder = Path.cwd() if source == "-" else Path(source).absolute().parent
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            return _project_defines(file)
    return {}, None


def _project_defines(file: Path) -> tuple[dict[str, Any], str | None]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}, None
    if "tool.tilec" not in text:
        return {}, str(file)
    import tomllib

    try:
        table = tomllib.loads(text).get("tool", {}).get("tilec", {})
    except RecursionError:
        raise OptionError(f"{file}: nested too deeply") from None
    except ValueError as fault:  # not TOML, or a number of thousands of digits
        raise OptionError(f"{file}: {fault}") from None
    if unknown := sorted(set(table) - {"define"}):
        raise OptionError(f"{file}: [tool.tilec] has no setting `{unknown[0]}`; it may hold `define`")
    values = table.get("define", {})
    if not isinstance(values, dict):
        raise OptionError(f"{file}: [tool.tilec.define] must be a table")
    return values, str(file)
