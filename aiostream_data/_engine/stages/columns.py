"""Change the columns of dict elements: ``select``, ``drop``, ``rename`` and ``cast``."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.fused_steps import RowForRowStep
from aiostream_data.plan.columns import CastColumns, ColumnOperator, PickColumns, check_present, not_dicts
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, concat
from aiostream_data.transforms.column_changes import cast_columns, dicts_at_start, pick_columns


@dataclass
class ColumnStep(RowForRowStep):
    """Base class of steps that change columns and emit one row per input row. The saved state is that of the input."""

    def changed(self, chunk: Chunk) -> Chunk:
        """Return the rows with other columns. All rows are dicts."""
        raise NotImplementedError

    def push(self, chunk: Chunk) -> Chunk | None:
        found = leading(len(chunk), lambda first, stop: self._checked(chunk.slice(first, stop)))
        made = concat(found.done) if found.done else None
        if found.error is not None:
            found.error.add_note(f"record: {self.context.services.origins.describe(chunk.ids, found.rows)}")
            raise PartlyDone(made, found.error)
        return made

    async def recall(self, lineage: Lineage) -> Chunk:
        return self._checked(await self.context.recall(self.node.input, lineage))

    def _checked(self, chunk: Chunk) -> Chunk:
        node: ColumnOperator = self.node
        rows = dicts_at_start(chunk)
        if rows < len(chunk):
            found = str(chunk.structure) if isinstance(chunk, Columns) else f"a {type(chunk.values[rows]).__name__}"
            raise not_dicts(node.label, found)
        return self.changed(chunk)


@dataclass
class PickColumnsStep(ColumnStep):
    """Step of ``Select``, ``Drop`` and ``Rename`` plan nodes: keeps references to the picked columns."""

    def changed(self, chunk: Chunk) -> Chunk:
        node: PickColumns = self.node
        return pick_columns(chunk, node.picks)


@dataclass
class CastStep(ColumnStep):
    """Step of a ``CastColumns`` plan node: converts columns to other dtypes."""

    def changed(self, chunk: Chunk) -> Chunk:
        node: CastColumns = self.node
        for names in {tuple(element) for element in chunk.values} if not isinstance(chunk, Columns) else ():
            check_present(node.label, node.columns, names)
        if isinstance(chunk, Columns):
            check_present(node.label, node.columns, chunk.structure.names)
        return cast_columns(chunk, node.columns, node.check, may_lose=node.casting == "unsafe")
