"""Format and parse sizes in bytes."""

from __future__ import annotations

from aiostream_data.arguments import MOST, integer, shown
from aiostream_data.errors import PlanError


def as_size(nbytes: int) -> str:
    """Format a size in bytes with the largest binary unit that fits, such as ``1.5 MiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} B"


def as_nbytes(value: int | str, what: str) -> int:
    """Parse a size in bytes from an int or a text such as ``"256MB"`` or ``"1.5 GiB"``. All units are binary.

    Args:
        value: Value passed by the user.
        what: Name of the argument, for the error message.

    Raises:
        PlanError: The value is not a positive number with a known unit.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        number: float = integer(what, value, maximum=MOST)
    else:
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        scale = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1:], 0)
        try:
            number = float(text[:-1] if scale else text) * (1 << scale)
        except ValueError:
            raise PlanError(
                f"{what} must be a number of bytes, or a string such as '256MB', got {shown(value)}"
            ) from None
    if not 1 <= number < float("inf"):
        raise PlanError(f"{what} must be at least 1 byte, got {shown(value)}")
    return int(number)
