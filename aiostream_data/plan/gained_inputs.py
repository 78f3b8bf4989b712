"""Handle inputs that were added to mixtures after a state was saved, and keep the node numbers of such plans stable.

The number of a plan node seeds its random numbers and is part of its row ids. Without special handling, a new input of
a mixture would change the numbers of all later nodes. Existing nodes therefore keep their numbers, and the nodes of new
inputs get unused numbers. Saved states of plans with new inputs contain the node numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.alignment import align
from aiostream_data.plan.base import Node, keys_again, keys_of, own_keys, walk
from aiostream_data.plan.chain_difference import cost_of_inputs
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.plan.stored import Chain

OWN_INPUTS: Final = {"sample_from": 0, "choose_from": 1}
"""For each mixture label, the number of inputs that follow the row inputs. The last input of ``choose_from`` contains
its choices."""


def gained_inputs(old: Chain, new: Chain) -> list[int] | None:
    """Count the new inputs of each mixture in the new plan, beginning with the innermost mixtures.

    Returns:
        The counts, or None if no mixture has a new input or if other operators of the plans differ.

    Raises:
        StateMismatchError: A new input comes before an existing input.
    """
    found = _gained(old, new)
    return found if found is not None and any(found) else None


def keys_with_gained(plan: Node, gained: Sequence[int], known: Sequence[int] | None) -> dict[Node, int] | None:
    """Assign numbers to the nodes of a plan. Nodes from the saved state keep their numbers.

    Args:
        plan: The plan, after rewriting.
        gained: Result of :func:`gained_inputs`.
        known: Node numbers from the saved state, in order; None for the default numbers 0, 1, 2 ...

    Returns:
        The numbers, or None if the plan in the saved state had a different number of nodes.
    """
    new = set(_nodes_gained(plan, gained))
    nodes = [node for node in walk(plan) if not node.is_transparent]
    before = sum(node not in new for node in nodes)
    numbers = list(range(before)) if known is None else list(known)
    if len(numbers) != before:
        return None
    kept, fresh = iter(numbers), count(max(numbers, default=-1) + 1)
    return keys_again(plan, tuple(next(fresh) if node in new else next(kept) for node in nodes))


def mixtures_with_gained(plan: Node, gained: Sequence[int]) -> list[Node]:
    """Return the mixtures of the plan that have new inputs."""
    return [mixture for mixture, more in zip(_mixtures_of(plan), gained, strict=False) if more]


def numbers_to_save(plan: Node, keys: dict[Node, int]) -> list[int] | None:
    """Return the node numbers to store in a saved state; None for the default numbers 0, 1, 2 ..."""
    numbers = list(own_keys(plan, keys))
    return None if numbers == list(own_keys(plan, keys_of(plan))) else numbers


def _gained(old: Chain, new: Chain) -> list[int] | None:
    if [entry["op"] for entry in old] != [entry["op"] for entry in new]:
        return None
    before, after = old[0].get("inputs", []), new[0].get("inputs", [])
    own = OWN_INPUTS.get(new[0]["op"])
    more = len(after) - len(before)
    if more < 0 or (more and own is None):
        return None
    kept, rows = len(before) - (own or 0), len(after) - (own or 0)
    if more:
        _check_last(new[0]["op"], before[:kept], after[:rows])
    parts = [_gained(*pair) for pair in zip(before[:kept], after[:kept], strict=True)]
    parts += [[0] * _mixtures(chain) for chain in after[kept:rows]]
    parts += [_gained(*pair) for pair in zip(before[kept:], after[rows:], strict=True)]
    found: list[int] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found if own is None else [*found, more]


def _check_last(name: str, old: Sequence[Chain], new: Sequence[Chain]) -> None:
    for before, after in align(old, new, cost_of_inputs):
        if before is None and after is not None and after < len(old):
            raise StateMismatchError(
                [f"{name}: input {after + 1} is new, but precedes existing inputs"],
                "Put new inputs after the existing ones.",
            )


def _mixtures(chain: Chain) -> int:
    inputs = chain[0].get("inputs", [])
    return sum(map(_mixtures, inputs)) + (chain[0]["op"] in OWN_INPUTS)


def _mixtures_of(plan: Node) -> list[Mix | Choose]:
    return [node for node in walk(plan) if isinstance(node, (Mix, Choose))]


def _nodes_gained(plan: Node, gained: Sequence[int]) -> Iterator[Node]:
    for mixture, more in zip(_mixtures_of(plan), gained, strict=False):
        for node in mixture.nodes[len(mixture.nodes) - more :]:
            yield from walk(node)
