"""P3: photographs, decoded and resized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.images import IMAGE_BATCH, image_files, tally_images, tally_images_fully
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.workload import Tally, Workload

DECODERS = ("simplejpeg", "opencv-python-headless")


def expected_images(workload: Workload) -> Iterator[Any]:
    """Yield the batches of a workload over image files, loaded in a plain loop."""
    from benchmarks.compare.p3_function import load

    for first in range(0, workload.rows, IMAGE_BATCH):
        images = [load(str(path)) for path in workload.paths[first : first + IMAGE_BATCH]]
        yield {name: np.stack([image[name] for image in images]) for name in ("image", "label")}


def total_of_images(workload: Workload) -> Tally:
    """Return what ``tally_images`` must have counted of a workload over image files."""
    return Tally(workload.rows, sum(int(path.stem) for path in workload.paths))


P3 = Scenario(
    key="p3",
    title="JPEGs of 500 x 375: decode, resize to 224 x 224, batch(64)",
    unit="images/s",
    rows=3_600,
    warm_up_rows=256,
    work=lambda rows, data: image_files(data, rows),
    expected=expected_images,
    tally=tally_images,
    check=tally_images_fully,
    total=total_of_images,
    contenders=(
        Contender(
            name=OURS,
            module="p3_aiostream_data",
            how="from_iterable(paths), map(load, concurrency=2) on threads, batch",
            packages=NATIVE + DECODERS,
        ),
        Contender(
            name="tf.data",
            module="p3_tfdata",
            how="map(numpy_function of the same load, AUTOTUNE), batch(AUTOTUNE), prefetch",
            packages=("tensorflow-cpu",),
        ),
        Contender(
            name="tf.data, its own operations",
            module="p3_tfdata",
            how="map(read_file, decode_jpeg, image.resize; AUTOTUNE), batch(AUTOTUNE), prefetch",
            packages=("tensorflow-cpu",),
            variant="own",
            same_values=False,
        ),
        Contender(
            name="torch DataLoader",
            module="p3_torch",
            how="2 worker processes, default_collate",
            packages=("torch",),
            variant="2",
        ),
        Contender(
            name="Grain",
            module="p3_grain",
            how="MapDataset.source, map, to_iter_dataset with 2 read threads, batch",
            packages=("grain",),
            variant="images 2",
        ),
        Contender(
            name="SPDL",
            module="p3_spdl",
            how="a source of lists of 64 paths, one pipe that loads and stacks a list, 2 threads",
            packages=("spdl", "spdl_core"),
            variant="batches",
        ),
        Contender(
            name="ceiling: bare pool",
            module="p3_ceiling",
            how="the same load in a ThreadPoolExecutor of 2; no batches",
            packages=DECODERS,
        ),
    ),
)
