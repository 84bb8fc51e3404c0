"""Objects that change on their way through a module: under other names, in functions, by methods inside expressions.

Each program runs in Python as well; a value that only looks at some of its statements would be another one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend.conftest import HEAD
from tilec.frontend import Request, read
from tilec.ir.text import show

PROGRAMS = {
    "method in an expression": "l = [5, 3]\np = l.pop()\nV = len(l) * 100 + p\n",
    "default of a function": "def f(a, acc=[]):\n    acc.append(a)\n    return len(acc)\nf(1); f(2)\nV = f(3)\n",
    "list given to a function": "def put(l, v):\n    l.append(v)\nl = []\nput(l, 3)\nput(v=4, l=l)\nV = sum(l)\n",
    "list handed on": "def put(l, v):\n    l.append(v)\ndef twice(to, v):\n    put(to, v)\n    put(to, v)\nl = []\ntwice(l, 3)\nV = sum(l)\n",
    "list of the module": "SEEN = []\ndef note(v):\n    SEEN.append(v)\n    return v\nA = note(3)\nnote(4)\nV = sum(SEEN) * 10 + A\n",
    "registry by decorator": "R = {}\ndef reg(name):\n    def deco(f):\n        R[name] = f\n        return f\n    return deco\n"
    "@reg('x')\ndef f():\n    return 7\n@reg('y')\ndef g():\n    return 8\nV = len(R) * 100 + R['x']() + R['y']()\n",
    "bare decorator": "R = []\ndef reg(f):\n    R.append(f)\n    return f\n@reg\ndef f():\n    return 7\nV = len(R) * 100 + R[0]()\n",
    "global": "x = 3\ndef f():\n    global x\n    x += 5\nf()\nf()\nV = x\n",
    "global through another function": "x = 3\ndef f():\n    global x\n    x = x * 2\ndef g():\n    f()\ng()\ny = x\ng()\nV = x * 100 + y\n",
    "global bound nowhere else": "def f():\n    global x\n    x = 5\nf()\nV = x\n",
    "other name, +=": "a = [1]\nb = a\nb += [2]\nV = len(a)\n",
    "other name, *=": "a = [1, 2]\nb = a\nb *= 2\nV = len(a)\n",
    "other name, |= of a set": "a = {1}\nb = a\nb |= {2}\nV = len(a)\n",
    "other name, |= of a dict": "a = {1: 1}\nb = a\nb |= {2: 2}\nV = len(a)\n",
    "number, +=": "a = 1\nb = a\nb += 2\nV = a * 10 + b\n",
    "tuple, +=": "a = (1,)\nb = a\nb += (2,)\nV = len(a) * 10 + len(b)\n",
    "inside a dict": "l = [1]\nd = {'k': l}\nd['k'].append(2)\nV = len(l)\n",
    "inside a list": "l = [1]\nd = [l, 4]\nd[0].append(2)\nV = len(l)\n",
    "out of a dict": "d = {'k': [1]}\nl = d['k']\nl.append(2)\nV = len(d['k'])\n",
    "through a function": "def same(x):\n    return x\nl = [1]\nm = same(l)\nm.append(2)\nV = len(l)\n",
    "read before under another name": "a = [1]\nb = a\nn = len(b)\na.append(2)\nV = len(a) * 10 + n\n",
    "read before in a function": "a = [1]\ndef size():\n    return len(a)\nn = size()\na.append(2)\nV = len(a) * 10 + n\n",
    "global read before it is bound anew": "X = 1\ndef f():\n    return X\nV = f()\nX = 2\nV = V * 10 + f()\n",
    "slices deleted": "l = list(range(10))\nl[2:5] = [0]\ndel l[-2:]\ndel l[::2]\nV = sum(l) * 100 + len(l)\n",
    "key deleted": "d = {'a': 1, 'b': 2}\ndel d['a']\nV = len(d) * 10 + sum(d.values())\n",
    "list given and grown": "def f(x):\n    x += [1]\n    return x\na = [0]\nb = f(a)\nV = len(a) * 10 + len(b)\n",
    "number given and grown": "def f(x):\n    x += 1\n    return x\na = 3\nb = f(a)\nV = a * 10 + b\n",
    "closure that counts": "def make():\n    c = {'n': 0}\n    def inc():\n        c['n'] += 1\n        return c['n']\n    return inc\n"
    "c = make()\nc(); c()\nV = c()\n",
    "list of a class": "class A:\n    items = []\n    def add(self, v): self.items.append(v)\na, b = A(), A()\na.add(1); b.add(2)\n"
    "V = len(A.items) * 10 + len(a.items)\n",
    "counting instances": "class A:\n    n = 0\n    def __init__(self): A.n += 1\nA(); A()\nV = A.n\n",
    "elements swapped": "l = [1, 2, 3]\nl[0], l[2] = l[2], l[0]\nV = l[0] * 10 + l[2]\n",
    "elements as targets": "l = [1, 2, 3]\ni = 0\ni, l[i] = 2, 9\nV = l[0] * 100 + l[2] * 10 + i\n",
    "iterator": "g = iter([3, 5])\na = next(g)\nb = next(g)\nV = b * 10 + a\n",
    "loop that changes": "l = []\nfor i in range(4):\n    if i % 2:\n        l.insert(0, i)\nV = l[0] * 10 + len(l)\n",
    "comprehension that pops": "l = [1, 2, 3]\nm = [l.pop() for _ in range(2)]\nV = len(l) * 100 + m[0] * 10 + m[1]\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_pythons_value(host, name: str) -> None:
    names: dict[str, object] = {}
    exec(PROGRAMS[name], names)
    assert host(PROGRAMS[name], "V") == names["V"]


def test_function_that_fails_leaves_nothing_to_trust(fails) -> None:
    text = "SEEN = []\ndef note():\n    SEEN.append(unknown)\nnote()\n"
    fails(text + '@T.prim_func\ndef k(O: T.Tensor((1,), "int32")):\n    with T.Kernel(1):\n        O[0] = len(SEEN)\n', "TL0201", word="unknown")


def test_list_that_a_failing_function_may_have_changed(fails) -> None:
    text = "l = [1]\nd = {'k': l}\ndef put(to):\n    to.append(unknown)\nput(l)\n"
    fails(text + '@T.prim_func\ndef k(O: T.Tensor((1,), "int32")):\n    with T.Kernel(1):\n        O[0] = len(d["k"])\n', "TL0201", word="unknown")


def test_global_that_a_failing_function_may_have_bound(fails) -> None:
    text = "x = 1\ndef f():\n    global x\n    x = unknown()\nf()\n"
    fails(text + '@T.prim_func\ndef k(O: T.Tensor((1,), "int32")):\n    with T.Kernel(1):\n        O[0] = x\n', "TL0201", word="unknown")


def test_name_of_another_module_is_assigned(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("TILE = 4\nLIST = [1]\ndef double():\n    return TILE * 2\n")
    text = HEAD + "import conf\nfirst = conf.TILE\nconf.TILE = 5\nconf.LIST.append(7)\n" \
        '@T.prim_func\ndef k(O: T.Tensor((1,), "int32")):\n    with T.Kernel(1):\n' \
        "        O[0] = first * 1000 + conf.double() * 10 + len(conf.LIST)\n"  # fmt: skip
    module = read(Request(str(tmp_path / "k.py"), text))
    assert show(module.kernels[0].launches[0].body).strip() == "O[0] = 4102"
