"""Refuse a list of states that are not those of all ranks after the same step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiostream_data.errors import StateMismatchError
from aiostream_data.state_parts import brief


class SavedStep(Protocol):
    """The parts of a saved state that say which step it is of."""

    @property
    def elements(self) -> int:
        """Elements received in the epoch."""

    @property
    def epoch(self) -> int:
        """Number of the epoch."""

    @property
    def seed(self) -> int:
        """Root seed of the run."""

    @property
    def stream(self) -> Mapping[str, Any] | None:
        """Hash of the stream, and how it is shared among ranks."""

    @property
    def steering(self) -> Mapping[str, Any] | None:
        """Rows and shards that are blocked."""


def check_same_step(states: Sequence[SavedStep]) -> None:
    """Refuse states of different steps, or of different orders.

    Positions are not compared. Ranks that share one order describe the same step in several forms: each knows other
    offsets of records, and has read ahead further or less far beyond rows that were left out and files that ended.

    Raises:
        StateMismatchError: A state is of another step than the first one.
    """
    first = _step(states[0])
    for number, state in enumerate(states):
        for name, found in _step(state).items():
            if found != first[name]:
                raise StateMismatchError(
                    [
                        f"the ranks' states are of different steps: {name} is {brief(first[name])} in state[0], and "
                        f"{brief(found)} in state[{number}]"
                    ]
                )


def _step(saved: SavedStep) -> dict[str, Any]:
    stream, steering = saved.stream or {}, saved.steering or {}
    return {
        "elements": saved.elements,
        "epoch": saved.epoch,
        "seed": saved.seed,
        "the number of shares": stream.get("shares"),
        "policy": stream.get("policy", "row"),
        "the list of blocked rows": steering.get("rows") or [],
        "the list of blocked shards": steering.get("shards") or [],
    }
