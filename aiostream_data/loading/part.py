"""One line of a declared worst case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoaderPart:
    """Host memory of one kind.

    Attributes:
        nbytes: At most.
        what: In words.
    """

    nbytes: int
    what: str
