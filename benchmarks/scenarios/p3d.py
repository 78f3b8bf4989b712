"""P3d: photographs in a folder, one per file, on the local disk and in a store that takes 20 ms to answer."""

from __future__ import annotations

from benchmarks.images import IMAGES, folders_root, image_folder, tally_images, tally_images_fully
from benchmarks.pipeline.end_to_end import store_of
from benchmarks.scenario import NATIVE, Contender, Scenario
from benchmarks.scenarios.p3 import DECODERS, expected_images
from benchmarks.workload import Tally, Workload

CEILING = "bare pool"
FAR_CEILING = "aiohttp and bare pool s3 20 ms"
S3 = "s3"
"""Variant that needs the server."""


def total_of_images(workload: Workload) -> Tally:
    """Return what must have been counted: every file is a link to one of the images, in turn."""
    return Tally(workload.rows, sum(row % IMAGES for row in range(workload.rows)))


P3D = Scenario(
    key="p3d",
    title="a folder of JPEGs of 500 x 375, one per file: decode, resize to 224 x 224",
    unit="images/s",
    rows=10_000,
    warm_up_rows=256,
    work=lambda rows, data: image_folder(data, rows),
    expected=expected_images,
    tally=tally_images,
    check=tally_images_fully,
    total=total_of_images,
    serving=lambda data: store_of(folders_root(data)),
    contenders=(
        Contender(
            name=CEILING,
            module="p3_ceiling",
            how="load in a ThreadPoolExecutor of 2",
            packages=DECODERS,
        ),
        Contender(
            name="from_files local",
            module="p3d_aiostream_data",
            how='from_files("folder/*.jpg").map(decode)',
            packages=NATIVE + DECODERS,
            variant="from_files",
        ),
        Contender(
            name="from_iterable local",
            module="p3d_aiostream_data",
            how="from_iterable(paths).map(load)",
            packages=NATIVE + DECODERS,
            variant="from_iterable",
        ),
        Contender(
            name="from_files s3 20 ms",
            module="p3d_aiostream_data",
            how='from_files("s3://bench/folder/*.jpg").map(decode)',
            packages=(*NATIVE, "s3fs", *DECODERS),
            variant=S3,
        ),
        Contender(
            name=FAR_CEILING,
            module="p3d_aiohttp",
            how="aiohttp, 64 requests at once, then a ThreadPoolExecutor of 2; no listing",
            packages=("aiohttp", "uvloop", *DECODERS),
            variant=S3,
        ),
        Contender(
            name="torch DataLoader local",
            module="p3_torch",
            how="2 worker processes, batches of 64, default_collate",
            packages=("torch",),
            variant="2",
        ),
    ),
)
