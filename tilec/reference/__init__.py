"""The executable meaning of Tile IR: a NumPy interpreter, and what is needed to compare other implementations with it.

    from tilec.reference import run
    run(kernel, {"A": a, "B": b, "C": c})      # c now holds what the kernel means

Needs the packages numpy and ml_dtypes; nothing on the compile path imports this room.
"""

from tilec.reference.compare import Mismatch, compare, kernel_tolerance, tolerance
from tilec.reference.errors import InputError, MeaningError, TrapError
from tilec.reference.extents import infer_extents
from tilec.reference.inputs import poisoned, random_inputs
from tilec.reference.run import run
from tilec.reference.values import np_dtype

__all__ = [
    "InputError", "MeaningError", "Mismatch", "TrapError", "compare", "infer_extents", "kernel_tolerance", "np_dtype", "poisoned",
    "random_inputs", "run", "tolerance",
]  # fmt: skip
