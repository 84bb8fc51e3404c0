"""Tiles that get values and that nothing reads: the compiler of the output warns of none."""

from __future__ import annotations

import pytest

from tests.compiling import compile_text
from tests.toolchain import needs_nvrtc, nvrtc_compile
from tilec.emit.unused import mentions, only_assigned

KERNEL = """
import tilelang.language as T
@T.prim_func
def k(A: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((64, 64), "float16")
        read = T.alloc_fragment((64, 64), "float32")
        T.copy(A, s)
        T.copy(A, read)
        dead = {tile}
        {statement}
        T.copy(read, O)
"""
DEAD = {
    "filled": ('T.alloc_fragment((64, 64), "float32")', "T.fill(dead, 1.0)"),
    "element by element": ('T.alloc_fragment((64,), "float16")', "for i in T.Parallel(64): dead[i] = A[0, i]"),
    "one or the other": ('T.alloc_fragment((64, 64), "int8")', "for i, j in T.Parallel(64, 64): dead[i, j] = 1 if i > j else 0"),
    "of each thread": ('T.alloc_local((4,), "float32")', "for i in T.serial(4): dead[i] = i"),
    "a slice": ('T.alloc_fragment((100,), "float32")', "T.fill(dead[10:20], 1.0)"),
}


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", DEAD)
def test_tiles_that_nothing_reads(name: str, arch: str) -> None:
    tile, statement = DEAD[name]
    cu = compile_text(KERNEL.format(tile=tile, statement=statement), arch=arch).cu
    nvrtc_compile(cu, arch)  # a warning fails it
    assert "[[maybe_unused]]" in cu
    assert cu.count("[[maybe_unused]] float read") == 0


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("x", True), ("y = x;", True), ("x[3] = 1;", True), ("xy = 1;", False), ("a.x = 1;", False), ("p->x = 1;", True), ("_x", False),
        ("x_1", False), ("y;  // of x", False), ("// x\nx = 1;", True), ("ax = 1; x = 2;", True), ("", False), ("1x", False),
    ],
)  # fmt: skip
def test_names_are_found_as_a_reader_finds_them(text: str, used: bool) -> None:
    assert mentions(text, "x") is used


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("x = 1;", True), ("  x[i * 4 + j] = y;", True), ("if (c) x = 1; x = 2;", True), ("{ x = 1; }", True), ("x == 1;", False),
        ("y = x;", False), ("x = 1;\ny = x[0];", False), ("f(x);", False), ("x[x[0]] = 1;", False), ("// y = x\nx = 1;", True),
        ("a = 1;\n\n  x = 2;", True), ("y = 1 + x = 2;", False), ("", True),
    ],
)  # fmt: skip
def test_what_only_gets_values_is_told_from_what_is_read(text: str, only: bool) -> None:
    assert only_assigned(text, "x") is only
