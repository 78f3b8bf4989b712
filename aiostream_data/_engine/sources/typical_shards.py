"""What recent small shards of a source show about the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class TypicalShards:
    """What the small shards of a source have in common, as far as recent ones show it.

    Attributes:
        nbytes: Mean size of recent shards whose size was unknown; 0 before the first.
        are_compressed: True if shards of the last group were compressed.
    """

    nbytes: float = 0.0
    are_compressed: bool = False

    def learn(self, sizes: Sequence[int]) -> None:
        """Update the mean with the sizes of small shards whose size was unknown before they were read."""
        if sizes:
            mean = sum(sizes) / len(sizes)
            self.nbytes = (self.nbytes + mean) / 2 if self.nbytes else mean
