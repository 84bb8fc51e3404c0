"""Addresses of elements in memory: many offsets are one sum for the pointer, because each addition to a pointer is one of 64 bits."""

import re
from pathlib import Path

from tests.compiling import compile_text

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_offsets_are_added_up_before_the_pointer() -> None:
    cu = compile_text((SAMPLES / "elementwise" / "rope.py").read_text(), {"B": 2, "S": 64, "H": 4, "D": 64}).cu
    places = re.findall(r"(?:load_vec<\d>|store_vec)\(([XY] \+ [^;]*)", cu)
    assert len(places) == 4
    assert all(re.match(r"\w+ \+ \(", place) for place in places), places
