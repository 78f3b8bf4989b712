"""Passes over a PyTorch DataLoader, for all contenders that use one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from benchmarks.pipeline.dataset_cells import Prepare, Read, Work
from benchmarks.pipeline.dataset_objects import KIB, MIB, SIZES, Tally

MOST_WORKERS = 16
"""Maximum number of worker processes. A machine with two cores gains nothing from more."""

BATCH_NBYTES = MIB
MOST_ROWS = 64

TENSOR_NBYTES = 256 * KIB
"""Objects from this size pass between processes as tensors in shared memory, smaller ones as pickled bytes."""


class _First:
    """Sampler of the first ``count`` rows."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


def passes_of_loader(dataset: Any, work: Work, workers: int, rows: int | None = None) -> Prepare:
    """Return passes over a map-style dataset of bytes.

    The worker processes start in the first pass and stay alive. A pass returns the bytes of the objects in order.

    Args:
        rows: Rows of a batch; by default as many as fit into 1 MiB.
    """
    from torch.utils.data import DataLoader

    nbytes = SIZES[work.objects.size]
    first = _First()
    loader = DataLoader(
        dataset,
        batch_size=rows or max(1, min(MOST_ROWS, BATCH_NBYTES // nbytes)),
        sampler=first,
        num_workers=workers,
        collate_fn=_as_tensors if nbytes >= TENSOR_NBYTES else list,
        persistent_workers=True,
    )

    def prepare(count: int) -> Read:
        def read(tally: Tally) -> None:
            first.count = count
            values = chain.from_iterable(loader)
            tally.add_all(row.numpy() for row in values) if nbytes >= TENSOR_NBYTES else tally.add_all(values)

        return read

    return prepare


def _as_tensors(rows: Sequence[bytes]) -> list[Any]:
    import torch

    return [torch.frombuffer(bytearray(row), dtype=torch.uint8) for row in rows]
