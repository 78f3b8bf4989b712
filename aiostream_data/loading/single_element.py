"""Return the only element of a loader, as ``get_single_element`` does."""

from __future__ import annotations

from typing import Any, NoReturn

from aiostream_data.errors import CardinalityError
from aiostream_data.loading.loader import Loader

_MOST = 2
"""Number of elements after which reading ends."""


def single_element(loader: Loader[Any]) -> Any:
    """Return the only element, and close the loader.

    Raises:
        CardinalityError: The loader has no element, or more than one.
    """
    found: list[Any] = []
    with loader:
        for element in loader:
            found.append(element)
            if len(found) == _MOST:
                break
    return found[0] if len(found) == 1 else refuse("no element" if not found else "more than one element")


async def single_element_async(loader: Loader[Any]) -> Any:
    """Do the same as :func:`single_element` without blocking the event loop."""
    found: list[Any] = []
    async with loader:
        async for element in loader:
            found.append(element)
            if len(found) == _MOST:
                break
    return found[0] if len(found) == 1 else refuse("no element" if not found else "more than one element")


def check_single(rows: int) -> None:
    """Raise CardinalityError if a known number of elements is not 1. Negative numbers are unknown or infinite."""
    if rows >= 0 and rows != 1:
        refuse(f"{rows} elements" if rows else "no element")


def refuse(found: str) -> NoReturn:
    """Raise the error for a dataset that has not exactly one element."""
    raise CardinalityError(
        f"get_single_element() needs a dataset of exactly one element, but the dataset has {found}. "
        "Use take(1), or batch() to combine all elements into one."
    )
