"""No loader at all: one batch that is on the device already, which is as fast as any loader can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from benchmarks.gpu.work import Contender, Work


@contextmanager
def headspace(work: Work) -> Iterator[Iterator[Any]]:
    """Give the same batch again and again."""
    yield repeat(work.compute.resident(work.batch(0)))


def named(framework: str) -> str:
    """Return the name of a framework's headspace."""
    return f"headspace ({framework})"


def in_framework(framework: str) -> Contender:
    """Return the headspace of a framework."""
    return Contender(named(framework), framework, headspace, "one batch, on the device for good")
