"""Compilations at chosen rungs, and a stand-in for nvcc that spills as a test says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.compiling import compile_text
from tilec.driver import Compiled, Options, emit_module, plan_module
from tilec.plan.plan import Variant
from tilec.targets import lookup

DOUBTFUL = """
import tilelang.language as T

@T.prim_func
def gemm(A: T.Tensor((512, 512), "float16"), B: T.Tensor((512, 512), "float16"), C: T.Tensor((512, 512), "float32")):
  with T.Kernel(T.ceildiv(512, 256), T.ceildiv(512, 256), threads=256) as (bx, by):
    A_s = T.alloc_shared((256, 32), "float16")
    B_s = T.alloc_shared((32, 256), "float16")
    acc = T.alloc_fragment((256, 256), "float32")
    T.clear(acc)
    for ko in T.Pipelined(16, num_stages=2):
      T.copy(A[by * 256, ko * 32], A_s)
      T.copy(B[ko * 32, bx * 256], B_s)
      T.gemm(A_s, B_s, acc)
    T.copy(acc, C[by * 256, bx * 256])
"""
"""A tile of 256 registers for each of 256 threads: no rule vouches for it."""

TIGHT = (
    DOUBTFUL.replace("T.ceildiv(512, 256), T", "T.ceildiv(512, 192), T").replace("(32, 256)", "(32, 192)").replace("(256, 256)", "(256, 192)")
    .replace("bx * 256", "bx * 192")
)  # fmt: skip
"""Three quarters of that: no rule vouches for it either, but some configuration may hold it."""

STAND_IN = '''#!{python}
import re, sys
from pathlib import Path
here = Path({folder!r})
calls = here / "calls"
if "--version" in sys.argv:
    print("Cuda compilation tools, release 99.0, V99.0.1")
    raise SystemExit
text = Path(sys.argv[-1]).read_text()
calls.write_text((calls.read_text() if calls.exists() else "") + "asked\\n")
registers = lambda name, text: 255
exec((here / "rule.py").read_text())
for name in re.findall(r"^(\\w+)\\((?:const|float|half|int|unsigned)", text, re.M):
    bytes = spilled(name, text)
    print(f"ptxas info    : Compiling entry function '{{name}}' for 'sm_80'")
    print(f"ptxas info    : Function properties for {{name}}")
    print(f"    {{bytes}} bytes stack frame, {{bytes}} bytes spill stores, {{bytes}} bytes spill loads")
    print(f"ptxas info    : Used {{registers(name, text)}} registers, used 1 barriers")
'''


class StandIn:
    """An nvcc in front of the PATH. `rule` is Python text that defines spilled(name, text) -> bytes, and may define registers likewise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, rule: str = "def spilled(name, text): return 0") -> None:
        self.folder = folder
        self.script(STAND_IN.format(python=sys.executable, folder=str(folder)))
        (folder / "rule.py").write_text(rule)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        monkeypatch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
        monkeypatch.setattr("os.cpu_count", lambda: 1)  # one question at a time, which can be counted

    def script(self, text: str) -> None:
        """Another text for the program."""
        program = self.folder / "nvcc"
        program.write_text(text)
        program.chmod(0o755)

    @property
    def calls(self) -> int:
        """How often it was asked about a file."""
        log = self.folder / "calls"
        return len(log.read_text().split()) if log.exists() else 0


def at(text: str, choice: Mapping[tuple[str, str], int], arch: str = "sm_90a", **options: Any) -> Compiled:
    """The compilation with these rungs, about which nobody is asked."""
    target = lookup(arch)
    assert target is not None
    compiled = compile_text(text, arch=arch, ptxas="never", **options)
    return with_rungs(compiled, Options("kernel.py", text.encode(), target, **options), choice)


def with_rungs(compiled: Compiled, given: Options, choice: Mapping[tuple[str, str], int]) -> Compiled:
    """The compilation planned and written once more, as these options say and with these rungs."""
    plans = plan_module(compiled.module, given, lambda *_: nullcontext(), choice)
    return replace(compiled, plans=plans, cu=emit_module(plans, given, lambda *_: nullcontext()))


def bodies(compiled: Compiled) -> dict[str, Variant]:
    """All bodies of a compilation by symbol."""
    return {v.symbol: v for p in compiled.plans for launch in p.launches for v in launch.variants}


def codes(compiled: Compiled) -> list[str]:
    """The codes of its diagnostics about registers."""
    return [d.code for d in compiled.diagnostics if d.code in ("TL0511", "TL0512")]
