"""Write images as MDS: ``python -m benchmarks.compare.p5_mds_write LIST FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.compare.p5_torchvision import load_streaming

SHARD_NBYTES = 32 << 20


def main() -> None:
    """Write the images whose paths are in a file, one a line."""
    listed, folder = map(Path, sys.argv[1:])
    with load_streaming().MDSWriter(
        out=str(folder), columns={"image": "bytes", "label": "int"}, size_limit=SHARD_NBYTES
    ) as writer:
        for line in listed.read_text().splitlines():
            writer.write({"image": Path(line).read_bytes(), "label": int(Path(line).stem)})


if __name__ == "__main__":
    main()
