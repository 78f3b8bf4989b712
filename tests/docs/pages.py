"""The pages of this repository, and the programs on them.

A fenced block may have a comment in front of it, which readers of the page do not see. Its parts stand between ``;``:

- ``<!-- needs: torch -->``: what the program needs besides the package, separated by commas. A name is a module, which
  may be missing; the program then is not run, and its use of this package is checked. ``torchrun`` is the environment
  that it gives a single process. A path or a URL is a pattern of files that the program reads, and that the tests write
  (:mod:`page_files`).
- ``<!-- continues -->``: the block goes on where the one before it ends. Any other block is a program by itself.
- ``<!-- raises: ValueError -->``: the program ends with this error.
- ``<!-- file: a/file.py -->``: the block is a file, or part of one: see :mod:`changed_package`.
- ``<!-- prints -->``, in front of a ``text`` block: what the block above it prints, or the error that ends it.
  ``...`` stands for anything, and any amount of space for any other.
- ``<!-- prints: below -->``, in front of a program: it prints what the program below it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "docker/**/*.md", "tests/*.md")
    for path in ROOT.glob(pattern)
)
LAUNCHER: Final = "torchrun"
MARKS: Final = ("needs", "continues", "raises", "prints", "file", "after", "before")

_COMMENT: Final = re.compile(r"<!--\s*(.*?)\s*-->")
_FENCE: Final = re.compile(r"```(\w*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: The word behind the fence.
        line: Number of its first line on the page, from 1.
        marks: What the comment in front of it says, by the word in front of the colon.
        text: The lines between the fences.
    """

    language: str
    line: int
    marks: dict[str, str]
    text: str


@dataclass(frozen=True)
class Program:
    """What a reader copies from a page and runs.

    Attributes:
        page: From the root of the repository.
        line: Of the first block.
        source: The blocks at their lines on the page, so that errors name these lines.
        modules: Modules that it needs and that may be missing.
        is_launched: It is started by torchrun.
        files: Patterns of the files that it reads, in the order in which they are written.
        raises: Name of the error that ends it, or "".
        prints: What it prints, or None where the page does not show it.
        prints_as_below: It prints what the next program of the page prints.
    """

    page: str
    line: int
    source: str
    modules: tuple[str, ...] = ()
    is_launched: bool = False
    files: tuple[str, ...] = ()
    raises: str = ""
    prints: str | None = None
    prints_as_below: bool = False


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    lines = text.splitlines()
    start = None
    language = ""
    for number, line in enumerate(lines):
        if start is not None:
            if line.strip() == "```":
                yield Block(language, start + 1, _marks(lines, start - 2), "\n".join(lines[start:number]) + "\n")
                start = None
        elif found := _FENCE.match(line):
            start, language = number + 1, found[1]
        elif line.lstrip().startswith("```"):
            raise ValueError(f"line {number + 1}: a fence is ``` and a word at the beginning of a line, got {line!r}")
    if start is not None:
        raise ValueError(f"line {start}: the block does not end")


def _marks(lines: list[str], number: int) -> dict[str, str]:
    """Return what the comment says that ends on line ``number``; blank lines may follow it."""
    while number >= 0 and not lines[number].strip():
        number -= 1
    found = _COMMENT.fullmatch(lines[number]) if number >= 0 else None
    if found is None:
        return {}
    parts = [part.partition(":") for part in found[1].split(";")]
    marks = {name.strip(): value.strip() for name, _, value in parts}
    if unknown := marks.keys() - set(MARKS):
        raise ValueError(f"line {number + 1}: a comment before a block has {MARKS}, got {sorted(unknown)}")
    return marks


def programs(page: str, text: str) -> list[Program]:
    """Return the programs of a page, in order."""
    found: list[Program] = []
    for block in blocks(text):
        if "file" in block.marks:
            continue  # no program: see changed_package.py
        if block.language == "python":
            found.append(_continued(found.pop(), block) if "continues" in block.marks else _begun(page, block))
        elif "prints" in block.marks:
            found[-1] = replace(found[-1], prints=(found[-1].prints or "") + block.text)
    return [
        replace(program, prints=below.prints) if program.prints_as_below and below else program
        for program, below in zip_longest(found, found[1:])
    ]


def _begun(page: str, block: Block) -> Program:
    return _continued(Program(page, block.line, ""), block)


def _continued(program: Program, block: Block) -> Program:
    needs = [need.strip() for need in block.marks.get("needs", "").split(",") if need.strip()]
    names = [need for need in needs if need.isidentifier()]
    return replace(
        program,
        source=program.source + "\n" * (block.line - 1 - program.source.count("\n")) + block.text,
        modules=(*program.modules, *(name for name in names if name != LAUNCHER)),
        is_launched=program.is_launched or LAUNCHER in names,
        files=(*program.files, *(need for need in needs if need not in names)),
        raises=block.marks.get("raises", ""),
        prints_as_below=block.marks.get("prints") == "below",
    )


def all_programs() -> list[Program]:
    """Return the programs of all pages."""
    return [program for page in PAGES for program in programs(page, (ROOT / page).read_text())]
