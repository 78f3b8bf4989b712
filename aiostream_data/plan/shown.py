"""Format a plan as the user's calls: one call per line, all calls on one line, or an HTML table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from aiostream_data.metrics.html_table import html_table
from aiostream_data.plan.base import INFINITE, UNKNOWN, Node
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.plan.operators import Call, Concatenate, Interleave, ParseRows, Unbatch, Zip
from aiostream_data.plan.sources import Generator, ListFiles, PythonIterable, ReadFiles
from aiostream_data.plan.spec import UNKNOWN_SPEC, described, spec_of
from aiostream_data.plan.subprocess import functions_of
from aiostream_data.plan.windows import Rebatch
from aiostream_data.plan.written import SourceLine, function_line, short_name
from aiostream_data.safe_url import safe_url

LONGEST_LINE: Final = 160
"""Maximum length in characters of a one-line plan, or of a one-line description of elements."""

LONGEST_URL: Final = 60
"""Maximum length in characters of a URL in a stage name. The beginning of a longer URL is removed."""


class ShownStep(NamedTuple):
    """One method call in the user's code.

    Attributes:
        depth: Nesting depth, which increases by 1 inside each call that takes several data sets.
        node: Plan node that the call created.
        where: Source line of the call, and source lines of its functions if they are defined elsewhere.
    """

    depth: int
    node: Node
    where: str


def steps_of(plan: Node, depth: int = 0) -> Iterator[ShownStep]:
    """Yield the user's calls that made a plan, sources first.

    If a call has several inputs, the depth of these inputs is greater by 1.
    """
    for child in _written_inputs(plan):
        yield from steps_of(child, depth + (len(plan.inputs) > 1))
    yield ShownStep(depth, plan, _where(plan))


def on_one_line(plan: Node) -> str:
    """Return the user's calls that made a plan as a chain of calls on one line.

    An example is ``range(10).shuffle().batch(2)``. Long chains are shortened.
    """
    return shortened(_chain(plan))


def shortened(text: str) -> str:
    """Shorten a text to the length of one line by removing its middle."""
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"


def elements_of(plan: Node) -> str:
    """Describe the elements that a plan emits, such as ``{x: float32[10, 8], y: int64}``."""
    structure, leaves = spec_of(plan)
    if leaves == (UNKNOWN_SPEC,):
        return "known when the first one is made"
    return structure.described(map(described, leaves))


def as_html(plan: Node) -> str:
    """Return an HTML table of a plan's calls, each with its source line, number of elements and element description."""
    rows = [
        ("  " * step.depth + step.node.call(), count_of(cardinality(step.node)), elements_of(step.node), step.where)
        for step in steps_of(plan)
    ]
    return html_table(("call", "elements", "each element", "written at"), rows)


def count_of(number: int) -> str:
    """Format a cardinality (number of elements) for display."""
    return {INFINITE: "infinite", UNKNOWN: "unknown until read"}.get(number, f"{number:,}")


def subject_of(node: Node) -> str:
    """Return the name of an operator's function or files with a source line, such as ``decode (train.py:12)``.

    The source line is the first line of the function. If the operator has no function, the source line is the line of
    the call. Return "" if neither name nor line is known.
    """
    name, line = _subject(node)
    where = f"({line or node.written_at})" if line or node.written_at else ""
    return f"{name} {where}".strip()


def _subject(node: Node) -> tuple[str, SourceLine | None]:
    function = _function_of(node)
    if function is not None:
        return short_name(function), function_line(function)
    if isinstance(node, (ReadFiles, ListFiles)):
        return _files(node), None
    return (type(node.iterable).__name__, None) if isinstance(node, PythonIterable) else ("", None)


def _function_of(node: Node) -> Callable[..., Any] | None:
    if isinstance(node, Call):
        return None if isinstance(node, ParseRows) else node.function_called
    if isinstance(node, Interleave):
        return node.function
    return node.factory if isinstance(node, Generator) else None


def _files(node: ReadFiles | ListFiles) -> str:
    if not node.patterns:
        return "" if node.index_url is None else _end_of(safe_url(node.index_url))
    others = len(node.patterns) - 1
    return _end_of(safe_url(node.patterns[0])) + (f" and {others:,} more" if others else "")


def _end_of(url: str) -> str:
    return url if len(url) <= LONGEST_URL else f"...{url[3 - LONGEST_URL :]}"


def _written_inputs(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Rebatch) and isinstance(node.input, Unbatch):  # rebatch() added the unbatch() itself
        return node.input.inputs
    return node.inputs


def _chain(node: Node) -> str:
    inputs = [_chain(child) for child in _written_inputs(node)]
    if isinstance(node, (Zip, Concatenate, Mix, Choose)):
        return f"{node.method}({', '.join([*inputs, *([node.detail()] if node.detail() else [])])})"
    return ".".join([*inputs, node.call()])


def _where(node: Node) -> str:
    elsewhere = [f"{name} at {line}" for name, line in _functions(node) if line != node.written_at]
    return ", ".join([*([str(node.written_at)] if node.written_at is not None else []), *elsewhere])


def _functions(node: Node) -> Iterator[tuple[str, SourceLine]]:
    for function in functions_of(node):
        code = getattr(function, "__code__", None)
        if code is not None:
            yield short_name(function), SourceLine(code.co_filename, code.co_firstlineno)
