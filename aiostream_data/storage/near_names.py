"""Choose the names of a folder that a message shows where a name or pattern was not found: the nearest first."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from heapq import nlargest
from os.path import commonprefix
from typing import Final

COMPARED: Final = 100
"""Names that are compared in full, which takes 50 us each: those with the longest common beginning and end."""


def nearest_names(wanted: str, names: Collection[str], most: int) -> list[str]:
    """Return the ``most`` names that are most like ``wanted``, best first, and equally good ones in order.

    If none of them is a folder, the last place is that of the nearest folder: a pattern may lack a level.

    Args:
        names: Names of one folder; those of folders end with a slash.
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
    """Return the length of the common beginning and the common end of two names."""
    both, reversed_both = (wanted, name), (wanted[::-1], name[::-1])
    return len(commonprefix(both)) + len(commonprefix(reversed_both))  # noqa: RUF071 - of names, not of paths
