"""Map each type of plan node to the stage or step class that runs nodes of this type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiostream_data._engine.calls.map_coroutine import CoroutineStage
from aiostream_data._engine.calls.parse import ParseStage
from aiostream_data._engine.calls.rowwise import RowwiseStage
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.processes.subprocess_stage import SubprocessStage
from aiostream_data._engine.processes.worker_shard import LoaderShardStep, WorkerShardStep
from aiostream_data._engine.sources.files import ReadFilesSource
from aiostream_data._engine.sources.list_files import ListFilesSource
from aiostream_data._engine.sources.memory import MemorySource
from aiostream_data._engine.sources.python_source import PythonSource
from aiostream_data._engine.stages.batch import BatchStep
from aiostream_data._engine.stages.block import BlockStage
from aiostream_data._engine.stages.caching.cache import CacheStage
from aiostream_data._engine.stages.equal import AgreeStage, EqualRowsStage
from aiostream_data._engine.stages.grouping.buckets import BucketStep
from aiostream_data._engine.stages.grouping.costs import CostBatchStep
from aiostream_data._engine.stages.grouping.pack import PackStep
from aiostream_data._engine.stages.grouping.windows import PaddedBatchStep, RebatchStep, WindowStep
from aiostream_data._engine.stages.interleaving.interleave import InterleaveStage
from aiostream_data._engine.stages.mix import ChooseStage, MixStage
from aiostream_data._engine.stages.prefetch import PrefetchStage
from aiostream_data._engine.stages.ranks import MarkPaddingStep, RankShardStep
from aiostream_data._engine.stages.recalled import RecalledStage
from aiostream_data._engine.stages.repeat import ConcatenateStage, RepeatStage
from aiostream_data._engine.stages.select import EnumerateStage, ShardStage, SkipStage, TakeStage
from aiostream_data._engine.stages.shuffle import ShuffleStep
from aiostream_data._engine.stages.take_while import TakeWhileStage
from aiostream_data._engine.stages.to_device.to_device import ToDeviceStage
from aiostream_data._engine.stages.unbatch import UnbatchStep
from aiostream_data._engine.stages.zip import ZipStage
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan import mixing
from aiostream_data.plan import operators as op
from aiostream_data.plan import rank_nodes as ranks
from aiostream_data.plan import sources as src
from aiostream_data.plan import windows as win
from aiostream_data.plan.base import Node, Operator
from aiostream_data.plan.blocked_rows import Block
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.replaying import Recalled
from aiostream_data.plan.subprocess import InSubprocess, LoaderShard, WorkerShard
from aiostream_data.plan.take_while import TakeWhile

STAGES: Final[dict[type[Node], type[Stage]]] = {
    src.Tensors: MemorySource,
    src.TensorSlices: MemorySource,
    src.Range: MemorySource,
    src.Generator: PythonSource,
    src.PythonIterable: PythonSource,
    src.ListFiles: ListFilesSource,
    src.ReadFiles: ReadFilesSource,
    Block: BlockStage,
    Recalled: RecalledStage,
    op.Map: RowwiseStage,
    op.Filter: RowwiseStage,
    op.Interleave: InterleaveStage,
    op.ParseExample: ParseStage,
    op.ParseRows: RowwiseStage,
    op.Repeat: RepeatStage,
    op.Take: TakeStage,
    TakeWhile: TakeWhileStage,
    op.SkipFirst: SkipStage,
    op.Shard: ShardStage,
    op.Enumerate: EnumerateStage,
    op.Zip: ZipStage,
    op.Concatenate: ConcatenateStage,
    mixing.Mix: MixStage,
    mixing.Choose: ChooseStage,
    op.Cache: CacheStage,
    op.Prefetch: PrefetchStage,
    op.ToDevice: ToDeviceStage,
    InSubprocess: SubprocessStage,
    ranks.EqualRows: EqualRowsStage,
    ranks.Agree: AgreeStage,
}

STEPS: Final[dict[type[Node], type[Step]]] = {
    op.Shuffle: ShuffleStep,
    op.Batch: BatchStep,
    op.Unbatch: UnbatchStep,
    ranks.RankShard: RankShardStep,
    ranks.MarkPadding: MarkPaddingStep,
    win.PaddedBatch: PaddedBatchStep,
    win.Rebatch: RebatchStep,
    win.Window: WindowStep,
    win.Bucket: BucketStep,
    win.Pack: PackStep,
    CostBatch: CostBatchStep,
    WorkerShard: WorkerShardStep,
    LoaderShard: LoaderShardStep,
}
"""Step classes by node type.

A step runs in the hops (calls) of the previous stage, without an asyncio task of its own.
"""


def build(node: Node, context: RunContext, counters: StageCounters, fused: Sequence[op.Call] = ()) -> Stage:
    """Create the stage that runs ``node``.

    Args:
        fused: Earlier nodes that run in the same stage, in stream order, as returned by :func:`fused_below`.
    """
    if fused:
        return RowwiseStage(node, context, counters, fused=fused)
    kind = CoroutineStage if isinstance(node, op.Call) and node.is_coroutine else STAGES[type(node)]
    return kind(node, context, counters)


def fused_below(node: Node) -> tuple[op.Call, ...]:
    """Return the nodes before ``node`` whose functions run in the same hops as ``node``, in stream order."""
    fused: list[op.Call] = []
    while isinstance(node, op.Call) and isinstance(node.input, op.Call) and _run_alike(node, node.input):
        node = node.input
        fused.append(node)
    return tuple(reversed(fused))


def _run_alike(node: op.Call, lower: op.Call) -> bool:
    if node.is_coroutine or lower.is_coroutine:
        return False
    how = (node.executor, node.concurrency, node.ordered, node.timeout_s)
    return how == (lower.executor, lower.concurrency, lower.ordered, lower.timeout_s)


def stage_node(node: Node) -> Node:
    """Return the last node up to ``node`` that runs as a stage, and not as a step."""
    while type(node) in STEPS:
        assert isinstance(node, Operator)
        node = node.input
    return node


def steps_after(node: Node, context: RunContext) -> tuple[Node, list[Step]]:
    """Return the node that runs as a stage, and the steps that follow this stage up to ``node``, in stream order."""
    steps: list[Step] = []
    while type(node) in STEPS:
        assert isinstance(node, Operator)
        steps.append(STEPS[type(node)](node, context, context.counters(node)))
        node = node.input
    return node, steps[::-1]
