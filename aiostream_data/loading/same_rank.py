"""Check that the state to resume was saved by this rank.

The check is needed only for plans in which each rank has its own row order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.errors import StateMismatchError
from aiostream_data.loading.state_format import Saved
from aiostream_data.plan.base import Node, walk
from aiostream_data.ranks import LoaderWorkers, Policy, Ranks


def check_same_rank(saved: Saved, plan: Node, ranks: Ranks, policy: Policy, workers: LoaderWorkers) -> None:
    """Check that this rank and worker can resume a state, or each state of a list.

    With policy "row", all ranks share one order, so any rank can resume any state. With policy "file", or with an
    unordered stage, only the rank that saved a state can resume the state.

    Raises:
        StateMismatchError: The state belongs to another rank, to another number of ranks, or to another worker.
    """
    for each in saved.of_ranks or (saved,):
        _check_one(each, plan, ranks, policy, workers)


def _check_one(saved: Saved, plan: Node, ranks: Ranks, policy: Policy, workers: LoaderWorkers) -> None:
    stream = saved.stream
    if stream is None:
        return
    _check_worker(_share_of_worker(stream), [workers.number, workers.count, ranks.share, ranks.shares])
    was = (stream["share"], stream["shares"], _shared_by(stream.get("policy", "row"), stream["shares"]))
    now = (ranks.share, ranks.shares, _shared_by(policy, ranks.shares))
    if was == now:
        return
    difference = f"the state was saved by share {_named(*was)}, but this loader is share {_named(*now)}"
    if "file" in (was[2], now[2]):
        raise StateMismatchError([difference], _BY_FILE)
    for node in walk(plan):
        if not getattr(node, "ordered", True):
            raise StateMismatchError([f"{difference}, and {node.label} has ordered=False"], _UNORDERED)
    if _was_unordered(saved.position):
        raise StateMismatchError([f"{difference}, and a stage had ordered=False"], _UNORDERED)


def _share_of_worker(stream: Mapping[str, Any]) -> list[int]:
    return [*stream.get("worker", [0, 1]), stream["share"], stream["shares"]]


def _check_worker(was: list[int], now: list[int]) -> None:
    """Raise if another worker saved the state, because each worker has its own position."""
    if was == now or max(was[1], now[1]) == 1:
        return
    then, here = ("worker {} of {} of rank {} of {}".format(*share) for share in (was, now))
    raise StateMismatchError(
        [f"the state was saved by {then}, but this is {here}"],
        "Resume each worker of a DataLoader with its own state, with the same numbers of workers and ranks.",
    )


_BY_FILE = (
    "With policy='file', each rank has a separate order. Resume with the rank that saved the state, or save with "
    "policy='row', which any number of ranks can resume."
)
_UNORDERED = (
    "Resume with the rank that saved the state. If all stages are ordered, any number of ranks can resume a state."
)


def _was_unordered(position: Any) -> bool:
    """Return True if a position contains an unordered stage. The function accepts positions that were not validated."""
    pending = [position]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.get("op") == "unordered":
                return True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return False


def _shared_by(policy: str, shares: int) -> str:
    return policy if shares > 1 else "row"


def _named(share: int, shares: int, policy: str) -> str:
    return f"{share} of {shares} by {policy}"
