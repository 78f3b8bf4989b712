"""What a test server was asked for: one entry per request, and counters."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOG_LIMIT = 200_000
"""Entries that are kept; older ones are forgotten, and stay counted."""


@dataclass(slots=True)
class SeenRequest:
    """A request, and what became of it. Changes until ``finished``.

    Attributes:
        number: Counts from 1.
        connection: Number of its connection, from 1.
        time_s: When its head was complete, on the clock of ``time.time``.
        kind: ``get``, ``head``, ``list``, ``bucket``, or ``other``.
        name: ``bucket/key``, or the path; of a listing the bucket and the prefix.
        start, stop: The bytes that were asked for; None where no Range was sent.
        headers: As they came, names in lower case.
        query: As it came, quoted.
        status: Of the answer; 0 when no status was sent.
        nbytes: Bytes of the body that were sent.
        fault: What went wrong on purpose, "" if nothing.
        finished: The answer was sent as far as it was meant to be.
        took_s: From head to the end of the answer.
    """

    number: int
    connection: int
    time_s: float
    method: str
    kind: str
    name: str
    start: int | None = None
    stop: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    status: int = 0
    nbytes: int = 0
    fault: str = ""
    finished: bool = False
    took_s: float = 0.0


@dataclass(slots=True)
class ServerCounters:
    """Totals since the server started, or since they were cleared.

    Attributes:
        requests: By kind.
        statuses: How often each was sent.
        faults: Requests that got a fault.
        nbytes: Bytes of bodies that were sent.
        connections: Connections accepted, without those that only steer the server.
        open_connections, max_open_connections: Open now, and the most at once.
        in_flight, max_in_flight: Requests being answered now, and the most at once.
        refused_connections: Reset because of ``max_connections``.
        handshakes, resumed_handshakes: Of TLS, and those by which an earlier session was taken up.
    """

    requests: dict[str, int] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    faults: int = 0
    nbytes: int = 0
    connections: int = 0
    open_connections: int = 0
    max_open_connections: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    refused_connections: int = 0
    handshakes: int = 0
    resumed_handshakes: int = 0

    @property
    def all_requests(self) -> int:
        """Requests of every kind."""
        return sum(self.requests.values())


class RequestLog:
    """Entries and counters. Written by the server's loop, read from any thread."""

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self.entries: deque[SeenRequest] = deque(maxlen=limit)
        self.counters = ServerCounters()
        self._number = 0
        self._connection = 0

    def connected(self) -> int:
        """Count a connection and return its number."""
        counters = self.counters
        counters.connections += 1
        counters.open_connections += 1
        counters.max_open_connections = max(counters.max_open_connections, counters.open_connections)
        self._connection += 1
        return self._connection

    def shook_hands(self, resumed: bool) -> None:
        """Count a handshake of TLS."""
        self.counters.handshakes += 1
        self.counters.resumed_handshakes += resumed

    def disconnected(self) -> None:
        """Count the end of a connection."""
        self.counters.open_connections -= 1

    def not_counted(self) -> None:
        """Take back that a connection was counted: it is one by which the server is steered."""
        counters = self.counters
        counters.connections -= 1
        counters.open_connections -= 1
        counters.max_open_connections = max(counters.open_connections, counters.max_open_connections - 1)

    def next_number(self) -> int:
        """Return the number of the next request."""
        self._number += 1
        return self._number

    def began(self, seen: SeenRequest) -> None:
        """Enter a request."""
        counters = self.counters
        if seen.status:
            counters.statuses[seen.status] = counters.statuses.get(seen.status, 0) + 1
        counters.requests[seen.kind] = counters.requests.get(seen.kind, 0) + 1
        counters.faults += bool(seen.fault)
        counters.in_flight += 1
        counters.max_in_flight = max(counters.max_in_flight, counters.in_flight)
        self.entries.append(seen)

    def ended(self, seen: SeenRequest) -> None:
        """Complete the entry of a request, whose answer is over for better or worse."""
        counters = self.counters
        seen.took_s = time.time() - seen.time_s
        counters.in_flight -= 1
        counters.nbytes += seen.nbytes

    def clear(self) -> None:
        """Forget entries and totals; what is open now stays counted."""
        now = self.counters
        self.entries.clear()
        self.counters = ServerCounters(
            open_connections=now.open_connections,
            max_open_connections=now.open_connections,
            in_flight=now.in_flight,
            max_in_flight=now.in_flight,
        )


def requests_per_second(entries: Iterable[SeenRequest]) -> list[int]:
    """Return how many requests came in each second, from the second of the first one to that of the last."""
    counted = Counter(int(entry.time_s) for entry in entries)
    return [counted[second] for second in range(min(counted), max(counted) + 1)] if counted else []
