"""Write a small object atomically: the object gets its name only when all bytes are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.formats.output_file import open_target


def write_object(url: str, content: bytes, storage_options: Mapping[str, Any]) -> None:
    """Write the bytes ``content`` atomically to a local path or to any URL that fsspec can write.

    Raises:
        MissingExtraError: The URL needs fsspec, which is not installed.
        OSError: The object cannot be written.
    """
    target = open_target(url, storage_options)
    try:
        target.write(content)
        target.commit()
    except BaseException:
        target.discard()
        raise
