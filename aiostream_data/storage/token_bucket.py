"""How long to wait so that no more than so much happens per second; pure: told times, never asks for them.

How this works. A bucket of tokens that fills at a steady rate is the same as a line in which everything takes its share
of a second: what is asked for begins when all before it is through. The line may have stood still for a moment before,
and then that much may go at once. So nothing is ever refused; everybody is told when it is their turn, in the order
they asked, and a thing that is larger than the bucket only makes those behind it wait longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BURST_S: Final = 0.25
"""So much of the line's time may be made up for at once after a pause."""


@dataclass(slots=True)
class TokenBucket:
    """One line. Those who ask may each know a rate of their own.

    Attributes:
        free_at: When all that was asked for is through.
    """

    free_at: float = float("-inf")

    def reserve(self, now: float, tokens: float, per_second: float) -> float:
        """Take ``tokens``, and return how many seconds to wait before they may be used."""
        begins = max(self.free_at, now - BURST_S)
        self.free_at = begins + tokens / per_second
        return max(0.0, begins - now)

    def give_back(self, tokens: float, per_second: float) -> None:
        """Let those who ask from now on have tokens that somebody reserved and did not wait for."""
        self.free_at -= tokens / per_second
