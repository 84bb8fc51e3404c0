"""What tilec says when it fails through its own fault: the pass, the place, and a bundle for a report.

    report(fault, ["compile", "gemm.py"]) -> "error[TL0901]: internal fault in plan, at matmul at gemm.py:6:1 ..."
"""

from __future__ import annotations

import json
import platform
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tilec.version import __version__
from tilec.driver import InternalFault


def report(fault: BaseException, args: Sequence[str]) -> str:
    """The message for an internal fault; writes the bundle, whose path it names."""
    stage, place, cause = "the command line", "", fault
    if isinstance(fault, InternalFault):
        stage, place, cause = fault.stage, fault.place, fault.cause
    message = (str(cause).splitlines() or ["no message"])[0][:200]
    lines = [
        f"error[TL0901]: internal fault in {stage}: {type(cause).__name__}: {message}",
        *([f"  --> {place}"] if place else []),
    ]
    bundle = _bundle(stage, place, cause, args)
    lines.append(f"   = help: this is a fault of tilec, not of your file; please report it{f' with {bundle}' if bundle else ''}")
    return "\n".join(lines)


def _bundle(stage: str, place: str, cause: BaseException, args: Sequence[str]) -> str:
    """Writes what a report needs into the folder for temporary files; its path, or nothing where that is impossible."""
    data = {
        "tilec": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "arguments": list(args),
        "pass": stage,
        "place": place,
        "traceback": traceback.format_exception(cause),
    }
    try:
        with tempfile.NamedTemporaryFile("w", prefix="tilec-fault-", suffix=".json", delete=False, encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        return str(Path(file.name))
    except OSError:
        return ""
