"""Files for one test, and the byte ranges that a run requests from them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aiostream_data.storage.local import LocalStore
from aiostream_data.storage.registry import register_store
from aiostream_data.testing.fault_store import FaultStore, Requests

_SCHEME: Final = "formatsuite"


@contextmanager
def files_of(contents: Sequence[bytes], suffix: str = ".records") -> Iterator[list[Path]]:
    """Write one file for each of ``contents``, in the order of their names. Delete the files at the end."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder).resolve() / f"{number:03}{suffix}" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield paths


@contextmanager
def file_of(content: bytes, suffix: str = ".records") -> Iterator[Path]:
    """Write a file, and delete it at the end."""
    with files_of([content], suffix) as (path,):
        yield path


@contextmanager
def watched(content: bytes, suffix: str = ".records") -> Iterator[tuple[str, Requests]]:
    """Write a file. Return its URL, and the list of the requests for it, which grows."""
    requests: Requests = []

    def make(options: Any, run_blocking: Any) -> FaultStore:
        store = FaultStore(LocalStore(run_blocking), scheme=_SCHEME, inner_scheme="file")
        store.requests = requests
        return store

    register_store(_SCHEME, make)
    try:
        with file_of(content, suffix) as path:
            yield f"{_SCHEME}://{path}", requests
    finally:
        register_store(_SCHEME, None)


def nbytes_read(requests: Requests) -> int:
    """Return the number of bytes that the requests asked for."""
    return sum(request.stop - request.start for request in requests if request.kind == "get")
