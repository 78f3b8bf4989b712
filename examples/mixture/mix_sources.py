"""Mix two folders of text 4 to 1, change the weights while running, stop, and go on from the saved state."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import aiostream_data as asd

ROWS, BATCH = 200_000, 500
LINES = {"web": 20_000, "code": 3_000}


def write_files(folder: Path) -> None:
    for source, lines in LINES.items():
        (folder / source).mkdir()
        for number in range(3):
            text = "".join(f"{source} {number}-{line}\n" for line in range(lines))
            (folder / source / f"{number}.txt").write_text(text)


def mixture(folder: Path) -> asd.Dataset[Any]:
    sources = {
        source: asd.Dataset.from_text(f"{folder}/{source}/*.txt").shuffle(1_000, seed=7).repeat() for source in LINES
    }
    return asd.Dataset.sample_from(sources, {"web": 0.8, "code": 0.2}).batch(BATCH).take(ROWS // BATCH)


def receive(loader: asd.Loader[Any], batches: int | None = None) -> list[str]:
    return [line for batch in islice(loader, batches) for line in batch.tolist()]


def of_each(lines: list[str]) -> dict[str, int]:
    return dict(Counter(line.split()[0] for line in lines))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        with mixture(Path(folder)).open(seed=1) as loader:
            lines = receive(loader, 20)
            row = loader.set_weights({"web": 0.5, "code": 0.5})
            lines += receive(loader, 200)
            saved = json.dumps(loader.state_dict())
            unbroken = receive(loader)
        with mixture(Path(folder)).open(json.loads(saved)) as loader:
            resumed = receive(loader)
    lines += unbroken
    before, after = of_each(lines[:row]), of_each(lines[row:])
    print(f"the first 1,000 lines: {of_each(lines[:1000])}")
    print(f"new weights after {row:,} lines; until then: {before}, from there on: {after}")
    print(f"resumed for the last {len(resumed):,} lines from {len(saved):,} bytes of state: {of_each(resumed)}")
    assert of_each(lines[:1000]) == {"web": 800, "code": 200}
    assert abs(before["web"] - 0.8 * row) <= 1
    assert abs(after["web"] - 0.5 * (ROWS - row)) <= 1
    assert resumed == unbroken


if __name__ == "__main__":
    main()
