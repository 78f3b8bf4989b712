"""ImageCast on a real GPU, against NumPy; skipped, saying why, where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.host import HostBackend
from aiostream_data.device.image_cast import ImageCast
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceUnavailableError, MissingExtraError

pytestmark = pytest.mark.gpu


@pytest.fixture
def backend() -> Iterator[DeviceBackend]:
    try:
        opened = open_backend("cuda:0")
    except (MissingExtraError, DeviceUnavailableError) as error:
        pytest.skip(str(error))
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
@pytest.mark.parametrize("flip", [False, True, "random"])
@pytest.mark.parametrize(
    ("shape", "crop"),
    [
        ((7, 64, 72, 3), None),
        ((7, 64, 72, 3), (56, 64)),
        ((7, 61, 67, 3), (33, 31)),
        ((5, 32, 32, 1), (31, 28)),
        ((3, 17, 19, 4), None),
        ((256, 224, 224, 3), None),
        ((70_000, 2, 3, 1), None),
    ],
)
def test_the_gpu_makes_the_very_bits_that_numpy_makes(
    backend: DeviceBackend, dtype: str, layout: str, flip: Any, shape: tuple[int, ...], crop: tuple[int, int] | None
) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    mean, std = np.linspace(0.4, 0.5, shape[3]), np.linspace(0.2, 0.3, shape[3])
    crop_at = "middle" if crop is None else "random"
    cast = ImageCast(
        dtype=dtype, layout=layout, mean=mean.tolist(), std=std.tolist(), flip=flip, crop=crop, crop_at=crop_at
    )
    found, expected = taken_out(backend, images, cast), taken_out(HostBackend(), images, cast)
    np.testing.assert_array_equal(found["image"].get(), expected["image"])
    assert found["number"].get() == 3


def test_the_cast_runs_on_the_stream_that_is_current(backend: DeviceBackend) -> None:
    import cupy

    images = np.random.default_rng(1).integers(0, 256, (64, 128, 128, 3), np.uint8)
    cast = ImageCast(dtype="float16", flip=True)
    expected = taken_out(HostBackend(), images, cast)["image"]
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(20):
        with stream:
            found = taken_out(backend, images, cast)["image"] + 0  # read on the same stream, at once
            stream.synchronize()
        np.testing.assert_array_equal(found.get(), expected)
