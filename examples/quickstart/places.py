"""Where the shards lie: in an S3 or GCS server on this machine, in one that is named, or in a local folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiostream_data.testing.servers import ObjectServer, gcs_server, s3_server

STORES = ("s3", "gcs", "local")
BUCKET = "digits"


@dataclass(frozen=True)
class Place:
    """A folder or prefix, and what a data set needs to read from it."""

    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)


@contextmanager
def open_place(store: str, endpoint_url: str | None = None) -> Iterator[Place]:
    """Lend an empty place in ``store``; with ``endpoint_url``, in the S3 server that listens there."""
    if store == "local":
        with tempfile.TemporaryDirectory(prefix="digits-") as folder:
            (Path(folder) / "train").mkdir()
            (Path(folder) / "test").mkdir()
            print(f"data in {folder}")
            yield Place(folder)
    elif endpoint_url is not None:
        yield _bucket(ObjectServer("s3", endpoint_url, _s3_options(endpoint_url)))
    else:
        # Else gcsfs asks the emulator for the layout of buckets over gRPC, and waits for an answer for minutes.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        with s3_server() if store == "s3" else gcs_server() as server:
            yield _bucket(server)


def _bucket(server: ObjectServer) -> Place:
    server.create_bucket(BUCKET)
    print(f"data in {server.scheme}://{BUCKET} at {server.endpoint_url}")
    return Place(f"{server.scheme}://{BUCKET}", server.storage_options)


def _s3_options(endpoint_url: str) -> dict[str, Any]:
    keys = {"key": "testing", "secret": "testing"}
    return {"endpoint_url": endpoint_url, **keys, "client_kwargs": {"region_name": "us-east-1"}}
