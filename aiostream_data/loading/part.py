"""One item of a loader's memory bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoaderPart:
    """Worst-case host memory of one kind.

    Attributes:
        nbytes: Maximum number of bytes.
        what: Description of this memory for the user.
    """

    nbytes: int
    what: str
