"""Enumerations of the user's file: members with a name and a value, found by either.

    class Mode(IntEnum): A = 3; B = auto()     Mode.B -> 4;  Mode["A"] -> 3;  Mode(3).name -> "A"

Members of IntEnum and StrEnum are numbers and texts themselves; those of Enum are equal to nothing else.
"""

from __future__ import annotations

from typing import Any

from tilec.diagnostics import Span
from tilec.frontend import hostops
from tilec.frontend.machine import Machine
from tilec.frontend.values import AUTO, ClassValue, EnumMember, Function, Partial, Poison
from tilec.language.values import Value


class IntMember(int):
    """A member of an IntEnum: an integer with a name."""

    enum: EnumMember


class TextMember(str):
    """A member of a StrEnum: a text with a name."""

    enum: EnumMember


def enum_kind(bases: set[str]) -> str:
    """enum, enum:int, enum:str or enum:flag by the names of a class's bases; empty when none is an enumeration."""
    if not bases & {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}:
        return ""
    if bases & {"Flag", "IntFlag"}:
        return "enum:flag"
    return "enum:int" if bases & {"IntEnum", "int"} else "enum:str" if bases & {"StrEnum", "str"} else "enum"


def make_members(m: Machine, cls: ClassValue, order: list[str]) -> None:
    """Turns the assigned names of an enumeration's body into its members; equal values are one member."""
    made: list[EnumMember] = []
    last: Any = 0
    for name in dict.fromkeys(order):
        value = cls.names.get(name)
        if name.startswith("_") or isinstance(value, (Function, Partial, Poison)):
            continue
        if value is AUTO:
            value = name.lower() if cls.kind == "enum:str" else _next(cls.kind, last)
        last = value if isinstance(value, int) else last
        member = next((e for e in made if hostops.equal(e.value, value)), None) or EnumMember(cls, name, value)
        if member not in made:
            made.append(member)
        cls.names[name] = cls.names[member.name] if member.name != name else _shown(member)
    cls.members.extend(cls.names[e.name] for e in made)


def _next(kind: str, last: int) -> int:
    return last + 1 if kind != "enum:flag" else 1 << last.bit_length()


def _shown(member: EnumMember) -> Value:
    """A member as the program sees it: one of an IntEnum is an integer."""
    value: Any = member.value
    match member.cls.kind:
        case "enum:int" | "enum:flag" if isinstance(value, int):
            shown: Any = IntMember(value)
        case "enum:str":
            shown = TextMember(hostops.plain(value))
        case _:
            return member
    shown.enum = member
    return shown


def enum_of(value: Value) -> EnumMember | None:
    """The member that a value is, if it is one."""
    return value if isinstance(value, EnumMember) else value.enum if isinstance(value, (IntMember, TextMember)) else None


def by_value(m: Machine, cls: ClassValue, args: tuple[Value, ...], span: Span) -> Value:
    """`Mode(3)`: the member of that value. Raises TL0108 when there is none."""
    if len(args) != 1:
        raise m.fail("TL0203", f"`{cls.name}` takes one value", span)
    for shown in cls.members:
        member = enum_of(shown)
        if shown is args[0] or (member is not None and hostops.equal(member.value, args[0])):
            return shown
    raise m.fail("TL0108", f"`{cls.name}` has no member of the value {hostops.short(args[0])}", span, help=_known(cls))


def by_name(m: Machine, cls: ClassValue, name: Value, span: Span) -> Value:
    """`Mode["A"]`. Raises TL0108 when there is none."""
    if not isinstance(name, str) or enum_of(cls.names.get(name)) is None:
        raise m.fail("TL0108", f"`{cls.name}` has no member {hostops.short(name)}", span, help=_known(cls))
    return cls.names[name]


def _known(cls: ClassValue) -> str:
    return f"its members are {', '.join(e.name for shown in cls.members if (e := enum_of(shown)) is not None)}"
