"""Epoch in which each cache first read its rows, as states store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.errors import StateMismatchError


class CachedEpochs(dict[tuple[int, int], int]):
    """Epoch in which each cache first read its rows, keyed by (path, key) of its input. One table per loader."""


def cached_in_plan(epochs: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Return [key, epoch] of each cache of the plan itself, without caches of inner data sets, as states store them."""
    return [[key, epoch] for (path, key), epoch in dict(epochs).items() if path == 0]


def read_cached_epochs(saved: Any) -> CachedEpochs:
    """Read the table of cache epochs from a state.

    Raises:
        StateMismatchError: The saved value is damaged.
    """
    try:
        return CachedEpochs({(0, int(key)): int(epoch) for key, epoch in saved or ()})
    except (TypeError, ValueError) as error:
        raise StateMismatchError([f"what it says of caches is damaged: {error}"]) from None
