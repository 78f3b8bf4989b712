"""A Hugging Face Hub for the drawn programs of one process, with their Parquet and CSV files."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from hub_server import hub_server

from metamorphic.files import ROWS, folder

REPOSITORY = "org/rows"


@cache
def hub() -> dict[str, object]:
    """Return the options of the store. The server runs until this process exits."""
    stack = ExitStack()
    atexit.register(stack.close)
    server = stack.enter_context(hub_server())
    shards = range(len(ROWS))
    names = [f"data/train-{shard:05}-of-{len(ROWS):05}.parquet" for shard in shards]
    files = {name: Path(folder(), f"{shard}.parquet").read_bytes() for name, shard in zip(names, shards, strict=True)}
    server.commit(REPOSITORY, files)
    server.commit(
        REPOSITORY, {f"train/{shard}.csv": Path(folder(), f"{shard}.csv").read_bytes() for shard in shards}, "csv"
    )
    return {"endpoint": server.endpoint, "token": False}
