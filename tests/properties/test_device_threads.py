"""The device stage as an engine uses it: threads write, one submits, one waits for copies, one consumes."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest
from device_drill import BATCHES, IN_USE, NO_ROOM, STYLES, Drill, Style

from aiostream_data.testing.adversarial import AdversarialBackend

pytestmark = pytest.mark.filterwarnings(NO_ROOM)
PLAIN = [style for style in STYLES if not style.cast and "shared" not in style.name]


def run_in_threads(run: Drill, raised: list[BaseException]) -> None:
    """Send from one thread what another consumes, while the stage's own waits for copies."""
    batches: SimpleQueue[Any] = SimpleQueue()

    def produce() -> None:
        try:
            for number in range(BATCHES):
                batches.put(run.stage.put(run.style.batch(run, number)))
        except BaseException as error:
            raised.append(error)
            batches.put(None)

    producer = threading.Thread(target=produce)
    producer.start()
    for number in range(BATCHES):
        batch = batches.get(timeout=30)
        if batch is None:
            break
        run.change_stream()
        run.style.consume(run, number, batch)
        del batch
        run.stage.reclaim()  # of leases that nobody gave back: the engine asks now and then
        while run.leased:
            run.leased.popleft().release()
    producer.join(30)
    assert not producer.is_alive()


@pytest.mark.parametrize("style", PLAIN, ids=str)
def test_threads_tear_and_lose_nothing(style: Style) -> None:
    for seed in range(8):
        backend = AdversarialBackend(seed, capacity_nbytes=style.capacity_nbytes)
        run = Drill(IN_USE, seed, backend, style)
        raised: list[BaseException] = []
        with run.stage:
            run.stage.start_waiter()
            run_in_threads(run, raised)
            backend.settle()
        assert raised == []
        assert run.findings == []
        assert backend.violations == []
        assert run.stage.threads == []
