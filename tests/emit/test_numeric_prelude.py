"""The numeric prelude as CUDA: it compiles without a header on every target, and its host twin has equal signatures."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emit.cexpr_cases import FAMILIES, device_text
from tests.toolchain import needs_nvrtc, nvrtc_compile
from tilec.emit.cexpr import PRIMARY, CWriter, ctype
from tilec.emit.prelude import parse, select
from tilec.ir.dtypes import ALL, BOOL, INT32, UINT32, DType
from tilec.ir.expr import (
    BINARY_OPS,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Reinterpret,
    Scope,
    Select,
    Unary,
    Var,
    const_int,
)

TEMPLATES = Path(__file__).parents[2] / "templates"
ENTRIES = [e for name in ("types", "numeric") for e in parse((TEMPLATES / "prelude" / f"{name}.cuh").read_text())]
INTEGER_TYPES = ("signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long", "unsigned long long")


def signatures(text: str) -> Iterator[str]:
    """The functions of a text: qualifiers removed, blanks normalised."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"\b(__device__|__forceinline__|inline|static) ", "", text)
    for match in re.finditer(r"^(template <[^>]*>\s*)?([A-Za-z][\w ]*?) +(\w+)\(([^()]*)\)\s*\{", text, re.MULTILINE):
        template, result, name, parameters = match.groups()
        if result not in ("else", "return"):
            yield " ".join(f"{template or ''}{result} {name}({parameters})".split())


def test_host_and_device_signatures_agree() -> None:
    host = set(signatures((TEMPLATES / "emulator" / "numeric.h").read_text()))
    device = [s for e in ENTRIES for s in signatures(e.text)]
    # Members of a struct stand indented; the struct's own text is compared by the compilers that both take it.
    assert len(device) == sum(len(re.findall(r"^__device__", e.text, re.MULTILINE)) for e in ENTRIES)
    assert [s for s in device if s not in host] == []


@needs_nvrtc
def test_entries_are_complete() -> None:
    """Each entry compiles with nothing but what it says it needs."""
    for entry in ENTRIES:
        nvrtc_compile(select([entry.name]), "compute_80")


def use_everything() -> str:
    """A kernel that instantiates every template for every integer type."""
    calls = ["wrap_add(a, b)", "wrap_sub(a, b)", "wrap_mul(a, b)", "wrap_abs(a)", "trunc_div(a, b)", "trunc_mod(a, b)", "floor_div(a, b)"]
    calls += ["floor_mod(a, b)", "ceil_div(a, b)", "shift_left(a, 3)", "shift_right(a, 5)", "min_of(a, b)", "max_of(a, b)", "int_pow(a, b)"]
    lines = ["template <typename T>", "__device__ T all(T a, T b) {", "  T r = 0;", *(f"  r ^= {c};" for c in calls), "  return r;", "}"]
    for n, name in enumerate(INTEGER_TYPES):
        lines += [f'extern "C" __global__ void k{n}({name}* p) {{ p[0] = all<{name}>(p[1], p[2]); }}']
    return "\n".join(lines)


@pytest.mark.parametrize("arch", [80, 86, 89, 90])
def test_compiles_with_nvcc(arch: int, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    nvcc = require_tool("nvcc")
    source = tmp_path / "prelude.cu"
    source.write_text(select(e.name for e in ENTRIES) + use_everything())
    command = [nvcc, f"-arch=sm_{arch}", "-std=c++17", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def expressions(d: DType) -> Iterator[Expr]:
    """One of every operation on operands of a type."""
    i = Var("i")
    A, B = (Load(Buffer(n, d, (const_int(1),), Scope.GLOBAL), (i,)) for n in ("A", "B"))
    if d == BOOL:
        yield from (Binary(op, A, B, d) for op in ("and", "or", "xor", "min", "max", "add"))
    elif d.is_int:
        yield from (Binary(op, A, B, d) for op in BINARY_OPS if op != "div")
        yield from (Binary("max", Binary("add", A, Const(1, d), d), Const(3, d), d), Binary("mod", A, Const(7, d), d))
        yield from (Unary("neg", A, d), Unary("invert", A, d), Call("abs", (A,), d), Call("ceildiv", (A, B), d))
        yield from (Call(name, (A,), INT32) for name in ("popcount", "clz", "ffs"))
        yield Binary("shl", A, Load(Buffer("W", UINT32, (const_int(1),), Scope.GLOBAL), (i,)), d)
    else:
        yield from (Binary(op, A, B, d) for op in BINARY_OPS if op not in ("and", "or", "xor", "shl", "shr"))
        yield from (Binary("pow", A, Const(3.0, d), d), Const(float("inf"), d), Const(float("nan"), d), Const(1e-40, d), Unary("neg", A, d))
        names = "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
        yield from (Call(name, (A,), d) for name in f"{names} floor ceil trunc round abs sigmoid".split())
        yield from (Call(name, (A, B), d) for name in ("atan2", "fmod", "hypot", "copysign", "pow"))
        yield Call("fma", (A, B, A), d)
        yield from (Call(name, (A,), BOOL) for name in ("isnan", "isinf", "isfinite"))
    yield from (Compare(op, A, B) for op in ("eq", "lt", "ge"))
    yield Select(Compare("eq", A, B), A, B, d)
    yield from (Cast(A, to) for to in ALL)
    yield from (Reinterpret(A, to) for to in ALL if to.bits == d.bits)


@needs_nvrtc
@pytest.mark.parametrize("fast_math", [False, True], ids=["ieee", "fast"])
def test_every_operation_compiles_for_the_gpu(fast_math: bool) -> None:
    needed: set[str] = {ctype(d) for d in ALL if ctype(d).endswith("_t")}
    w = CWriter(lambda v: v.name, lambda a: (f"{a.buffer.name}[i]", PRIMARY), needed.add, fast_math=fast_math)
    kernels = []
    for n, d in enumerate(ALL):
        body = "\n".join(f"  {{ {ctype(e.dtype)} r = {w.expr(e)}; *({ctype(e.dtype)}*)(out + at++ * 8) = r; }}" for e in expressions(d))
        parameters = f"const {ctype(d)}* A, const {ctype(d)}* B, const unsigned* W, unsigned char* out, int i"
        kernels.append(f'extern "C" __global__ void k{n}({parameters}) {{\n  int at = 0;\n{body}\n}}')
    nvrtc_compile(select(needed) + "\n".join(kernels), "compute_80")


@needs_nvrtc
@pytest.mark.parametrize("family", ["float_functions", "simplified_integer_expressions", "constants_are_exact"])
def test_the_cases_compile_for_the_gpu(family: str) -> None:
    """What benchmarks/gpu_numeric.py runs."""
    nvrtc_compile(device_text(FAMILIES[family]()), "compute_90")
