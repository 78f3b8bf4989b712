"""Registry of objects that one operator shares throughout a loader."""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Features:
    """Registry that stores at most one object per class. Safe from any thread.

    A stage stores an object here to share it with other runs of the same operator. Therefore a new feature needs no new
    field in :class:`~aiostream_data._engine.flow.context.Services`.
    """

    def __init__(self) -> None:
        self._held: dict[type, Any] = {}

    def of(self, kind: type[T]) -> T:
        """Return the registered object of a class. On first use, create the object without arguments."""
        if kind not in self._held:
            self._held.setdefault(kind, kind())
        return cast("T", self._held[kind])

    def find(self, kind: type[T]) -> T | None:
        """Return the registered object of a class, or None if no such object is registered."""
        return self._held.get(kind)

    def put(self, held: object) -> None:
        """Register an object under its class, and replace any earlier object of this class."""
        self._held[type(held)] = held
