"""The C spelling of intrinsics: which function computes exp, round, popcount ... for each type.

    float_function("exp", FLOAT32, fast=False) -> ("expf", None)     a function of CUDA itself
    float_function("sigmoid", FLOAT32, fast=False) -> ("sigmoid", "sigmoid")   a function of the prelude and its entry
"""

from __future__ import annotations

from tilec.ir.dtypes import FLOAT64, DType

# Float functions that CUDA declares without a header; the float one has the suffix f.
_PLAIN = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc floor ceil trunc pow atan2 fmod hypot copysign fma ldexp nextafter lgamma tgamma"
).split()
_RENAMED = {
    "round": "rint", "nearbyint": "rint", "rint": "rint", "abs": "fabs", "fabs": "fabs", "power": "pow", "fmin": "fmin", "fmax": "fmax",
}  # fmt: skip
_NAMES = {name: name for name in _PLAIN} | _RENAMED

_ROUNDED = {
    f"{op}_{mode}": (f"__f{op}{'f' * (op == 'fma')}_{mode}".replace("__ffma", "__fma"), f"__{'d' * (op != 'fma')}{op}_{mode}")
    for op in ("add", "sub", "mul", "div", "fma", "sqrt") for mode in ("rn", "rz", "ru", "rd")
}  # fmt: skip
"""Operations with a rounding of their own: CUDA's functions for float and double."""

_PRELUDE = {"sigmoid": "sigmoid"}

_FAST = {
    "exp": "__expf", "exp10": "__exp10f", "log": "__logf", "log2": "__log2f", "log10": "__log10f",
    "sin": "__sinf", "cos": "__cosf", "tan": "__tanf", "pow": "__powf",
}  # fmt: skip
_FAST_PRELUDE = {"exp2": "exp2_approx", "tanh": "tanh_approx", "sigmoid": "sigmoid_approx"}

EXCHANGES = {
    "shfl_xor": "__shfl_xor_sync", "shfl_up": "__shfl_up_sync", "shfl_down": "__shfl_down_sync", "shfl_idx": "__shfl_sync",
    "any_sync": "__any_sync", "all_sync": "__all_sync", "ballot": "__ballot_sync", "match_any": "__match_any_sync",
    "activemask": "__activemask", "sync_and": "__syncthreads_and", "sync_or": "__syncthreads_or", "sync_count": "__syncthreads_count",
}  # fmt: skip
"""CUDA's functions for exchanges between threads."""

PREDICATES = {"isnan": "is_nan", "isinf": "is_inf", "isfinite": "is_finite"}
"""Questions about a float, with the prelude function that answers them (entry NAME, or NAME_f64)."""

EXACT = frozenset(("abs", "fabs", "floor", "ceil", "trunc", "round", "rint", "nearbyint", "copysign", "fmin", "fmax"))
"""Functions whose result is a value of the operands' own type, however narrow: no rounding is needed after them."""

ROUNDERS = frozenset(("floor", "ceil", "trunc", "round", "rint", "nearbyint"))
"""Functions that leave an integer alone."""


def float_function(name: str, dtype: DType, fast: bool) -> tuple[str, str | None] | None:
    """The C function for an intrinsic on floats and the prelude entry it needs; None when `name` is no float intrinsic.

    `dtype` float64 gives the double one, every other type the float one; `fast` allows the approximate float functions.
    """
    double = dtype == FLOAT64
    if fast and not double and name in _FAST:
        return _FAST[name], None
    if fast and not double and name in _FAST_PRELUDE:
        return _FAST_PRELUDE[name], _FAST_PRELUDE[name]
    if name in _ROUNDED:
        return _ROUNDED[name][double], None
    if name in _PRELUDE:
        return _PRELUDE[name], _PRELUDE[name] + ("_f64" if double else "")
    if name in _NAMES:
        return _NAMES[name] + ("" if double else "f"), None
    return None
