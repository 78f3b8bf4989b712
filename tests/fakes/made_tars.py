"""Tar archives for tests, written by Python's tarfile, and what they contain."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable
from typing import Any, Final, Literal

FORMATS: Final[dict[str, Literal[0, 1, 2]]] = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}
KEYED: Final = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
"""The rule of the webdataset library for keys and extensions."""


def member(name: str, data: bytes = b"", format: str = "gnu", **fields: Any) -> bytes:
    """Return one member with its headers and its padding."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    headers = info.tobuf(FORMATS[format])
    return headers + data + bytes(-len(data) % 512)


def archive(members: Iterable[tuple[str, bytes]], format: str = "gnu") -> bytes:
    """Return an archive of files with the shortest end marker."""
    return b"".join(member(name, data, format) for name, data in members) + bytes(1024)


def samples_by_tarfile(stream: bytes) -> list[dict[str, Any]]:
    """Return the samples of an archive by the shortest program that says it. Broken samples raise ValueError."""
    samples: list[dict[str, Any]] = []
    with tarfile.open(fileobj=io.BytesIO(stream), mode="r|") as tar:
        for info in tar:
            found = KEYED.fullmatch(info.name)
            if not info.isreg() or found is None or re.match(r"__[^/]*__($|/)", info.name):
                continue
            key, extension = found[1], found[2].lower()
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            if extension in samples[-1]:
                raise ValueError(extension)
            file = tar.extractfile(info)
            assert file is not None
            samples[-1][extension] = file.read()
    if len({sample["__key__"] for sample in samples}) != len(samples):
        raise ValueError("a key is used again")
    return samples
