"""Time ImageCast as ``cpu`` does it: ``python -m benchmarks.micro.image_cast``.

256 images of 224 x 224 x 3 uint8 are cast, normalised and laid out by one thread, from one block of memory to another.
Beside that stands the same in whole-batch NumPy, float32 throughout, as one would write it by hand.

Nothing here says anything about a GPU, where one kernel does it.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from aiostream_data import ImageCast
from aiostream_data.device.cast_on_host import cast_batch
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.host import aligned_bytes
from aiostream_data.device.layout import fill, take_apart, views

SHAPE = (256, 224, 224, 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ROUNDS = 5


def main() -> None:
    """Print milliseconds per batch and images per second, medians with the lowest and highest."""
    images = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
    print(f"{'':28}{'ms per batch':>22}{'images/s':>12}")
    for dtype in ("float16", "float32"):
        for layout in ("NCHW", "NHWC"):
            cast = ImageCast(dtype=dtype, layout=layout, mean=MEAN, std=STD)
            print(_line(f"ImageCast {dtype} {layout}", _by_cast(images, cast)))
            print(_line(f"by hand   {dtype} {layout}", _by_hand(images, cast)))


def _by_cast(images: NDArray[np.uint8], cast: ImageCast) -> Callable[[], object]:
    parts = with_cast(take_apart(images, "cpu", keeps_objects=True), cast, None)
    plan = parts.layout.cast
    assert plan is not None
    slot, own = aligned_bytes(parts.layout.nbytes), aligned_bytes(plan.target.nbytes)
    fill(views(slot, parts.layout), parts.sources)
    return lambda: cast_batch(own, slot, plan)


def _by_hand(images: NDArray[np.uint8], cast: ImageCast) -> Callable[[], object]:
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def run() -> NDArray[np.floating]:
        made = (images * np.float32(cast.scale) - mean) / std
        made = made.transpose(0, 3, 1, 2) if cast.layout == "NCHW" else made
        return np.ascontiguousarray(made, cast.dtype)

    return run


def _line(name: str, run: Callable[[], object]) -> str:
    times = sorted(_seconds(run) for _ in range(ROUNDS))
    middle = median(times)
    spread = f"{1e3 * middle:.0f} ({1e3 * times[0]:.0f} to {1e3 * times[-1]:.0f})"
    return f"{name:28}{spread:>22}{SHAPE[0] / middle:12,.0f}"


def _seconds(run: Callable[[], object]) -> float:
    started = perf_counter()
    run()
    return perf_counter() - started


if __name__ == "__main__":
    main()
