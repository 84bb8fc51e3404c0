"""The map of modules in docs/architecture.md is complete and true."""

from tests.docs.module_map import PAGE, ROOMS, ROOT, page


def test_every_module_is_on_the_map() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python tests/docs/module_map.py"


def test_every_room_is_on_the_map() -> None:
    package = ROOT / "tilec"
    assert {f.parent.relative_to(package).as_posix().removeprefix(".") for f in package.rglob("*.py")} == set(ROOMS)
