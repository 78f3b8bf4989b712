"""Outcomes of tf.data in a file, so that plans can be compared without TensorFlow."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from differential.outcomes import Outcome, difference
from differential.plans import Plan


class Recorded(NamedTuple):
    """Outcome of one plan.

    Attributes:
        seed: Seed of the plan.
        plan: The plan, so that records outlive changes of how plans are drawn.
        outcome: The outcome, with None for each element.
        digest: Hash of the elements.
    """

    seed: int
    plan: Plan
    outcome: Outcome
    digest: str

    @classmethod
    def of(cls, seed: int, plan: Plan, outcome: Outcome) -> Recorded:
        """Return the record of an outcome."""
        return cls(seed, plan, outcome._replace(elements=[None] * len(outcome.elements)), outcome.digest())

    def difference(self, ours: Outcome) -> str:
        """Return what differs in the outcome of this package, or ""."""
        found = difference(ours._replace(elements=[None] * len(ours.elements)), self.outcome)
        return found or ("" if ours.digest() == self.digest else f"the elements {ours.elements} are others there")


def write(path: Path, records: Iterable[Recorded]) -> None:
    """Write records: one line of JSON each, compressed."""
    with lzma.open(path, "wt", preset=9) as file:
        for seed, plan, outcome, digest in records:
            count = len(outcome.elements)
            line: list[Any] = [seed, plan, outcome.refused, count, outcome.failed, outcome.cardinality, digest]
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read(path: Path) -> Iterator[Recorded]:
    """Yield the records of a file."""
    with lzma.open(path, "rt") as file:
        for line in file:
            seed, plan, refused, count, failed, cardinality, digest = json.loads(line)
            yield Recorded(seed, plan, Outcome(refused, [None] * count, failed, cardinality), digest)
