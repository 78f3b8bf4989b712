"""Origins of the rows of a batch: the source object and the record number of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.object_names import object_name


@dataclass(frozen=True, kw_only=True, repr=False)
class Origin:
    """Origin of one row: its source object, record number and epoch. ``dataset.fetch(origin)`` recomputes the row.

    Attributes:
        url: URL of the object, or name of the source. User name, password, signature and other query values are
            removed, so the URL is safe to log and store. See :mod:`aiostream_data.object_names`.
        index: Number of the record in the object, or of the row in its source.
        epoch: Epoch in which the row was delivered, from 0.
        offset: Byte offset at which a reader can start to find the record: the start of this record or of an earlier
            record. None if the object must be read from its start.
        seed: Seed of the loader, used by random functions.
        row: Full row id with lineage; see ``_engine/resume/lineage_reader.py``.
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
        """Return the origin as a JSON-safe dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Create an origin from a dict returned by :meth:`as_dict`.

        Raises:
            PlanError: The keys of the dict differ from the keys that :meth:`as_dict` returns.
        """
        if not isinstance(values, Mapping):
            raise ArgumentTypeError(f"an origin must be a dict from as_dict(), got {shown(values)}")
        missing = sorted({field.name for field in fields(cls)} ^ set(values), key=str)
        if missing:
            problem = "unknown" if missing[0] in values else "missing"
            raise PlanError(
                f"cannot read the dict of an origin: key {missing[0]!r} is {problem}. "
                "Pass an origin of loader.origins(), or its as_dict()."
            )
        return cls(**values)

    @classmethod
    def of(cls, given: Self | Mapping[str, Any]) -> Self:
        """Return an origin unchanged, or create an origin from the result of :meth:`as_dict`.

        Raises:
            ArgumentTypeError: The argument is neither an origin nor a dict that describes an origin.
            PlanError: The keys of the dict differ from the keys that :meth:`as_dict` returns.
        """
        origin = cls.from_dict(given) if isinstance(given, Mapping) else given
        if not isinstance(origin, cls) or not isinstance(origin.row, Mapping):
            raise ArgumentTypeError(f"an origin must come from loader.origins() or its as_dict(), got {shown(given)}")
        return origin
