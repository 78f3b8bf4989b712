"""Run the choices of ``sample_from`` with a dataset of weights: one index per vector of weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import Log, State, taken_up
from aiostream_data.errors import PlanError
from aiostream_data.plan.weighted_choices import WeightedChoices
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.weighted_choices import ChoicesByWeight, ChoicesPlace, Lags
from aiostream_data.weights import vector_of


@dataclass
class WeightedChoicesStep(Step):
    """Step of a ``WeightedChoices`` plan node. Its saved position contains the lag of each input."""

    kind: ClassVar[str] = "weights"

    def __post_init__(self) -> None:
        node: WeightedChoices = self.node
        key = self.context.key(node, node.seed, "mix", self.context.epoch) if node.random else None
        self._order = ChoicesByWeight(len(node.choices_of), key)
        self._log: Log[ChoicesPlace] = Log()
        self._first = 0
        self._begun: Lags = self._order.lags

    def push(self, chunk: Chunk) -> Chunk | None:
        weights, failure = self._weights(chunk)
        made = self._chosen(chunk.slice(0, len(weights)), weights) if len(weights) else None
        if failure is not None:
            raise PartlyDone(made, failure)
        return made

    def _chosen(self, chunk: Chunk, weights: NDArray[np.float64]) -> Chunk:
        choices, place = self._order.push(weights)
        self._log.add(place.row - self._first, place)
        return Columns(LEAF, (choices,), chunk.ids, None, chunk.made_of)

    def _weights(self, chunk: Chunk) -> tuple[NDArray[np.float64], PlanError | None]:
        """Return the weights of the rows before the first invalid row, and the error of that row or None."""
        node: WeightedChoices = self.node
        vectors: list[Any] = []
        for row, element in enumerate(chunk.elements()):
            try:
                vectors.append(vector_of(element, node.choices_of, "the weights of sample_from()"))
            except PlanError as error:
                error.add_note(f"record: {self.context.services.origins.describe(chunk.ids, row)}")
                return np.array(vectors, np.float64), error
        return np.array(vectors, np.float64), None

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        found = self._log.find(rows - 1) if rows else None
        lags = self._begun if found is None else self._order.lags_after(found[1], rows - found[0])
        return {
            "op": self.kind,
            "row": self._first + rows,
            "lags": lags.tolist(),
            "input": self.source.at(rows, book),
        }

    def forget(self, rows: int) -> None:
        if rows:
            self._log.forget(rows - 1)
        self.source.forget(rows)

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        lags = np.zeros(len(self.node.choices_of))
        lags[: len(state["lags"])] = state["lags"]  # the mixture may have gained inputs
        self._begun = self._order.lags = lags
        self._first = self._order.row = state["row"]
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "row", "lags", "input")
        row = place.counted(fields["row"])
        inputs = None if place.node is None else len(place.node.choices_of)
        for lag in fields["lags"].items(1, inputs):
            if not isinstance(lag.value, float) or not math.isfinite(lag.value) or abs(lag.value) > row:
                raise lag.refused(f"must be a number from {-row} to {row}")
        yield place.of_input(fields["input"], rows=Rows(row, row))

    async def recall(self, lineage: Lineage) -> Chunk:
        raise NotImplementedError("choices are read in order, and never recomputed")
