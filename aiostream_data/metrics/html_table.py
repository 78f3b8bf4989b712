"""HTML tables for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], below: Iterable[str] = ()) -> str:
    """Build an HTML table with lines of text below it.

    Args:
        rows: Cells of each row. Leading spaces of a cell appear as indentation.
    """
    body = [_row("th", header), *(_row("td", row) for row in rows)]
    lines = [f"<div>{escape(line)}</div>" for line in below]
    return "".join(["<table>", *body, "</table>", *lines])


def _row(tag: str, cells: Sequence[str]) -> str:
    style = ' style="text-align: left; white-space: pre"'
    return "<tr>" + "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
