"""Change single values in nested lists and dicts, such as those of JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["with_other_value"]

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, 2, -1, 7, 1.5, float("nan"), float("inf"), "", "a", "k05", "é\ud800", [], [1], {}),
    *(1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1 << 200, 10**400, "x" * 1001, {"bytes": "00"}),
)


def with_other_value(nested: Any, source: random.Random, more: Sequence[Any] = ()) -> Any:
    """Return ``nested`` in which one value is another one, is absent or is repeated.

    Args:
        more: Values to choose from, in addition to the usual ones.
    """
    places = list(_places(nested))
    if not places:
        return nested
    owner, at = source.choice(places)
    chance = source.random()
    if chance < 0.15:
        del owner[at]
    elif chance < 0.3 and isinstance(owner, list):
        owner.insert(source.randrange(len(owner) + 1), owner[at])
    elif chance < 0.4 and isinstance(owner, list):
        source.shuffle(owner)
    else:
        owner[at] = source.choice((*_VALUES, *more))
    return nested


def _places(owner: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the places of all values: ``owner[at]``."""
    for at, value in list(owner.items() if isinstance(owner, dict) else enumerate(owner)):
        yield owner, at
        if isinstance(value, (dict, list)):
            yield from _places(value)
