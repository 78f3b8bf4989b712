"""Batch rows of similar length (``bucket_by_sequence_length``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.calls.user_numbers import numbers_of
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.stages.grouping.group_step import SortingStep
from aiostream_data.errors import BatchShapeError
from aiostream_data.plan.windows import Bucket
from aiostream_data.ranks.padding import as_padding, batches_marked_like, batches_without_padding
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.state_fields import Part
from aiostream_data.transforms.bucketing import Bucketful, BucketOrder
from aiostream_data.transforms.grouping import Make, as_elements, rows_of_groups, stack_rows
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.lengths import leaves_of, row_lengths
from aiostream_data.transforms.padding import PaddingRule, pad_rows
from aiostream_data.transforms.rank_rows import BatchShare, share_of_batch

Numbers = NDArray[np.int64]


@dataclass
class BucketStep(SortingStep[BucketOrder]):
    """Step of a ``Bucket`` plan node: batches rows of similar length."""

    kind: ClassVar[str] = "bucket_by_sequence_length"

    def order(self) -> BucketOrder:
        node: Bucket = self.node
        self._rule = self.padding_rule()
        least = node.share[1] if node.share is not None and node.tail == "drop" else 1
        return BucketOrder(node.boundaries, node.batch_sizes, node.drop_remainder, least)

    @classmethod
    def order_schema(cls, place: Place, part: Part) -> int:
        return part.fields("held")["held"].integer()  # no maximum: bucket sizes grow with the number of ranks

    def lengths(self, chunk: Chunk) -> Numbers:
        node: Bucket = self.node
        describe = self.context.services.origins.describe
        if isinstance(node.element_length, str):
            leaves = leaves_of(chunk, (node.element_length,))
            lengths = row_lengths(leaves, lambda row: describe(chunk.ids, row))
        else:
            lengths = numbers_of(node.element_length, chunk, "element_length", describe)
        if node.pad_to_boundary or node.max_cost is not None:
            self._check_below_last_boundary(lengths, chunk)
        return lengths

    def elements(self, rows: HeldRows, groups: Sequence[Bucketful]) -> Chunk:
        return self._stacked(rows_of_groups(rows, [group.rows for group in groups]), groups)

    def _made(self, groups: Sequence[Bucketful]) -> Chunk:
        node: Bucket = self.node
        if node.share is None:
            return super()._made(groups)
        self._accounted += sum(map(self.rows_done, groups))
        share = node.share
        try:
            return self._own_shares(groups, share)
        except Exception:  # noqa: BLE001 - raised behind the batches before
            made = self.one_by_one(lambda group: self._own_shares([group], share), groups)
            assert made is not None
            return made

    def _own_shares(self, groups: Sequence[Bucketful], share: tuple[int, int]) -> Chunk:
        """Build one batch from this rank's share of each group of rows."""
        shares = [share_of_batch(len(group.rows), *share, self.node.tail) for group in groups]
        own = [group.rows[share.rows] for group, share in zip(groups, shares, strict=True)]
        parts = zip(rows_of_groups(self._rows, own), shares, strict=True)
        return self._stacked((self._filled_up(rows, share) for rows, share in parts), groups)

    def _filled_up(self, rows: Chunk, share: BatchShare) -> Chunk:
        return as_padding(rows, len(rows) - 1) if share.ends_in_filler and self.node.tail == "pad" else rows

    def _stacked(self, parts: Iterable[Chunk], groups: Sequence[Bucketful]) -> Chunk:
        makes = [self._make(group.bucket) for group in groups]
        made = as_elements(list(zip(parts, makes, strict=True)), self.context.services.origins.describe)
        assert made is not None
        return made

    def rows_done(self, group: Bucketful) -> int:
        return len(group.rows)

    async def recall(self, lineage: Lineage) -> Chunk:
        rows, groups = await self.recall_groups(batches_without_padding(lineage))
        lengths = [self.lengths(rows.take(group[:1])) for group in groups]  # all rows of a batch belong to one bucket
        buckets = self._order.bucket_of(np.concatenate(lengths)).tolist()
        made = self.elements(rows, [Bucketful(*pair) for pair in zip(groups, buckets, strict=True)])
        return batches_marked_like(made, lineage)

    def _make(self, bucket: int) -> Make:
        node: Bucket = self.node
        if not node.padding:
            return stack_rows
        longest = node.boundaries[bucket] - 1 if node.pad_to_boundary else None
        return partial(_pad, rule=self._rule, longest=longest)

    def _check_below_last_boundary(self, lengths: Numbers, chunk: Chunk) -> None:
        last = self.node.boundaries[-1] if self.node.boundaries else 0
        if len(lengths) and int(lengths.max()) >= last:
            row = int(lengths.argmax())
            where = self.context.services.origins.describe(chunk.ids, row)
            told = "pad_to_bucket_boundary=True" if self.node.pad_to_boundary else "max_cost"
            raise BatchShapeError(
                f"cannot put {where} into a bucket: its length is {lengths[row]}, but {told} requires lengths below "
                f"the last boundary, {last}. Raise the last boundary, or shorten the element in map()."
            )


def _pad(rows: Chunk, describe: Any, rule: PaddingRule, longest: int | None) -> Any:
    return pad_rows(rows, rule, describe, longest)
