"""Emit the URLs of objects that match the patterns of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS
from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data._engine.sources.listed_shards import shard_numbers
from aiostream_data._engine.sources.numbered_shards import NumberedShards
from aiostream_data._engine.sources.shard_search import check_listed, find_shards, listed_digest
from aiostream_data._engine.sources.shard_turns import names_order
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.ranks import files_of_a_rank
from aiostream_data.plan.snapshots import SnapshotFiles
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.state_fields import MAX_COUNT


@dataclass
class ListFilesSource(NumberedRows):
    """Stage of a ``ListFiles`` plan node: emits URLs.

    The saved position counts shards. Removed shards also count, although the stage emits no rows for these shards.
    """

    kind: ClassVar[str] = "names"

    _turns_of_rows: Sequence[int] | None = None
    _listed: str = ""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        shards = await self._shards()
        orders = [names_order(self.context, self.node, era) for era in shards.eras]
        turns = orders[0] if len(orders) == 1 else [number for order in orders for number in order]
        if self._first > len(turns):
            raise StateMismatchError(
                [f"the state counts {self._first} files, but only {len(turns)} were found"],
                "Restore the missing files.",
            )
        left = range(self._first, len(turns))
        has_gaps = shards.has_gaps
        rows = [turn for turn in left if shards.by_number[turns[turn]] is not None] if has_gaps else left
        self._turns_of_rows = rows
        namespace = self._namespace(shards)
        for start in range(0, len(rows), CHUNK_ROWS):
            numbers = [turns[turn] for turn in rows[start : start + CHUNK_ROWS]]
            await outlet.send(_names(namespace, shards, numbers))

    def at(self, rows: int, book: BookWriter) -> State:
        turns = self._turns_of_rows
        place = self._first + rows if turns is None or not rows else turns[rows - 1] + 1
        return {"op": "names", "next": place, **({"listed": self._listed} if self._listed else {})}

    def resume(self, state: State) -> Sequence[State]:
        place = taken_up(state, "names")
        self._first, self._listed = place["next"], place.get("listed", "")
        return ()

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "next", optional=("listed",))
        eras = place.shard_eras
        most = MAX_COUNT if eras is None else sum(files_of_a_rank(era.count, place.node.share) for era in eras)
        if place.numbers is None:
            place.counted(fields["next"], most=most)
        else:  # removed shards count but emitted no row
            fields["next"].integer(min(most, place.rows.least), most)
        if "listed" in fields:
            fields["listed"].text()
        yield from ()

    async def recall(self, lineage: Lineage) -> Chunk:
        shards = await self._shards()
        check_listed(lineage, self.context, self.node, self._listed)
        numbers = local(lineage.ids)[1].tolist()
        for number in numbers:
            shards.read_before(number)
        return _names(self._namespace(shards), shards, numbers)

    async def _shards(self) -> NumberedShards:
        found = await find_shards(self.context, self.node)
        self._listed = await listed_digest(self.context, self.node, found, self._listed)
        return NumberedShards.of(found, shard_numbers(self.context, self.node))

    def _namespace(self, shards: NumberedShards) -> Namespace:
        is_snapshot = isinstance(self.node, SnapshotFiles)  # its sizes come from a log of the table
        return self.context.namespace(
            self.node,
            always(str(self.node.label)),
            listed=self._listed,
            object_of=None if is_snapshot else shards.listed,
        )


def _names(namespace: Namespace, shards: NumberedShards, numbers: list[int]) -> Chunk:
    ids = RowIds.of_source(namespace.base, numbers)
    return Items([shards.name(number) for number in numbers], ids)
