"""Map each type of plan node to the stage or step class that runs nodes of this type.

A class is imported when the first plan needs it. Importing all classes takes a third of a second, in which a training
loop waits for its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.stage import Stage
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, Operator, walk

K = TypeVar("K")


class Kinds(Mapping[str, type[K]]):
    """Classes by name of the node class that they run. Each class is imported when it is looked up first.

    Args:
        places: Module and name of each class, relative to this package.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._found: dict[str, type[K]] = {}

    def __getitem__(self, node_name: str) -> type[K]:
        found = self._found.get(node_name)
        if found is None:
            module, name = self._places[node_name].rsplit(".", 1)
            found = self._found[node_name] = getattr(import_module(f"{__package__}.{module}"), name)
        return found

    def __contains__(self, node_name: object) -> bool:
        return node_name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def of(self, node: Node) -> type[K]:
        """Return the class that runs ``node``."""
        return self[type(node).__name__]

    def has(self, node: Node) -> bool:
        """Return True if one of the classes runs ``node``."""
        return type(node).__name__ in self._places


_STAGES: Final = {
    "Tensors": "sources.memory.MemorySource",
    "TensorSlices": "sources.memory.MemorySource",
    "Range": "sources.memory.MemorySource",
    "Counter": "sources.endless.CounterSource",
    "Random": "sources.endless.RandomSource",
    "Generator": "sources.python_source.PythonSource",
    "PythonIterable": "sources.python_source.PythonSource",
    "SqlQuery": "sources.sql_rows.SqlSource",
    "TableFile": "sources.table_file.TableFileSource",
    "ListFiles": "sources.list_files.ListFilesSource",
    "SnapshotFiles": "sources.list_files.ListFilesSource",
    "ReadFiles": "sources.files.ReadFilesSource",
    "Block": "stages.block.BlockStage",
    "Recalled": "stages.recalled.RecalledStage",
    "Map": "calls.rowwise.RowwiseStage",
    "WithColumn": "calls.rowwise.RowwiseStage",
    "Filter": "calls.rowwise.RowwiseStage",
    "Interleave": "stages.interleaving.interleave.InterleaveStage",
    "ReduceWindows": "stages.interleaving.interleave.InterleaveStage",
    "WindowItems": "sources.memory.MemorySource",
    "WindowSlices": "sources.memory.MemorySource",
    "ParseExample": "calls.parse.ParseStage",
    "ParseRows": "calls.rowwise.RowwiseStage",
    "Repeat": "stages.repeat.RepeatStage",
    "Take": "stages.select.TakeStage",
    "TakeWhile": "stages.take_while.TakeWhileStage",
    "SkipFirst": "stages.select.SkipStage",
    "Shard": "stages.select.ShardStage",
    "Enumerate": "stages.select.EnumerateStage",
    "Zip": "stages.zip.ZipStage",
    "Concatenate": "stages.repeat.ConcatenateStage",
    "Mix": "stages.mix.MixStage",
    "Choose": "stages.mix.ChooseStage",
    "MixByWeights": "stages.mix.ChooseStage",
    "Cache": "stages.caching.cache.CacheStage",
    "Prefetch": "stages.prefetch.PrefetchStage",
    "ToDevice": "stages.to_device.to_device.ToDeviceStage",
    "InSubprocess": "processes.subprocess_stage.SubprocessStage",
    "PadToCardinality": "stages.equal.PadToCardinalityStage",
    "EqualRows": "stages.equal.EqualRowsStage",
    "Agree": "stages.equal.AgreeStage",
}
STAGES: Final = Kinds[Stage](_STAGES)

_STEPS: Final = {
    "Shuffle": "stages.shuffle.ShuffleStep",
    "Scan": "stages.scan.ScanStep",
    "Aggregate": "stages.aggregate.AggregateStep",
    "Batch": "stages.batch.BatchStep",
    "Select": "stages.columns.PickColumnsStep",
    "Drop": "stages.columns.PickColumnsStep",
    "Rename": "stages.columns.PickColumnsStep",
    "CastColumns": "stages.columns.CastStep",
    "CheckSpec": "stages.declared.CheckSpecStep",
    "AssertCardinality": "stages.asserted.AssertCardinalityStep",
    "Unique": "stages.unique.UniqueStep",
    "Unbatch": "stages.unbatch.UnbatchStep",
    "RankShard": "stages.ranks.RankShardStep",
    "MarkPadding": "stages.ranks.MarkPaddingStep",
    "CollatedBatch": "stages.grouping.collated.CollatedBatchStep",
    "PaddedBatch": "stages.grouping.windows.PaddedBatchStep",
    "RaggedBatch": "stages.grouping.uneven.RaggedBatchStep",
    "SparseBatch": "stages.grouping.uneven.SparseBatchStep",
    "Rebatch": "stages.grouping.windows.RebatchStep",
    "Window": "stages.grouping.windows.WindowStep",
    "Bucket": "stages.grouping.buckets.BucketStep",
    "KeyedWindows": "stages.grouping.keyed.KeyedWindowsStep",
    "SplitWindows": "stages.grouping.keyed.SplitWindowsStep",
    "GroupByReducer": "stages.grouping.reducer.GroupByReducerStep",
    "Pack": "stages.grouping.pack.PackStep",
    "CostBatch": "stages.grouping.costs.CostBatchStep",
    "WeightedChoices": "stages.weighted_choices.WeightedChoicesStep",
    "RejectionResample": "stages.resample.RejectionResampleStep",
    "WorkerShard": "processes.worker_shard.WorkerShardStep",
    "LoaderShard": "processes.worker_shard.LoaderShardStep",
}
STEPS: Final = Kinds[Step](_STEPS)
"""Step classes by node class.

A step runs in the hops (calls) of the previous stage, without an asyncio task of its own.
"""

_FUSED: Final = Kinds[Any]({"Call": "calls.rowwise.RowwiseStage"})
_COROUTINES: Final = Kinds[Stage]({"Call": "calls.map_coroutine.CoroutineStage"})


def build(node: Node, context: RunContext, counters: StageCounters, fused: Sequence[op.Call] = ()) -> Stage:
    """Create the stage that runs ``node``.

    Args:
        fused: Earlier nodes that run in the same stage, in stream order, as returned by :func:`fused_below`.
    """
    if fused:
        stage: Stage = _FUSED["Call"](node, context, counters, fused=fused)
        return stage
    awaits = isinstance(node, op.Call) and node.is_coroutine
    kind = _COROUTINES["Call"] if awaits else STAGES.of(node)
    return kind(node, context, counters)


def load_kinds(plan: Node) -> None:
    """Import the classes that run a plan. Call it before the run, because imports block the event loop."""
    for node in walk(plan):
        if isinstance(node, op.Call):
            (_COROUTINES if node.is_coroutine else _FUSED)["Call"]
        for kinds in (STAGES, STEPS):
            if kinds.has(node):
                kinds.of(node)


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
    while STEPS.has(node):
        assert isinstance(node, Operator)
        node = node.input
    return node


def steps_after(node: Node, context: RunContext) -> tuple[Node, list[Step]]:
    """Return the node that runs as a stage, and the steps that follow this stage up to ``node``, in stream order."""
    steps: list[Step] = []
    while STEPS.has(node):
        assert isinstance(node, Operator)
        steps.append(STEPS.of(node)(node, context, context.counters(node)))
        node = node.input
    return node, steps[::-1]
