"""Refuse a state of another rank where ranks have an order of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiostream_data.errors import StateMismatchError
from aiostream_data.loading.saved import Saved
from aiostream_data.plan.base import Node, walk
from aiostream_data.ranks import LoaderWorkers, Policy, Ranks


def check_same_rank(saved: Saved, plan: Node, ranks: Ranks, policy: Policy, workers: LoaderWorkers) -> None:
    """Refuse a state, or a list of them, that says where another rank was, and not where all of them were.

    By row all ranks have one order, and a state of any is one of all. By file, or where a stage gives rows as they are
    ready, the state holds what only that rank knows.

    Raises:
        StateMismatchError: It does, and this is another rank, or one of another number; or another worker.
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
    difference = f"it was saved by share {_named(*was)}, and is opened as share {_named(*now)}"
    if "file" in (was[2], now[2]):
        raise StateMismatchError([difference], _BY_FILE)
    for node in walk(plan):
        if not getattr(node, "ordered", True):
            raise StateMismatchError([f"{difference}, while {node.label} has ordered=False"], _UNORDERED)
    if _was_unordered(saved.position):
        raise StateMismatchError([f"{difference}, and a stage had ordered=False"], _UNORDERED)


def _share_of_worker(stream: Mapping[str, Any]) -> list[int]:
    return [*stream.get("worker", [0, 1]), stream["share"], stream["shares"]]


def _check_worker(was: list[int], now: list[int]) -> None:
    """Refuse a state of another worker: each stands at a place of its own, and no two of them at the same one."""
    if was == now or max(was[1], now[1]) == 1:
        return
    then, here = ("worker {} of {} of rank {} of {}".format(*share) for share in (was, now))
    raise StateMismatchError(
        [f"it was saved by {then}, and is opened by {here}"],
        "give each worker of a DataLoader its own state, and have as many workers and ranks as there were",
    )


_BY_FILE = "by file every rank has an order of its own: open it as the rank that saved it; by row any number can go on"
_UNORDERED = "open it as the rank that saved it; with ordered stages alone, any number of ranks can go on"


def _was_unordered(position: Any) -> bool:
    """Return True if a position, which nobody has checked yet, is that of a stage that gave rows as they were ready."""
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
