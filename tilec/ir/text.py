"""The text form of Tile IR: `show` prints it, `parse` reads it back, and `show(parse(show(k))) == show(k)`.

    parse('kernel k(C: float32[8]):\\n  launch (bx) in (8):\\n    C[bx] = 1.0')

The form is described in `ir.show`. Passes are tested with it: text in, text out.
"""

from tilec.ir.read import parse, parse_expr, parse_module, parse_stmt
from tilec.ir.show import Names, show

__all__ = ["Names", "parse", "parse_expr", "parse_module", "parse_stmt", "show"]
