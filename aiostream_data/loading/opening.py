"""Open a plan for one rank and worker: resume from a saved state, and exclude skipped and blocked rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiostream_data._engine.engine import Engine
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.errors import RankError
from aiostream_data.failing.policies import OnError
from aiostream_data.loading.exclusions import Exclusions
from aiostream_data.loading.same_rank import check_same_rank
from aiostream_data.loading.state_format import Saved
from aiostream_data.metrics.request_prices import Prices
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.blocked_rows import with_blocked
from aiostream_data.plan.ranks import check_enough_rows, for_rank
from aiostream_data.plan.replaying import replayed_seed
from aiostream_data.plan.rewrite import unordered, with_policy
from aiostream_data.plan.snapshots import check_pinned
from aiostream_data.plan.worker_share import for_loader_worker
from aiostream_data.ranks import LoaderWorkers, Ranks, Sharing, choose_ranks, choose_workers
from aiostream_data.ranks.listing import Broadcast, ListOnce

SavedStates = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Arguments for opening a dataset. The loader keeps the arguments so that it can restart its engine.

    Attributes:
        plan: The plan as the user built it, without rewrites.
        run: Options of the run.
        epoch, seed: Epoch of the first pass, and the seed that the user passed. A saved state overrides the epoch and
            the seed.
        deterministic: If False, all stages run unordered.
        ranks, sharing: Rank of this process, and how ranks share the rows.
        workers: PyTorch DataLoader worker of this process, and the number of workers that share the rank's elements.
        saved: State to resume from.
        steering: Skipped elements and blocked rows.
        only: Range of element numbers to emit, from the first number up to the second (exclusive); None emits all
            elements.
        weights: Changes of mixture weights, each with its first row. The given changes override the weight changes in
            ``saved``.
        on_error: Error policy for stages that have no ``on_error`` argument of their own.
        broadcast: Function by which rank 0 sends the file list to other ranks; None if each rank lists the files.
        prices: Prices of requests and bytes; None if costs are not computed.
    """

    plan: Node
    run: RunOptions
    epoch: int = 0
    seed: int | None = None
    deterministic: bool = True
    ranks: Ranks = field(default_factory=Ranks)
    sharing: Sharing = field(default_factory=Sharing)
    workers: LoaderWorkers = field(default_factory=LoaderWorkers)
    saved: Saved | None = None
    steering: Exclusions = field(default_factory=Exclusions)
    only: tuple[int, int] | None = None
    weights: Any = None
    on_error: OnError = None
    broadcast: Broadcast | None = None
    prices: Prices | None = None

    def engine(self) -> Engine:
        """Start a new engine with these arguments, and return the engine.

        Raises:
            PlanError: The ranks cannot share the plan with these options.
            RankError: The dataset has fewer rows than ranks, or a DataLoader worker would call a function reserved for
                ranks.
            StateMismatchError: The state is damaged, or another rank with its own row order saved the state.
        """
        saved = self.saved
        options = EngineOptions(
            run=self.run,
            epoch=self.epoch,
            root_seed=self._root_seed() if saved is None else saved.seed,
            weights=self.weights,
            written=self.plan,
            world_size=self.ranks.shares,
            given_seed=self.seed,
            current_gpu=self._current_gpu(),
            list_once=self._list_once(),
        )
        plan = self._plan()
        if saved is not None:
            of_ranks = [_resuming(options, each) for each in saved.of_ranks]
            options = replace(_resuming(options, saved), of_ranks=of_ranks)
            if not self.run.resuming.force:
                check_same_rank(saved, plan, self.ranks, self.sharing.policy, self.workers)
        if not self.run.debug:
            return Engine(plan, options)
        from aiostream_data._engine.stepping import SteppingEngine

        return SteppingEngine(plan, options)

    def _root_seed(self) -> int | None:
        seed = replayed_seed(self.plan) if self.seed is None else self.seed
        if seed is None and self.ranks.world_size == 1:
            seed = self.workers.seed
        return self.workers.among(self.ranks).root_seed(seed)

    def _check_workers(self) -> None:
        called = "consensus" if self.sharing.consensus else "broadcast" if self.broadcast else None
        if called is not None and self.workers.count > 1:
            raise RankError(
                f"{called}= must be called once per rank, but this process is {self.workers} of a DataLoader. "
                f"Remove {called}=, or open the dataset in the rank's main process."
            )

    def again(self, saved: Saved, **changes: Any) -> Opening:
        """Return arguments that reopen the dataset at a different saved state."""
        # Reopening happens on this rank alone, so no other rank would take part in a broadcast.
        return replace(self, saved=saved, seed=None, weights=None, broadcast=None, **changes)

    def _current_gpu(self) -> int | None:
        """Return the number of the current GPU if the plan uses a device."""
        if not any(isinstance(node, op.ToDevice) for node in walk(self.plan)):
            return None
        from aiostream_data.device.select import current_gpu  # needed for devices only

        return current_gpu()

    def _list_once(self) -> ListOnce | None:
        if self.broadcast is None or self.ranks.world_size == 1:
            return None
        return ListOnce(self.ranks.rank == 0, self.broadcast)

    def _plan(self) -> Node:
        plan = self.plan if self.on_error is None else with_policy(self.plan, self.on_error)
        plan = with_blocked(plan, self.steering.blocked)
        self._check_workers()
        check_pinned(self.plan, self.ranks.world_size * self.workers.count)
        if self.sharing.policy == "file":
            plan = for_rank(plan, self.workers.among(self.ranks), self.sharing)
        else:
            plan = for_rank(plan, self.ranks, self.sharing)
            check_enough_rows(plan, self.ranks)
            plan = for_loader_worker(plan, self.workers.number, self.workers.count)
        return plan if self.deterministic else unordered(plan)


def _resuming(options: EngineOptions, saved: Saved) -> EngineOptions:
    """Return engine options that resume at a saved state."""
    return replace(
        options,
        epoch=saved.epoch,
        root_seed=saved.seed,
        state=saved.position,
        book=saved.rows,
        weights=options.weights or saved.weights,
        caches=saved.caches,
        held_against={**saved.pipeline, "seed": saved.seed},
        received=saved.received,
    )


def workers_of(plan: Node, worker: tuple[int, int] | None, rank: int | None, world_size: int | None) -> LoaderWorkers:
    """Return the DataLoader worker of the process that opens a plan; see :func:`choose_workers`."""
    shards = [(node.num_shards, node.index) for node in walk(plan) if isinstance(node, op.Shard)]
    return choose_workers(worker, rank, world_size, shards)


def is_shared(plan: Node) -> bool:
    """Return True if the environment provides ranks or a worker seed, so that processes share the dataset and its seed.

    Raises:
        PlanError, RankError: The ranks or workers cannot be determined.
    """
    workers = workers_of(plan, None, None, None)
    return workers.seed is not None or ranks_of(plan, None, None, 1).world_size > 1


def ranks_of(plan: Node, rank: int | None, world_size: int | None, replicate: int) -> Ranks:
    """Return the rank and world size of the process that opens a plan.

    Detected ranks are ignored for a plan with ``shard()``, because they would shard the data a second time.
    """
    if rank is None and world_size is None and any(isinstance(node, op.Shard) for node in walk(plan)):
        return Ranks(replicate=replicate) if replicate == 1 else choose_ranks(rank, world_size, replicate)
    return choose_ranks(rank, world_size, replicate)
