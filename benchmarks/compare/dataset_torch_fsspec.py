"""PyTorch's DataLoader with fsspec: s3fs reads many objects at once in each of two worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from benchmarks.compare.dataset_torch_passes import passes_of_loader
from benchmarks.pipeline.cloud_work import BUCKET, Part
from benchmarks.pipeline.dataset_cells import Prepare, Reader, Work

IMPORTS = ("torch.utils.data", "s3fs", "botocore.retries.standard")
WORKERS = 2


def open_reader(work: Work) -> Reader:
    """Return a reader."""
    return _opened(work)


@contextmanager
def _opened(work: Work) -> Iterator[Prepare]:
    dataset = _Objects(work, work.objects.parts(work.root, work.objects.names, None))
    yield passes_of_loader(dataset, work, min(work.at_once, WORKERS), max(1, work.at_once // WORKERS))


class _Objects:
    """Map-style dataset of objects. Each worker process opens its own file system."""

    def __init__(self, work: Work, parts: list[Part]) -> None:
        self._work = work
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, number: int) -> bytes:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: list[int]) -> list[bytes]:
        """Return several objects. Known sizes save the HEAD request."""
        parts = [self._parts[number] for number in numbers]
        found: list[bytes] = self._file_system.cat_ranges(
            [f"{BUCKET}/{part.key}" for part in parts], [0] * len(parts), [part.total for part in parts],
            batch_size=len(parts),
        )  # fmt: skip
        return found

    @cached_property
    def _file_system(self) -> Any:
        import s3fs

        authority = self._work.place.authority
        return s3fs.S3FileSystem(
            key="access", secret="secret", endpoint_url=self._work.place.url, max_concurrency=1,
            client_kwargs={"region_name": "us-east-1", **({"verify": authority} if authority else {})},
            config_kwargs={"max_pool_connections": 128, "response_checksum_validation": "when_required"},
        )  # fmt: skip
