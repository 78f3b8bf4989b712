"""Numbers of bytes as people read them."""

from __future__ import annotations


def as_size(nbytes: int) -> str:
    """Return a number of bytes in the largest binary unit that it fills, such as ``1.5 MiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} B"
