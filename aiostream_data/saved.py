"""A loader's state as it is saved: what is in it, and reading it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from aiostream_data.errors import StateMismatchError

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where a loader stood. Plain data all through: it goes through JSON unchanged.

    Attributes:
        elements: Elements that the consumer had received, since the very beginning.
        epoch, seed: What the loader was opened with.
        position: Where every operator goes on; see ``_engine/position.py``.
        rows: Rows that operators held back, by their ids.
    """

    elements: int
    epoch: int
    seed: int
    position: Any
    rows: Any
    version: int = VERSION

    def as_dict(self) -> dict[str, Any]:
        """Return the state as a new dict of plain data."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self | None:
        """Return what a dict holds that :meth:`as_dict` made; None for None.

        Raises:
            StateMismatchError: It is something else.
        """
        if state is None:
            return None
        if not isinstance(state, Mapping) or state.get("version") != VERSION:
            found = state.get("version") if isinstance(state, Mapping) else type(state).__name__
            raise StateMismatchError([f"a state of version {VERSION} is needed, got {found!r}"])
        try:
            saved = cls(**state)
        except TypeError as error:
            raise StateMismatchError([f"it is not a state of a loader: {error}"]) from None
        for name in ("elements", "epoch", "seed"):
            if not isinstance(getattr(saved, name), int):
                raise StateMismatchError([f"{name} must be an integer, got {getattr(saved, name)!r}"])
        return saved
