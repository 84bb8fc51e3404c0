"""Host Python: what it computes, compared with what Python itself computes."""

from __future__ import annotations

import functools
import itertools
import math

import pytest

EXPRESSIONS = """
2 ** 10 - 7 // 2 * 3 % 5
-7 // 2 + -7 % 3
(1 << 9) | 5 & 3 ^ 12 >> 1
~5 + +3 - -2
int(7 / 2 * 4)
1 < 2 < 3 and 10 or 20
int(not 0) + (5 if 3 > 4 else 6)
len([x * y for x in range(4) for y in range(x) if (x + y) % 2])
sum(x ** 2 for x in range(10) if x % 3 == 0)
max([3, 9, 2], key=lambda v: -v) + min(4, 2, 8) + max(1, 2)
sorted([3, 1, 2], reverse=True)[0] * 100 + sorted("bca")[1:].count("b")
sum({"a": 1, "b": 2}.values()) + len({1, 2, 2, 3}) + {"k": 7}.get("z", 9)
dict(a=1, **{"b": 5})["b"] + dict([("x", 3)])["x"]
[1, 2, 3, 4, 5][-2] + (10, 20, 30)[::2][1] + int("12345"[1:3])
int("".join(c for c in "float16" if c.isdigit()))
len(f"{3:04d}-{'x' * 2!r}-{1.5:.2f}") + len("%03d|%s" % (5, "ab"))
"a,b,,c".split(",").index("c") + "hello".replace("l", "LL").find("LL")
int("abc".startswith("ab")) + int("x" in "xyz") + int(3 in [1, 2]) + int("k" in {"k": 1})
any(v > 2 for v in (1, 2, 3)) + all([]) + bool([0]) + bool("")
sum(i * v for i, v in enumerate([5, 6, 7], 1)) + sum(a * b for a, b in zip((1, 2, 3), [4, 5]))
(100).bit_length() + round(2.5) + round(3.14159, 2).is_integer() + abs(-4) + divmod(17, 5)[1]
math.ceil(7 / 2) + math.gcd(12, 18) + int(math.log2(64)) + math.prod([2, 3, 4]) + math.isqrt(50)
len(list(itertools.product([1, 2], "abc", repeat=1))) + sum(a * b for a, b in itertools.product((1, 2), (3, 4)))
functools.partial(lambda a, b, c=1: a * 100 + b * 10 + c, 1, c=3)(2)
functools.reduce(lambda a, b: a * b, [1, 2, 3, 4], 2)
(lambda *args, k=2, **kw: len(args) * 10 + k + len(kw))(1, 2, 3, k=5, z=1, w=2)
[*range(3), *[7, 8]][-1] + {**{"a": 1}, "a": 4}["a"] + sum(map(lambda v: v * 2, filter(None, [0, 1, 2])))
(y := 5) + y
isinstance(3, int) + isinstance("s", (int, str)) + isinstance(2.0, float) + (None is None) + (min is not None)
len("a\\n\\x41\\"q\'" + r"\\n" + '"\\\\') + ord("\\t") + len(f"{1}\\n{{}}")
next(iter([4, 5])) + list(reversed([1, 2, 9]))[0] + [[1, 2], [3]][1][0]
""".strip().splitlines()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_have_pythons_value(host, expression: str) -> None:
    wanted = eval(expression, {"math": math, "itertools": itertools, "functools": functools})
    assert host("import math, itertools, functools\n", f"({expression}) + 0") == int(wanted)


