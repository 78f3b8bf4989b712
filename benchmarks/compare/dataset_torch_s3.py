"""PyTorch's DataLoader with s3torchconnector: one object at a time in each worker process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from benchmarks.compare.dataset_torch_passes import MOST_WORKERS, passes_of_loader
from benchmarks.pipeline.cloud_work import BUCKET, CannotError
from benchmarks.pipeline.dataset_cells import Prepare, Reader, Work

IMPORTS = ("torch.utils.data", "s3torchconnector")


def open_reader(work: Work) -> Reader:
    """Return a reader.

    Raises:
        CannotError: The server's certificate is not one of the system's.
    """
    if work.place.authority:
        raise CannotError("trusts the system's certificates only, and cannot be given another")
    return _opened(work)


@contextmanager
def _opened(work: Work) -> Iterator[Prepare]:
    connector = import_module("s3torchconnector")

    urls = [f"s3://{BUCKET}/{work.objects.key(number)}" for number in range(work.objects.names)]
    dataset = connector.S3MapDataset.from_objects(
        urls, region="us-east-1", endpoint=work.place.url, transform=_body,
        s3client_config=connector.S3ClientConfig(force_path_style=True, unsigned=True),
    )  # fmt: skip
    yield passes_of_loader(dataset, work, min(work.at_once, MOST_WORKERS))


def _body(reader: Any) -> bytes:
    body: bytes = reader.read()
    return body
