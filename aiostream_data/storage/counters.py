"""What a loader asked of its stores, counted: plain numbers, which those who ask write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["GET", "HEAD", "LIST"]
"""What stores charge for by the request, of what a loader sends. It writes nothing to a store."""

FIELDS: Final[Mapping[Kind, str]] = {"GET": "gets", "HEAD": "heads", "LIST": "lists"}
"""Under which name requests of a kind are counted."""


@dataclass(slots=True)
class StorageCounters:
    """Counters of one store, or of several added up.

    Attributes:
        requests: Attempts of reads, listings and look-ups.
        nbytes: Bytes delivered by reads.
        retries: Attempts that followed a failed one.
        failures: Errors that were passed on.
        gets, heads, lists: Requests sent, by kind: those of retries, of hedges and of every page of a listing too.
        received_nbytes: Bytes of objects that came over the wire, those of answers that broke off or came second too.
        hedges, hedges_won: Second requests for what was late, and those whose answer was the first.
        hedged_nbytes: Bytes that were asked for a second time.
        throttled: Attempts that the store refused since it was asked too much (429, 503, SlowDown).
        timeouts: Attempts that ended because nothing came for too long.
        connections_opened, connections_reused: Requests that were sent on a new connection, and on a kept one, of
            those that went without a library.
        credentials_renewed: How often credentials were asked for anew since the store had refused them.
        waits, wait_s: Requests that had to wait until they might be sent, as a store bears no more at once or the user
            allows no more, and their seconds together.
        first_byte_s, body_s: Seconds from requests for bytes to the first byte of their answers, summed, and from there
            to the last. Only stores count them whose requests pass our gates: S3, GCS and HTTP.
        disk_wait_s: Seconds that reads of local files waited for the file system, summed. Reads that the page cache
            answers do not count, whatever kept their threads from a core.
        verified: Objects whose bytes agree with the checksum that the store has of them.
        mismatches: Times that they did not.
        cache_hits, cache_misses: Reads for which the shard cache had everything, and those for which it had not.
        cache_nbytes, cache_kept_nbytes: Bytes that came out of it, and that were put into it.
        cache_evictions: Pieces removed from it to make room for those.
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
        """Count a request that was sent."""
        name = FIELDS[kind]
        setattr(self, name, getattr(self, name) + 1)

    def as_dict(self) -> dict[str, float]:
        """Return the counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __add__(self, other: StorageCounters) -> StorageCounters:
        return StorageCounters(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def summed(counters: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return counters added up by name; all zero where there are none."""
    totals: dict[str, float] = StorageCounters().as_dict()
    for each in counters:
        for name, value in each.items():
            totals[name] = totals.get(name, 0) + value
    return totals


def joined(processes: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the counters of every store, by its scheme, of several processes or sets of stores together."""
    by_store: dict[str, list[Mapping[str, float]]] = {}
    for stores in processes:
        for scheme, counters in stores.items():
            by_store.setdefault(scheme, []).append(counters)
    return {scheme: summed(counters) for scheme, counters in by_store.items()}
