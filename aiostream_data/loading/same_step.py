"""Refuse a list of states that are not those of all ranks after the same step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiostream_data.errors import StateMismatchError
from aiostream_data.state_parts import brief

if TYPE_CHECKING:
    from aiostream_data.loading.saved import Saved


def check_same_step(states: Sequence[Saved]) -> None:
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


def _step(saved: Saved) -> dict[str, Any]:
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
