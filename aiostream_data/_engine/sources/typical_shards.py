"""What recent small shards of a source show about the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

COMPRESSION_RATIO: Final = 4
"""First estimate of the decompressed size of a compressed shard, as a multiple of its size."""

MOST_RATIO: Final = 64
"""The estimate grows up to this ratio."""


@dataclass
class TypicalShards:
    """What the small shards of a source have in common, as far as recent ones show it.

    Attributes:
        nbytes: Mean size of recent shards whose size was unknown; 0 before the first.
        are_compressed: True if shards of the last group were compressed.
        ratio: Estimated decompressed size of a compressed shard, as a multiple of its size.
    """

    nbytes: float = 0.0
    are_compressed: bool = False
    ratio: int = field(default_factory=lambda: COMPRESSION_RATIO)

    def learn(self, sizes: Sequence[int]) -> None:
        """Update the mean with the sizes of small shards whose size was unknown before they were read."""
        if sizes:
            mean = sum(sizes) / len(sizes)
            self.nbytes = (self.nbytes + mean) / 2 if self.nbytes else mean

    def decompressed(self, shards: int, left: int) -> None:
        """Increase the ratio if most compressed shards of a group must be read alone, as a rule because of their size.

        Args:
            shards: Number of compressed shards.
            left: Number of those that must be read alone.
        """
        if 2 * left > shards:
            self.ratio = min(2 * self.ratio, MOST_RATIO)
