"""Bad input of every kind: one error at a place, soon, never a traceback and never a hang."""

from __future__ import annotations


import pytest

from tilec.diagnostics import CompileError
from tilec.frontend import Request, read

HEAD = "import tilelang.language as T\n"
KERNEL = """
@T.prim_func
def k(O: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            O[i] = V
"""
BUDGETS = {
    "endless while": "V = 0\nwhile True:\n    V += 1\n",
    "endless for": "V = 0\nfor i in range(10**12):\n    V += 1\n",
    "endless generator": "def g():\n    while True:\n        yield 1\nV = sum(g())\n",
    "endless recursion": "def f(n):\n    return f(n + 1)\nV = f(0)\n",
    "endless lambda": "f = lambda n: f(n)\nV = f(0)\n",
    "power": "V = 10**10**10\n",
    "shift": "V = 1 << 10**9\n",
    "shift past all memory": "V = 1 << 10**12\n",
    "string": "V = 'a' * 10**10\n",
    "list": "V = [0] * 10**10\n",
    "range": "V = list(range(10**10))\n",
    "sum": "V = sum(range(10**10))\n",
    "doubling list": "V = [0]\nfor i in range(60): V = V + V\n",
    "doubling string": "V = 'ab'\nfor i in range(60): V = V + V\n",
    "replace": "V = 'a' * 100000\nfor i in range(60): V = V.replace('a', 'aa' * 1000)\n",
    "factorial": "import math\nV = math.factorial(10**6)\n",
    "product": "import itertools\nV = len(list(itertools.product(range(1000), repeat=9)))\n",
    "width": "V = len(f'{1:1000000000}')\n",
    "percent width": "V = len('%1000000000d' % 3)\n",
    "format width": "V = len('{:{}}'.format(3, 10**9))\n",
    "justify": "V = len('a'.ljust(10**10))\n",
    "round": "V = round(1, -10**9)\n",
    "digits": f"V = {'9' * 100000}\n",
    "hex digits": f"V = 0x{'f' * 100000}\n",
    "parse": "V = int('9' * 4000)\n",
    "self-containing lists": "L = []\nL.append(L)\nM = []\nM.append(M)\nV = 1 if L == M else 2\n",
    "unrolled": "V = 1\nW = [0] * 150000\nV = sum(V for i in W for j in W)\n",
    "dict": "V = {}\nfor i in range(10**7): V[i] = i\n",
    "circle": "V = V + 1\n",
    "doubling": "s = 'x'\nwhile True:\n    s = s + s\nV = len(s)\n",
    "many endless loops": "while True: pass\n" * 50 + "V = missing\n",
    "generator that asks itself": "def g():\n    yield next(it)\nit = g()\nV = next(it)\n",
    "generators in generators": "def g(n):\n    yield n\n    yield from g(n + 1)\nV = sum(g(0))\n",
    "maps of maps": "it = iter([1])\nfor _ in range(20000): it = map(lambda v: v, it)\nV = next(it)\n",
    "counting for ever": "import itertools\nV = next(itertools.dropwhile(lambda v: True, itertools.count()))\n",
    "list that grows while walked through": "L = [1]\nfor x in L: L.append(x)\nV = len(L)\n",
    "iterator of itself": "class A:\n    def __iter__(self): return self\nV = list(A())\n",
    "copy of a list in itself": "import copy\nL = []\nL.append(L)\nV = len(copy.deepcopy(L))\n",
}
NESTED = {
    "brackets": "V = " + "(" * 5000 + "1" + ")" * 5000 + "\n",
    "sum": "V = " + "+".join(["1"] * 9000) + "\n",
    "minus": "V = " + "-" * 30000 + "1\n",
    "not": "V = " + "not " * 30000 + "1\n",
    "attributes": "V = T" + ".a" * 30000 + "\n",
    "calls": "V = T" + "()" * 30000 + "\n",
    "lambdas": "V = " + "lambda: " * 5000 + "1\n",
    "ternaries": "V = " + "1 if 2 else " * 20000 + "1\n",
    "strings": "V = " + "'a' " * 20000 + "\n",
    "f-string": 'V = f"' + "{(" * 3000 + "1" + ")}" * 3000 + '"\n',
    "elif": "V = 1\nif 1:\n x = 1\n" + "elif 2:\n x = 1\n" * 20000,
}
SYNTAX = {
    "def f(:\n  pass\n": 1, "x = (1,\n": 1, "x = 1\ny = 'abc\n": 2, "x = = 2\n": 1, "if 1:\nx = 2\n": 2, "for\n": 1, "x = 1\n  y = 2\n": 2,
    "".join(" " * i + "if 1:\n" for i in range(150)) + " " * 150 + "x = 1\n": 101,
}  # fmt: skip


