"""Request log of a test server: one entry per request, and counters."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOG_LIMIT = 200_000
"""Maximum number of log entries; older entries are dropped but stay in the counters."""


@dataclass(slots=True)
class SeenRequest:
    """Log entry of one request and its response. The log entry changes until ``finished`` is True.

    Attributes:
        number: Number of the request, counted from 1.
        connection: Number of the request's connection, counted from 1.
        time_s: Time at which the request head was complete, as returned by ``time.time``.
        kind: Kind of the request: ``get``, ``head``, ``list``, ``bucket``, or ``other``.
        name: Object name ``bucket/key``, or the path; for a listing, the bucket and the prefix.
        start, stop: Requested byte range; None for a request without a Range header.
        headers: Request headers, with names in lower case.
        query: Query string as received, still percent-encoded.
        status: HTTP status of the response; 0 if the server sent no status.
        nbytes: Number of response body bytes sent.
        fault: Description of the injected fault; "" without a fault.
        finished: True if the server sent the complete response, or the part that the injected fault permits.
        took_s: Seconds from the request head to the end of the response.
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
    """Totals of a test server since its start or since the log was cleared.

    Attributes:
        requests: Number of requests for each kind.
        statuses: Number of responses for each HTTP status.
        faults: Number of requests with an injected fault.
        nbytes: Number of response body bytes sent.
        connections: Number of accepted connections, excluding control connections.
        open_connections, max_open_connections: Current and maximum number of open connections.
        in_flight, max_in_flight: Current and maximum number of requests that the server is answering.
        refused_connections: Number of connections that the server reset because of ``max_connections``.
        handshakes, resumed_handshakes: Number of TLS handshakes, and number of TLS handshakes that resumed a session.
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
        """Total number of requests of all kinds."""
        return sum(self.requests.values())


class RequestLog:
    """Log entries and counters of a test server.

    The server's event loop writes the entries and counters; any thread may read them.
    """

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self.entries: deque[SeenRequest] = deque(maxlen=limit)
        self.counters = ServerCounters()
        self._number = 0
        self._connection = 0

    def connected(self) -> int:
        """Count a new connection and return its number."""
        counters = self.counters
        counters.connections += 1
        counters.open_connections += 1
        counters.max_open_connections = max(counters.max_open_connections, counters.open_connections)
        self._connection += 1
        return self._connection

    def shook_hands(self, resumed: bool) -> None:
        """Count a TLS handshake."""
        self.counters.handshakes += 1
        self.counters.resumed_handshakes += resumed

    def disconnected(self) -> None:
        """Count the end of a client connection."""
        self.counters.open_connections -= 1

    def not_counted(self) -> None:
        """Subtract a connection from the counters after it turned out to carry control commands."""
        counters = self.counters
        counters.connections -= 1
        counters.open_connections -= 1
        counters.max_open_connections = max(counters.open_connections, counters.max_open_connections - 1)

    def next_number(self) -> int:
        """Return the number to assign to the next request."""
        self._number += 1
        return self._number

    def began(self, seen: SeenRequest) -> None:
        """Add the log entry of a new request and update the counters."""
        counters = self.counters
        if seen.status:
            counters.statuses[seen.status] = counters.statuses.get(seen.status, 0) + 1
        counters.requests[seen.kind] = counters.requests.get(seen.kind, 0) + 1
        counters.faults += bool(seen.fault)
        counters.in_flight += 1
        counters.max_in_flight = max(counters.max_in_flight, counters.in_flight)
        self.entries.append(seen)

    def ended(self, seen: SeenRequest) -> None:
        """Complete the log entry of a request after its response has ended, successfully or not."""
        counters = self.counters
        seen.took_s = time.time() - seen.time_s
        counters.in_flight -= 1
        counters.nbytes += seen.nbytes

    def clear(self) -> None:
        """Clear log entries and totals; open connections and pending requests stay counted."""
        now = self.counters
        self.entries.clear()
        self.counters = ServerCounters(
            open_connections=now.open_connections,
            max_open_connections=now.open_connections,
            in_flight=now.in_flight,
            max_in_flight=now.in_flight,
        )


def requests_per_second(entries: Iterable[SeenRequest]) -> list[int]:
    """Return the number of requests in each second, from the first request to the last."""
    counted = Counter(int(entry.time_s) for entry in entries)
    return [counted[second] for second in range(min(counted), max(counted) + 1)] if counted else []
