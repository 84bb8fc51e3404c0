"""Mistakes that newcomers make get one line that says what to write instead."""

from __future__ import annotations

import pytest

from tests.features.kit import refused

KERNEL = """{imports}
@T.prim_func
def k(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(4, threads=128){names}:
        {line}
"""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("s = alloc_shared((64,), 'float32')", "did you mean `T.alloc_shared`?"),
        ("C[bx, 0] = 1", "with T.Kernel(...) as bx:"),
        ("C[tx, 0] = 1", "T.get_thread_binding()"),
        ("C[0, 0] = A[0, 0].to('float16')", "T.cast(x, dtype)"),
        ("C[0, 0] = A.sum()", "T.reduce_sum"),
        ("C[0, 0] = A.T[0, 0]", "transpose_A"),
        ("C[0, 0] = sum(A)", "T.reduce_sum"),
        ("C[0, 0] = np.exp(A[0, 0])", "numpy does not run in a kernel"),
        ("C[0, 0] = torch.relu(A[0, 0])", "T.max(x, 0)"),
        ("C[0, 0] = torch.tanh(A[0, 0])", "T.tanh"),
        ("s = T.alloc_shared(64, 32, 'float32')", 'T.alloc_shared((64, 32), "float16")'),
        ("for i in T.Pipelined(4, stages=2): C[0, i] = 1", "did you mean `num_stages`?"),
        ("s = A[0:4:2, 0]; T.copy(s, C[0:2, 0])", "T.Parallel"),
        ("C[0] = 1", "`C[i, j]`"),
        ("for i in T.paralel(4): C[0, i] = 1", "did you mean `T.parallel`?"),
        ("for i in T.Paralel(4): C[0, i] = 1", "did you mean `T.Parallel`?"),
    ],
)
def test_one_line_says_what_to_write(line: str, hint: str) -> None:
    found = refused(KERNEL.format(imports="import torch\nimport numpy as np", names="", line=line))
    assert hint in found.help and found.span.line >= 5


def test_names_of_block_indices() -> None:
    found = refused(KERNEL.format(imports="", names=" as (bx, by)", line="C[bx, by] = 1"))
    assert "one block index for each extent of its grid" in found.help


@pytest.mark.parametrize(("value", "dtype"), [("1.5", "float32"), ("1", "int32"), ("A[0, 0] * 2", "float32"), ("True", "bool"), ("A[0, 0] > 1", "bool")])
def test_a_variable_is_declared_with_the_type_of_its_value(value: str, dtype: str) -> None:
    line = f"if A[0, 0] > 0: y = {value}\n        C[0, 0] = y"
    assert f'T.alloc_var("{dtype}")' in refused(KERNEL.format(imports="", names="", line=line)).help


def test_misspelled_decorator_is_told() -> None:
    text = "@T.prim_fnc\ndef k(A: T.Tensor((4,), 'int32')):\n    with T.Kernel(1):\n        A[0] = 1\n"
    found = refused(text)
    assert found.code == "TL0201" and "T.prim_func" in found.help


@pytest.mark.parametrize(("line", "what"), [
    ("s = T.alloc_shared((4,), T)", "a module"),
    ("C[0, 0] = T.cast('float32', A[0, 0])", "an element or region of `A`"),
    ("s = T.alloc_shared((4,), len)", "a function of Python"),
])  # fmt: skip
def test_values_are_called_by_words_of_the_author(line: str, what: str) -> None:
    assert what in refused(KERNEL.format(imports="", names="", line=line)).message
