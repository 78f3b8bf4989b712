"""The epoch in which the rows of each cache were read first, as states store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.errors import StateMismatchError


class CachedEpochs(dict[tuple[int, int], int]):
    """Epoch in which the rows of a cache were read first, by the path and key of its input; one table per loader."""


def cached_in_plan(epochs: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Return number and epoch of the caches of the plan itself, as states store them."""
    return [[key, epoch] for (path, key), epoch in dict(epochs).items() if path == 0]


def read_cached_epochs(saved: Any) -> CachedEpochs:
    """Return the epochs by place, from a state.

    Raises:
        StateMismatchError: The value is damaged.
    """
    try:
        return CachedEpochs({(0, int(key)): int(epoch) for key, epoch in saved or ()})
    except (TypeError, ValueError) as error:
        raise StateMismatchError([f"what it says of caches is damaged: {error}"]) from None
