"""R20: a consumer slower than its store costs nothing but time, though the store closes connections early, as S3 does.

What has no room is not asked for, and what was asked for is read at once: no connection waits for the consumer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.faults import Fault, Rule

PAUSED_S = 1.0
"""Longest time for which reading from a socket may be paused."""

RECORD_NBYTES, RECORDS, SHARDS = 1 << 20, 16, 2
REST_S = 1.3
"""How long the consumer is busy with one record."""

CLOSINGS = {
    "right behind the last byte": Fault(close_after=True),
    "as it had said": Fault(close_after=True, headers=(("Connection", "close"),)),
}


class Gauge:
    """Measures for how long reading from any socket of this process is paused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        self._since: dict[Any, float] = {}
        self._lock = threading.Lock()
        pause, resume = _SelectorSocketTransport.pause_reading, _SelectorSocketTransport.resume_reading

        def pausing(transport: Any) -> None:
            with self._lock:
                self._since.setdefault(transport, time.monotonic())
            pause(transport)

        def resuming(transport: Any) -> None:
            resume(transport)
            with self._lock:
                self.pauses.append(time.monotonic() - self._since.pop(transport, time.monotonic()))

        monkeypatch.setattr(_SelectorSocketTransport, "pause_reading", pausing)
        monkeypatch.setattr(_SelectorSocketTransport, "resume_reading", resuming)

    @property
    def longest_s(self) -> float:
        """The longest pause, also of those that go on."""
        with self._lock:
            going_on = [time.monotonic() - since for at, since in self._since.items() if not at.is_closing()]
            return max([*self.pauses, *going_on], default=0.0)


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_r20_a_slow_consumer_neither_fails_nor_pauses_a_connection(
    reader: str, closing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # whose transports cannot be watched
    gauge = Gauge(monkeypatch)
    with leaves_nothing(), fault_server("s3", where="process") as server:
        urls = [server.put(f"bucket/{shard}", _content(shard)) for shard in range(SHARDS)]
        server.set_rules(Rule(CLOSINGS[closing], kind="get"))
        options = {**server.storage_options, "reader": reader, "hedge": False}
        dataset = Dataset.from_fixed_length(urls, record_nbytes=RECORD_NBYTES, storage_options=options)
        rows = []
        with dataset.open(memory_limit="16MB") as loader:
            for record in loader:
                rows.append(bytes(record[:2]))
                if len(rows) == 1:
                    time.sleep(REST_S)  # the slowness itself
                    longest_s = gauge.longest_s
        asked = [seen for seen in server.log() if seen.kind == "get"]
    assert rows == [bytes((shard, number)) for shard in range(SHARDS) for number in range(RECORDS)]
    assert max(longest_s, gauge.longest_s) < PAUSED_S
    assert all(seen.finished for seen in asked)
    assert sum(seen.nbytes for seen in asked) == SHARDS * RECORDS * RECORD_NBYTES  # nothing was asked for twice


def test_the_gauge_sees_a_connection_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[float, float]:
        _, writer = await asyncio.open_connection(*server.endpoint_url.removeprefix("http://").split(":"))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        going_on_s = gauge.longest_s
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        writer.close()
        await writer.wait_closed()
        return going_on_s, gauge.longest_s

    gauge = Gauge(monkeypatch)
    with fault_server("http") as server:
        assert min(asyncio.run(main())) >= 0.05


def _content(shard: int) -> bytes:
    return b"".join(bytes((shard, number)).ljust(RECORD_NBYTES, b"\xaa") for number in range(RECORDS))
