"""Write a small object as a whole: it appears under its name complete, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.formats.output_file import open_target


def write_object(url: str, content: bytes, storage_options: Mapping[str, Any]) -> None:
    """Write ``content`` to a local path, or to any URL that fsspec can write.

    Raises:
        MissingExtraError: fsspec is not installed.
        OSError: It cannot be written.
    """
    target = open_target(url, storage_options)
    try:
        target.write(content)
        target.commit()
    except BaseException:
        target.discard()
        raise
