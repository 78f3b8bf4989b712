"""Convert epochs of sources to epochs of a plan, and list the sources that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping

from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Cache, Repeat


def sources_of(node: Node, keys: Mapping[Node, int]) -> set[int]:
    """Return the keys of the sources and caches that ``node`` reads."""
    return {keys[source] for source in walk(node) if _is_source(source) or isinstance(source, Cache)}


def _is_source(node: Node) -> bool:
    return not node.inputs or node.label.startswith("read_")


def first_epochs(plan: Node, keys: Mapping[Node, int], epoch: int) -> dict[int, int]:
    """Return the first epoch in which each cache of ``plan`` can be read, keyed by the key of the cache's input.

    The rows of a cache belong to the cache's first epoch, even if the plan reads the cache later. The first epoch is
    used because the epoch of the actual first read can depend on how far the plan reads ahead.

    Args:
        epoch: Number of the epoch in which ``plan`` starts.
    """
    found: dict[int, int] = {}
    seen: set[Node] = set()
    waiting = [(plan, epoch)]
    while waiting:
        node, epoch = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Cache):
            found[keys[node.input]] = epoch
        if isinstance(node, Repeat):
            epoch *= node.turns
        waiting += [(child, epoch) for child in node.inputs]
    return found


def epoch_of(node: Node, keys: Mapping[Node, int], source: int, epoch: int) -> int:
    """Return the epoch of ``node`` that contains epoch ``epoch`` of one of the sources of ``node``.

    Args:
        source: Key of the source.

    Raises:
        StateMismatchError: ``node`` does not read the source.
    """
    repetitions = _repetitions(node, keys, source)
    if not repetitions:
        raise StateMismatchError(
            [f"the state has rows of source {source}, which the plan does not have"],
            "Open the pipeline that the state was saved from.",
        )
    return epoch // repetitions


def epoch_within(node: Node, keys: Mapping[Node, int], source: int, epoch: int, repetition: int) -> int:
    """Map an epoch of a source to the equivalent epoch of this source in epoch ``repetition`` of ``node``.

    A source in an inner data set is not part of the plan and runs once per epoch of ``node``.
    """
    repetitions = _repetitions(node, keys, source) or 1
    return repetition * repetitions + epoch % repetitions


def _repetitions(node: Node, keys: Mapping[Node, int], source: int) -> int | None:
    """Return how many times the source runs in each run of ``node``, or None if ``node`` does not read the source."""
    if keys[node] == source and _is_source(node):  # nodes without influence on rows share the key of the next node
        return 1
    for child in node.inputs:
        below = _repetitions(child, keys, source)
        if below is not None:
            return below * node.turns if isinstance(node, Repeat) else below
    return None
