"""tilelang.autotuner.AutoTuner: a kernel factory with configurations to try, as a value that host code passes on.

    AutoTuner.from_kernel(kernel=make, configs=get_configs()).set_compile_args(out_idx=[-1]).run()   ->  TunerSpec(make, [...])

Nothing is tuned while compiling: the factory is called with -D values, its defaults, or the first configuration, as one under the
decorator `autotune` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tilec.language.bind import works
from tilec.language.builder import Builder
from tilec.language.values import Marker, Namespace
from tilec.record import record


@record(eq=False)
class TunerSpec:
    """An AutoTuner: `kernel` is the author's function that returns a kernel, `configs` what it may be called with, `options` those of
    set_compile_args."""

    kernel: Any
    configs: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


def from_kernel(b: Builder, kernel: Any, configs: Any = None) -> TunerSpec:
    """A tuner of a kernel factory."""
    return TunerSpec(kernel, configs)


SUPPLIES = Namespace(
    "tilelang.TensorSupplyType", {n: n for n in ("Integer", "Uniform", "Normal", "Randn", "Zero", "One", "Auto")},
)  # fmt: skip
"""tilelang.TensorSupplyType: what arguments a profiler makes; here its members are their names."""

AUTOTUNER: dict[str, Any] = {
    "autotune": Marker("autotune"),
    "AutoTuner": Namespace("tilelang.autotuner.AutoTuner", {"from_kernel": works(from_kernel, host=True)[0].primitive()}),
    "set_autotune_inputs": Marker("annotation"),
}
"""Members of tilelang.autotuner."""
