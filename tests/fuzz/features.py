"""What a program uses, for the record of a long run.

    features(program) -> ["T.gemm", "T.Parallel", "sm_80", "threads 128", "a tile of 3 dimensions", ...]
"""

from __future__ import annotations

import re

from tests.fuzz.program import Program

_NAME = re.compile(r"\bT\.(\w+)\(")
_TYPE = re.compile(r"'(bool|u?int\d+|float\d+\w*|bfloat16)'")
_FORMS = {
    "while": re.compile(r"^\s+while ", re.M),
    "if of the block": re.compile(r"^ {8,}if (?!tx)", re.M),
    "branch of a team": re.compile(r"^ +if tx\d+ [^\n]*:\n(?! +\w+ = )[^\n]*\n?.*?T\.", re.M),
    "break or continue": re.compile(r"\b(break|continue)$", re.M),
    "run-time extent": re.compile(r"T\.dynamic"),
    "scalar argument": re.compile(r": T\.\w+\)?[,)]"),
    "slice with a run-time start": re.compile(r"\[[^\]]*\b[bk][xyz\d]\b[^\]]*:"),
    "transposed operand": re.compile(r"transpose_[AB]=True"),
    "several products": re.compile(r"T\.gemm.*T\.gemm", re.S),
    "pipeline of 3 or more stages": re.compile(r"num_stages=[34]"),
    "tile of 3 dimensions": re.compile(r"alloc_\w+\(\(\d+, \d+, \d+\)"),
    "odd extent": re.compile(r"alloc_\w+\([^)]*\b(3|7|33|229)\b"),
    "grid known at run time": re.compile(r"T\.Kernel\(T\."),
    "accumulators of two products": re.compile(r"T\.gemm\((\w+), \w+, \w+.*\n\s+T\.gemm\(\1,"),
    "sums over several blocks": re.compile(r"atomic_\w+\(all"),
    "several launches": re.compile(r"with T\.Kernel.*with T\.Kernel", re.S),
    "partial write": re.compile(r"\[\d+:\d+.*\], (?:f|s)\d+\[\d+:"),
}


def features(p: Program) -> list[str]:
    """Names of the parts of the language, types and forms that it has, each once."""
    text = p.text()
    found = {f"T.{name}" for name in _NAME.findall(text)} - {"T.prim_func", "T.Kernel", "T.Tensor", "T.cast", "T.dynamic"}
    found |= set(_TYPE.findall(text)) | {name for name, form in _FORMS.items() if form.search(text)}
    return sorted(found | {p.arch, f"threads {p.threads}"})
