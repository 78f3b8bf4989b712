"""What a device stage says of itself: bytes, speed, copies on the host, and who was waited for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import fake_cupy
import numpy as np
import pytest
from fake_cupy import FakeCuda

from aiostream_data import Dataset
from aiostream_data._engine.stages.to_device import device_opening
from aiostream_data.device import measures as measures_module
from aiostream_data.device.backend import Mark
from aiostream_data.device.cuda import CupyBackend
from aiostream_data.device.host import HostBackend
from aiostream_data.device.measures import Arrival, Measures
from aiostream_data.device.stage import DeviceStage
from aiostream_data.device.wait_counters import Waits
from aiostream_data.metrics.counters import LAST_WAITS, ConsumerCounters
from aiostream_data.metrics.device_copies import DeviceCopies
from aiostream_data.rows.parts import Parts

LONG_S = 20.0


def send(stage: DeviceStage, batch: Any) -> Any:
    sent = stage.put(batch)
    assert sent is not None
    return sent


def test_batches_bytes_launches_and_slots_are_counted() -> None:
    with DeviceStage(HostBackend(), host_slots=2, device_slots=3) as stage:
        for _ in range(4):
            send(stage, {"x": np.zeros(100, np.uint8), "y": np.zeros(7, np.int64)}).materialise()
        copies = stage.copies()
    assert copies.device == "cpu"
    assert copies.batches == 4
    assert copies.copied_nbytes == 4 * (256 + 56)
    assert copies.launches_per_batch == 2  # to the device, and out of its slot
    assert (copies.host_slots, copies.device_slots, copies.device_slots_asked) == (2, 3, 3)
    assert copies.host_nbytes == 2 * 312
    assert (copies.pinned, copies.pinned_nbytes) == (False, 0)
    assert (copies.regrows, copies.leaked_leases, copies.abandoned_nbytes) == (0, 0, 0)


def test_arrays_of_the_whole_batch_count_as_a_second_copy_on_the_host_and_parts_do_not() -> None:
    with DeviceStage(HostBackend()) as stage:
        send(stage, Parts((np.zeros(60, np.uint8), np.zeros(40, np.uint8)))).discard()
        assert (stage.copies().written_nbytes, stage.copies().rewritten_nbytes) == (100, 0)
        assert stage.copies().host_copies == 1.0
        send(stage, np.zeros(100, np.uint8)).discard()
        assert (stage.copies().written_nbytes, stage.copies().rewritten_nbytes) == (200, 100)
        assert stage.copies().host_copies == 1.5


def test_copies_are_timed_in_a_profile_only() -> None:
    plain, timed = (DeviceStage(HostBackend(), host_slots=1, profile=profile) for profile in (False, True))
    with plain, timed:
        for stage in (plain, timed):
            send(stage, np.zeros(1 << 20)).discard()
            send(stage, np.zeros(1 << 20)).discard()  # for which the first copy was waited for
        assert (plain.copies().copy_s, plain.copies().h2d_gbps, plain.copies().exposed_share) == (None, None, None)
        copies = timed.copies()
    assert copies.copy_s is not None
    assert copies.copy_s > 0
    assert copies.timed_nbytes == 8 << 20
    assert copies.h2d_gbps == copies.timed_nbytes / copies.copy_s / 1e9


def test_a_gpu_is_asked_for_timed_events_in_a_profile_only_and_uses_them_again() -> None:
    for profile, timed in ((False, 0), (True, 2)):
        fake = FakeCuda()
        with DeviceStage(CupyBackend(fake_cupy.module(fake), 0), host_slots=1, profile=profile) as stage:
            for _ in range(5):
                send(stage, np.zeros(64)).materialise()
            copies = stage.copies()
        assert fake.names().count("TimedEvent") == timed
        assert fake.names().count("eventElapsedTime") == (4 if profile else 0)
        assert copies.copy_s == (4 * 0.250 if profile else None)


def test_a_batch_is_late_that_was_asked_for_before_its_copy_had_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(measures_module, "perf_counter", lambda: now[0])
    measures, early, late = Measures(), Arrival(100), Arrival(100)
    measures.arrived(early, 0.5)
    measures.asked(early)
    assert (measures.late, measures.exposed_s) == (0, 0.0)
    measures.asked(late)
    now[0] = 10.25
    measures.asked(late)  # a second look does not count
    measures.arrived(late, None)
    assert (measures.late, measures.exposed_s) == (1, 0.25)
    assert (measures.copy_s, measures.timed_nbytes) == (0.5, 100)


def test_a_consumer_that_takes_a_batch_before_it_has_arrived_is_counted() -> None:
    class Gated(HostBackend):
        gate = threading.Event()

        @property
        def device(self) -> str:
            return "gated"

        def join(self, mark: Mark) -> None:
            assert self.gate.wait(LONG_S)

    backend = Gated()
    with DeviceStage(backend) as stage:
        stage.start_waiter()
        send(stage, np.zeros(8)).materialise()
        assert (stage.copies().late, stage.copies().exposed_s) == (1, 0.0)
        backend.gate.set()
        stage.state.wait_until(lambda: stage.copies().exposed_s > 0, LONG_S)
        assert stage.copies().exposed_s > 0
    with DeviceStage(HostBackend()) as stage:
        send(stage, np.zeros(8)).materialise()
        assert (stage.copies().late, stage.copies().exposed_s) == (0, 0.0), "on the host, it was there at once"


def test_a_wait_does_not_count_while_another_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("aiostream_data.device.wait_counters.monotonic", lambda: now[0])
    device, host = Waits(), Waits()
    with host.beside(device):
        now[0] = 1.0
        with device:
            now[0] = 5.0
            assert device.so_far == 4.0
        now[0] = 7.0
    assert (host.count, host.seconds) == (1, 3.0)
    assert (device.count, device.seconds, device.so_far) == (1, 4.0, 4.0)


@pytest.mark.parametrize("side", ["source", "device", "consumer", "nobody"])
def test_the_slowest_side_is_the_one_that_was_waited_for_most(side: str) -> None:
    waits = {"source": "source_wait_s", "device": "host_slot_wait_s", "consumer": "device_slot_wait_s"}
    counted: dict[str, Any] = dict.fromkeys(waits.values(), 0.0 if side == "nobody" else 0.1)
    if side != "nobody":
        counted[waits[side]] = 0.2
    copies = DeviceCopies(device="cuda:0", **counted)
    assert copies.slowest == side
    assert f"slowest is {'' if side == 'nobody' else 'the '}{side}" in copies.sentences[1]


def test_a_report_says_what_is_odd() -> None:
    copies = DeviceCopies(
        device="cuda:0",
        batches=10,
        copied_nbytes=10 << 20,
        timed_nbytes=10 << 20,
        copy_s=0.001,
        exposed_s=0.0005,
        host_slots=3,
        host_nbytes=3 << 20,
        device_slots=2,
        device_slots_asked=3,
        regrows=4,
        leaked_leases=5,
        abandoned_nbytes=1 << 20,
    )
    text = "\n".join(copies.sentences)
    for said in (
        *("10.0 MiB in 10 batches at 10.5 GB/s", "50.0% of the copies", "NOT page-locked"),
        *("room for 2 of 3 slots", "larger ones 4 times", "5 batches were released only by", "1 MiB were not freed"),
    ):
        assert said in text
    assert json.loads(json.dumps(copies.as_dict()))["h2d_gbps"] == pytest.approx(10.48576)


def test_a_loader_tells_what_its_device_stage_did() -> None:
    with Dataset.range(100).batch(10).to_device("cpu", depth=2).open(profile=True) as loader:
        list(loader)
        stats, report = loader.stats(), loader.report()
    (device,) = stats.devices
    assert (device.batches, device.copied_nbytes, device.host_copies) == (10, 800, 1.0)
    assert device.copy_s is not None
    assert device.launches == 20
    assert (device.host_nbytes, device.device_nbytes) == (160, 160), "also when the run is over"
    assert "cpu: 0.0 MiB in 10 batches at" in str(report)
    assert json.loads(report.to_json())["devices"][0]["batches"] == 10
    with Dataset.range(100).batch(10).open() as loader:
        assert loader.stats().devices == ()


def slow_source() -> Iterator[int]:
    for number in range(30):
        time.sleep(0.005)
        yield number


class SlowCopies(HostBackend):
    def join(self, mark: Mark) -> None:
        time.sleep(0.005)


def test_each_side_is_named_when_it_is_the_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowest(dataset: Dataset[Any], step_s: float = 0.0) -> str:
        with dataset.to_device("cpu", depth=1).open() as loader:
            for _ in loader:
                time.sleep(step_s)
            return loader.stats().devices[0].slowest

    assert slowest(Dataset.from_generator(slow_source)) == "source"
    assert slowest(Dataset.range(30).batch(1), step_s=0.005) == "consumer"
    monkeypatch.setattr(device_opening, "open_backend", lambda name, current: SlowCopies())
    assert slowest(Dataset.range(30).batch(1)) == "device"


def test_single_waits_of_the_consumer_are_told_by_quantiles() -> None:
    consumer = ConsumerCounters()
    assert consumer.wait_quantile_s(0.5) == 0.0
    for number in range(LAST_WAITS + 100):
        consumer.waited(1e-3 if number % 50 else 1.0)
    assert len(consumer.waits) == LAST_WAITS
    assert consumer.wait_quantile_s(0.5) == 1e-3
    assert consumer.wait_quantile_s(0.99) == 1.0
    shown = json.loads(json.dumps(consumer.as_dict()))
    assert (shown["wait_p50_s"], shown["wait_p99_s"]) == (1e-3, 1.0)
    assert "waits" not in shown
    before = consumer.copy(7)
    consumer.waited(5.0)
    assert (before.elements, max(before.waits)) == (7, 1.0)
