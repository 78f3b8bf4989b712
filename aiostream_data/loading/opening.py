"""Open a plan: as one of several ranks, where a state says, without what is to be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiostream_data._engine.engine import Engine
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.device.select import current_gpu
from aiostream_data.errors import RankError
from aiostream_data.failing.policies import OnError
from aiostream_data.loading.same_rank import check_same_rank
from aiostream_data.loading.saved import Saved
from aiostream_data.loading.steering import Steering
from aiostream_data.metrics.prices import Prices
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.blocking import with_blocked
from aiostream_data.plan.ranks import check_enough_rows, for_rank
from aiostream_data.plan.replaying import replayed_seed
from aiostream_data.plan.rewrite import unordered, with_policy
from aiostream_data.plan.worker_share import for_loader_worker
from aiostream_data.ranks import LoaderWorkers, Ranks, Sharing, choose_ranks, choose_workers
from aiostream_data.ranks.listing import Broadcast, ListOnce

SavedStates = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a data set is opened; kept by the loader, which may have to open it anew.

    Attributes:
        plan: As the user wrote it.
        run: Options of the run.
        epoch, seed: Of the first pass; the seed as it was given. A state has its own.
        ranks, sharing: Which rank this is, and how the rows are shared.
        workers: Which worker of a DataLoader this is, and how many share the rank's elements.
        saved: Where to go on.
        steering: What is left out.
        only: Elements ``a`` to ``b`` alone are given; None for all.
        weights: Changes of mixtures' weights by row, instead of those of ``saved``.
        on_error: What becomes of records that fail in stages that were not told.
        broadcast: How rank 0 tells the others which files it found; None where each rank looks itself.
        prices: What requests and bytes cost; None where nobody asks.
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
    steering: Steering = field(default_factory=Steering)
    only: tuple[int, int] | None = None
    weights: Any = None
    on_error: OnError = None
    broadcast: Broadcast | None = None
    prices: Prices | None = None

    def engine(self) -> Engine:
        """Return a running engine.

        Raises:
            PlanError: The plan cannot be shared like that.
            RankError: There are fewer rows than ranks, or workers of a DataLoader would have to speak for their rank.
            StateMismatchError: The state is damaged, or says where another rank was with an order of its own.
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
            current_gpu=current_gpu() if any(isinstance(node, op.ToDevice) for node in walk(self.plan)) else None,
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
                f"{called}= is called by every rank once, and this is {self.workers} of a DataLoader: leave it out, or "
                "let the rank itself open the data set"
            )

    def again(self, saved: Saved, **changes: Any) -> Opening:
        """Return how to open the same, where another state says."""
        # Opened anew by this rank alone, so nobody else would join in a broadcast.
        return replace(self, saved=saved, seed=None, weights=None, broadcast=None, **changes)

    def _list_once(self) -> ListOnce | None:
        if self.broadcast is None or self.ranks.world_size == 1:
            return None
        return ListOnce(self.ranks.rank == 0, self.broadcast)

    def _plan(self) -> Node:
        plan = self.plan if self.on_error is None else with_policy(self.plan, self.on_error)
        plan = with_blocked(plan, self.steering.blocked)
        self._check_workers()
        if self.sharing.policy == "file":
            plan = for_rank(plan, self.workers.among(self.ranks), self.sharing)
        else:
            plan = for_rank(plan, self.ranks, self.sharing)
            check_enough_rows(plan, self.ranks)
            plan = for_loader_worker(plan, self.workers.number, self.workers.count)
        return plan if self.deterministic else unordered(plan)


def _resuming(options: EngineOptions, saved: Saved) -> EngineOptions:
    """Return options that go on where a state says."""
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
    """Return which worker of a DataLoader opens a plan; see :func:`choose_workers`."""
    shards = [(node.num_shards, node.index) for node in walk(plan) if isinstance(node, op.Shard)]
    return choose_workers(worker, rank, world_size, shards)


def is_shared(plan: Node) -> bool:
    """Return True if a data set that is opened without a word about ranks and workers gets its seed from those.

    Raises:
        PlanError, RankError: That cannot be told.
    """
    workers = workers_of(plan, None, None, None)
    return workers.seed is not None or ranks_of(plan, None, None, 1).world_size > 1


def ranks_of(plan: Node, rank: int | None, world_size: int | None, replicate: int) -> Ranks:
    """Return which rank opens a plan; one that the user shards himself is not shared a second time by what is found."""
    if rank is None and world_size is None and any(isinstance(node, op.Shard) for node in walk(plan)):
        return Ranks(replicate=replicate) if replicate == 1 else choose_ranks(rank, world_size, replicate)
    return choose_ranks(rank, world_size, replicate)
