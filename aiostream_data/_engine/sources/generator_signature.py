"""Check the items of a generator against its declared signature."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from aiostream_data.errors import SignatureError
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.structure import StructureError, structure_of

_CURE: Final = "Correct the item, or pass the right signature=."


def check_signature(element: Any, signature: Any, number: int) -> None:
    """Check structure, dtype and shape of one item.

    Args:
        signature: Structure of :class:`ArraySpec`.
        number: Index of the item, for the error message.

    Raises:
        SignatureError: The item does not match the signature. The message names the leaf, the expected type and the
            actual type.
    """
    structure = structure_of(signature, ArraySpec)
    try:
        leaves = structure.flatten(element)
    except StructureError as error:
        raise SignatureError(f"item {number} of the generator does not match signature=: {error}. {_CURE}") from error
    for path, spec, leaf in zip(structure.paths(), structure.flatten(signature), leaves, strict=True):
        found = _misfit(leaf, spec)
        if found:
            raise SignatureError(
                f"item {number} of the generator does not match signature=: {path} must be {_describe(spec)}, got "
                f"{found}. {_CURE}"
            )


def _misfit(leaf: Any, spec: ArraySpec) -> str:
    if isinstance(leaf, (bytes, str)):
        return "" if spec.dtype in (None, np.dtype(object)) and not spec.shape else type(leaf).__name__
    try:
        array = array_of(leaf, explicit=True)
    except NoNumpyFormError as error:
        return f"{type_name(type(leaf))}, which cannot become a dense numpy.ndarray: {error}"
    if array is None:
        array = np.empty((), object)
    fits = spec.dtype is None or array.dtype == spec.dtype
    if spec.shape is not None:
        fits = fits and len(spec.shape) == array.ndim
        fits = fits and all(want in (None, have) for want, have in zip(spec.shape, array.shape, strict=False))
    return "" if fits else f"{array.dtype} of shape {array.shape}"


def _describe(spec: ArraySpec) -> str:
    return f"{spec.dtype or 'any dtype'} of shape {'any' if spec.shape is None else spec.shape}"
