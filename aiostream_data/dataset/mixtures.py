"""Where several data sets become one, row by row: the constructors that mix and choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from aiostream_data.arguments import flag, word
from aiostream_data.dataset.sources import DatasetSources
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node, at_least, seed_of
from aiostream_data.plan.operators import SCHEDULE_EVERY
from aiostream_data.plan.spec import spec_of
from aiostream_data.plan.validate import check_extends
from aiostream_data.rows.structure import LEAF

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset
    from aiostream_data.weights import Stop, WeightPlan

# What only mixtures need is imported where it is used: most programs have none, and importing it takes its time.

E = TypeVar("E")
Several: TypeAlias = "Sequence[Dataset[E]] | Mapping[str, Dataset[E]]"
"""Data sets by number or by name."""


class DatasetMixtures(DatasetSources):
    """Constructors of :class:`~aiostream_data.Dataset` from several others. None of them does any I/O."""

    @classmethod
    def sample_from(
        cls,
        datasets: Several[E],
        weights: WeightPlan | None = None,
        *,
        seed: int | None = None,
        stop: Stop = "first",
        random: bool = False,
        schedule_every: int = SCHEDULE_EVERY,
    ) -> Dataset[E]:
        """Return rows of several data sets in proportion to weights (tf.data ``sample_from_datasets``).

        The proportions hold at every row, not only on average: with the same weights throughout, each
        data set's count is within one row of its share. Shuffle and repeat the data sets themselves.

        Args:
            datasets: A sequence, or a dict by the names that reports show.
            weights: One number each, equal ones by default; 0 takes none. Or a schedule, by row of the
                mixture: a list of (first row, weights), or a function of the row number. A running
                loader can change them: :meth:`Loader.set_weights`.
            seed: For ``random``.
            stop: "first" ends when a data set has no more rows although it is its turn (tf.data
                ``stop_on_empty_dataset=True``). "all" lets it drop out and goes on until all have ended.
            random: Draw the data set of every row independently, as tf.data does. Proportions hold on
                average only.
            schedule_every: Rows after which a function is asked for weights again.

        Raises:
            PlanError: The weights are no weights, or the elements are known to differ.
        """
        from aiostream_data.plan.mixing import Mix
        from aiostream_data.weights import schedule_of

        nodes, names = _inputs_of(datasets, "sample_from")
        every = at_least("schedule_every", schedule_every, 1)
        schedule = schedule_of(weights, names, every)
        return cls._begin(
            Mix(
                nodes=nodes,
                schedule=schedule,
                stop=_checked_stop(stop),
                random=flag("random", random),
                seed=seed_of(seed),
            )
        )

    @classmethod
    def choose_from(cls, datasets: Several[E], choices: Dataset[Any], *, stop: Stop = "first") -> Dataset[E]:
        """Return one row of the data set that each choice names (tf.data ``choose_from_datasets``).

        Args:
            datasets: A sequence, or a dict by the names that reports show.
            choices: Numbers of data sets, from 0, in the order given.
            stop: "first" ends when the chosen data set has no more rows (tf.data
                ``stop_on_empty_dataset=True``). "all" passes over such a choice and goes on until all
                have ended. Either ends with the choices.

        Raises:
            PlanError: The choices are known to be no integers, or the elements to differ.
            ChoiceError (when iterated): A choice is no data set's number.
        """
        from aiostream_data.plan.mixing import Choose, check_shared

        nodes, names = _inputs_of(datasets, "choose_from")
        chooser = _plan_of(choices, "choose_from")
        _check_choices(chooser)
        check_shared([chooser, *nodes], "choose_from")
        return cls._begin(Choose(choices=chooser, nodes=nodes, names=names, stop=_checked_stop(stop)))


def _inputs_of(datasets: Any, operation: str) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    from aiostream_data.plan.mixing import check_alike, check_shared

    if isinstance(datasets, Mapping):
        names, several = tuple(map(str, datasets)), list(datasets.values())
    elif isinstance(datasets, (tuple, list)):
        names, several = tuple(str(number) for number in range(len(datasets))), list(datasets)
    else:
        raise PlanError(f"{operation}() takes a list or a dict of data sets, got {type(datasets).__name__}")
    if not several:
        raise PlanError(f"{operation}() needs at least one data set")
    nodes = tuple(_plan_of(dataset, operation) for dataset in several)
    check_alike(nodes, names, operation)
    check_shared(nodes, operation)
    return nodes, names


def _plan_of(dataset: Any, operation: str) -> Node:
    if not isinstance(dataset, DatasetMixtures):
        raise PlanError(f"{operation}() takes data sets, got {type(dataset).__name__}")
    check_extends(dataset.plan, operation)
    return dataset.plan


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
