"""Classes, enumerations, named tuples and `match` of host code: each program runs in Python as well."""

from __future__ import annotations

import pytest

PROGRAMS = {
    "plain class": '''
class A:
    K = 4
    def __init__(self, n, *, m=2):
        self.n, self.m = n, m
        self.seen: list = []
    def add(self, v):
        self.n += v
        self.seen += [v]
        return self
    @staticmethod
    def up(v):
        return v + 1
    @classmethod
    def of(cls, n):
        return cls(n * cls.K)
    def __call__(self, v=1): return self.n * v
    def __getitem__(self, k): return k - self.n
    def __len__(self): return self.n
    def __iter__(self): return iter([self.n, self.m])
    def __add__(self, o): return A(self.n + o.n)
    def __rmul__(self, k): return k * self.n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n
    def __contains__(self, v): return v == self.n
    def __bool__(self): return self.n > 3
class B(A):
    K = 5
    def __init__(self, n):
        super().__init__(n, m=9)
        self.k = K
    def up(self, v):
        return super().up(v) * 10
K = 1
b, a = B.of(3), A(1)
n, m = b
V = [b.n, A.up(1), b.up(1), b(7), b(), b[2], len(b), (b + a).n, 3 * b, b == A(15), b != A(15), b > a, 15 in b, n, m, b.k, bool(a), bool(b),
     isinstance(b, A), isinstance(a, B), hasattr(b, "k"), hasattr(a, "k"), getattr(a, "k", 8), b.add(2).add(3).n, len(b.seen), type(a) == A if 0 else 1,
     a in [A(1)], a in [A(2)], (not a), a.__class__.__name__ == "A", super(B, b).up(3)]
''',
    "attributes from outside": '''
class C:
    x = 1
c, d = C(), C()
c.x += 5
C.x = 2
setattr(d, "y", 7)
V = [c.x, d.x, d.y, len(vars(c)), C.x]
c.z = [1]
c.z.append(2)
V += c.z
c.__dict__.update(w=4)
V.append(c.w)
''',
    "inheritance": '''
from abc import ABC, abstractmethod
import abc
class Base(ABC):
    SIZE: int = 3
    @abstractmethod
    def f(self): ...
    @abc.abstractmethod
    def h(self): pass
    def g(self): return self.f() * 2 + self.SIZE
class Mixed:
    def h(self): return 100
class D(Mixed, Base):
    def f(self): return 21
class E(D):
    SIZE = 4
V = [D().g(), E().g(), E().h(), E.SIZE, D.SIZE]
''',
    "data classes": '''
import dataclasses
from dataclasses import dataclass, field, replace, asdict, astuple
from typing import ClassVar
@dataclass
class P:
    bm: int
    bn: int = 4
    xs: list = field(default_factory=lambda: [1])
    COUNT: ClassVar[int] = 7
    def __post_init__(self):
        self.area = self.bm * self.bn
    @property
    def double(self): return self.area * 2
@dataclasses.dataclass(frozen=True)
class Q(object):
    k: int = dataclasses.field(default=6)
@dataclass
class R(P):
    extra: int = 9
p, r = P(3), R(2, extra=1)
p.xs.append(5)
V = [p.area, p.double, replace(p, bm=5).area, len(P(1).xs), sum(p.xs), len(asdict(p)), asdict(p)["bm"], astuple(r)[3], P(3, xs=[1, 5]) == p, P(4) == p,
     P.COUNT, Q().k, Q(2) == Q(2), Q(2) != Q(3), p in [P(3, 4, [1, 5])], r.bn, f"{Q(3)}" == "Q(k=3)", isinstance(r, P)]
''',
    "named tuples": '''
from collections import namedtuple
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int = 4
    @property
    def s(self): return self.x + self.y
    def t(self, k): return self.s * k
p = P(3)
a, b = p
N = namedtuple("N", "u, v", defaults=[6])
M = namedtuple("M", ["c"])
n = N(1)
V = [p.x, p.y, a, b, p[1], p[-2], p.s, p.t(2), len(p), P(y=1, x=2)._replace(x=7).x, p._asdict()["y"], len(P._fields), p == (3, 4), p == P(3, 4), (3, 4) == p,
     p != P(3, 5), *n, n.v, M(c=8).c, sum(p), max(*p), (p + (1,))[2], p < (3, 5), 4 in p, [q for q in p][1], dict([p])[3], {p: 5}[(3, 4)], bool(p)]
''',
    "enumerations": '''
import enum
from enum import Enum, IntEnum, IntFlag, auto
class Mode(IntEnum):
    A = 3
    B = auto()
    C = 3
class Kind(Enum):
    X = "float16"
    Y = 7
    Z = (1, 2)
    @property
    def half(self): return self.value // 2
    @classmethod
    def first(cls): return cls.X
class F(IntFlag):
    R = auto()
    W = auto()
    X = auto()
@enum.unique
class S(str, Enum):
    ROW = "row"
V = [Mode.A + Mode.B * 2, Mode.C.name == "A", len(Mode), Mode["B"].value, Mode(4).name == "B", Mode.A == 3, Mode.A is Mode.C, list(Mode)[1].value,
     Kind.Y.value, Kind.X == "float16", Kind.X is Kind.X, Kind.X != Kind.Y, Kind("float16") is Kind.X, len(list(Kind)), Kind.Y.half, Kind.first().name == "X",
     Kind.Z.value[1], F.R | F.X, bool(F.R & F.W), F.X.value, S.ROW == "row", S.ROW.value + "s" == "rows", S("row") is S.ROW, Kind.X in Kind, isinstance(Mode.A, Mode),
     isinstance(Mode.A, int), isinstance(Kind.X, Kind), {Kind.X: 5}[Kind.X], f"{Kind.X}" == "Kind.X", [m.name for m in Mode].index("B"), range(9)[Mode.A],
     sum(k.value for k in Mode), Kind.X.name == "X"]
''',
    "other modules": '''
import copy, operator, itertools as it
from types import SimpleNamespace
ns = SimpleNamespace(a=3, b=4)
ns.c = 5
a = {"k": [1, 2]}
b, c = copy.deepcopy(a), copy.copy(a)
b["k"].append(3)
c["k"].append(4)
V = [ns.a + ns.b * ns.c, ns == SimpleNamespace(a=3, b=4, c=5), len(a["k"]), len(b["k"]), operator.itemgetter(1)([5, 6]), operator.itemgetter(0, "x" == "x")([5, 6])[1],
     operator.attrgetter("b")(ns), operator.lt(1, 2), sum(it.chain.from_iterable([[1], (2, 3)])), len(dict.fromkeys("abca")), list(it.zip_longest([1, 2], [3]))[1][0],
     sum(a * b for a, b in it.pairwise([1, 2, 3])), sum(it.starmap(pow, [(2, 3), (3, 2)])), list(map(str.upper, ["a"])) == ["A"], (lambda: 0).__name__ != ""]
''',
    "match": '''
from dataclasses import dataclass
from enum import Enum
class C(Enum):
    R = 1
    G = 2
@dataclass
class P:
    x: int
    y: int
class O:
    __match_args__ = ("a",)
    def __init__(self, a): self.a = a
def f(v):
    match v:
        case "a" | "b": return 1
        case C.R: return 2
        case True | None: return 3
        case ("t", x, *rest) if x > 1: return x + len(rest)
        case ["t", *_, last]: return last * 7
        case {"k": w, **kw}: return w * 10 + len(kw)
        case P(x=0, y=yy): return yy
        case P(a, b) as p: return a * b + p.x
        case O(a=5) | O(6): return 50
        case int(n) | float(n) if n > 100: return n // 3
        case -1 | 7: return 70
        case []: return 80
        case [[a, b], c]: return a + b + c
        case str(): return 90
        case (): return 1000
    return -1
V = [f("a"), f(C.R), f(C.G), f(True), f(None), f(("t", 5, 6, 7)), f(("t", 0, 3)), f(["t", 1]), f({"k": 3, "z": 1}), f({"z": 1}), f(P(0, 5)), f(P(3, 4)), f(O(5)),
     f(O(6)), f(O(7)), f(300), f(7), f(-1), f(3), f([]), f(()), f([[1, 2], 3]), f("q"), f(7.0), f(1), f(range(0))]
''',
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_pythons_values(host, name: str) -> None:
    names: dict[str, object] = {"__name__": "program"}
    exec(compile(PROGRAMS[name], name, "exec", dont_inherit=True), names)
    wanted = [int(v) for v in names["V"]]  # type: ignore[attr-defined]
    assert [host(PROGRAMS[name], f"int(V[{k}])") for k in range(len(wanted))] == wanted


KERNEL = '@T.prim_func\ndef k(A: T.Tensor((4,), "int32"), O: T.Tensor((4,), "int32")):\n    with T.Kernel(1, threads=1):\n'


@pytest.mark.parametrize(("program", "code", "line", "word"), [
    ("class A(Unknown):\n    pass\nV = A()\n", "TL0102", 3, "Unknown"),
    ("class A:\n    pass\nV = A(3)\n", "TL0203", 3, "no arguments"),
    ("class A:\n    def __new__(cls): ...\nV = A()\n", "TL0102", 3, "__new__"),
    ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int = 1\nV = A()\nV.x = 2\nV = V.x\n", "TL0108", 6, "frozen"),
    ("from enum import Enum\nclass A(Enum):\n    X = 1\nV = A['Y']\n", "TL0108", 4, "members are X"),
    ("from enum import Enum\nclass A(Enum):\n    X = 1\nV = A(5)\n", "TL0108", 4, "members are X"),
    ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nV = {A(1): 2}[A(1)]\n", "TL0108", 5, "cannot be a key"),
    ("class A:\n    def __init__(self):\n        self.x = unknown\nV = A().x\n", "TL0201", 3, "unknown"),
    ("class A:\n    pass\nV = A().nothing\n", "TL0201", 3, "nothing"),
    ("class A:\n    K = 2\n    def f(self):\n        return K\nV = A().f()\n", "TL0201", 4, "K"),
])  # fmt: skip
def test_refused(fails, program: str, code: str, line: int, word: str) -> None:
    fails(program + KERNEL + "        O[0] = V\n", code, line, word)


def test_match_on_a_value_of_the_device(same) -> None:
    body = """
        match A[0] + 1:
            case 0 | 2:
                O[0] = 5
            case n if n > 7:
                O[1] = n
            case "no":
                O[3] = 0
            case _:
                O[2] = 7
"""
    chain = """
        subject = A[0] + 1
        if subject == 0 or subject == 2:
            O[0] = 5
        else:
            if subject > 7:
                O[1] = subject
            else:
                O[2] = 7
"""
    from tests.frontend.conftest import read_text
    from tilec.ir.text import show

    assert show(read_text(KERNEL + body).kernels[0].launches[0].body) == show(read_text(KERNEL + chain).kernels[0].launches[0].body)


def test_name_that_only_some_cases_bind_is_refused_after_them(fails) -> None:
    body = "        match A[0]:\n            case 0:\n                v = 1\n            case _:\n                v = 2\n        O[0] = v\n"
    assert "T.alloc_var" in fails(KERNEL + body, "TL0107").help


def test_kernels_bound_with_an_annotation(reading) -> None:
    text = "from typing import Any\ndef make(n):\n    @T.prim_func\n    def k(O: T.Tensor((n,), 'int32')):\n        with T.Kernel(1):\n            O[0] = 1\n    return k\nfour: Any = make(4)\n"
    assert [k.symbol for k in reading(text).kernels] == ["four"]
