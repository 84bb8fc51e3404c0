"""Clusters of blocks: which targets have them.

    with T.Kernel(8, cluster_dims=4) on sm_80  ->  error[TL0407]: sm_80 has no clusters
"""

from __future__ import annotations

from math import prod

from tilec.diagnostics import Label, error
from tilec.ir.kernel import Launch
from tilec.ir.tile import Barrier
from tilec.ir.visit import walk_stmt
from tilec.targets import Target

ALONE = (1, 1, 1)
"""The cluster of a launch that has none."""

FIRST = 90
"""The first architecture that has clusters."""


def check_clusters(launch: Launch, target: Target) -> None:
    """Raises an error where a launch wants clusters that the target does not have."""
    if launch.cluster == ALONE or target.number >= FIRST:
        return
    uses = [s.span for s in walk_stmt(launch.body) if isinstance(s, Barrier) and s.kind.startswith("cluster")]
    labels = (Label(uses[0], "blocks of the cluster wait for each other here"),) if uses else ()
    text = f"clusters of {prod(launch.cluster)} blocks: {target.name} has none"
    raise error("TL0407", text, launch.span, *labels, help="compile for --arch sm_90 or sm_90a, or leave cluster_dims out")
