"""PyTorch: copies from pageable memory, the DataLoader with pinned memory, and one batch ahead on a side stream."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from benchmarks.gpu.parts.environment import shm_free
from benchmarks.gpu.work import Contender, Work

WORKERS = 8
PREFETCHED = 2


def _torch(work: Work) -> tuple[Any, str]:
    torch = importlib.import_module("torch")
    return torch, "cuda:0" if work.hardware.real else "cpu"


@contextmanager
def pageable(work: Work) -> Iterator[Iterator[Any]]:
    """Give batches copied by ``.to`` from memory that is not page-locked."""
    torch, device = _torch(work)
    yield (torch.from_numpy(batch).to(device, copy=True) for batch in work.batches())


class Rows:
    """The pool as torch's worker processes read it, which share it by fork."""

    def __init__(self, torch: Any, pool: Any) -> None:
        self._pool = torch.from_numpy(pool)

    def __len__(self) -> int:
        return len(self._pool)

    def __getitem__(self, number: int) -> Any:
        return self._pool[number]


class Endless:
    """Row numbers in order, over and over."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[int]:
        return cycle(range(self._rows))


def host_batches(work: Work) -> Iterator[Any]:
    """Return an endless DataLoader's iterator: rows stacked in worker processes, page-locked by its thread."""
    torch, device = _torch(work)
    data = importlib.import_module("torch.utils.data")
    workers = work.hardware.scaled(WORKERS, 1)
    room = shm_free() or 0
    ahead = PREFETCHED if room > 2 * workers * PREFETCHED * work.nbytes else 1
    loader = data.DataLoader(
        Rows(torch, work.pool),
        batch_size=work.rows,
        sampler=Endless(len(work.pool)),
        num_workers=workers,
        prefetch_factor=ahead,
        pin_memory=device != "cpu",
    )
    return iter(loader)


@contextmanager
def data_loader(work: Work) -> Iterator[Iterator[Any]]:
    """Give batches copied without waiting, on the stream that computes."""
    _, device = _torch(work)
    yield (batch.to(device, non_blocking=True) for batch in host_batches(work))


@contextmanager
def side_stream(work: Work) -> Iterator[Iterator[Any]]:
    """Give batches copied on a stream of their own, one ahead."""
    torch, device = _torch(work)
    hosts = host_batches(work)
    yield hosts if device == "cpu" else _one_ahead(torch, device, hosts)


def _one_ahead(torch: Any, device: str, hosts: Iterator[Any]) -> Iterator[Any]:
    copying = torch.cuda.Stream()

    def start() -> Any:
        with torch.cuda.stream(copying):
            return next(hosts).to(device, non_blocking=True)

    following = start()
    while True:
        computing = torch.cuda.current_stream()
        computing.wait_stream(copying)
        following.record_stream(computing)
        current, following = following, start()
        yield current


ALL = [
    Contender("torch .cuda(), pageable", "torch", pageable, "whole batches from memory, no stacking"),
    Contender("torch DataLoader", "torch", data_loader, f"{WORKERS} workers, pin_memory, non_blocking"),
    Contender("torch DataLoader, side stream", "torch", side_stream, "the same, one batch ahead on a side stream"),
]
