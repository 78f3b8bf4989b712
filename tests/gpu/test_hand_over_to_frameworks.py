"""Batches as torch and JAX get them, on streams of their own; on the host where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_at_hand import imported, real_cupy

import aiostream_data as asd

ROWS, BATCH = 96, 8
VALUES = np.arange(ROWS * 64, dtype=np.int32).reshape(ROWS, 64)


@pytest.fixture(params=[pytest.param("cuda:0", marks=pytest.mark.gpu), "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param != "cpu":
        real_cupy()
    return str(request.param)


@pytest.fixture
def torch() -> Any:
    return imported("torch")


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return imported("jax")


def batches(device: str, **options: Any) -> Iterator[Any]:
    data = asd.Dataset.from_tensor_slices({"x": VALUES}).batch(BATCH).to_device(device, depth=2, **options)
    with data.open() as loader:
        yield from loader


def expected(number: int) -> Any:
    return VALUES[number * BATCH : (number + 1) * BATCH]


def on_a_side_stream(torch: Any, device: str) -> Any:
    stream = torch.cuda.Stream() if device != "cpu" else None
    return torch.cuda.stream(stream) if stream is not None else torch.no_grad()


def busy(torch: Any, device: str) -> None:
    """Keep torch's current stream busy for some milliseconds, so that it reads late."""
    if device != "cpu":
        matrix = torch.ones((4096, 4096), device=device)
        for _ in range(10):
            matrix = matrix @ matrix / 4096


@pytest.mark.parametrize("handoff", ["copy", "lease"])
def test_r40_torch_on_a_side_stream_gets_the_right_values_however_late_it_reads(
    torch: Any, device: str, handoff: str
) -> None:
    sums = []
    with on_a_side_stream(torch, device):
        for batch in batches(device, handoff=handoff, framework="torch"):
            busy(torch, device)
            if handoff == "lease":
                with batch:
                    sums.append(batch.torch()["x"].clone())
            else:
                sums.append(batch["x"])
        if device != "cpu":
            torch.cuda.current_stream().synchronize()
    assert len(sums) == ROWS // BATCH
    assert all((values.cpu().numpy() == expected(number)).all() for number, values in enumerate(sums))


def test_r40_torch_gets_every_batch_into_the_same_memory(torch: Any, device: str) -> None:
    target = {"x": torch.empty((BATCH, 64), dtype=torch.int32, device=device)}
    kept = []
    for batch in batches(device, handoff="into", framework="torch"):
        batch.into(target)
        kept.append(target["x"].clone())
    assert all((values.cpu().numpy() == expected(number)).all() for number, values in enumerate(kept))


def test_r40_jax_arrays_keep_their_values_when_the_slots_are_used_again(jax: Any, device: str) -> None:
    kept = [batch["x"] for batch in batches(device, framework="jax")]
    assert len(kept) == ROWS // BATCH
    assert all((np.asarray(values) == expected(number)).all() for number, values in enumerate(kept))
    platform = next(iter(kept[0].devices())).platform
    assert platform == ("cpu" if device == "cpu" else "gpu")


def test_a_jax_lease_is_released_and_its_array_stays_as_it_is(jax: Any, device: str) -> None:
    kept = []
    for batch in batches(device, handoff="lease", framework="jax"):
        with batch:
            kept.append(batch.jax()["x"])
    assert all((np.asarray(values) == expected(number)).all() for number, values in enumerate(kept))
