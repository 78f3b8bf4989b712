"""Which repetition of a plan a row of one of its sources belongs to, and which sources a plan reads."""

from __future__ import annotations

from collections.abc import Mapping

from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Cache, Repeat


def sources_of(node: Node, keys: Mapping[Node, int]) -> set[int]:
    """Return the numbers of the sources and caches that ``node`` reads."""
    return {keys[source] for source in walk(node) if _is_source(source) or isinstance(source, Cache)}


def _is_source(node: Node) -> bool:
    return not node.inputs or node.label.startswith("read_")


def first_epochs(plan: Node, keys: Mapping[Node, int], epoch: int) -> dict[int, int]:
    """Return the repetition in which each cache of ``plan`` can first be read, by the number of what it caches.

    All its rows are those of that repetition, whether or not anything read the cache then: with a join above it, that
    depends on how far the plan reads ahead.

    Args:
        epoch: The repetition in which ``plan`` is run.
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
    """Return the repetition of ``node`` in which one of its sources ran as repetition ``epoch``.

    Args:
        source: The source's number.

    Raises:
        StateMismatchError: ``node`` does not read that source.
    """
    repetitions = _repetitions(node, keys, source)
    if not repetitions:
        raise StateMismatchError([f"the state names rows of source {source}, which the plan does not have"])
    return epoch // repetitions


def epoch_within(node: Node, keys: Mapping[Node, int], source: int, epoch: int, repetition: int) -> int:
    """Return the repetition of a source that is within ``repetition`` of ``node`` what ``epoch`` was within its own.

    A source of an inner data set, which the plan does not know, runs once.
    """
    repetitions = _repetitions(node, keys, source) or 1
    return repetition * repetitions + epoch % repetitions


def _repetitions(node: Node, keys: Mapping[Node, int], source: int) -> int | None:
    """Return how often the source runs when ``node`` runs once, or None where it is not read."""
    if keys[node] == source and _is_source(node):  # transparent nodes share the number of what follows them
        return 1
    for child in node.inputs:
        below = _repetitions(child, keys, source)
        if below is not None:
            return below * node.turns if isinstance(node, Repeat) else below
    return None
