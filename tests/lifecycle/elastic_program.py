"""One rank of a training run over a mixture, for ``forked_ranks.py``.

Which rank it is, it finds out from its environment. The request is JSON with the keys folder (of the files), state
(None, or those of all ranks), batch_size, and batches (how many to take, or null for all). The answer has batches (of
rows), ids of where each row came from, state, and hash.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aiostream_data import Dataset

SEED = 11
ROWS = 2_400
SCHEDULE = [(0, {"web": 0.8, "code": 0.2}), (700, {"web": 0.4, "code": 0.6})]
FILES, LINES = 5, {"web": 300, "code": 110}


def write_files(folder: Path) -> None:
    """Write text files of two kinds, every line of which is unique."""
    for source, lines in LINES.items():
        for file in range(FILES):
            text = "".join(f"{source}{file}-{line}\n" for line in range(lines))
            (folder / f"{source}-{file}.txt").write_text(text)


def is_wanted(line: str) -> bool:
    return not line.endswith("7")


def augmented(line: str, rng: np.random.Generator) -> str:
    return f"{line}+{rng.integers(1_000_000)}"


def mixture(folder: str, batch_size: int) -> Dataset[Any]:
    """Return filter, shuffle, mixture, an augmentation and batches; one source is repeated, with its own epochs."""
    web = Dataset.from_text(f"{folder}/web-*", cycle_length=3, shuffle_shards=True)
    code = Dataset.from_text(f"{folder}/code-*", cycle_length=2)
    sources: dict[str, Dataset[Any]] = {
        "web": web.filter(is_wanted).shuffle(150).repeat(),
        "code": code.filter(is_wanted).shuffle(60).repeat(),
    }
    return Dataset.sample_from(sources, SCHEDULE).take(ROWS).map(augmented).batch(batch_size)


def main(request: dict[str, Any]) -> dict[str, Any]:
    batches, origins = [], []
    with mixture(request["folder"], request["batch_size"]).open(request["state"], seed=SEED) as loader:
        for batch in islice(loader, request["batches"]):
            batches.append(batch.tolist())
            origins.append([str(origin) for origin in loader.origins(batch)])
        return {"batches": batches, "origins": origins, "state": loader.state_dict(), "hash": loader.stream_hash}
