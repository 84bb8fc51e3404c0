"""How guarded reads are spelled: no needless parentheses, and no test twice."""

from __future__ import annotations

from tests.compiling import compile_text
from tilec.emit.render import indent

KERNEL = """import tilelang.language as T
N = T.dynamic("N")
@T.prim_func
def k(X: T.Tensor((N,), "float16"), Y: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, 128), threads=32) as b:
        f = T.alloc_fragment((128,), "float32")
        for i in T.Parallel(128):
            f[i] = {value}
        T.copy(f, Y[b * 128])
"""
TEST = "b * 128 + i < N"


def body(value: str) -> str:
    cu = compile_text(KERNEL.format(value=value)).cu
    return cu[cu.rindex("__general(") if "__general(" in cu else cu.index("end of prelude") :]


def test_an_argument_needs_no_parentheses() -> None:
    text = body("X[b * 128 + i]")
    assert f"to_float({TEST} ? X[b * 128 + i] : to_half(0.0f))" in text, text


def test_an_operand_has_them() -> None:
    text = body("T.cast(X[b * 128 + i], 'int32') + T.cast(b, 'int32') % 3")
    assert f"to_int32(to_float({TEST} ? X[b * 128 + i] : to_half(0.0f)))" in text, text


def test_what_the_author_tests_is_not_tested_again() -> None:
    text = body("T.if_then_else(b * 128 + i < N, X[b * 128 + i], -1)")
    assert f"{TEST} ? to_float(X[b * 128 + i]) : -1.0f" in text, text
    other = body("T.if_then_else(b * 128 + i < N - 1, X[b * 128 + i], X[b * 128 + i])")
    assert f"{TEST} ? X[b * 128 + i] : to_half(0.0f)" in other, other


def test_the_one_body_that_there_is_needs_no_choice() -> None:
    cu = compile_text(KERNEL.format(value="0.0").replace('N = T.dynamic("N")', "N = 4096")).cu
    launcher = cu[cu.index("k_launch(") :]
    assert "if (!(aligned(Y, 16))) return cudaErrorMisalignedAddress;" in launcher and "nullptr" not in launcher, launcher


def test_lines_inside_of_parentheses_are_indented_twice_more() -> None:
    assert indent("f(a,\nb);\nif (x) {\ng(\nc\n);\nh([&] {\ni;\n});\n}") == (
        "f(a,\n    b);\nif (x) {\n  g(\n      c\n  );\n  h([&] {\n    i;\n  });\n}"
    )
