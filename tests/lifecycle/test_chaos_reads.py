"""A tenth of all reads goes wrong in every way that a server can do them wrong: every byte arrives, once, as it is."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificates
from leaks import leaves_nothing

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.testing.fault_catalogue import chaos
from aiostream_data.testing.fault_server import fault_server

REQUESTS = int(os.environ.get("ASD_CHAOS", "1500"))
"""Ranges read from each kind of store; ``ASD_CHAOS=20000`` for the long run, with ``--timeout=900``."""

OBJECTS, OBJECT_NBYTES = 8, 3 << 20
AT_ONCE = 32
CONTENT = random.Random(7).randbytes(OBJECT_NBYTES)
OPTIONS = {"retry_total_s": 60.0, "first_byte_timeout": 1.0, "read_timeout": 0.5, "connect_timeout": 5.0}


async def _read_all(stores: StoreSet, urls: list[str]) -> tuple[int, Any]:
    """Read random ranges, several at once, and compare each with what was put; return how many."""
    shards = [await stores.info(url) for url in urls]
    draws = random.Random(1)
    left = iter(range(REQUESTS))
    good = 0

    async def reader() -> None:
        nonlocal good
        for _ in left:
            start = draws.randrange(OBJECT_NBYTES - 1)
            nbytes = min(draws.choice((1, 1_000, 60_000, 300_000)), OBJECT_NBYTES - start)
            buffer = bytearray(nbytes)
            await stores.read_into(draws.choice(shards), start, memoryview(buffer))
            assert buffer == CONTENT[start : start + nbytes]
            good += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(reader())
    return good, stores.counters


@pytest.mark.parametrize(("dialect", "tls"), [("s3", False), ("gcs", False), ("http", False), ("http", True)])
def test_every_byte_arrives_though_a_tenth_of_the_reads_goes_wrong(
    dialect: Any, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate: Path | None = None
    if tls:
        certificates = make_certificates(tmp_path)
        certificate = certificates.good
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))

    async def main(options: dict[str, Any], urls: list[str]) -> tuple[int, Any]:
        stores = StoreSet({**options, **OPTIONS}, asyncio.to_thread)
        try:
            return await asyncio.wait_for(_read_all(stores, urls), 60 + REQUESTS / 20)
        finally:
            await stores.aclose()

    with leaves_nothing(), fault_server(dialect, where="process", certificate=certificate) as server:
        urls = [server.put(f"bucket/{number}", CONTENT) for number in range(OBJECTS)]
        server.set_rules(chaos(0.1))
        good, counters = asyncio.run(main(server.storage_options, urls))
    assert good == REQUESTS
    assert counters.retries > REQUESTS / 20
    assert counters.failures == 0


def test_an_unknown_size_is_no_licence_for_a_shorter_object() -> None:
    async def main(options: dict[str, Any], url: str) -> bytes:
        stores = StoreSet({**options, **OPTIONS}, asyncio.to_thread)
        try:
            buffer = bytearray(OBJECT_NBYTES)
            await stores.read_into(ShardRef(url), 0, memoryview(buffer))
            return bytes(buffer)
        finally:
            await stores.aclose()

    with fault_server("s3") as server:
        url = server.put("bucket/one", CONTENT)
        server.set_rules(chaos(0.5))
        assert asyncio.run(main(server.storage_options, url)) == CONTENT
