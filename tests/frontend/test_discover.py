"""Where a file may keep its kernels: containers, classes, branches, functions that pass on what others make."""

from __future__ import annotations

import pytest

from tilec.frontend import Request, read
from tests.frontend.conftest import HEAD

MAKE = """
def make(n, dtype="int32"):
    @T.prim_func
    def kern(O: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32):
            O[0] = n
    return kern
"""
BUILD = """
        @T.prim_func
        def kern(O: T.Tensor((n,), "int32")):
            with T.Kernel(1, threads=32):
                O[0] = n
        return kern
"""
PROGRAMS = {
    "dict": (MAKE + "ALL = {n: make(n) for n in (33, 40)}\nk = ALL[40]\n", ["k"]),
    "tuple": (MAKE + "both = make(33), make(40)\nk = both[1]\n", ["k"]),
    "branch": (MAKE + "if 2 > 1:\n    k = make(40)\nelse:\n    k = make(2)\n", ["k"]),
    "expression": (MAKE + "k = make(40) if 2 > 1 else None\n", ["k"]),
    "lambda": (MAKE + "k = (lambda n: make(n))(40)\n", ["k"]),
    "function": (MAKE + "def get(): return {'a': make(40)}\nk = get()['a']\n", ["k"]),
    "annotated": (MAKE + "k: object = make(40)\n", ["k"]),
    "second name": (MAKE + "k = make(40)\nsame = k\n", ["k"]),
    "definition in a branch": ("if True:" + MAKE.replace("\n", "\n    ") + "\nk = make(40)\n", ["k"]),
    "kernel in a branch": ("try:\n    import nothing\nexcept ImportError: pass\nif True:\n    @T.prim_func\n    def k(O: T.Tensor((40,), 'int32')):\n"
                           "        with T.Kernel(1):\n            O[0] = 1\n", ["k"]),
    "method": ("class G:\n    def __init__(self, n): self.n = n\n    def build(self):\n        n = self.n" + BUILD + "k = G(40).build()\n", ["k"]),
    "object": ("class G:\n    def __init__(self, n): self.n = n\n    def build(self):\n        n = self.n" + BUILD + "g = G(40)\nk = g.build()\n", ["k"]),
    "static method": ("class G:\n    @staticmethod\n    def build(n):" + BUILD + "k = G.build(40)\n", ["k"]),
    "class method": ("class G:\n    @classmethod\n    def build(cls, n):" + BUILD + "k = G.build(40)\n", ["k"]),
    "attribute": ("class G:\n    @staticmethod\n    @T.prim_func\n    def kern(O: T.Tensor((40,), 'int32')):\n        with T.Kernel(1):\n"
                  "            O[0] = 1\nk = G.kern\n", ["k"]),
    "data class that calls the factory": (MAKE + "from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 40\n"
                                          "    def kernel(self): return make(self.n)\nk = C().kernel()\n", ["k"]),
    "results of running one": (MAKE + "import torch\nk = make(40)\nx = torch.zeros(40)\nout = k(x)\nif torch.allclose(out, x):\n    ok = out\n", ["k"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_found(name: str) -> None:
    text, symbols = PROGRAMS[name]
    kernels = read(Request("k.py", HEAD + text)).kernels
    assert [k.symbol for k in kernels] == symbols
    assert str(kernels[0].params[0].shape[0]).find("40") >= 0  # type: ignore[union-attr]
