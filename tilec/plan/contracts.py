"""What a launcher must refuse: run-time slices of on-chip tiles that would overrun them, grids that clusters do not fill.

    T.copy(G[0:L], s[0:L]) into a tile of 1024 elements  ->  HostCheck(L <= 1024, "s[0:L] must fit s, which has 1024 elements")
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.analysis.facts import Facts
from tilec.analysis.proofs import prove
from tilec.analysis.simplify import simplify
from tilec.ir.expr import Binary, Const, Expr, Load, Scope, Var, VarKind
from tilec.ir.kernel import Kernel
from tilec.ir.tile import Region
from tilec.ir.visit import regions, walk_expr, walk_stmt
from tilec.plan.access import compare
from tilec.plan.domains import add
from tilec.plan.plan import HostCheck


def host_checks(kernel: Kernel) -> tuple[HostCheck, ...]:
    """The conditions that every call must meet, each once, in the order of the source."""
    found: dict[tuple[Expr, str], HostCheck] = {}
    for launch in kernel.launches:
        facts = Facts().with_launch(launch)
        for s in walk_stmt(launch.body):
            for side in regions(s):
                for region in side:
                    for test, message in _slices(region, facts):
                        found.setdefault((test, message), HostCheck(test, message, region.span))
        for axis, (extent, count) in enumerate(zip(launch.grid, launch.cluster, strict=False)):
            whole = compare("eq", Binary("mod", extent, Const(count, extent.dtype), extent.dtype), Const(0, extent.dtype))
            if count > 1 and _on_host(whole):
                message = f"blocks along {'xyz'[axis]} must be a whole number of clusters of {count}"
                found.setdefault((whole, message), HostCheck(whole, message, launch.span))
    return tuple(found.values())


def _slices(region: Region, facts: Facts) -> Iterator[tuple[Expr, str]]:
    if region.buffer.scope is Scope.GLOBAL:
        return
    for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True):
        end = add(start, extent)
        for test in (compare("le", end, size), compare("ge", start, Const(0, start.dtype))):
            if _on_host(test) and prove(test, facts) is None:
                yield simplify(test, facts), f"a slice of {region.buffer.name} must lie inside it"


def _on_host(e: Expr) -> bool:
    """True when the launcher can compute a condition that is not a constant."""
    atoms = [x for x in walk_expr(e) if isinstance(x, Var | Load)]
    return bool(atoms) and all(isinstance(x, Var) and x.kind in (VarKind.EXTENT, VarKind.PARAM) for x in atoms)
