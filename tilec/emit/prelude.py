"""The prelude: the few device functions that a generated file needs, cut out of ``templates/prelude/*.cuh``.

The files are plain CUDA. A line ``//@ NAME`` starts an entry, ``//@ NAME needs: A B`` one that calls others; the lines
up to the next marker are its text. Example: ``select(["ldmatrix_x4"])`` gives the text of ``shared_address`` and of
``ldmatrix_x4``, in this order, because the second needs the first.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from tilec.record import record
from tilec import templates_dir

FILES = ("types", "numeric", "memory", "async", "ldmatrix", "mma", "warp", "sync", "hopper", "cluster", "reduce", "atomic", "random")
"""The prelude's files, in the order in which their entries appear in the output."""

MARKER = "//@ "


class UnknownEntry(KeyError):
    """The prelude has no entry of that name: a fault of tilec, never of its input."""

    def __str__(self) -> str:
        return f"the prelude has no entry {self.args[0]!r}"


@record
class Entry:
    """One function or type of the prelude: its name, the entries that its text uses, and its text without the marker."""

    name: str
    needs: tuple[str, ...]
    text: str


def atomic_entry(operation: str, dtype: str) -> str:
    """The entry that provides `atomic_OPERATION` for elements of this type.

    `operation` is add, max, min, and, or, xor, exch, cas, load or store; `dtype` a TileLang name:
    atomic_entry("add", "float16") -> "atomic_add_float16", atomic_entry("add", "int32") -> "atomic_add".
    """
    special = f"atomic_{operation}_{'uint8' if dtype == 'bool' else dtype}"
    return special if special in entries() else f"atomic_{operation}"


def select(names: Iterable[str]) -> str:
    """The text of the named entries and of all they need, in file order, a blank line between; "" for no name.

    Raises UnknownEntry for a name, or a need, that no file defines.
    """
    table = entries()
    wanted: set[str] = set()
    written: dict[str, str] = {}
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name not in table:
            written[name] = _written(name)
            continue
        if name not in wanted:
            wanted.add(name)
            open_names.extend(table[name].needs)
    return "\n".join([*(entry.text for name, entry in table.items() if name in wanted), *(written[name] for name in sorted(written))])


_AMPERE = ("cp.async", "mma.sync", "bf16", "cvt.rn.f16x2", "mbarrier", "wgmma")
"""What the text of an entry holds when it needs sm_80 or newer."""


def needs_ampere(text: str) -> bool:
    """True when entries' text has an instruction that older architectures lack."""
    return any(word in text for word in _AMPERE)


def _written(name: str) -> str:
    """The text of an entry that no file holds but a template writes: the products of warp groups."""
    from tilec.emit import wgmma

    text = wgmma.text(name)
    if text is None:
        raise UnknownEntry(name)
    return text


@cache
def entries() -> Mapping[str, Entry]:
    """All entries by name, in file order; read once per process."""
    folder = templates_dir.path() / "prelude"
    table: dict[str, Entry] = {}
    for stem in FILES:
        file = folder / f"{stem}.cuh"
        if file.is_file():
            for entry in parse(file.read_text(encoding="utf-8")):
                if entry.name in table:
                    raise ValueError(f"{file}: a second prelude entry {entry.name!r}")
                table[entry.name] = entry
    return table


def parse(text: str) -> list[Entry]:
    """The entries of one file; what comes before the first marker is the file's own comment and belongs to none."""
    found: list[Entry] = []
    for piece in ("\n" + text).split("\n" + MARKER)[1:]:
        head, _, body = piece.partition("\n")
        name, _, needs = head.partition(" needs:")
        found.append(Entry(name.strip(), tuple(needs.split()), body.strip("\n") + "\n"))
    return found