def fault(text: str | bytes) -> CompileError:
    with pytest.raises(CompileError) as caught:
        read(Request("bad.py", text))
    assert caught.value.diagnostics[0].span.file == "bad.py"
    return caught.value


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the steps: what is endless is so with fewer of them, too."""
    monkeypatch.setattr("tilec.frontend.machine.MAX_STEPS", 25_000)


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("text", BUDGETS.values(), ids=BUDGETS.keys())
def test_budgets_end_the_evaluation(text: str) -> None:
    error = fault(HEAD + text + KERNEL)
    assert error.diagnostics[0].code in ("TL0104", "TL0108", "TL0110", "TL0201")


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("text", BUDGETS.values(), ids=BUDGETS.keys())
def test_what_no_kernel_needs_does_no_harm(text: str) -> None:
    if text.startswith("while True: pass\nwhile"):
        pytest.skip("more endless loops than one file may have")
    kernels = read(Request("fine.py", HEAD + text.replace("V", "unused") + "V = 3\n" + KERNEL)).kernels
    assert [k.symbol for k in kernels] == ["k"]


def test_files_of_too_many_words_are_refused_before_they_are_parsed() -> None:
    table = "V = [" + ", ".join(["1"] * 100_001) + "]\n"
    error = fault(HEAD + table + KERNEL)
    assert error.diagnostics[0].code == "TL0103"
    assert "tensors" in error.diagnostics[0].help


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
def test_deep_nesting_is_an_error(text: str) -> None:
    assert fault(HEAD + text + KERNEL).diagnostics[0].code == "TL0110"


@pytest.mark.parametrize(("text", "line"), SYNTAX.items())
def test_syntax_errors_have_a_place(text: str, line: int) -> None:
    first = fault(text).diagnostics[0]
    assert (first.code, first.span.line) == ("TL0101", line)


PARSED = {
    "def f(a, a):\n    return a\nV = f(1, 2)\n": "TL0101", "f = lambda a, *a: 1\nV = f(1, 2)\n": "TL0101",
    "*a, *b = 1, 2, 3\nV = a[0]\n": "TL0101", "def f(a, b=2):\n    return a\nV = f(1, b=3, b=4)\n": "TL0203",
    "def f(a, b=2):\n    return a\nV = f(1, **{'b': 3}, b=4)\n": "TL0203",
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), PARSED.items())
def test_syntax_errors_that_the_parser_lets_pass(text: str, code: str) -> None:
    assert fault(HEAD + text + KERNEL).diagnostics[0].code == code


@pytest.mark.parametrize("parameters", ["O, O", "O, *more", "O, **more"])
@pytest.mark.parametrize("form", ["@T.prim_func", "@T.jit"])
def test_parameters_that_no_kernel_can_have(parameters: str, form: str) -> None:
    typed = parameters.replace("O", 'O: T.Tensor((8,), "int32")') if "prim" in form else parameters
    text = f'{form}\ndef k({typed}):\n    O: T.Tensor((8,), "int32")\n    with T.Kernel(1, threads=32):\n        O[0] = 1\n'
    text = text.replace('    O: T.Tensor((8,), "int32")\n', "") if "prim" in form else text
    assert fault(HEAD + text).diagnostics[0].code in ("TL0101", "TL0207")


def test_tabs_are_what_they_are_in_python() -> None:
    mixed = KERNEL.replace("        ", "\t    ")
    compile(HEAD + "V = 1\n" + mixed, "mixed.py", "exec")
    assert [k.symbol for k in read(Request("mixed.py", HEAD + "V = 1\n" + mixed)).kernels] == ["k"]
    assert fault(HEAD + "if 1:\n        V = 1\n\tV = 2\n" + KERNEL).diagnostics[0].span.line == 4


def test_bytes_that_are_no_text() -> None:
    first = fault(b"import tilelang\nx = '\xe9\xff'\n").diagnostics[0]
    assert (first.code, first.span.line, first.span.col) == ("TL0103", 2, 6)
    assert fault(b"x = '\0'\n").diagnostics[0].code == "TL0103"
    assert fault(b"#" * (5 << 20)).diagnostics[0].code == "TL0103"


@pytest.mark.parametrize("text", ["", "\n\n# nothing\n", "x = 1\n", "def f(a):\n    return a\n"])
def test_a_file_without_kernels_says_so(text: str) -> None:
    first = fault(text).diagnostics[0]
    assert first.code == "TL0212"
    assert first.message == "no @T.prim_func found in bad.py"


def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    text = (HEAD + "V = 1\n" + KERNEL).replace("\n", "\r\n").encode("utf-8-sig")
    assert read(Request("k.py", text)).kernels[0].span.line == 5


def test_nothing_runs(tmp_path, capsys) -> None:
    marker = tmp_path / "ran"
    text = f"open({str(marker)!r}, 'w')\nprint('SIDE')\nimport os\nos.system('touch {marker}')\n__import__('os')\nraise RuntimeError\nV = 3\n"
    assert read(Request("k.py", HEAD + text + KERNEL)).kernels
    assert not marker.exists()
    assert capsys.readouterr().out == ""
