"""One item of a loader's memory bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoaderPart:
    """Worst-case amount of one kind of host memory.

    Attributes:
        nbytes: Maximum amount of this memory in bytes.
        what: Description of this kind of memory for the user.
    """

    nbytes: int
    what: str
