"""Expand brace lists in URLs and patterns, as shells do: ``{a,b}`` and ``{000..099}``."""

from __future__ import annotations

import re
from typing import Final

from aiostream_data.errors import PlanError
from aiostream_data.storage.patterns import escaped
from aiostream_data.storage.urls import has_magic

MOST_NAMES: Final = 1_000_000
"""Maximum number of names that one pattern expands to."""

MOST_LEVELS: Final = 16
"""Maximum number of brace lists inside each other."""

_ONE_BRACE: Final = re.compile(r"\[([{}])\]")
"""Character set of one brace, which stands for the brace itself in a name."""

_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")


def patterns_of(pattern: str) -> list[str]:
    """Return the names and glob patterns that a user's pattern stands for, in order.

    A name without other wildcards is returned with ``{`` in place of ``[{]``, so that reading it needs no listing.

    Raises:
        PlanError: As for :func:`expanded`.
    """
    return [_without_escapes(name) for name in expanded(pattern)]


def as_one_pattern(url: str) -> str:
    """Return a pattern that stands for this URL alone, even if it contains wildcards or braces."""
    name = escaped(url) if has_magic(url) else url
    return name if patterns_of(name) == [name] else name.replace("{", "[{]")


def _without_escapes(name: str) -> str:
    plain = _ONE_BRACE.sub(r"\1", name)
    return name if has_magic(plain) else plain


def expanded(pattern: str) -> list[str]:
    """Return the names or patterns that a pattern with brace lists stands for, in order.

    Braces without a comma or a range are part of the name, and so is the brace in ``[{]``. In a range such as
    ``{000..099}``, all numbers are as long as the longer bound if a bound begins with 0.

    Raises:
        PlanError: The pattern expands to more than ``MOST_NAMES`` names, or has too many lists inside each other.
    """
    return _expanded(pattern, 0)


def _expanded(pattern: str, level: int) -> list[str]:
    if level > MOST_LEVELS:
        raise PlanError(f"a pattern has more than {MOST_LEVELS} brace lists inside each other. Pass a list of names.")
    names, done, at = [""], 0, pattern.find("{")
    while at >= 0:
        stop = _closing(pattern, at)
        choices = None if stop < 0 or pattern[at - 1 : at] == "[" else _choices(pattern[at + 1 : stop], level)
        if choices is not None:
            if len(names) * len(choices) > MOST_NAMES:
                raise _too_many()
            names = [name + pattern[done:at] + choice for name in names for choice in choices]
            done = stop + 1
        at = pattern.find("{", at + 1 if choices is None else done)
    return [name + pattern[done:] for name in names]


def _closing(pattern: str, at: int) -> int:
    """Return the index of the brace that closes the one at ``at``, or -1."""
    depth = 0
    for index in range(at, len(pattern)):
        depth += (pattern[index] == "{") - (pattern[index] == "}")
        if depth == 0:
            return index
    return -1


def _choices(content: str, level: int) -> list[str] | None:
    """Return what the content of a pair of braces stands for; None if it is no list."""
    found = _RANGE.fullmatch(content)
    if found is not None:
        return _numbers(found[1], found[2])
    parts, depth, first = [], 0, 0
    for index, character in enumerate(content):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append(content[first:index])
            first = index + 1
    if not parts:
        return None
    if len(parts) >= MOST_NAMES:
        raise _too_many()
    return [name for part in (*parts, content[first:]) for name in _expanded(part, level + 1)]


def _numbers(first: str, last: str) -> list[str]:
    start, stop = int(first), int(last)
    if abs(stop - start) >= MOST_NAMES:
        raise _too_many()
    is_padded = any(len(bound) > 1 and bound.startswith("0") for bound in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    step = 1 if stop >= start else -1
    return [f"{number:0{width}d}" for number in range(start, stop + step, step)]


def _too_many() -> PlanError:
    return PlanError(f"a pattern expands to more than {MOST_NAMES} names. Pass a glob pattern or an index file.")
