"""Return the first element of a loader, as ``infer_spec`` needs it."""

from __future__ import annotations

from typing import Any

from aiostream_data.errors import CardinalityError
from aiostream_data.loading.loader import Loader


def first_element(loader: Loader[Any]) -> Any:
    """Return the first element, and close the loader.

    Raises:
        CardinalityError: The loader has no element.
    """
    with loader:
        for element in loader:
            return element
    raise _empty()


async def first_element_async(loader: Loader[Any]) -> Any:
    """Do the same as :func:`first_element` without blocking the event loop."""
    async with loader:
        async for element in loader:
            return element
    raise _empty()


def _empty() -> CardinalityError:
    return CardinalityError(
        "infer_spec() needs at least one element, but the dataset is empty. Declare the elements with spec=."
    )
