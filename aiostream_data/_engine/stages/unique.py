"""Run ``unique``: emit the first row with each key.

How this works. Each emitted row adds exactly one key. The keys seen before output row ``n`` are therefore the first
``n`` keys. If these keys are few, the saved place contains the keys. Otherwise the place is only a number of rows, and
a resumed run reads the input again from its beginning to collect the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from aiostream_data._engine.calls.user_code import UserFunction, call_rows
from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.resume.kept_log import KeptLog
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, in_order_only, taken_up
from aiostream_data._engine.resume.user_values import restored, sealed, stored, unsealed
from aiostream_data.errors import MemoryBudgetError, StateMismatchError
from aiostream_data.plan.base import gives_one_order
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.unique import Unique
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import OTHER_PIPELINE
from aiostream_data.transforms.unique_keys import UniqueKeys, as_plain, from_plain

MOST_SAVED: Final = 1024
"""Maximum number of keys in a saved place."""

SHARE: Final = 2
"""The keys may take one part in ``SHARE`` of the memory limit. The other stages need the rest."""

SPILL_SHARE: Final = 8
"""With ``spill=``, the keys may take one part in ``SPILL_SHARE`` of the memory limit, as the rows of a shuffle."""


@dataclass
class UniqueStep(Step):
    """Step of a ``Unique`` plan node."""

    kind: ClassVar[str] = "unique"

    def __post_init__(self) -> None:
        node: Unique = self.node
        limit = self.context.services.budget.limit
        self._seen = UniqueKeys(MOST_SAVED, node.spill_folder, limit // SPILL_SHARE)
        self._held = self.context.services.budget.charge(0, node.label)
        self._kept = KeptLog()  # rows with a new key, by input rows in this run
        self._given = 0  # rows emitted before this run
        self._skip = self._skipped = 0  # rows to discard, and rows discarded so far
        self._user = None
        if node.key is not None:
            describe = self.context.services.origins.describe
            self._user = UserFunction(node.key, describe, takes_batches=gives_batches(node.input))

    def push(self, chunk: Chunk) -> Chunk | None:
        keys, failure = self._keys_of(chunk)
        new, rows, refused = self._seen.push(keys)
        if refused is not None:
            refused.add_note(f"record: {self.context.services.origins.describe(chunk.ids, rows)}")
        kept = np.array(new, np.int64)
        self._kept.begin(rows).kept = kept
        self.rows_in -= len(chunk) - rows
        self.dropped += rows - len(kept)
        made = self._without_skipped(chunk if len(kept) == len(chunk) else chunk.take(kept))
        self._held.resize(self._seen.nbytes)
        error = refused or failure or self._over_limit()
        if error is not None:
            raise PartlyDone(made, error)
        return made

    def _keys_of(self, chunk: Chunk) -> tuple[Any, BaseException | None]:
        if self._user is None:
            return chunk.elements(), None
        found = call_rows(self._user, chunk)
        return found.values, found.failure

    def _without_skipped(self, rows: Chunk) -> Chunk | None:
        skipped = min(self._skip - self._skipped, len(rows))
        self._skipped += skipped
        return rows.slice(skipped, len(rows)) if skipped < len(rows) else None

    def _over_limit(self) -> MemoryBudgetError | None:
        limit = self.context.services.budget.limit
        if self._seen.nbytes <= limit // SHARE:
            return None
        return MemoryBudgetError(
            f"unique() cannot hold more keys: {len(self._seen):,} keys take {self._seen.nbytes} bytes, more than half "
            f"of the memory limit of {limit} bytes. Pass spill=True, or key= with smaller keys, or open the dataset "
            "with a larger memory_limit."
        )

    def finish(self) -> Iterator[Chunk]:
        if self._skipped < self._skip:
            raise StateMismatchError(
                [f"the state was saved after {self._skip} rows of unique(), which now has {self._skipped}"],
                OTHER_PIPELINE,
            )
        return iter(())

    def close(self) -> None:
        self._seen.close()  # places need the leading keys
        self._held.end()

    def at(self, rows: int, book: BookWriter) -> State:
        given = self._given + rows
        form = stored([as_plain(key) for key in self._seen.first[:given]]) if given <= MOST_SAVED else None
        if form is None or len(form[0]) <= given:  # the form begins with the name of its type
            return {"op": self.kind, "given": given, "keys": None, "input": None}
        before = self.source.at(self._kept.input_rows(self._skip + rows), book)
        return {"op": self.kind, "given": given, "keys": sealed(form[0]), "input": before}

    def forget(self, rows: int) -> None:
        self.source.forget(self._kept.input_rows(self._skip + rows))
        self._kept.forget(self._skip + rows)

    def resume(self, state: State) -> State:
        state = taken_up(state, self.kind)
        self._given = state["given"]
        if state["keys"] is None:
            self._skip = self._given
            if self._skip and not gives_one_order(self.node.input):
                raise in_order_only("rows of unique() that must be read again")
            return None
        for key in restored(state["keys"]["value"]):
            self._seen.add(from_plain(key))
        return state["input"]

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        fields = place.fields(cls.kind, "given", "keys", "input")
        given = place.counted(fields["given"])
        if fields["keys"].value is not None:
            keys = unsealed(fields["keys"])
            if type(keys) is not list or len(keys) != given:
                raise fields["keys"].refused(f"must contain {given} keys")
            yield place.of_input(fields["input"], rows=place.rows.or_more)
        elif fields["input"].value is not None:
            raise fields["input"].refused("must be null without keys")

    def rows_accounted(self) -> int | None:
        return self.rows_out + self._skipped
