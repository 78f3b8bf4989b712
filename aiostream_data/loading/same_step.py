"""Check that a list of saved states comes from all ranks at the same step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiostream_data.errors import StateMismatchError
from aiostream_data.state_fields import brief


class SavedStep(Protocol):
    """Fields of a saved state that identify its step."""

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
        """Stream hash, and how ranks share the stream."""

    @property
    def steering(self) -> Mapping[str, Any] | None:
        """Rows and shards that are blocked."""


def check_same_step(states: Sequence[SavedStep]) -> None:
    """Check that all states come from the same step of the same order.

    Positions are not compared, because ranks with one order may describe the same step differently. Each rank has its
    own known record offsets and read-ahead.

    Raises:
        StateMismatchError: A state is from another step than the first one.
    """
    first = _step(states[0])
    for number, state in enumerate(states):
        for name, found in _step(state).items():
            if found != first[name]:
                raise StateMismatchError(
                    [
                        f"the ranks' states are from different steps: {name} is {brief(first[name])} in state[0], but "
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
