"""Check the argument of decoders: the encoded bytes of a file."""

from __future__ import annotations

from typing import Any

from aiostream_data.arguments import shown
from aiostream_data.errors import ArgumentTypeError


def encoded_bytes(data: Any, what: str) -> bytes:
    """Return the bytes of ``data``, which must be ``bytes`` or another buffer of bytes.

    Args:
        data: The argument of a decoder.
        what: Description of the file with its article, for the error message.

    Raises:
        ArgumentTypeError: The argument is something else, such as the path of a file.
    """
    if isinstance(data, bytes):
        return data
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise ArgumentTypeError(f"data must be the bytes of {what}, got {shown(data)}") from None
