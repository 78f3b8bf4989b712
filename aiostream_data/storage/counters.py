"""Counters of requests, bytes, retries and waits of a loader's stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["GET", "HEAD", "LIST"]
"""Kinds of requests that store providers bill separately. Write requests are not listed: a loader never writes to a
store."""

FIELDS: Final[Mapping[Kind, str]] = {"GET": "gets", "HEAD": "heads", "LIST": "lists"}
"""Counter name for each kind of request."""


@dataclass(slots=True)
class StorageCounters:
    """Counters of one store, or the sum over several stores.

    Attributes:
        requests: Attempts to read, list or look up objects.
        nbytes: Bytes returned by reads.
        retries: Read, listing and look-up attempts that followed a failed attempt.
        failures: Calls that raised an error to the caller of the store.
        gets, heads, lists: GET, HEAD and listing requests sent, including retries, hedged requests and every page of a
            listing.
        received_nbytes: Object bytes received, including the bytes of interrupted responses and of slower hedged
            responses.
        hedges: Hedged requests: second requests for a range, sent because the first response was late.
        hedges_won: Hedged requests that were answered before the first request for the range.
        hedged_nbytes: Bytes requested a second time by hedged requests.
        throttled: Attempts refused because of the request rate (429, 503, SlowDown).
        timeouts: Attempts that ended with a time-out.
        connections_opened, connections_reused: Requests that the built-in client sent on new connections, and on reused
            connections.
        credentials_renewed: Number of times that credentials were renewed because the store had refused the old
            credentials.
        waits: Requests delayed by the store's concurrency limit or the user's limits.
        wait_s: Total delay of the requests counted in ``waits``, in seconds.
        first_byte_s: Sum of the seconds from each read request to the first byte of its response. This time is counted
            for S3, GCS and HTTP stores only.
        body_s: Sum of the seconds from the first to the last byte of each response. This time is counted for S3, GCS
            and HTTP stores only.
        disk_wait_s: Total seconds that reads of local files waited for the file system. Reads from the page cache are
            not counted.
        verified: Objects whose bytes matched the store's checksum.
        mismatches: Reads whose bytes did not match the store's checksum.
        cache_hits: Reads answered completely by the shard cache.
        cache_misses: Reads for which some or all bytes were missing in the shard cache.
        cache_nbytes: Bytes read from the shard cache.
        cache_kept_nbytes: Bytes written to the shard cache.
        cache_evictions: Pieces removed from the shard cache to make room.
    """

    requests: int = 0
    nbytes: int = 0
    retries: int = 0
    failures: int = 0
    gets: int = 0
    heads: int = 0
    lists: int = 0
    received_nbytes: int = 0
    hedges: int = 0
    hedges_won: int = 0
    hedged_nbytes: int = 0
    throttled: int = 0
    timeouts: int = 0
    connections_opened: int = 0
    connections_reused: int = 0
    credentials_renewed: int = 0
    waits: int = 0
    wait_s: float = 0.0
    first_byte_s: float = 0.0
    body_s: float = 0.0
    disk_wait_s: float = 0.0
    verified: int = 0
    mismatches: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_nbytes: int = 0
    cache_kept_nbytes: int = 0
    cache_evictions: int = 0

    def sent(self, kind: Kind) -> None:
        """Count one sent request."""
        name = FIELDS[kind]
        setattr(self, name, getattr(self, name) + 1)

    def as_dict(self) -> dict[str, float]:
        """Return the counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __add__(self, other: StorageCounters) -> StorageCounters:
        return StorageCounters(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def summed(counters: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sum counters by name. If ``counters`` is empty, all sums are zero."""
    totals: dict[str, float] = StorageCounters().as_dict()
    for each in counters:
        for name, value in each.items():
            totals[name] = totals.get(name, 0) + value
    return totals


def joined(processes: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Sum the counters of several processes or store sets, by URL scheme."""
    by_store: dict[str, list[Mapping[str, float]]] = {}
    for stores in processes:
        for scheme, counters in stores.items():
            by_store.setdefault(scheme, []).append(counters)
    return {scheme: summed(counters) for scheme, counters in by_store.items()}
