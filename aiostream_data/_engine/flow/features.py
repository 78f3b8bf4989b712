"""Objects that one feature needs throughout a loader, kept without the others knowing of them."""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Features:
    """One object of each class. Safe to use from any thread.

    A stage that shares something with its other runs, or with the process that ends, keeps it here under its class. So
    a new feature adds no field to :class:`~aiostream_data._engine.flow.context.Services`.
    """

    def __init__(self) -> None:
        self._held: dict[type, Any] = {}

    def of(self, kind: type[T]) -> T:
        """Return the object of a class, made without arguments when first asked for."""
        if kind not in self._held:
            self._held.setdefault(kind, kind())
        return cast("T", self._held[kind])

    def find(self, kind: type[T]) -> T | None:
        """Return the object of a class, or None if none was put here."""
        return self._held.get(kind)

    def put(self, held: object) -> None:
        """Keep an object under its class, in place of another."""
        self._held[type(held)] = held
