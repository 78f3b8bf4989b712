"""Epoch in which each cache first read its rows, as stored in saved states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.errors import StateMismatchError


class CachedEpochs(dict[tuple[int, int], int]):
    """Maps the (path, key) pair of each cache's input to the epoch in which the cache first read its rows.

    One table per loader.
    """


def cached_in_plan(epochs: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Return [key, epoch] for each cache of the plan, as stored in saved states.

    Caches of inner data sets are omitted.
    """
    return [[key, epoch] for (path, key), epoch in dict(epochs).items() if path == 0]


def read_cached_epochs(saved: Any) -> CachedEpochs:
    """Read the epoch of each cache from a saved state.

    Raises:
        StateMismatchError: The saved value is damaged.
    """
    try:
        return CachedEpochs({(0, int(key)): int(epoch) for key, epoch in saved or ()})
    except (TypeError, ValueError) as error:
        raise StateMismatchError(
            [f"the saved epochs of caches are damaged: {error}"], "Open the dataset without this state."
        ) from None
