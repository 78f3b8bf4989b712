"""The files that the chains read, written once by this package."""

from __future__ import annotations

import numpy as np

import aiostream_data as asd
from benchmarks.chains.sizes import FILES, RECORDS, Folder


def write(folder: Folder) -> None:
    """Write shards of every format into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    per_file = RECORDS // FILES
    for file in range(FILES):
        numbers = range(file * per_file, (file + 1) * per_file)
        records = [asd.encode_example({"n": n, "x": [n / 2, n / 4], "v": [n] * (n % 4), "s": f"{n}"}) for n in numbers]
        for suffix, compression in (("tfrecord", ""), ("tfrecord.gz", "gzip")):
            with asd.TFRecordWriter(folder / f"{file}.{suffix}", compression) as writer:
                for record in records:
                    writer.write(record)
        (folder / f"{file}.txt").write_text("".join(f"line {n} of the text\n" for n in numbers))
        (folder / f"{file}.bin").write_bytes(np.arange(numbers.start, numbers.stop, dtype=np.int64).tobytes())
