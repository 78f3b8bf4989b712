"""One rank as a process of its own, for ``forked_ranks.py``, with its rank in the environment.

The request is JSON with the keys pattern (of text files), state (or null), allow (differences to it), batch_size, and
batches (how many to take, or null for all). The answer has rows and state.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from aiostream_data import Dataset

SEED = 5


def is_wanted(line: str) -> bool:
    return not line.endswith("7")


def augmented(line: str, rng: np.random.Generator) -> str:
    return f"{line}+{rng.integers(1000)}"


def pipeline(pattern: str, batch_size: int) -> Dataset[Any]:
    """Return filter, shuffle, an augmentation and batches over interleaved shards in an order of their own."""
    lines = Dataset.from_text(pattern, cycle_length=3, shuffle_shards=True)
    return lines.filter(is_wanted).shuffle(50).map(augmented).batch(batch_size).repeat(2)


def main(request: dict[str, Any]) -> dict[str, Any]:
    dataset = pipeline(request["pattern"], request["batch_size"])
    with dataset.open(request["state"], seed=SEED, allow=request["allow"]) as loader:
        rows = [batch.tolist() for batch in islice(loader, request["batches"])]
        return {"rows": rows, "state": loader.state_dict()}
