"""This package: batches written in place into page-locked slots, and each of the three hand-overs."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import aiostream_data as asd
from benchmarks.gpu.work import Contender, Work

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@contextmanager
def ours(work: Work, handoff: str, framework: str, cast: bool = False) -> Iterator[Iterator[Any]]:
    """Give the batches of a pipeline that ends in ``to_device``."""
    # The inner one gives back what is lent, while it can.
    with (
        _opened(work, handoff, framework, cast) as loader,
        closing(GIVING[handoff](loader, work, framework)) as batches,
    ):
        yield batches


def profile(work: Work, batches: int, step_ms: int) -> dict[str, Any]:
    """Return what the package says of its own copies, timed by the device, beside steps of a length."""
    count = work.compute.count_for(step_ms)
    with _opened(work, "copy", "cupy", profile=True) as loader:
        for _, batch in zip(range(batches), loader, strict=False):
            work.compute.touch(batch)
            work.compute.work(count)
        work.compute.wait()
        (copies,) = loader.stats().devices
    told: dict[str, Any] = copies.as_dict()
    return told


def _opened(work: Work, handoff: str, framework: str, cast: bool = False, profile: bool = False) -> asd.Loader[Any]:
    options: dict[str, Any] = {"handoff": handoff, "framework": framework}
    if cast:
        options["transform"] = asd.ImageCast(dtype="float16", layout="NCHW", mean=MEAN, std=STD)
    batches = asd.Dataset.from_tensor_slices(work.pool).repeat().batch(work.rows)
    placed = batches.to_device(work.hardware.device_for(framework), depth=3, **options)
    return placed.open(memory_limit=work.hardware.scaled(16 << 30, 1 << 28), profile=profile)


def copied(loader: Any, work: Work, framework: str) -> Generator[Any, None, None]:
    """Yield arrays of the consumer's own."""
    yield from loader


def leased(loader: Any, work: Work, framework: str) -> Generator[Any, None, None]:
    """Yield views of the slots, given back when the step that reads them has been enqueued."""
    for batch in loader:
        with batch:
            yield batch.cupy() if framework == "cupy" else batch.torch() if framework == "torch" else batch.jax()


def into(loader: Any, work: Work, framework: str) -> Generator[Any, None, None]:
    """Yield one array of fixed address that every batch is copied into."""
    target = work.compute.resident(work.batch(0))
    for batch in loader:
        batch.into(target)
        yield target


GIVING = {"copy": copied, "lease": leased, "into": into}


@contextmanager
def uint8_cast_by_torch(work: Work) -> Iterator[Iterator[Any]]:
    """Give uint8 batches that torch casts, normalises and lays out anew, in as many kernels as that takes."""
    torch = importlib.import_module("torch")
    with ours(work, "copy", "torch") as batches:
        yield (_cast(torch, batch) for batch in batches)


def _cast(torch: Any, batch: Any) -> Any:
    mean, std = (
        torch.tensor(values, dtype=torch.float16, device=batch.device).view(1, 3, 1, 1) * 255 for values in (MEAN, STD)
    )
    return batch.permute(0, 3, 1, 2).to(torch.float16).sub_(mean).div_(std).contiguous()


def as_cast(batch: NDArray[Any]) -> NDArray[Any]:
    """Return what a cast batch must be but for rounding: normalised, NCHW, in float32."""
    mean, std = (np.array(values, np.float32) for values in (MEAN, STD))
    scaled = (batch.astype(np.float32) / 255 - mean) / std
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))


def _ours(handoff: str, framework: str) -> Contender:
    return Contender(
        f"ours {handoff} ({framework})",
        framework,
        partial(ours, handoff=handoff, framework=framework),
        "slots written in place, 3 deep",
    )


IN_CUPY = [_ours(handoff, "cupy") for handoff in ("copy", "lease", "into")]
IN_TORCH = [_ours(handoff, "torch") for handoff in ("copy", "lease", "into")]
IN_JAX = [_ours("copy", "jax")]

CASTS_FP32 = Contender("ours fp32 over the bus", "cupy", IN_CUPY[0].open, "float32 batches, nothing cast")
CASTS_UINT8 = [
    Contender(
        "ours uint8 + ImageCast",
        "cupy",
        partial(ours, handoff="copy", framework="cupy", cast=True),
        "uint8 batches, one kernel instead of the copy out of the slot",
        as_cast,
    ),
    Contender("ours uint8, cast by torch", "torch", uint8_cast_by_torch, "uint8 batches, torch's own kernels", as_cast),
]
