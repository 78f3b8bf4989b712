"""Check the items of a generator against its declared signature."""

from __future__ import annotations

from typing import Any

from aiostream_data._engine.calls.spec_fit import misfit
from aiostream_data.errors import SignatureError
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.rows.structure import flatten


def check_signature(element: Any, signature: Any, number: int) -> None:
    """Check structure, dtype and shape of one item.

    Args:
        signature: Structure of :class:`ArraySpec`.
        number: Index of the item, for the error message.

    Raises:
        SignatureError: The item does not match the signature. The message names the leaf, the expected type and the
            actual type.
    """
    found = misfit(element, *flatten(signature, ArraySpec))
    if found:
        raise SignatureError(
            f"item {number} of the generator does not match signature=: {found}. "
            "Correct the item, or pass the right signature=."
        )
