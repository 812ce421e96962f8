"""Python's syntax trees, made one at a time.

Before Python 3.13 the parser counts the depth of a tree per interpreter: two threads that parse at once now and then
end in "AST constructor recursion depth mismatch". The build reads pages and runs chapters in threads.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_alone = threading.Lock()


def tree(source: str) -> ast.Module:
    """Return the syntax tree of a program; raises SyntaxError."""
    with _alone:
        return ast.parse(source)


def literal(text: str) -> Any:
    """Return the value of a Python literal; raises ValueError or SyntaxError for other text."""
    with _alone:
        return ast.literal_eval(text)
