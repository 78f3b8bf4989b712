"""Batches that another process wrote, copied to the GPU from where they stand."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from aiostream_data import Dataset
from aiostream_data.device.cuda import CupyBackend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.executors.exchange import linked
from aiostream_data.executors.mapping import mapping_of

MIB = 1 << 20


def image(number: int, side: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(int(number)).integers(0, 256, (side, side, 3), np.uint8)


def test_shared_memory_is_page_locked_and_copied_from_bit_for_bit(cupy: Any) -> None:
    here, there = linked(16 * MIB)
    with DeviceStage(CupyBackend(cupy, 0), find_shared=mapping_of) as stage:
        for number in range(30):
            batch = {"image": np.full(2 * MIB, number, np.uint8), "label": number}
            here.send(batch)
            received = there.receive()
            received.lease.release()
            sent = stage.put(received.message)
            del received
            assert sent is not None
            taken = sent.materialise()
            np.testing.assert_array_equal(taken["image"].get(), batch["image"])
            assert int(taken["label"]) == number
        shared = stage.stats().ring.shared
    here.close()
    there.close()
    assert (shared.host_copies, shared.refused) == (0, False)
    assert shared.adopted < 10


def test_a_process_fills_what_the_trainer_registered(cupy: Any) -> None:
    chain = Dataset.range(256).map(functools.partial(image, side=128)).batch(64)
    with chain.open(seed=3) as loader:
        expected = list(loader)
    with chain.in_subprocess().to_device("cuda:0").open(seed=3) as loader:
        found = list(loader)
        (copies,) = loader.stats().devices
    for on_device, on_host in zip(found, expected, strict=True):
        np.testing.assert_array_equal(on_device.get(), on_host)
    assert copies.in_place_nbytes == sum(batch.nbytes for batch in expected)
    assert copies.shared_arrays_rewritten == 0
