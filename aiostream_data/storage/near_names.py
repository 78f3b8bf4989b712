"""Choose similar file names for the error message about a missing name or pattern."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from heapq import nlargest
from os.path import commonprefix
from typing import Final

COMPARED: Final = 100
"""Maximum number of names to compare fully (50 us per name). The names with the longest common prefix and suffix are
compared."""


def nearest_names(wanted: str, names: Collection[str], most: int) -> list[str]:
    """Return at most ``most`` names, most similar to ``wanted`` first.

    Names of equal similarity are sorted alphabetically.

    If none of the most similar names is a folder, the most similar folder replaces the last name. A folder helps the
    user if the pattern lacks a folder level.

    Args:
        names: Names in one folder. Names of subfolders end with a slash.
    """
    likely = _ranked(wanted, names)
    folders = [] if any(name.endswith("/") for name in likely[:most]) else [name for name in names if name[-1] == "/"]
    return [*likely[: most - 1], *_ranked(wanted, folders)[:1]] if folders else likely[:most]


def _ranked(wanted: str, names: Collection[str]) -> list[str]:
    likely = nlargest(COMPARED, sorted(names), lambda name: _common(wanted, name)) if len(names) > COMPARED else names
    matcher = SequenceMatcher(None, b=wanted.lower(), autojunk=False)

    def likeness(name: str) -> float:
        matcher.set_seq1(name.lower())
        return matcher.ratio()

    return sorted(sorted(likely), key=likeness, reverse=True)


def _common(wanted: str, name: str) -> int:
    """Return the length of the common prefix plus the length of the common suffix of two names."""
    both, reversed_both = (wanted, name), (wanted[::-1], name[::-1])
    return len(commonprefix(both)) + len(commonprefix(reversed_both))  # noqa: RUF071 - of names, not of paths
