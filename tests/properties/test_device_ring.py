"""The real stage over a device that is as late as allowed; then over devices that leave one wait out."""

from __future__ import annotations

from functools import partial

import pytest
from device_drill import IN_USE, NO_ROOM, STYLES, Style, drill

from aiostream_data.device.backend import Mark, StreamRef
from aiostream_data.testing.adversarial import AdversarialBackend

pytestmark = pytest.mark.filterwarnings(NO_ROOM)
SEEDS = range(60)
COPIES = STYLES[0]


class JoinsNothing(AdversarialBackend):
    """A host slot is written again while it is still read."""

    def join(self, mark: Mark) -> None:
        return


class ConsumerDoesNotWait(AdversarialBackend):
    """A batch is taken out before it has arrived."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream not in self.consumers:
            super().order_after(stream, mark)


class CopyDoesNotWait(AdversarialBackend):
    """A device slot is written again while a consumer still reads it."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream in self.consumers:
            super().order_after(stream, mark)


class MarksTheWrongStream(AdversarialBackend):
    """The end of a consumer's reading is marked on a stream that it does not use."""

    def mark(self, stream: StreamRef) -> Mark:
        first, second, *_ = self.consumers
        return super().mark({first: second, second: first}.get(stream, stream))


class ForgetsToRecord(AdversarialBackend):
    """Waiting for a consumer's mark is waiting for nothing."""

    def mark(self, stream: StreamRef) -> Mark:
        return self.unrecorded_mark() if stream in self.consumers else super().mark(stream)


class RetiresEarly(AdversarialBackend):
    """An event is recorded anew while somebody is still to wait for it."""

    def mark(self, stream: StreamRef) -> Mark:
        mark = super().mark(stream)
        self.retire(mark)
        return mark


@pytest.mark.parametrize(
    ("broken", "least_seeds_caught"),
    [
        (JoinsNothing, 50),
        (ConsumerDoesNotWait, 50),
        (CopyDoesNotWait, 40),
        (MarksTheWrongStream, 20),
        (ForgetsToRecord, 40),
        (RetiresEarly, 60),
    ],
)
def test_a_device_that_leaves_a_wait_out_is_caught(broken: type[AdversarialBackend], least_seeds_caught: int) -> None:
    caught = sum(bool(drill(IN_USE, seed, COPIES, broken)) for seed in SEEDS)
    assert caught >= least_seeds_caught


def test_letting_outgrown_memory_go_without_joining_is_caught() -> None:
    growing: Style = next(style for style in STYLES if "growing" in style.name)
    findings = [finding for seed in SEEDS for finding in drill(IN_USE, seed, growing, JoinsNothing)]
    assert any("memory was freed before it ran" in finding for finding in findings)


def test_a_drill_is_the_same_history_whenever_it_is_run() -> None:
    run = partial(drill, IN_USE, 7, COPIES, ConsumerDoesNotWait)
    assert run() == run()
