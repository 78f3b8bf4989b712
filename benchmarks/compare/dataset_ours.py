"""This package: a Dataset over the objects of an index, with its defaults, or with N files at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiostream_data as asd
from benchmarks.pipeline.dataset_cells import Prepare, Read, Reader, Work
from benchmarks.pipeline.dataset_objects import Tally

IMPORTS = ("numpy", "uvloop", "aiohttp", "s3fs", "aiostream_data.storage.s3", "aiostream_data.storage.stores")


def open_reader(work: Work) -> Reader:
    """Return a reader; each pass opens a loader, reads all elements and closes the loader."""
    return _opened(work)


@contextmanager
def _opened(work: Work) -> Iterator[Prepare]:
    with tempfile.TemporaryDirectory() as folder:

        def prepare(count: int) -> Read:
            index = Path(folder, f"{count}.jsonl")
            work.objects.write_index(work.root, count, index)
            dataset = _dataset(work, index)

            def read(tally: Tally) -> None:
                with dataset.open() as loader:
                    tally.add_all(element["data"] for element in loader) if is_files else tally.add_all(loader)

            return read

        is_files = work.variant == "from_files"
        yield prepare


def _dataset(work: Work, index: Path) -> asd.Dataset[Any]:
    authority = work.place.authority
    client = {"region_name": "us-east-1", **({"verify": authority} if authority else {})}
    options = {"endpoint_url": work.place.url, "key": "access", "secret": "secret", "client_kwargs": client}
    cycle: dict[str, Any] = {"cycle_length": work.at_once} if work.at_once else {}
    if work.variant == "from_files":
        return asd.Dataset.from_files(index=index, storage_options=options)
    if work.variant == "from_tfrecord":
        return asd.Dataset.from_tfrecord(index=index, storage_options=options, **cycle)
    return asd.Dataset.from_fixed_length(
        None, work.objects.record_nbytes, index=index, storage_options=options, **cycle
    )
