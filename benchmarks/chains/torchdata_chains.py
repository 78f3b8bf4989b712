"""The chains in torchdata's nodes, where they have the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import RandomSampler
from torchdata import nodes

from benchmarks.chains.sizes import BATCH, MANY, SINGLE


def counted() -> Iterator[int]:
    yield from range(SINGLE)


class Generated:
    """Iterable that starts its generator again for each pass."""

    def __iter__(self) -> Iterator[int]:
        return counted()


def numbers(count: int) -> Any:
    return nodes.IterableWrapper(range(count))


def batched(node: Any) -> Any:
    """Return batches as arrays."""
    return nodes.Mapper(nodes.Batcher(node, BATCH, drop_last=False), np.array)


def read(node: Any) -> Any:
    return nodes.Loader(node)


def plus_one(number: Any) -> Any:
    return number + 1


def chains(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the chains by name."""
    texts = [f"text {n}" for n in range(MANY // 4)]
    return {
        "range": lambda: read(numbers(SINGLE)),
        "range, batch": lambda: read(batched(numbers(MANY))),
        "from_tensor_slices of text, batch": lambda: read(batched(nodes.IterableWrapper(texts))),
        "from_generator": lambda: read(nodes.IterableWrapper(Generated())),
        "from_iterable": lambda: read(numbers(SINGLE)),
        "map, batch": lambda: read(batched(nodes.Mapper(numbers(MANY), plus_one))),
        "map of batches": lambda: read(nodes.Mapper(batched(numbers(MANY)), plus_one)),
        "map in threads, batch": lambda: read(
            batched(nodes.ParallelMapper(numbers(MANY), plus_one, num_workers=2, prebatch=BATCH))
        ),
        "batch of a function": lambda: read(batched(numbers(MANY))),
        "unbatch, batch": lambda: read(
            nodes.Mapper(nodes.Batcher(nodes.Unbatcher(batched(numbers(MANY))), 100, drop_last=False), np.array)
        ),
        "unbatch": lambda: read(nodes.Unbatcher(batched(numbers(SINGLE)))),
        "shuffle, batch": lambda: read(batched(nodes.SamplerWrapper(RandomSampler(range(MANY))))),
        "sample_from at random, batch": lambda: read(
            batched(
                nodes.MultiNodeWeightedSampler(
                    {"a": numbers(MANY), "b": numbers(MANY)}, {"a": 0.5, "b": 0.5}, "ALL_DATASETS_EXHAUSTED"
                )
            )
        ),
        "prefetch": lambda: read(nodes.Prefetcher(numbers(SINGLE), 16)),
    }
