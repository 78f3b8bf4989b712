"""Registry of objects that one operator shares throughout a loader."""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Features:
    """Registry with at most one object per class. Safe from any thread.

    A stage stores objects here that it shares with its other runs. A new feature therefore needs no new field in
    :class:`~aiostream_data._engine.flow.context.Services`.
    """

    def __init__(self) -> None:
        self._held: dict[type, Any] = {}

    def of(self, kind: type[T]) -> T:
        """Return the object of a class; create it without arguments on first use."""
        if kind not in self._held:
            self._held.setdefault(kind, kind())
        return cast("T", self._held[kind])

    def find(self, kind: type[T]) -> T | None:
        """Return the object of a class, or None if the registry has none."""
        return self._held.get(kind)

    def put(self, held: object) -> None:
        """Register an object under its class; replace an earlier one."""
        self._held[type(held)] = held
