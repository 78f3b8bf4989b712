"""Train inside an event loop that has other things to do: ``async with``, ``async for``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np

import aiostream_data as asd

FEATURES = {"x": asd.FixedLen((3,), np.float32), "y": asd.FixedLen((), np.float32)}
TRUTH = np.array([2.0, -1.0, 0.5], np.float32)


def write_points(folder: Path, shards: int = 4, rows: int = 500) -> None:
    rng = np.random.default_rng(7)
    for shard in range(shards):
        with asd.TFRecordWriter(folder / f"{shard}.tfrecord") as writer:
            for x in rng.normal(size=(rows, 3)).astype(np.float32):
                writer.write(asd.encode_example({"x": x, "y": float(x @ TRUTH)}))


async def heartbeat() -> int:
    """Count for as long as training leaves the loop free, as a server would go on answering."""
    beats = 0
    try:
        while True:
            await asyncio.sleep(0.001)
            beats += 1
    except asyncio.CancelledError:
        return beats


async def main(folder: Path) -> None:
    write_points(folder)
    points = asd.Dataset.from_tfrecord(folder / "*.tfrecord", cycle_length=4).parse_example(FEATURES)
    weights = np.zeros(3, np.float32)
    beating = asyncio.create_task(heartbeat())
    async with points.shuffle(500, seed=7).batch(50).repeat(3).open() as loader:
        async for batch in loader:
            error = batch["x"] @ weights - batch["y"]
            weights -= 0.1 * error @ batch["x"] / len(error)
    beating.cancel()
    print(f"found weights {np.round(weights, 2)}, wanted {TRUTH}")
    print(f"the loop's other task ran {await beating} times meanwhile")
    assert np.allclose(weights, TRUTH, atol=0.01)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
