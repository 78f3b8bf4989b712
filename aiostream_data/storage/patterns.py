"""Compile glob patterns to regular expressions, and plan the listings of a store that find all matches.

Wildcards are defined as in :mod:`glob`. The wildcards ``*`` and ``?`` match within one path segment, and ``[..]`` is a
set of characters. A segment ``**`` matches zero or more segments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FIRST_MAGIC = re.compile(r"[*?\[]")


class Listing(NamedTuple):
    """Listing of object keys that contains every match of a pattern.

    Attributes:
        prefix: Common prefix of all matches.
        one_level: True if no match has a ``/`` after the prefix, so that a listing with a delimiter finds all matches.
    """

    prefix: str
    one_level: bool


def plan_listing(pattern: str) -> Listing:
    """Return the narrowest listing that contains every match of ``pattern``."""
    found = _FIRST_MAGIC.search(pattern)
    if found is None:
        return Listing(pattern, one_level=True)
    rest = pattern[found.start() :]
    return Listing(pattern[: found.start()], one_level="/" not in rest and "**" not in rest)


def compile_pattern(pattern: str, *, skip_hidden: bool = False) -> re.Pattern[str]:
    """Compile a glob pattern to a regular expression for use with ``fullmatch``.

    Args:
        pattern: Glob pattern with segments separated by ``/``.
        skip_hidden: If True, a wildcard at the beginning of a segment does not match a dot, as in shells.
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


def finds_folders(pattern: str) -> bool:
    """Return True for a pattern such as ``root/*/``, which matches all folders directly in a folder."""
    root = pattern.removesuffix("*/")
    return root != pattern and root[-1:] in ("", "/") and _FIRST_MAGIC.search(root) is None


def escaped(name: str) -> str:
    """Return a pattern that matches only ``name``."""
    return _FIRST_MAGIC.sub(r"[\g<0>]", name)


def hint_of(pattern: str) -> str:
    """If ``pattern`` contains "[", return a hint about brackets for an error message, else ""."""
    return "; [ starts a character set: write [[] to match the character [" if "[" in pattern else ""


def _segment_regex(segment: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(segment):
        character = segment[position]
        position += 1
        if character == "*":
            # Treat consecutive stars as one, so that the regex cannot backtrack exponentially.
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
    """Convert the character set whose "[" precedes ``position`` to a regex.

    Also return the position after the character set.
    """
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
    """Return True for a range such as ``z-a``. A descending range matches nothing, and ``re`` would raise an error for
    the range."""
    return any(members[i] == "-" and members[i - 1] > members[i + 1] for i in range(1, len(members) - 1))