PROGRAMS = [
    "def f(a, b=2, *rest, c=3, **kw):\n    return a * 1000 + b * 100 + len(rest) * 10 + c + len(kw)\nV = f(1) + f(1, 5, 6, 7, c=1, z=0) + f(b=1, a=2)\n",
    "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nV = f(6)\n",
    "def make(k):\n    total = 0\n    def add(v):\n        nonlocal total\n        total += v * k\n        return total\n    return add\ndef run():\n    g = make(3)\n    g(1)\n    return g(2) + make(2)(5)\nV = run()\n",
    "V = 0\nfor i in range(10):\n    if i == 3:\n        continue\n    if i == 7:\n        break\n    V += i\nelse:\n    V = -1\n",
    "V = 1\nwhile V < 100:\n    V *= 3\nelse:\n    V += 1\n",
    "a = b = [1]\na.append(2)\nV = len(b)\nx, (y, *z) = 1, (2, 3, 4)\nV += x + y * 10 + sum(z) * 100\n",
    "d = {}\nd['x'] = 5\nd['x'] += 2\nV = d['x']\nlst = [3, 1, 2]\nlst.sort()\nlst[0:2] = [9]\nV += lst[0] * 10 + len(lst)\ndel lst[0]\nV += len(lst)\n",
    "def gen(n):\n    for i in range(n):\n        yield i\n    yield from [10, 20]\nV = sum(gen(4)) + len(list(gen(2)))\n",
    "V = 96\nV = 2 * V\ndef late():\n    return W\nW = 4\nW = W + 1\nV = V + late()\n",
    "class Config:\n    BLOCK = 64\n    HALF = BLOCK // 2\nV = Config.BLOCK + Config.HALF\n",
    "import math\nfrom itertools import product as pr\nV = len([1 for a, b in pr(range(3), range(4)) if math.gcd(a, b) == 1])\n",
    "configs = []\nfor a in (1, 2):\n    for b in (3, 4):\n        configs.append(dict(a=a, b=b))\nV = sum(c['a'] * c['b'] for c in configs)\n",
    "a = [1]\nb = a\nn = len(a)\nb.append(5)\nV = len(a) * 10 + n\n",
    "tab = {'x': 1}\nfirst = tab['x']\ntab['x'] = 9\nV = tab['x'] * 10 + first\n",
    "try:\n    V = 5\nexcept Exception:\n    V = 6\nelse:\n    V += 1\n",
    "if 3 > 4:\n    V = 1\nelif 2 > 1:\n    V = 2\nelse:\n    V = 3\n",
    "fs = [lambda v, k=k: v + k for k in range(3)]\nV = sum(f(10) for f in fs)\n",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_have_pythons_value(host, program: str) -> None:
    names: dict[str, object] = {}
    exec(program, names)
    assert host(program, "V") == names["V"]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ('int(T.float16 == "float16") + int("float16" == T.float16)', 2),
        ("T.float16.bits + T.dtype('int8').bits + int(T.float32.bytes)", 28),
        ('int(T.bfloat16 in ["float16", "bfloat16"]) + int(T.float16 in (T.int8, "int8"))', 1),
        ('{T.float32: 4, "float16": 8}["float32"] + {T.float32: 4, "float16": 8}[T.float16]', 12),
        ('len(f"{T.float8_e4m3fn}") + int("".join(c for c in T.int32 if c.isdigit()))', 45),
        ("int(torch.float16 == T.float16) + torch.int8.itemsize", 2),
        ("T.ceildiv(7, 2) + tilelang.cdiv(9, 4) + tilelang.math.next_power_of_2(33)", 71),
    ],
)
def test_dtypes_behave_like_strings(host, expression: str, wanted: int) -> None:
    assert host("import torch\n", expression) == wanted


@pytest.mark.parametrize(
    ("setup", "code", "word"),
    [
        ("V = 1 // 0\n", "TL0108", "zero"),
        ("V = [1][3]\n", "TL0108", "out of range"),
        ("V = {'a': 1}['b']\n", "TL0108", "'b'"),
        ("V = 'a' + 1\n", "TL0108", "string"),
        ("V = len(3)\n", "TL0108", "len()"),
        ("def f(a): return a\nV = f()\n", "TL0203", "`a`"),
        ("def f(a): return a\nV = f(1, 2)\n", "TL0203", "takes 1"),
        ("def f(a): return a\nV = f(b=1)\n", "TL0202", "`b`"),
        ("a, b = 1, 2, 3\nV = a\n", "TL0108", "2 names for 3 values"),
        ("V = T.cpoy\n", "TL0201", "did you mean `T.copy`"),
        ("import numpy as np\nV = np.zeros(3)\n", "TL0109", "numpy"),
        ("V = blok\nblock = 3\n", "TL0201", "did you mean `block`"),
        ("V = 3j\n", "TL0102", "Imaginary"),
        ("V = W\nW = 3\n", "TL0201", "before it has a value"),
    ],
)
def test_faults_of_host_code_are_told_at_their_place(fails, setup: str, code: str, word: str) -> None:
    use = "@T.prim_func\ndef k(O: T.Tensor((1,), 'int32')):\n    with T.Kernel(1, threads=1):\n        O[0] = V\n"
    first = fails(setup + use, code, word=word)
    assert first.span.line <= 2 + setup.count("\n")
    assert any("needed here" in label.text for label in first.labels)


def test_poison_is_harmless_until_a_kernel_uses_it(host) -> None:
    setup = """
import torch, argparse, numpy as np, does_not_exist
from somewhere import *
parser = argparse.ArgumentParser()
parser.add_argument("--m", type=int)
device = torch.device("cuda")
x = np.zeros((3, 4)) @ 5
with open("f") as fh:
    data = fh.read()
raise SystemExit
import os
os.environ["A"] = "1"
class Net(torch.nn.Module):
    def forward(self): return self.x
async def later(): await x
def ref(a): return torch.matmul(a, a)
"""
    assert host(setup, "7") == 7


def test_poison_in_a_factory_is_harmless(reading) -> None:
    text = """
import torch
def make(n=4):
    props = torch.cuda.get_device_properties(0)
    if props.major >= 9:
        sm = 90
    @T.prim_func
    def k(O: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=1):
            O[0] = n
    return k
"""
    assert [k.symbol for k in reading(text).kernels] == ["make"]


def test_asserts_and_raises_are_errors_with_their_message(fails) -> None:
    body = '    @T.prim_func\n    def k(O: T.Tensor((n,), "int32")):\n        with T.Kernel(1, threads=1):\n            O[0] = n\n    return k\n'
    fails("def make(n=3):\n    assert n % 2 == 0, f'{n} is odd'\n" + body, "TL0111", line=2, word="3 is odd")
    fails("def make(n=3):\n    if n > 2:\n        raise ValueError('too ' + 'big')\n" + body, "TL0111", line=3, word="ValueError: too big")
