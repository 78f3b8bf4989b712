"""Where the rows of a batch came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where one row came from, as plain data: enough to make it again with ``dataset.fetch(origin)``.

    Attributes:
        url: The object it was read from, or the name of its source.
        index: Number of the record in that object, or of the row in its source.
        epoch: Repetition in which it was given, from 0.
        offset: Byte of the object from which on the record can be found: where it begins itself, or a record before
            it. None where the object has to be read from its start.
        seed: The loader's, which random functions on the way draw from.
        row: The row's full name; see ``_engine/state_book.py``.
    """

    url: str
    index: int
    epoch: int
    offset: int | None
    seed: int
    row: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.url} record {self.index} (epoch {self.epoch})"

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain data, which goes through JSON unchanged."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` was called on."""
        return cls(**values)
