"""Run ``ragged_batch`` and ``sparse_batch``: batches of rows with different shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.stages.grouping.windows import PaddedBatchStep
from aiostream_data.plan.uneven_batches import RaggedBatch, SparseBatch
from aiostream_data.rows.records import Chunk
from aiostream_data.transforms.collate import DescribeRow
from aiostream_data.transforms.uneven_rows import ragged_rows, sparse_rows


@dataclass
class RaggedBatchStep(PaddedBatchStep):
    """Step of a ``RaggedBatch`` plan node."""

    def make(self, rows: Chunk, describe: DescribeRow) -> Any:
        node: RaggedBatch = self.node
        return ragged_rows(rows, node.dense, describe)


@dataclass
class SparseBatchStep(PaddedBatchStep):
    """Step of a ``SparseBatch`` plan node."""

    def make(self, rows: Chunk, describe: DescribeRow) -> Any:
        node: SparseBatch = self.node
        return sparse_rows(rows, node.row_shape, describe)
