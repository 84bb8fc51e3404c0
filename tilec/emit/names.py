"""Which names a CUDA file may use: symbols that are safe to export and identifiers that no one else claims.

    cuda_symbol("main") -> "main_kernel";  Names(["lane"]).fresh("lane") -> "lane_1";  Names().fresh("float") -> "float_"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilec.emit import prelude
from tilec.emit.reserved import CUDA_NAMES, KEYWORDS, LIBRARY, MACROS, MATH
from tilec.ir.kernel import Kernel, Param

LAUNCHER_NAMES = frozenset(
    "stream workspace launch kernel error arguments aligned address ceildiv floordiv floormod times plus smaller larger "
    "cleared together grid_x grid_y grid_z shared_bytes multiprocessors encode_tensor_map tensor_extents tensor_strides tensor_box "
    "device_number compiled runs_here".split()
)
"""Names the launcher uses itself, besides those of the parameters."""


def printable(file: str) -> str:
    """A file's name in a comment of one line: what cannot be printed there, bytes that are no UTF-8 among it, becomes `?`."""
    return "".join(c if c.isprintable() else "?" for c in file)


def identifier(name: str) -> str:
    """`name` with only the letters that C allows: others become their code point, runs of `_` shrink, digits do not lead."""
    out = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):04x}" for c in name)
    while "__" in out:
        out = out.replace("__", "_")
    if out[:1] == "_" and out[1:2].isupper():
        out = out[1:]
    return f"_{out}" if out[:1].isdigit() else out or "_"


def is_claimed(name: str) -> bool:
    """Whether C++, CUDA or their headers give an identifier a meaning of its own wherever it stands."""
    return name in KEYWORDS or name in CUDA_NAMES or name in MACROS or name in MATH or name.startswith(("cuda", "CUDA", "CU_"))


def cuda_symbol(name: str) -> str:
    """The exported name of a kernel that the author calls `name`."""
    out = identifier(name)
    taken = is_claimed(out) or out in LIBRARY or out in prelude.entries()
    return f"kernel{out}" if out[:1] == "_" else f"{out}_kernel" if taken else out


class Names:
    """Hands out C identifiers, each once; none of `reserved`, no keyword, no name of CUDA or of its headers."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = set(reserved)

    def fresh(self, hint: str) -> str:
        """`hint` if it is free, else `hint_` for a reserved word, else `hint_1`, `hint_2` and so on."""
        base = identifier(hint)
        if is_claimed(base):
            base += "_"
        name, n = base, 0
        while name in self._used:
            n += 1
            name = f"{base.rstrip('_')}_{n}"
        self._used.add(name)
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps names from being handed out."""
        self._used.update(names)

    def taken(self) -> frozenset[str]:
        """Every name that is in use."""
        return frozenset(self._used)

    def release(self, names: Iterable[str]) -> None:
        """Makes names available again, once the C scope that declared them is closed."""
        self._used.difference_update(names)


def parameter_names(kernel: Kernel, names: Names) -> Mapping[Param, str]:
    """The C names of the parameters and run-time extents of `kernel`, taken from `names` in the order of the signature.

    Kernel, launcher and header use one and the same mapping; `names` must know what is reserved in each of them.
    """
    return {p: names.fresh(p.name) for p in (*kernel.params, *kernel.extents)}
