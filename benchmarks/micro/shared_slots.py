"""Time batches of another process on their way through a device stage: ``python -m benchmarks.micro.shared_slots``.

The device is the host (``cpu``), so that a copy to the device is a copy on the host, too. "slots" writes every batch
into a host slot first; "in place" copies it from the shared memory that it came in. Timed is what the training process
does between a batch's arrival and its arrays: sending is not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from aiostream_data.device.host import HostBackend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.executors.exchange import Exchange, linked
from aiostream_data.executors.mapping import mapping_of

IMAGE = 224 * 224 * 3
BATCHES = {"4 MB": 28, "38.5 MB": 256}
SECONDS, REPEATS = 1.5, 3
MAX_NBYTES = 256 << 20


class Way:
    """One way through a stage.

    Args:
        options: Of the stage.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self._options = options

    def run(self, rows: int) -> tuple[float, float]:
        """Return seconds and bytes copied, per batch."""
        here, there = linked(MAX_NBYTES)
        batch = {"image": np.zeros((rows, IMAGE), np.uint8), "label": np.zeros(rows, np.int64)}
        with DeviceStage(HostBackend(), **self._options) as stage:
            stage.start_waiter()
            spent, batches, deadline = 0.0, 0, perf_counter() + SECONDS
            while perf_counter() < deadline:
                spent += _through(stage, _arrived(here, there, batch))
                batches += 1
            copies = stage.copies()
        here.close()
        there.close()
        # Into the slot, to the device, and out of it for the consumer.
        return spent / batches, (copies.written_nbytes + 2 * copies.copied_nbytes) / batches


def _arrived(here: Exchange, there: Exchange, batch: Any) -> Any:
    here.send(batch)
    received = there.receive()
    received.lease.release()
    return received.message


def _through(stage: DeviceStage, batch: Any) -> float:
    started = perf_counter()
    sent = stage.put(batch)
    assert sent is not None
    sent.materialise()
    return perf_counter() - started


def _spread(measure: Callable[[], tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return the median of the seconds, the least, the most, and the bytes."""
    runs = [measure() for _ in range(REPEATS)]
    seconds = sorted(run[0] for run in runs)
    return statistics.median(seconds), seconds[0], seconds[-1], runs[-1][1]


def main() -> None:
    """Print a table."""
    ways = (Way("slots"), Way("in place", find_shared=mapping_of))
    print(f"{'batch':10}{'way':12}{'ms per batch':>14}{'from to':>18}{'copied MB per batch':>22}{'times':>8}")
    for name, rows in BATCHES.items():
        nbytes = rows * (IMAGE + 8)
        for way in ways:
            median, low, high, copied = _spread(lambda way=way, rows=rows: way.run(rows))  # type: ignore[misc]
            print(
                f"{name:10}{way.name:12}{1e3 * median:14.2f}{f'{1e3 * low:.2f} to {1e3 * high:.2f}':>18}"
                f"{copied / 1e6:22.1f}{copied / nbytes:8.2f}"
            )


if __name__ == "__main__":
    main()
