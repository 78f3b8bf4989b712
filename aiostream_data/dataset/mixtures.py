"""Plan nodes of mixtures of several datasets, created from validated arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiostream_data.arguments import flag, word
from aiostream_data.dataset.callables import warn_of_hidden_state
from aiostream_data.dataset.chain import Chain, plan_of
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import INFINITE, Node, at_least, seed_of
from aiostream_data.plan.spec import spec_of
from aiostream_data.rows.structure import LEAF

if TYPE_CHECKING:
    from aiostream_data.weights import Stop

# Imports that only mixtures need are local, to keep importing the package fast.


def mix(datasets: Any, weights: Any, seed: Any, stop: Any, random: Any, schedule_every: Any) -> Node:
    """Return the plan node of ``sample_from``.

    Raises:
        PlanError: The weights are invalid, or the element structures differ.
    """
    from aiostream_data.plan.mixing import Mix
    from aiostream_data.weights import schedule_of

    nodes, names = _inputs_of(datasets, "sample_from")
    if isinstance(weights, Chain):
        return _mixed_by(weights, nodes, names, seed, stop, random)
    every = at_least("schedule_every", schedule_every, 1)
    if callable(weights):
        warn_of_hidden_state("sample_from", weights)
    return Mix(
        nodes=nodes,
        schedule=schedule_of(weights, names, every),
        stop=_checked_stop(stop),
        random=flag("random", random),
        seed=seed_of(seed),
    )


def _mixed_by(
    weights: Chain, nodes: tuple[Node, ...], names: tuple[str, ...], seed: Any, stop: Any, random: Any
) -> Node:
    """Return the plan node of ``sample_from`` with a dataset of weights."""
    from aiostream_data.plan.mixing import check_shared
    from aiostream_data.plan.weighted_choices import MixByWeights, WeightedChoices

    vectors = plan_of(weights, "sample_from")
    check_shared([vectors, *nodes], "sample_from")
    choices = WeightedChoices(input=vectors, choices_of=names, random=flag("random", random), seed=seed_of(seed))
    return MixByWeights(choices=choices, nodes=nodes, names=names, stop=_checked_stop(stop))


def in_proportion(datasets: Any, weights: Any) -> Node:
    """Return the plan node of ``weighted_flat_map``.

    Raises:
        PlanError: The weights are invalid, the element structures differ, or the length of a dataset is unknown.
    """
    from fractions import Fraction

    from aiostream_data.plan.cardinality import cardinality
    from aiostream_data.plan.operators import Concatenate, Take
    from aiostream_data.weights import vector_of

    nodes, names = _inputs_of(datasets, "weighted_flat_map")
    vector = (1.0,) * len(nodes) if weights is None else vector_of(weights, names)
    exact = [Fraction(repr(weight)) for weight in vector]
    rows = [cardinality(node) for node in nodes]
    for name, count, weight in zip(names, rows, exact, strict=True):
        if weight and count < 0:
            found = "infinite" if count == INFINITE else "of unknown length"
            raise PlanError(
                f"weighted_flat_map() needs datasets of known length, but dataset {name} is {found}. Use take(), or "
                "sample_from()."
            )
    most = min(count / weight for count, weight in zip(rows, exact, strict=True) if weight)
    counts = [int(weight * most) for weight in exact]
    return Concatenate(nodes=tuple(Take(input=node, count=count) for node, count in zip(nodes, counts, strict=True)))


def choose(datasets: Any, choices: Any, stop: Any) -> Node:
    """Return the plan node of ``choose_from``.

    Raises:
        PlanError: The choices are not integers, or the element structures differ.
    """
    from aiostream_data.plan.mixing import Choose, check_shared

    nodes, names = _inputs_of(datasets, "choose_from")
    chooser = plan_of(choices, "choose_from")
    _check_choices(chooser)
    check_shared([chooser, *nodes], "choose_from")
    return Choose(choices=chooser, nodes=nodes, names=names, stop=_checked_stop(stop))


def _inputs_of(datasets: Any, operation: str) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    from aiostream_data.plan.alike import check_alike
    from aiostream_data.plan.mixing import check_shared

    if isinstance(datasets, Mapping):
        names, several = tuple(map(str, datasets)), list(datasets.values())
    elif isinstance(datasets, (tuple, list)):
        names, several = tuple(str(number) for number in range(len(datasets))), list(datasets)
    else:
        raise PlanError(f"{operation}() needs a list or a dict of datasets, got {type(datasets).__name__}")
    if not several:
        raise PlanError(f"{operation}() needs at least one dataset")
    nodes = tuple(plan_of(dataset, operation) for dataset in several)
    check_alike(nodes, names, operation)
    check_shared(nodes, operation)
    return nodes, names


def _check_choices(node: Node) -> None:
    structure, leaves = spec_of(node)
    wrong = [leaf for leaf in leaves if (leaf.dtype is not None and leaf.dtype.kind not in "iu") or leaf.shape]
    if structure != LEAF or wrong:
        found = wrong[0] if structure == LEAF else structure
        raise PlanError(f"the choices of choose_from() must be integers, got {found}")


def _checked_stop(stop: Any) -> Stop:
    from aiostream_data.weights import STOPS

    checked: Stop = word("stop", stop, STOPS)
    return checked
