"""Prepares the text of a generated file for the CPU build, line for line, so that reports can name its lines.

- The prelude, between its two marker lines, gives way to blank lines: the emulator's header declares the same functions.
- ``X = shared_tile<T, n>(at)`` becomes ``X = tilec_named_tile<T, n>("X", at)``, so that an overrun can be reported by name; the same
  for ``X(shared_tile<T, n>(at), ...)``.
- A table of the file's kernels and host functions is appended, through which the runtime calls them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PRELUDE_BEGIN = "// ---- prelude"
PRELUDE_END = "// ---- end of prelude"

MANIFEST_BEGIN = "// tilec-manifest-begin"
MANIFEST_END = "// tilec-manifest-end"

_TILE = re.compile(r"(\w+)(\s*=\s*|\()shared_tile<(.*?)>\(")


def read_manifest(cu_text: str) -> Mapping[str, Any]:
    """The manifest in the file's comment; ValueError if there is none or it is not JSON."""
    lines = [line.strip() for line in cu_text.splitlines()]
    begin, end = _find(lines, MANIFEST_BEGIN), _find(lines, MANIFEST_END)
    loaded = json.loads("\n".join(line.removeprefix("//") for line in lines[begin + 1 : end]))
    if not isinstance(loaded, dict) or "kernels" not in loaded:
        raise ValueError("the file's manifest lists no kernels")
    return loaded


def prepare(cu_text: str, manifest: Mapping[str, Any]) -> str:
    """The C++ text to compile; ValueError if the prelude's marker lines are missing."""
    lines = cu_text.splitlines()
    begin, end = _find(lines, PRELUDE_BEGIN), _find(lines, PRELUDE_END)
    lines[begin : end + 1] = [""] * (end + 1 - begin)
    body = [_TILE.sub(r'\1\2tilec_named_tile<\3>("\1", ', line) for line in lines]
    return "\n".join([*body, *_table(_clusters(manifest), launchers(manifest)), ""])


def _clusters(manifest: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """The `__global__` functions and the blocks of a cluster of each along x, y, z."""
    variants = (v for k in manifest["kernels"] for launch in k["launches"] for v in launch["variants"])
    return {v["symbol"]: v.get("cluster", (1, 1, 1)) for v in variants}


def launchers(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The manifest's kernels by the name of the host function that launches them."""
    return {k.get("launcher", f"{k['symbol']}_launch"): k for k in manifest["kernels"]}


def _find(lines: list[str], marker: str) -> int:
    for number, line in enumerate(lines):
        if line.startswith(marker):
            return number
    raise ValueError(f"the file has no line that starts with `{marker}`")


def _table(kernels: Mapping[str, Sequence[int]], host: Iterable[str]) -> list[str]:
    entries = [f'    tilec_describe("{name}", {name}, true, {", ".join(map(str, cluster))}),' for name, cluster in kernels.items()]
    entries += [f'    tilec_describe("{name}", {name}, false),' for name in host]
    return [
        'extern "C" __attribute__((visibility("default"))) const tilec_callable* tilec_registered(int* tilec_count) {',
        "  static const tilec_callable table[] = {",
        *entries,
        "  };",
        f"  *tilec_count = {len(entries)};",
        "  return table;",
        "}",
    ]
