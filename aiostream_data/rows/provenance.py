"""Where the rows of a batch came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.object_names import object_name


@dataclass(frozen=True, kw_only=True, repr=False)
class Origin:
    """Where one row came from, as plain data: enough to make it again with ``dataset.fetch(origin)``.

    Attributes:
        url: Name of the object it was read from, or of its source: the URL without user name, password, signature and
            other query values, so that it can be shown and kept. See :mod:`aiostream_data.object_names`.
        index: Number of the record in that object, or of the row in its source.
        epoch: Repetition in which it was given, from 0.
        offset: Byte of the object from which on the record can be found: where it begins itself, or a record before
            it. None where the object has to be read from its start.
        seed: The loader's, which random functions on the way draw from.
        row: The row's full name; see ``_engine/resume/lineage_reader.py``.
    """

    url: str
    index: int
    epoch: int
    offset: int | None
    seed: int
    row: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", object_name(self.url))

    def __str__(self) -> str:
        return f"{self.url} record {self.index} (epoch {self.epoch})"

    def __repr__(self) -> str:
        return f"<Origin {self}>"

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain data, which goes through JSON unchanged."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` was called on."""
        if not isinstance(values, Mapping):
            raise ArgumentTypeError(f"an origin as a dict is needed, got {shown(values)}")
        missing = sorted({field.name for field in fields(cls)} ^ set(values), key=str)
        if missing:
            raise PlanError(f"an origin is what loader.origins() gives, or its as_dict(): {missing[0]!r} does not fit")
        return cls(**values)

    @classmethod
    def of(cls, given: Self | Mapping[str, Any]) -> Self:
        """Return an origin, or what its :meth:`as_dict` stands for.

        Raises:
            PlanError: It is neither.
        """
        origin = cls.from_dict(given) if isinstance(given, Mapping) else given
        if not isinstance(origin, cls) or not isinstance(origin.row, Mapping):
            raise ArgumentTypeError(f"an origin is what loader.origins() gives, or its as_dict(), got {shown(given)}")
        return origin
