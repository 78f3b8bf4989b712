"""Positions and row origins of one engine, for saving and resuming a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.resume.cached_epochs import cached_in_plan, read_cached_epochs
from aiostream_data._engine.resume.element_origins import origins_of
from aiostream_data._engine.resume.identity import Identity
from aiostream_data._engine.resume.lineage_reader import read_book
from aiostream_data._engine.resume.lineage_writer import BookWriter, Spaces
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.position import Position
from aiostream_data._engine.resume.weight_changes import WeightChanges
from aiostream_data.errors import StateMismatchError, WorkerDiedError
from aiostream_data.plan.base import Node, keys_again, keys_of, own_keys
from aiostream_data.plan.gained_inputs import keys_with_gained, mixtures_with_gained, numbers_to_save
from aiostream_data.plan.mixing import mixture_meant
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.provenance import Origin
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.weights import Weights, vector_of

if TYPE_CHECKING:
    from aiostream_data._engine.processes.process_manager import Hosting


class EngineState:
    """Object that provides saved states and row origins on the consumer's thread, while the stages run.

    Attributes:
        root_seed: Seed for operators without their own seed.
        origins: Table of the sources of all rows.
        book: Rows named in the state that was passed to ``open()``.
        weights: Changes of mixture weights during the run.
        cached_epochs: For each cache, the epoch in which the cache first read its rows.
        identity: Fingerprint of the data set, compared with the fingerprint in a saved state.
        keys: Numbers of the plan's nodes.
        mixtures_with_gained: Mixtures that gained inputs after the state was saved.
        position: Current position of the run; None until the run has started.
        hosting: Worker processes that run parts of the plan; None without ``in_subprocess()``.
    """

    def __init__(self, plan: Node, options: EngineOptions) -> None:
        """Restore the saved state in ``options``, or start from the beginning.

        Args:
            plan: The plan that the engine runs.
            options: Engine options whose attribute ``written`` is set.

        Raises:
            StateMismatchError: The state in ``options`` is damaged.
        """
        assert options.written is not None, "the identity is that of the plan as it was written"
        self.root_seed = options.root_seed if options.root_seed is not None else secrets.randbits(62)
        self.origins = Origins()
        self.book = read_book(options.book, self.origins)
        self.weights = WeightChanges(options.weights)
        self.cached_epochs = read_cached_epochs(options.caches)
        self.identity = Identity(options.written, options.world_size)
        self.position: Position | None = None
        self.hosting: Hosting | None = None
        self._plan = plan
        self.keys = _keys(plan, options.keys)
        self.mixtures_with_gained: list[Node] = []
        self._options = options
        self._kept: tuple[int, dict[str, Any]] | None = None
        self._spaces = Spaces(self.origins)

    def keep_keys(self, saved: Mapping[str, Any]) -> None:
        """If mixtures gained inputs after the state was saved, keep the saved numbers of the nodes.

        Args:
            saved: Description of the saved pipeline.

        Raises:
            StateMismatchError: A mixture has a new input in front of an old input.
        """
        gained, known = self.identity.gained_inputs(saved) or (), saved.get("keys")
        if gained or known is not None:
            self.keys = keys_with_gained(self._plan, gained, known) or self.keys
            self.identity.keys = numbers_to_save(self._plan, self.keys)
            self.mixtures_with_gained = mixtures_with_gained(self._plan, gained)

    def read_caches_first(self, epochs: Mapping[int, int]) -> None:
        """Set the epoch in which each cache first reads its rows, unless the saved state contains this epoch."""
        for key, epoch in epochs.items():
            self.cached_epochs.setdefault((0, key), epoch)

    def place(self, elements: int) -> dict[str, Any]:
        """Return the parts of a saved state that describe the position after this run's first ``elements`` elements.

        Raises:
            WorkerDiedError: A worker process that ran part of the plan has died.
        """
        if self._kept is not None and self._kept[0] == elements:
            return self._kept[1]
        if elements == 0 or self.position is None:
            return {"position": self._options.state, "rows": self._options.book, "row_checks": None, **self._besides()}
        book = BookWriter(self._spaces)
        position = self.position.at(elements, book)
        return {"position": position, "rows": book.contents(), "row_checks": book.checks, **self._besides()}

    def _besides(self) -> dict[str, Any]:
        caches = cached_in_plan(self.cached_epochs)
        return {"weights": self.weights.state(), "caches": caches or None}

    def keep_place(self, elements: int) -> None:
        """Compute and store the result of :meth:`place` while the worker processes still run.

        Do nothing if a worker process has died.
        """
        with suppress(WorkerDiedError):
            self._kept = elements, self.place(elements)

    def forget(self, elements: int) -> None:
        """Discard the history before element ``elements``, which no saved state will need."""
        if elements and self.position is not None:
            self.position.forget(elements)

    def origins_of(self, own: RowIds, made_of: MadeOf | None) -> list[Origin]:
        """Return the origin (URL and position) of each row of an element."""
        found = origins_of(own, made_of, self.origins, self.root_seed)
        keys = self.identity.keys
        return found if keys is None else [replace(each, row={**each.row, "keys": keys}) for each in found]

    def set_weights(self, weights: Weights, from_row: int | None) -> int:
        """Change the weights of a mixture; see :meth:`aiostream_data.Loader.set_weights`."""
        mixture = mixture_meant(self._plan, weights)
        vector = vector_of(weights, mixture.schedule.names)
        key = self.keys[mixture]
        if self.hosting is not None and self.hosting.runs(mixture):
            return self.hosting.set_weights(mixture, key, vector, from_row)
        return self.weights.set(key, mixture.schedule, vector, from_row)

    def weights_so_far(self) -> Any:
        """Return all weight changes since the engine started, so that another run can reproduce the same rows."""
        if self.hosting is not None:
            self.hosting.tell_weights(self.weights, self.keys)
        return self.weights.state(from_the_beginning=True)


def _keys(plan: Node, known: Sequence[int] | None) -> dict[Node, int]:
    """Return a number for each node of a plan: the number in ``known``, or a count from 0 if ``known`` is None."""
    plain = keys_of(plan)
    if known is None:
        return plain
    if len(known) < len(own_keys(plan, plain)):
        raise StateMismatchError(
            ["the origin belongs to a row of another plan, which has fewer operators"],
            "Call fetch() on the dataset that returned the origin.",
        )
    return keys_again(plan, known)
