"""Run ``assert_cardinality``: count rows, and fail if their number is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place, Rows
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.errors import CardinalityError
from aiostream_data.plan.asserted import AssertCardinality
from aiostream_data.plan.base import INFINITE
from aiostream_data.rows.records import Chunk
from aiostream_data.state_fields import MAX_COUNT


@dataclass
class AssertCardinalityStep(Step):
    """Step of an ``AssertCardinality`` plan node."""

    kind: ClassVar[str] = "assert_cardinality"

    def __post_init__(self) -> None:
        self._given = 0  # rows emitted before this run
        self._came = 0  # rows of the whole stream

    def push(self, chunk: Chunk) -> Chunk | None:
        node: AssertCardinality = self.node
        left = len(chunk) if node.count == INFINITE else node.count - self._came
        self._came += len(chunk)
        if left < len(chunk):
            self.rows_in -= len(chunk) - left
            raise PartlyDone(chunk.slice(0, left) if left else None, self._wrong("more"))
        return chunk

    def finish(self) -> Iterator[Chunk]:
        node: AssertCardinality = self.node
        if self._came != node.count:
            raise self._wrong(str(self._came))
        return iter(())

    def _wrong(self, found: str) -> CardinalityError:
        count = self.node.count
        expected = "an infinite number of elements" if count == INFINITE else f"{count} elements"
        return CardinalityError(
            f"assert_cardinality() expects {expected}, but its input has {found}. Pass the right number, or correct "
            "the operators before it."
        )

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": self.kind, "given": self._given + rows, "input": self.source.at(rows, book)}

    def forget(self, rows: int) -> None:
        self.source.forget(rows)

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        self._given = self._came = state["given"]
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "input")
        most = MAX_COUNT if place.node is None or place.node.count == INFINITE else place.node.count
        given = place.counted(fields["given"], most=most)
        yield place.of_input(fields["input"], rows=Rows(given, given))
