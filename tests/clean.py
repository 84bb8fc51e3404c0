"""What ptxas must not say of a kernel: that it spills, has a stack, runs products one after the other, waits where nobody asked it to.

    assert_clean(compiled, "sm_90a", tmp_path)
    complaints("ptxas info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to ...") -> ["(C7508) Potential Performance Loss: ..."]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.toolchain import REQUIRED
from tilec.driver import Compiled
from tilec.settle import array_bytes

_LOSS = re.compile(r"\(C7[56]\d\d\).*|.*(?:Performance Loss|is injected|serialized|ignored|warning).*")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def complaints(said: str, arrays: Mapping[str, int] | None = None) -> list[str]:
    """The lines of `nvcc -Xptxas -v` that tell of something lost. `arrays`: bytes of stack that the author of a kernel asks for."""
    out, symbol = [], ""
    for line in said.splitlines():
        if entry := re.search(r"properties for (\w+)", line):
            symbol = entry[1]
        if loss := _LOSS.search(line):
            out.append(loss[0].strip())
        elif frame := _FRAME.search(line):
            stack, *spilled = map(int, frame.groups())
            out += [f"{symbol}: {line.strip()}"] if stack > (arrays or {}).get(symbol, 0) or any(spilled) else []
    return out


def said_of(text: str, arch: str, folder: Path) -> str:
    """What nvcc says of a CUDA file; fails where it refuses it."""
    source = folder / "kernel.cu"
    source.write_text(text, encoding="utf-8")
    target = ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]
    command = ["nvcc", "-std=c++17", *target, "-Xptxas", "-v", "-cubin", "-o", str(folder / "kernel.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def assert_clean(compiled: Compiled, arch: str) -> None:
    """Fails where ptxas has something to complain about in any body of a file; does nothing where there is no nvcc and none is required."""
    if shutil.which("nvcc") is None and not REQUIRED:
        return
    bodies = [v for p in compiled.plans for launch in p.launches for v in launch.variants]
    with tempfile.TemporaryDirectory() as folder:
        said = said_of(compiled.cu, arch, Path(folder))
    missing = [v.symbol for v in bodies if f"properties for {v.symbol}\n" not in said]
    assert not missing, f"nothing is said of {missing}"
    assert complaints(said, {v.symbol: array_bytes(v) for v in bodies}) == []
