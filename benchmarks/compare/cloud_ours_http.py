"""Our store for ``http://`` and ``https://``, as a loader has it."""

from __future__ import annotations

import os

from benchmarks.compare.cloud_passes import on_loop, our_store, path_of, uvloop_loop
from benchmarks.pipeline.cloud_work import Cell, Client, Place

IMPORTS = ("numpy", "uvloop", "aiohttp", "aiostream_data.storage.http", "aiostream_data.storage.stores")


def open_client(place: Place, cell: Cell) -> Client:
    """Open it; certificates are verified against the system's, which this variable replaces."""
    if place.authority:
        os.environ["SSL_CERT_FILE"] = place.authority
    return on_loop(our_store({}, cell, lambda part: path_of(place, part)), cell, uvloop_loop)
