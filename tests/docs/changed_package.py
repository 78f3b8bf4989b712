"""A copy of the package with the changes that a page describes.

A block with a comment ``<!-- file: PATH -->`` in front of it is that file. With ``; after: LINE`` or ``; before: LINE``
it is inserted into the file that is there, next to the one line that reads so, as far indented as the line behind it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Final

from pages import ROOT

_BLOCK: Final = re.compile(r"^<!-- file: ([\w/.]+)(?:; (after|before): (.+?))? -->\n```python\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Change:
    """One block.

    Attributes:
        path: The file, from the root of the repository.
        side: "after" or "before" the line; "" where the block is the whole file.
        line: The line that it is inserted next to.
        text: The block.
    """

    path: str
    side: str
    line: str
    text: str


def changes(page: str) -> Iterator[Change]:
    """Yield the changes of a page, in order."""
    for found in _BLOCK.finditer(page):
        yield Change(found[1], found[2] or "", found[3] or "", found[4])


def apply(change: Change, root: Path) -> None:
    """Make a change in a copy of the repository.

    Raises:
        ValueError: The file is there already, or no line of it reads so, or several do.
    """
    path = root / change.path
    if not change.side:
        if path.exists():
            raise ValueError(f"{change.path} is there already: say where to insert the block")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.text)
        return
    lines = path.read_text().splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.rstrip("\n") == change.line]
    if len(places) != 1:
        raise ValueError(f"{change.path} has {len(places)} lines that read {change.line!r}, instead of one")
    place = places[0] + (change.side == "after")
    text = indent(dedent(change.text), _indentation(lines[place:]))
    path.write_text("".join([*lines[:place], text, *lines[place:]]))


def _indentation(lines: list[str]) -> str:
    """Return the blanks in front of the first line that has words."""
    return next((line[: len(line) - len(line.lstrip())] for line in lines if line.strip()), "")


def copy_of_the_package(root: Path) -> None:
    """Copy the package, with its native core, into ``root``."""
    ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx")
    shutil.copytree(ROOT / "aiostream_data", root / "aiostream_data", ignore=ignored)
