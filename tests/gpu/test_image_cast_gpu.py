"""ImageCast on a GPU makes the very bits that NumPy makes, on the stream that is current."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import Dataset, ImageCast
from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.host import HostBackend
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, int] | None]] = {
    "whole": ((7, 64, 72, 3), None),
    "cut": ((7, 64, 72, 3), (56, 64)),
    "odd sizes": ((7, 61, 67, 3), (33, 31)),
    "grey": ((5, 32, 32, 1), (31, 28)),
    "four channels": ((3, 17, 19, 4), None),
    "a usual batch": ((256, 224, 224, 3), None),
    "more images than a grid has blocks down": ((70_000, 2, 3, 1), None),
}
LARGE = ("a usual batch", "more images than a grid has blocks down")


@pytest.fixture
def backend(cupy: Any) -> Iterator[DeviceBackend]:
    opened = open_backend("cuda:0")
    opened.prepare_cast()
    yield opened
    opened.close()


def taken_out(backend: DeviceBackend, images: NDArray[np.uint8], cast: ImageCast) -> Any:
    keys = np.arange(len(images), dtype=np.uint64)
    with DeviceStage(backend) as stage:
        batch = stage.put({"number": 3, "image": images}, prepare=partial(with_cast, cast=cast, keys=keys))
        assert batch is not None
        return batch.materialise()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("flip", [False, "random"])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_gpu_makes_the_very_bits_that_numpy_makes(
    backend: DeviceBackend, on_gpu: bool, dtype: str, layout: str, flip: Any, kind: str
) -> None:
    shape, crop = SHAPES[kind]
    if kind in LARGE and not on_gpu:
        shape = (4, *shape[1:])
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    mean, std = np.linspace(0.4, 0.5, shape[3]).tolist(), np.linspace(0.2, 0.3, shape[3]).tolist()
    crop_at = "middle" if crop is None else "random"
    cast = ImageCast(dtype=dtype, layout=layout, mean=mean, std=std, flip=flip, crop=crop, crop_at=crop_at)
    found, expected = taken_out(backend, images, cast), taken_out(HostBackend(), images, cast)
    np.testing.assert_array_equal(found["image"].get(), expected["image"])
    assert int(found["number"]) == 3


def test_the_cast_runs_on_the_stream_that_is_current(cupy: Any, backend: DeviceBackend, scaled: Any) -> None:
    images = np.random.default_rng(1).integers(0, 256, (scaled(64, 2), 128, 128, 3), np.uint8)
    cast = ImageCast(dtype="float16", flip=True)
    expected = taken_out(HostBackend(), images, cast)["image"]
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(scaled(20, 2)):
        with stream:
            found = taken_out(backend, images, cast)["image"].copy()  # read on the same stream, at once
            stream.synchronize()
        np.testing.assert_array_equal(found.get(), expected)


def test_a_pipeline_gives_on_a_gpu_what_it_gives_on_the_host(cupy: Any) -> None:
    images = np.random.default_rng(2).integers(0, 256, (40, 20, 24, 3), np.uint8)
    dataset = Dataset.from_tensor_slices({"image": images, "label": np.arange(40)}).shuffle(16).batch(8)
    cast = ImageCast(dtype="float16", flip="random", crop=(16, 16), crop_at="random")
    found = list(dataset.to_device("cuda:0", transform=cast).open(seed=7))
    expected = list(dataset.to_device("cpu", transform=cast).open(seed=7))
    assert len(found) == len(expected) == 5
    for on_device, on_host in zip(found, expected, strict=True):
        np.testing.assert_array_equal(on_device["image"].get(), on_host["image"])
        np.testing.assert_array_equal(on_device["label"].get(), on_host["label"])


def test_a_cast_writes_into_arrays_that_stay_where_they_are(cupy: Any) -> None:
    images = np.random.default_rng(3).integers(0, 256, (12, 8, 8, 3), np.uint8)
    dataset, cast = Dataset.from_tensor_slices(images).batch(4), ImageCast()
    expected = list(dataset.to_device("cpu", transform=cast))
    target = cupy.zeros((4, 3, 8, 8), np.float32)
    with dataset.to_device("cuda:0", handoff="into", transform=cast).open() as loader:
        for batch, wanted in zip(loader, expected, strict=True):
            batch.into(target)
            np.testing.assert_array_equal(target.get(), wanted)
