"""Option values: literals, bare words, JSON files, arrays, architectures, pyproject.toml."""

from pathlib import Path

import pytest

from tilec.options import OptionError, architectures, argument, define, defines, from_project


@pytest.mark.parametrize(("text", "value"), [
    ("N=128", 128), ("N=-3", -3), ("x=0.5", 0.5), ("x=1e-3", 1e-3), ("t=(128, 64)", (128, 64)), ("t=[1,2]", [1, 2]), ("f=True", True),
    ("n=None", None), ("d=float16", "float16"), ("d=T.float16", "float16"), ("s='two words'", "two words"), ("e=", ""),
    ("m={'a': 1}", {"a": 1}), ("N = 4", 4), ("big=123456789012345678901", 123456789012345678901),
])  # fmt: skip
def test_values(text: str, value: object) -> None:
    if value == "":
        with pytest.raises(OptionError):
            define(text)
        return
    got = define(text)[1]
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize("text", ["N", "=3", "1x=3", "N=two words", "N=(", "N=os.system('x')", "N=__import__('os')", "N=" + "[" * 9000, "N=1+1", "a.b=1"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="-D"):
        define(text)


def test_later_options_win_and_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"M": 1, "tile": [1, 2]}')
    assert defines([f"@{file}", "M=5"]) == ({"M": 5, "tile": [1, 2]}, [str(file)])


@pytest.mark.parametrize("content", ["[1]", "{", '{"a b": 1}', None])
def test_bad_json_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "c.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(OptionError, match=r"c\.json"):
        defines([f"@{file}"])


@pytest.mark.parametrize(("text", "want"), [
    ("A=float16[4096,K]", ("A", "float16", (4096, "K"))), (" A = T.int8[ 3 ] ", ("A", "int8", (3,))), ("x=float32[]", ("x", "float32", ())),
])  # fmt: skip
def test_arrays(text: str, want: object) -> None:
    assert argument(text) == want


@pytest.mark.parametrize("text", ["A", "A=float16", "A=float16[4,*]", "A=[4]", "A=float16[4]]", "A=float16[-4]"])
def test_bad_arrays(text: str) -> None:
    with pytest.raises(OptionError):
        argument(text)


def test_several_architectures_come_oldest_first() -> None:
    assert [t.name for t in architectures("sm_90a,sm_80")] == ["sm_80", "sm_90a"] and [t.name for t in architectures("sm_86")] == ["sm_86"]
    with pytest.raises(OptionError, match="sm_80"):
        architectures("sm_80,gfx90a")


def test_the_nearest_pyproject_gives_defaults(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.tilec.define]\nblock_M = 64\ndtype = 'float16'\n")
    assert from_project(str(tmp_path / "a" / "b" / "k.py")) == ({"block_M": 64, "dtype": "float16"}, str(tmp_path / "pyproject.toml"))
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.black]\n")
    assert from_project(str(tmp_path / "a" / "b" / "k.py")) == ({}, str(tmp_path / "a" / "pyproject.toml"))


@pytest.mark.parametrize("text", ["[tool.tilec\n", "[tool.tilec]\narch = 'sm_90'\n", "[tool.tilec]\ndefine = 3\n"])
def test_a_broken_pyproject_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(OptionError, match=r"pyproject\.toml"):
        from_project(str(tmp_path / "k.py"))
