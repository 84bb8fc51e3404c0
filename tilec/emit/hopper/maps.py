"""How the launcher and the manifest describe tensors to the copy engine, and what the maps are called in C.

    map_names(variant, ["A", "B", "C"]) -> ["A_map", "B_map", "C_map"]
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.emit.names import LAUNCHER_NAMES, Names
from tilec.ir.dtypes import INT64, DType
from tilec.ir.expr import Binary, Const, Expr
from tilec.plan.access import row_strides
from tilec.plan.domains import cast
from tilec.plan.hopper.plan import TensorMap
from tilec.plan.plan import Variant
from tilec.plan.copy_engine import ELEMENT_TYPES

RESERVED = frozenset(
    "full empty warp_group tiles tiles_x tiles_y tile stage phase steps step previous lag a b a_tiles b_tiles part column staged row r j s "
    "in_layer multiprocessors rank pairs_x pairs_y again fetcher ahead line words inner skip first more src from begin end limit i".split()
)
"""C names that the text of a GEMM kernel declares for itself."""


def data_type(dtype: DType) -> int:
    """The driver's number of an element type."""
    return ELEMENT_TYPES[dtype.name]


def map_names(variant: Variant, taken: Sequence[str]) -> list[str]:
    """The C names of a body's tensor maps; `taken` are those of the parameters."""
    names = Names(LAUNCHER_NAMES | RESERVED | set(taken))
    return [names.fresh(f"{m.tensor.name}_map") for m in variant.tensor_maps]


def map_extents(m: TensorMap) -> tuple[Expr, ...]:
    """The tensor's extents, innermost first."""
    return tuple(reversed(m.tensor.shape))


def map_strides(m: TensorMap) -> tuple[Expr, ...]:
    """Bytes between neighbours along each dimension but the innermost, from the second innermost on."""
    item = Const(m.tensor.dtype.bytes, INT64)
    return tuple(Binary("mul", cast(e, INT64), item, INT64) for e in reversed(row_strides(m.tensor)[:-1]))
