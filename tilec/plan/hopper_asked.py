"""What the author and the user ask for where blocks of a GEMM on Hopper may work in pairs.

    with T.Kernel(..., cluster_dims=(1, 2))   ->  pairs along y at every size;  --pairs on  ->  wherever there is a neighbour
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.dtypes import BOOL
from tilec.ir.expr import Compare, Const
from tilec.ir.kernel import Launch
from tilec.plan.hopper_match import Match
from tilec.plan.hopper_pairs import pair_of
from tilec.plan.hopper_plan import Operand, Pair

CLUSTERED = Const(True, BOOL)
"""When a pair that the author's cluster_dims ask for pays: always."""


def chosen_pair(launch: Launch, found: Match, a: Operand, b: Operand, wanted: str) -> Pair | None:
    """How blocks pair up by the option `wanted` (auto, on or off) and the author's cluster_dims; None where they do not."""
    if wanted == "off":
        return None
    axis = {(2, 1, 1): 0, (1, 2, 1): 1}.get(launch.cluster)
    asked = None if axis is None else pair_of(launch, found, a, b, (axis,))
    if asked is not None:
        return replace(asked, when=CLUSTERED)
    pair = pair_of(launch, found, a, b)
    if pair is None or wanted == "auto":
        return pair
    extent = launch.grid[pair.axis]
    return replace(pair, when=Compare("gt", extent, Const(1, extent.dtype)))
