"""How many ranges of one large object a distant store is asked for at once: counted in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.storage.ranges import range_sizes
from aiostream_data.storage.read_ahead import LEAST, MEMORY_SHARE
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.object_api.dialect import DialectName
from aiostream_data.testing.request_log import SeenRequest, ServerCounters
from aiostream_data.testing.wire_model import WireModel

MIB = 1 << 20
RECORD_NBYTES = 256 << 10
OBJECT_NBYTES = 64 * MIB
RANGE_NBYTES = MIB
"""Size of nearly all ranges under the limits of these tests."""

ROOMY = 64 * MIB
"""Memory limit under which ranges are small, and many of them may be on their way."""

LATENCIES_S = [0.02, 0.05]


@dataclass
class Reading:
    """What the store counted while a loader read its object, and the most memory that the loader held."""

    counters: ServerCounters
    log: list[SeenRequest]
    peak_nbytes: int


def read(server: FaultServer, memory_limit: int, **options: Any) -> Reading:
    """Read the object from its beginning to its end."""
    url = server.put("bucket/large", bytes(OBJECT_NBYTES))
    server.clear_log()
    storage_options = {**server.storage_options, "hedge": False, **options}
    dataset = Dataset.from_fixed_length(url, RECORD_NBYTES, storage_options=storage_options)
    with dataset.open(memory_limit=memory_limit) as loader:
        assert sum(1 for _ in loader) == OBJECT_NBYTES // RECORD_NBYTES
        peak_nbytes = loader.stats().memory.peak
    return Reading(server.counters(), server.log(), peak_nbytes)


def most_nbytes_at_once(log: Iterable[SeenRequest]) -> int:
    """Return the most bytes that were on their way at one time."""
    most = now = 0
    for _, change in sorted(changes_in(log)):
        now += change
        most = max(most, now)
    return most


def changes_in(log: Iterable[SeenRequest]) -> Iterator[tuple[float, int]]:
    for seen in log:
        if seen.start is not None and seen.stop is not None:
            yield seen.time_s, seen.stop - seen.start
            yield seen.time_s + seen.took_s, seen.start - seen.stop


@pytest.mark.parametrize("latency_s", LATENCIES_S)
@pytest.mark.parametrize("dialect", ["http", "s3"])
def test_a_distant_store_is_asked_for_more_ranges_than_at_the_start(dialect: DialectName, latency_s: float) -> None:
    wire = WireModel(first_byte_s=latency_s)
    with leaves_nothing(), fault_server(dialect, where="process", wire=wire) as server:
        found = read(server, ROOMY)
    assert found.counters.max_in_flight > 2 * LEAST


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("dialect", ["http", "s3"])
def test_never_more_ranges_are_asked_for_than_the_cap_of_the_user_allows(dialect: DialectName, most: int) -> None:
    wire = WireModel(first_byte_s=LATENCIES_S[0])
    with leaves_nothing(), fault_server(dialect, where="process", wire=wire) as server:
        found = read(server, ROOMY, max_connections=most)
    assert found.counters.max_in_flight == most


@pytest.mark.parametrize("memory_limit", [8 * MIB, 16 * MIB, ROOMY])
def test_never_more_bytes_are_asked_for_than_fit_the_memory_limit(memory_limit: int) -> None:
    assert range_sizes(memory_limit, 1, among_many=False)[1] == RANGE_NBYTES
    wire = WireModel(first_byte_s=LATENCIES_S[1])
    with leaves_nothing(), fault_server("http", where="process", wire=wire) as server:
        found = read(server, memory_limit)
    assert LEAST <= found.counters.max_in_flight <= MEMORY_SHARE * memory_limit / RANGE_NBYTES
    assert 0 < most_nbytes_at_once(found.log) <= memory_limit
    assert found.peak_nbytes <= memory_limit
