"""The client of s3torchconnector: the AWS CRT, which knows threads only."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.compare.cloud_passes import in_threads
from benchmarks.pipeline.cloud_work import CannotError, Cell, Client, Part, Place

IMPORTS = ("s3torchconnectorclient._mountpoint_s3_client",)


def open_client(place: Place, cell: Cell) -> Client:
    """Open it, one client for all threads, as the connector does.

    Raises:
        CannotError: The server's certificate is not one of the system's.
    """
    if place.authority:
        raise CannotError("trusts the system's certificates only, and cannot be given another")
    module = import_module(IMPORTS[0])
    client = module.MountpointS3Client(
        region="us-east-1", user_agent_prefix="bench", throughput_target_gbps=40.0, part_size=8 << 20, unsigned=True,
        endpoint=place.url, force_path_style=True,
    )  # fmt: skip

    def make_read() -> Callable[[Part], Any]:
        def read(part: Part) -> bytes:
            return b"".join(client.get_object("bench", part.key, part.start, part.start + part.nbytes))

        return read

    return in_threads(make_read, cell)
