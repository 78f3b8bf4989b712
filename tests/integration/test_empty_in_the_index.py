"""A file that the index calls empty, but that has content, is an error and not an empty shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import Dataset, ObjectChangedError, write_index
from aiostream_data.testing.fault_server import fault_server

FILES = 3


@contextmanager
def files_in(place: str, folder: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield a pattern, a function that writes a file, and the storage options."""
    if place == "file":
        yield f"{folder}/*.txt", lambda name, data: (folder / name).write_bytes(data), {}
        return
    with fault_server("gcs" if place == "gcs" else "s3") as server:
        yield server.url("bucket/*.txt"), lambda name, data: server.put(f"bucket/{name}", data), server.storage_options


@pytest.mark.parametrize("others", [b"", b"1\n2\n"], ids=["beside empty files", "beside files with rows"])
@pytest.mark.parametrize("place", ["s3", "gcs", "file"])
@pytest.mark.parametrize("versions", [True, False])
def test_content_that_arrives_after_the_index_is_an_error(
    place: str, others: bytes, versions: bool, tmp_path: Path
) -> None:
    index = tmp_path / "index.jsonl"
    with files_in(place, tmp_path) as (pattern, write, options):
        for number in range(FILES):
            write(f"{number}.txt", b"" if number == 1 else others)
        write_index(pattern, str(index), storage_options=options, versions=versions)
        dataset = Dataset.from_text(index=str(index), storage_options=options)
        expected = 2 * others.count(b"\n")
        with dataset.open() as loader:
            assert sum(1 for _ in loader) == expected
        write("1.txt", b"new\n")
        with dataset.open() as loader, pytest.raises(ObjectChangedError, match=r"1\.txt"):
            for _ in loader:
                pass
