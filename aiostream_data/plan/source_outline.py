"""Compute the outline of a function: its source code without layout. The outline is equal under all Python versions.

The outline ignores comments, blank lines, quotes, annotations, docstrings and all code outside the function. The
function is found in its source file by the number of its first line. If several lambdas are on one line, the column
numbers of their instructions distinguish them.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IGNORED = frozenset({"annotation", "returns", "kind", "type_comment", "type_params", "name", "ctx"})


def source_outline(code: CodeType, module: dict[str, Any]) -> str | None:
    """Return the outline of the function that ``code`` was compiled from; None if the source code is unavailable.

    Args:
        code: Code object of the function.
        module: Global variables of the function's module, needed to find source code inside zip files.
    """
    text = "".join(linecache.getlines(code.co_filename, module))
    if not text:
        return None
    try:
        found = _find(_functions(text), code)
        return None if found is None else _outline(found)
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=16)
def _functions(text: str) -> tuple[_Function, ...]:
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, _FUNCTIONS))


def _find(functions: tuple[_Function, ...], code: CodeType) -> _Function | None:
    candidates = [node for node in functions if _begins_as(node, code)]
    if len(candidates) > 1:
        scores = [_instructions_inside(node, code) for node in candidates]
        candidates = [node for node, score in zip(candidates, scores, strict=True) if score and score == max(scores)]
        # Instructions of a nested function also lie inside the outer one, so choose the shortest function.
        candidates.sort(key=_length)
        candidates = candidates[:1]
    return candidates[0] if candidates else None


def _begins_as(node: _Function, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return code.co_name == node.name and first == code.co_firstlineno


def _instructions_inside(node: _Function, code: CodeType) -> int:
    begin, end = _extent(node)
    positions = [(line, column) for line, _, column, _ in code.co_positions() if line is not None]
    return sum(column is not None and begin <= (line, column) < end for line, column in positions)


def _extent(node: _Function) -> tuple[tuple[int, int], tuple[int, int]]:
    first, last = (node.body, node.body) if isinstance(node, ast.Lambda) else (node.body[0], node.body[-1])
    return (first.lineno, first.col_offset), (last.end_lineno or 0, last.end_col_offset or 0)


def _length(node: _Function) -> tuple[int, int]:
    (first, left), (last, right) = _extent(node)
    return last - first, right - left


def _outline(node: Any) -> str:
    if isinstance(node, list):
        return "[" + ",".join(map(_outline, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        kept = _without_docstring(value) if name == "body" and isinstance(node, _FUNCTIONS) else value
        # Skip empty fields, since newer Python versions add fields that are empty for older source code.
        if kept is not None and kept != [] and name not in _IGNORED:
            parts.append(f"{name}={_outline(kept)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _without_docstring(body: Any) -> Any:
    first = body[0] if isinstance(body, list) else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
