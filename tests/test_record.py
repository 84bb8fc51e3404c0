"""Records are what frozen, slotted dataclasses are, for everything that tilec does with them."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import ClassVar

import pytest

from tilec.record import record, replace


@record
class Point:
    """A point."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    tags: tuple[str, ...] = field(default=(), repr=False)
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The sum."""
        return self.x + self.y


@record(eq=False)
class Named:
    """Equal to itself only."""

    name: str


@record
class Spot(Point):
    """A point with one more field, all with defaults."""

    size: int = 7


@record
class Empty:
    """Nothing."""


def test_fields_defaults_and_properties() -> None:
    p = Point(1)
    assert (p.x, p.y, p.tags, p.seen, p.total, p.kind) == (1, 2, (), {}, 3, "point")
    assert Point(1).seen is not p.seen
    assert Point(1, y=5).y == 5 and Point(x=3).x == 3
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(1, z=3)  # type: ignore[call-arg]


def test_frozen_and_slotted() -> None:
    p = Point(1)
    with pytest.raises(FrozenInstanceError):
        p.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del p.x
    assert not hasattr(p, "__dict__")


def test_equality_and_hash() -> None:
    assert Named("a") != Named("a") and len({Named("a"), Named("a")}) == 2
    assert Point(1) == Point(1) and Point(1) != Point(2) and Point(1) != (1, 2) and Empty() == Empty()
    assert Spot(1) != Point(1) and Spot(1) == Spot(1, size=7)
    assert hash(Empty()) == hash(Empty())


def test_patterns_and_text() -> None:
    match Point(1, 9):
        case Point(x, y):
            assert (x, y) == (1, 9)
    assert repr(Point(1)) == "Point(x=1, y=2, seen={})"
    assert Point.__doc__ == "A point."


def test_functions_of_dataclasses_work() -> None:
    p = dataclasses.replace(Point(1), y=8)
    assert (p.x, p.y) == (1, 8)
    assert [f.name for f in dataclasses.fields(Spot)] == ["x", "y", "tags", "seen", "size"]
    assert dataclasses.asdict(Named("a")) == {"name": "a"} and dataclasses.is_dataclass(p)
    assert dataclasses.replace(Spot(1), size=1) == Spot(1, size=1)


def test_pickled() -> None:
    assert pickle.loads(pickle.dumps(Spot(1, size=3))) == Spot(1, size=3)


def test_replace_does_as_dataclasses_do() -> None:
    point = Point(1, 5, ("a",))
    assert replace(point, y=7) == dataclasses.replace(point, y=7) == Point(1, 7, ("a",)) and point.y == 5
    assert replace(point, x=point.x) is not point and replace(point).seen is point.seen
    with pytest.raises(TypeError, match="Point has no z"):
        replace(point, z=1)
