"""Check that the saved states in a list come from different ranks at the same training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiostream_data.errors import StateMismatchError
from aiostream_data.state_fields import brief


class SavedStep(Protocol):
    """Fields of a saved state that identify its training step."""

    @property
    def elements(self) -> int:
        """Number of elements received in the epoch."""

    @property
    def epoch(self) -> int:
        """Number of the epoch."""

    @property
    def seed(self) -> int:
        """Root seed of the run."""

    @property
    def stream(self) -> Mapping[str, Any] | None:
        """Stream hash, and the way in which ranks share the stream."""

    @property
    def steering(self) -> Mapping[str, Any] | None:
        """Rows and shards that the user blocked."""


def check_same_step(states: Sequence[SavedStep]) -> None:
    """Check that all states come from the same training step of the same row order.

    Positions are not compared, because ranks may store different positions for the same step. For example, ranks know
    different record offsets, and have read ahead by different amounts.

    Raises:
        StateMismatchError: A state is from a different training step than the first state.
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
