"""P5: end to end, from a store that takes 20 ms to answer to shuffled batches of decoded images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.images import IMAGE_BATCH, tally_images, tally_images_fully
from benchmarks.pipeline.end_to_end import store_of_shards
from benchmarks.scenario import NATIVE, OURS, Contender, Scenario
from benchmarks.scenarios.p3 import DECODERS
from benchmarks.shards import image_shards
from benchmarks.workload import Tally, Workload


def expected_images(workload: Workload) -> Iterator[Any]:
    """Yield the images of a workload's shards, decoded in a plain loop."""
    from benchmarks.compare.p5_ceilings import batches

    yield from batches(workload, "decode")


def total_of_images(workload: Workload) -> Tally:
    """Return what must have been counted: the images of every shard, by the names that their files had."""
    from benchmarks.images import IMAGES

    return Tally(workload.rows, sum(row % IMAGES for row in range(workload.rows)))


P5 = Scenario(
    key="p5",
    title=f"from a store 20 ms away: JPEGs in 8 shards, shuffle, decode, resize to 224 x 224, batch({IMAGE_BATCH})",
    unit="images/s",
    rows=4_800,
    warm_up_rows=1,  # a shard
    work=lambda rows, data: image_shards(data, rows),
    expected=expected_images,
    tally=tally_images,
    check=tally_images_fully,
    total=total_of_images,
    serving=store_of_shards,
    contenders=(
        Contender(
            name=OURS,
            module="p5_aiostream_data",
            how="from_tfrecord(s3://), parse_example, shuffle(500), map(decode, concurrency=2) on threads, batch",
            packages=(*NATIVE, "s3fs", *DECODERS),
        ),
        Contender(
            name="tf.data, local copies",
            module="p5_tfdata",
            how="interleave, shuffle(500), map(numpy_function of the same decode, AUTOTUNE), batch, from local files",
            packages=("tensorflow-cpu",),
        ),
        Contender(
            name="webdataset",
            module="p5_webdataset",
            how="tar shards by HTTP, shuffle(500), WebLoader with 2 worker processes",
            packages=("webdataset", "torch"),
            variant="2",
        ),
        Contender(
            name="webdataset, 4 workers",
            module="p5_webdataset",
            how="the same with 4 worker processes",
            packages=("webdataset", "torch"),
            variant="4",
        ),
        Contender(
            name="mosaicml-streaming",
            module="p5_mosaicml",
            how="MDS from S3, shuffle, DataLoader with 1 worker process (2 fail in one run of two), a fresh folder",
            packages=("mosaicml-streaming", "torch"),
        ),
        Contender(
            name="litdata",
            module="p5_litdata",
            how="its chunks from S3, shuffle, StreamingDataLoader with 2 worker processes, a fresh folder",
            packages=("litdata", "torch"),
        ),
        Contender(
            name="Ray Data",
            module="p5_ray",
            how="read_webdataset by pyarrow, map_batches, iter_batches with a buffer of 500; Ray was started before",
            packages=("ray", "pyarrow"),
        ),
        Contender(
            name="ceiling: wire",
            module="p5_ceilings",
            how="aiohttp, 8 MiB ranges, 16 at once; nothing is done with the bytes",
            packages=("aiohttp",),
            variant="wire",
            is_part=True,
        ),
        Contender(
            name="ceiling: decode",
            module="p5_ceilings",
            how="the same decode in a ThreadPoolExecutor of 2, from local files; no batches",
            packages=DECODERS,
            variant="decode",
        ),
    ),
)
