"""Reduce the rows of each key to one row (``group_by_reducer``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from aiostream_data._engine.calls.keys_of_rows import keys_of_rows, noted
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.recall import names_of
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.errors import MemoryBudgetError, StateMismatchError
from aiostream_data.plan.keyed import GroupByReducer
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage, concat_lineages
from aiostream_data.rows.records import Chunk, concat, lineage_of
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.transforms.collate import read_back_items
from aiostream_data.transforms.key_table import KeyTable
from aiostream_data.transforms.keyed_reduction import KeyedReduction

RESULTS_PER_CHUNK: Final = 256


@dataclass
class GroupByReducerStep(Step):
    """Step of a ``GroupByReducer`` plan node.

    A result has the row id of the first row of its key. The saved position is the number of emitted results, because
    states of users' functions cannot be saved. A resumed run reads the input again.
    """

    kind: ClassVar[str] = "group_by_reducer"
    makes_own_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        node: GroupByReducer = self.node
        self._table = KeyTable(node.label)
        self._reduction = KeyedReduction(self._table, self._init, node.reduce)
        self._firsts: list[Lineage] = []
        self._held = self.context.services.budget.charge(0, node.label)
        self._given = 0  # before the state was saved

    def push(self, chunk: Chunk) -> Chunk | None:
        node: GroupByReducer = self.node
        describe = self.context.services.origins.describe
        self.source.forget(self.rows_in - len(chunk))  # no state refers to the position of the input
        keys = keys_of_rows(node.key, chunk, self._table.number, describe).tolist()
        lineage = lineage_of(chunk)
        for row, (key, element) in enumerate(zip(keys, chunk.elements(), strict=True)):
            try:
                is_new = self._reduction.push(key, element)
            except Exception as error:
                if not any(note.startswith("function: ") for note in getattr(error, "__notes__", ())):
                    error.add_note(f"function: {function_name(node.reduce)}")
                error.add_note(f"record: {describe(chunk.ids, row)}")
                raise PartlyDone(None, error) from error
            if is_new:
                self._firsts.append(lineage.slice(row, row + 1))
            if self._reduction.is_due:  # a chunk of small rows can be long
                self._check_memory()
        self._check_memory()
        return None

    def _init(self, key: Any) -> Any:
        node: GroupByReducer = self.node
        return noted(node.init, key)

    def finish(self) -> Iterator[Chunk]:
        node: GroupByReducer = self.node
        results = self._reduction.results(node.finalize)
        made: list[tuple[int, Any]] = []
        try:
            for number, result in enumerate(results):
                if number >= self._given:
                    made.append(result)
                if len(made) == RESULTS_PER_CHUNK:
                    yield self._as_chunk(made)
                    made = []
        except Exception as error:
            if node.finalize is not None:
                error.add_note(f"function: {function_name(node.finalize)}")
            raise PartlyDone(self._as_chunk(made) if made else None, error) from error
        if made:
            yield self._as_chunk(made)

    def _as_chunk(self, made: list[tuple[int, Any]]) -> Chunk:
        firsts = concat_lineages([self._firsts[key] for key, _ in made])
        chunk = read_back_items([result for _, result in made], firsts.ids)
        return chunk if firsts.made_of is None else replace(chunk, made_of=list(firsts.made_of))

    def _check_memory(self) -> None:
        nbytes, limit = self._reduction.nbytes(), self.context.services.budget.limit
        self._held.resize(nbytes)
        if nbytes > limit:
            raise MemoryBudgetError(
                f"cannot hold more states in {self.node.label}: the states of {len(self._table)} keys already take "
                f"{nbytes} bytes, more than the memory limit of {limit} bytes. Reduce the number of keys or the size "
                "of a state, or open the dataset with a larger memory_limit."
            )

    def close(self) -> None:
        node: GroupByReducer = self.node
        self._reduction = KeyedReduction(self._table, node.init, node.reduce)  # drops all states
        self._firsts = []
        self._held.end()

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": self.kind, "given": self._given + rows}

    def forget(self, rows: int) -> None:
        """Do nothing: ``push`` discards the history of the input, which no state needs."""

    def resume(self, state: State) -> State:
        self._given = taken_up(state, self.kind)["given"]
        return None

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        place.counted(place.fields(cls.kind, "given")["given"])
        yield from ()

    async def recall(self, lineage: Lineage) -> Chunk:
        """Recompute results. A result depends on all rows of its key, so the node runs from its beginning."""
        origins = self.context.services.origins
        wanted = names_of(lineage.ids, origins)
        found: dict[tuple[int, ...], Chunk] = {}
        async with self.context.open(self.node) as receiver:
            async for chunk in receiver:
                found |= {name: chunk.slice(row, row + 1) for row, name in enumerate(names_of(chunk.ids, origins))}
        if not found.keys() >= set(wanted):
            raise StateMismatchError([f"{self.node.label} has no result of this key"], OTHER_PIPELINE)
        return concat([found[name] for name in wanted])

    def rows_accounted(self) -> int | None:
        return None
