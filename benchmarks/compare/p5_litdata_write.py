"""Write images as litdata's chunks: ``python -m benchmarks.compare.p5_litdata_write LIST FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

CHUNK_NBYTES = "32MB"


def sample(path: str) -> dict[str, Any]:
    """Return one image and its number."""
    return {"image": Path(path).read_bytes(), "label": int(Path(path).stem)}


def main() -> None:
    """Write the images whose paths are in a file, one a line."""
    import litdata

    listed, folder = map(Path, sys.argv[1:])
    litdata.optimize(
        fn=sample,
        inputs=listed.read_text().splitlines(),
        output_dir=str(folder),
        num_workers=1,
        chunk_bytes=CHUNK_NBYTES,
    )


if __name__ == "__main__":
    main()
