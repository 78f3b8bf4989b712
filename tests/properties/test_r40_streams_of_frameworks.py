"""R40: frameworks import batches on streams of their own: values are right, and nobody waits for the device.

The frameworks are stand-ins that do with streams what PyTorch and JAX do; the real ones have none without a GPU.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.device.backend import StreamRef
from aiostream_data.device.stage import DeviceStage
from aiostream_data.testing.adversarial import AdversarialBackend

BATCHES = 30
SEEDS = range(100)
HAND_OVER = {"capturing", "order_after", "mark", "d2d", "current_stream", "consumer_block"}
"""Calls with which a batch is handed over: none of them waits."""


class Imported:
    """What a framework does when it imports: it names the stream, and gets a capsule that is in order there."""

    def __init__(self, exported: Any, stream: StreamRef) -> None:
        self._exported = exported
        self._stream = stream

    def __dlpack_device__(self) -> Any:
        return self._exported.__dlpack_device__()

    def __dlpack__(self, *, stream: None = None, **asked: Any) -> Any:
        return self._exported.__dlpack__(stream=self._stream.ptr, **asked)

    def array(self) -> NDArray[Any]:
        return np.from_dlpack(self)


class LikeJax:
    """Imports on a stream for ready events, computes on another, and copies whatever it gets."""

    def __init__(self, backend: AdversarialBackend) -> None:
        self._backend = backend
        self._events = backend.consumer_stream()
        self.compute = backend.consumer_stream()

    def copies(
        self, natives: Sequence[Any], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], Callable[[], object]]:
        backend = self._backend
        sources = [Imported(leaf, self._events).array() for leaf in exported]
        ready = backend.mark(self._events)
        backend.order_after(self.compute, ready)
        backend.retire(ready)
        copies = [np.zeros(source.shape, source.dtype) for source in sources]
        for copy, source in zip(copies, sources, strict=True):
            backend.launch(self.compute, np.copyto, copy, source, turns=3)
        made = backend.mark(self.compute)

        def block_until_ready() -> None:
            backend.join(made)
            backend.retire(made)

        return copies, block_until_ready


class Reader:
    """Has kernels look at batches, and remembers which were wrong."""

    def __init__(self, backend: AdversarialBackend) -> None:
        self.backend = backend
        self.wrong: list[int] = []

    def look(self, number: int, array: NDArray[Any], stream: StreamRef) -> None:
        def kernel(found: NDArray[Any]) -> None:
            if not (found == number).all():
                self.wrong.append(number)

        self.backend.launch(stream, kernel, array, turns=2)


def calls_since(before: Counter[tuple[str, str]], backend: AdversarialBackend) -> set[str]:
    return {call for call, _ in backend.counts - before}


def put(stage: DeviceStage, number: int) -> Any:
    batch = stage.put({"x": np.full((16, 3), number, np.int32)})
    assert batch is not None
    return batch


def test_r40_tensors_on_side_streams_hold_the_right_values() -> None:
    for seed in SEEDS:
        backend, chance = AdversarialBackend(seed), random.Random(seed)
        reader, side = Reader(backend), [backend.consumer_stream() for _ in range(3)]
        with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
            for number in range(BATCHES):
                batch = put(stage, number)
                before = Counter(backend.counts)
                batch.lend()
                with batch:
                    for stream in chance.sample(side, 2):
                        reader.look(number, Imported(batch.dlpack()["x"], stream).array(), stream)
                assert calls_since(before, backend) <= HAND_OVER
            backend.settle()
        assert reader.wrong == [], f"seed {seed}"
        assert backend.violations == []


def test_r40_arrays_of_jax_are_copies_that_no_slot_waits_for_on_the_host() -> None:
    for seed in SEEDS:
        backend = AdversarialBackend(seed)
        reader, jax = Reader(backend), LikeJax(backend)
        with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
            stage._ring._device.receivers._copier = jax
            kept = []
            for number in range(BATCHES):
                batch = put(stage, number)
                before = Counter(backend.counts)
                batch.lend()
                kept.append(batch.jax()["x"])
                assert calls_since(before, backend) <= HAND_OVER
                reader.look(number, kept[-1], jax.compute)
                while stage._ring.join_oldest():  # what the thread that waits does meanwhile
                    pass
            backend.settle()
        assert reader.wrong == [], f"seed {seed}"
        assert backend.violations == []
        assert [int(array[0, 0]) for array in kept] == list(range(BATCHES)), "they change no more"


def test_r40_copies_that_are_taken_for_ready_at_once_are_torn() -> None:
    """The red control: no slot may be written again before JAX has read it, which only JAX knows."""

    class ReadyAtOnce(LikeJax):
        def copies(self, *arguments: Any) -> tuple[list[Any], Callable[[], object]]:
            made, _ = super().copies(*arguments)
            return made, lambda: None

    torn = 0
    for seed in SEEDS:
        backend = AdversarialBackend(seed)
        reader, jax = Reader(backend), ReadyAtOnce(backend)
        with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
            stage._ring._device.receivers._copier = jax
            for number in range(BATCHES):
                batch = put(stage, number)
                batch.lend()
                reader.look(number, batch.jax()["x"], jax.compute)
                while stage._ring.join_oldest():
                    pass
            backend.settle()
        torn += bool(reader.wrong)
    assert torn > 50


def test_r40_a_stream_that_was_not_named_reads_torn_values() -> None:
    """The red control: what is imported for one stream and used on another is in order on the first alone."""
    wrong = 0
    for seed in SEEDS:
        backend = AdversarialBackend(seed)
        reader, named, used = Reader(backend), backend.consumer_stream(), backend.consumer_stream()
        with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
            for number in range(BATCHES):
                batch = put(stage, number)
                batch.lend()
                with batch:
                    reader.look(number, Imported(batch.dlpack()["x"], named).array(), used)
            backend.settle()
        wrong += bool(reader.wrong)
    assert wrong > 50


@pytest.mark.parametrize("stream", [None, 0])
def test_r40_no_stream_named_is_the_legacy_one(stream: int | None) -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend) as stage:
        batch = put(stage, 1)
        batch.lend()
        batch.dlpack()["x"].__dlpack__(stream=stream)
        assert list(batch._lease.streams) == [1]
        batch.release()
