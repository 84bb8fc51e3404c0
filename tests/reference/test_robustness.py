"""Whatever well-formed IR does, the interpreter ends with arrays or with one of its own errors."""

import re
import warnings
from typing import get_args

import numpy as np
from hypothesis import HealthCheck, event, given, settings

from tests.ir.random_ir import kernels
from tilec.ir import expr, tile
from tilec.reference import MeaningError, evaluate, execute, random_inputs, run


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(known=True))
def test_random_kernels_end_well(kernel):
    numbers = {"M": 3, "n": 5, "size": 2, "alpha": 1}
    try:
        arrays = random_inputs(kernel, numbers, seed=1)
        arrays["B"] = np.repeat(arrays["B"], 5)[::5]  # its stride is n
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(kernel, arrays, numbers, max_steps=50)
    except MeaningError as fault:
        event(re.sub(r"`.*`|\d+", "_", fault.message))
        return
    event("finished")
    assert all(isinstance(a, np.ndarray) for a in arrays.values())


def test_every_node_has_a_meaning():
    assert set(execute._RULES) == set(get_args(tile.Stmt))
    assert set(evaluate._RULES) == set(get_args(expr.Expr))
