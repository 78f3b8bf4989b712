"""Decide what to list for a pattern, and which names match it.

Wildcards are those of :mod:`glob`: ``*`` and ``?`` stay within one path segment, ``[..]`` is a set of
characters, and a segment ``**`` stands for any number of segments, none included.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FIRST_MAGIC = re.compile(r"[*?\[]")


class Listing(NamedTuple):
    """What to ask a flat key space for.

    Attributes:
        prefix: Every match starts with it.
        one_level: No match has a ``/`` after the prefix, so a listing with a delimiter finds all.
    """

    prefix: str
    one_level: bool


def plan_listing(pattern: str) -> Listing:
    """Return the narrowest listing that holds every match of ``pattern``."""
    found = _FIRST_MAGIC.search(pattern)
    if found is None:
        return Listing(pattern, one_level=True)
    rest = pattern[found.start() :]
    return Listing(pattern[: found.start()], one_level="/" not in rest and "**" not in rest)


def compile_pattern(pattern: str, *, skip_hidden: bool = False) -> re.Pattern[str]:
    """Return a regular expression whose ``fullmatch`` tells whether a name matches ``pattern``.

    Args:
        pattern: Segments joined by ``/``.
        skip_hidden: Let no wildcard stand for a leading dot, as shells do with files.
    """
    guard = r"(?!\.)" if skip_hidden else ""
    parts: list[str] = []
    segments = pattern.split("/")
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if segment == "**":
            parts.append(f"(?:{guard}[^/]+/)*" + (f"{guard}[^/]*" if is_last else ""))
        else:
            parts.append((guard if segment[:1] in ("*", "?", "[") else "") + _segment_regex(segment))
            parts.append("" if is_last else "/")
    return re.compile("".join(parts), re.DOTALL)


def escaped(name: str) -> str:
    """Return the pattern that matches this name alone."""
    return _FIRST_MAGIC.sub(r"[\g<0>]", name)


def hint_of(pattern: str) -> str:
    """Return a clause for the message that nothing matches a pattern: brackets are easily meant as themselves."""
    return "; [ begins a set of characters: write [[] for a bracket of the name" if "[" in pattern else ""


def _segment_regex(segment: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(segment):
        character = segment[position]
        position += 1
        if character == "*":
            # Runs of stars mean one; folding them keeps the matcher from backtracking exponentially.
            if not parts or parts[-1] != "[^/]*":
                parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            members, position = _read_set(segment, position)
            parts.append(members)
        else:
            parts.append(re.escape(character))
    return "".join(parts)


def _read_set(segment: str, position: int) -> tuple[str, int]:
    """Return the regex of the set that opened just before ``position``, and the position after it."""
    negated = segment[position : position + 1] in ("!", "^")
    start = position + negated
    stop = segment.find("]", start + 1)
    if stop < 0:
        return re.escape("["), position
    members = segment[start:stop]
    escaped = "".join(
        character if character == "-" and 0 < i < len(members) - 1 else re.escape(character)
        for i, character in enumerate(members)
    )
    if _has_backward_range(members):
        return "(?!)", stop + 1
    return ("(?!/)[^" if negated else "[") + escaped + "]", stop + 1


def _has_backward_range(members: str) -> bool:
    """True for a range such as ``z-a``, which matches nothing and which ``re`` would refuse."""
    return any(members[i] == "-" and members[i - 1] > members[i + 1] for i in range(1, len(members) - 1))
