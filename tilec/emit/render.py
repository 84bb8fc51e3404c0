"""The only place that knows Jinja: finds templates, renders them, and indents the result by brace depth.

    Renderer().render("parallel/if.cu.jinja", cond="i < n", then="x = 1;", orelse="")
"""

from __future__ import annotations

import os
import re
from functools import cache

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

from tilec import templates_dir

_LITERAL = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//.*')


@cache
def _environment() -> Environment:
    folder = templates_dir.path()
    return Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, variable_start_string="${", variable_end_string="}", block_start_string="<%",
        block_end_string="%>", comment_start_string="<#", comment_end_string="#>", line_statement_prefix="//%",
        line_comment_prefix="//#", auto_reload=False, bytecode_cache=_bytecode(),
    )  # fmt: skip


def _bytecode() -> FileSystemBytecodeCache | None:
    """Compiled templates, kept beside the sources; none where the package cannot be written."""
    folder = templates_dir.path() / "__pycache__"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return FileSystemBytecodeCache(str(folder), "%s.cache") if os.access(folder, os.W_OK) else None


def render(template: str, /, **context: object) -> str:
    """The text of a template, trailing newlines cut to one."""
    return _environment().get_template(template).render(context).rstrip("\n")


def indent(text: str, depth: int = 0, step: str = "  ") -> str:
    """Text with every line indented by the braces open around it, and twice more inside of parentheses; preprocessor lines stay at the
    margin.

    Empty lines at the start of a block are dropped.
    """
    out: list[str] = []
    brackets: list[str] = []  # those that are open
    for raw in text.split("\n"):
        line = raw.strip()
        if not line:
            if out and out[-1] and not out[-1].endswith("{"):
                out.append("")
            continue
        code = _LITERAL.sub("", line)
        closing = len(code) - len(code.lstrip("})"))
        lead = code[:closing].count("}")
        here = max(0, depth - lead)
        continued = 2 if brackets[-1:] == ["("] and code[:1] != ")" else 0
        out.append(line if line.startswith("#") else step * (here + continued) + line)
        depth += code.count("{") - code.count("}")
        for c in code:
            if c in "({":
                brackets.append(c)
            elif c in ")}" and brackets:
                brackets.pop()
    return "\n".join(out)
