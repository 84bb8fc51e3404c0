"""Names: nothing that a compiler, a header or a linker already claims may reach the output."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_text
from tests.toolchain import needs_nvcc, nvcc_compile
from tilec.emit.names import Names, cuda_symbol, identifier
from tilec.emit.reserved import CUDA_NAMES, KEYWORDS, LIBRARY, MACROS

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@pytest.mark.parametrize(("name", "symbol"), [("matmul", "matmul"), ("main", "main_kernel"), ("double", "double_kernel"), ("read", "read_kernel"),
                                              ("a__b", "a_b"), ("threadIdx", "threadIdx_kernel"), ("cudaMalloc", "cudaMalloc_kernel")])  # fmt: skip
def test_symbols(name: str, symbol: str) -> None:
    assert cuda_symbol(name) == symbol


@pytest.mark.parametrize("name", ["é", "行列", "a b", "9lives", "_Upper", "__x__", "x-y", "_"])
def test_every_name_becomes_an_identifier_that_is_not_reserved(name: str) -> None:
    for out in (cuda_symbol(name), Names().fresh(name)):
        assert IDENTIFIER.match(out) and "__" not in out and not re.match(r"_[A-Z]", out), out


def test_different_foreign_names_stay_different() -> None:
    assert len({identifier(n) for n in ("α", "β", "γ", "ab")}) == 4


def test_fresh_names_never_repeat_and_avoid_what_is_reserved() -> None:
    names = Names(["lane", "x_1"])
    given = [names.fresh(h) for h in ("x", "x", "x", "lane", "lane", "float", "float", "threadIdx", "exp", "new")]
    assert len(set(given)) == len(given)
    assert not set(given) & (KEYWORDS | CUDA_NAMES | {"lane", "x_1", "exp"})
    assert given[0] == "x"


def test_the_compiler_accepts_every_escaped_keyword(tmp_path: Path, require_tool) -> None:
    """Each reserved word, escaped, is declared as a local after the C library's headers; unescaped keywords must fail."""
    gxx = require_tool("g++")
    names = Names()
    words = sorted(KEYWORDS | CUDA_NAMES | MACROS | LIBRARY)
    body = "".join(f"  int {names.fresh(w)} = 0;\n" for w in words)
    externs = "".join(f'extern "C" int {cuda_symbol(w)}_launch(int);\nextern "C" int {cuda_symbol(w)}(int);\n' for w in words)
    headers = "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <time.h>\n"
    (tmp_path / "names.cpp").write_text(f"{headers}{externs}int use() {{\n{body}  return 0;\n}}\n")
    subprocess.run([gxx, "-std=c++20", "-fsyntax-only", "names.cpp"], cwd=tmp_path, check=True)


def test_exported_symbols_replace_no_function_of_the_c_library(require_tool) -> None:
    """Plain words that libc and libm export and that someone would call a kernel must be escaped."""
    nm = require_tool("nm")
    likely = {"read", "write", "open", "close", "exp", "log", "sqrt", "floor", "round", "index", "select", "send", "accept", "exit", "free", "pow",
              "malloc", "memcpy", "time", "clock", "remove", "rename", "sleep", "wait", "kill", "sin", "cos", "tanh", "erf", "fma", "step", "advance",
              "hash", "access", "link", "sync", "pipe", "abort", "system", "printf", "raise", "signal", "div", "abs", "rand", "qsort"}  # fmt: skip
    libraries = list(Path("/lib/x86_64-linux-gnu").glob("lib[cm].so.6"))
    exported = set()
    for library in libraries:
        listing = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout
        exported |= {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    assert not libraries or likely & exported
    assert {w for w in likely & exported if cuda_symbol(w) == w} == set()


@pytest.mark.parametrize("name", ["vec", "half_t", "load_vec", "to_half"])
def test_a_kernel_is_never_called_like_a_function_of_the_prelude(name: str) -> None:
    assert cuda_symbol(name) == f"{name}_kernel"


@needs_nvcc
def test_macros_and_types_of_the_headers_as_names_of_the_author(tmp_path: Path) -> None:
    """Parameters, tiles, variables and extents called like a macro or a type that the host part of the file sees."""
    words = ["M_PI", "INT_MAX", "MAX_INPUT", "BIG_ENDIAN", "cudaStream_t", "cudaError_t", "cudaSuccess", "CUDART_VERSION", "dim3", "minor"]
    kernels = "".join(
        f"""
@T.prim_func
def tensor_{i}({w}: T.Tensor((32,), "float32"), O: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32):
        {words[i - 1]} = T.alloc_shared((32,), "float32")
        T.copy({w}, {words[i - 1]})
        for {words[i - 2]} in T.Parallel(32):
            O[{words[i - 2]}] = {words[i - 1]}[31 - {words[i - 2]}]
@T.prim_func
def scalar_{i}({w}: T.int32, O: T.Tensor((T.dynamic("{words[i - 1]}"),), "int32")):
    with T.Kernel(1, threads=32):
        O[0] = {w}
"""
        for i, w in enumerate(words)
    )
    nvcc_compile(compile_text("import tilelang.language as T\n" + kernels).cu, "sm_80", tmp_path)


def test_macros_are_claimed() -> None:
    assert not {w for w in (*MACROS, "cudaLaunchConfig_t", "CU_STREAM_LEGACY") if Names().fresh(w) == w or cuda_symbol(w) == w}
