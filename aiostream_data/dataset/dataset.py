"""Dataset: a lazy, immutable, picklable description of a sequence of elements, built by chaining."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiostream_data._engine.memory.memory_limit import default_limit, parse_nbytes
from aiostream_data._native.notice import warn_without_native_core
from aiostream_data.arguments import MOST, flag, function_or_none, integer, seconds_or_none, several
from aiostream_data.dataset.batches import BatchOperators
from aiostream_data.dataset.functions import FunctionOperators
from aiostream_data.dataset.hints import Hints
from aiostream_data.dataset.mixtures import DatasetMixtures
from aiostream_data.dataset.windows import WindowOperators
from aiostream_data.errors import ArgumentTypeError, PlanError, UnknownLengthError
from aiostream_data.failing.policies import OnError, Raise, log_path, policy_of
from aiostream_data.formats.example import ExampleParser
from aiostream_data.formats.features import Feature
from aiostream_data.formats.sequence_example import SequenceExampleParser
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import (
    AUTO,
    INFINITE,
    Auto,
    Concurrency,
    Node,
    at_least,
    auto_or_at_least_one,
    seed_of,
    spill_of,
)
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import element_spec
from aiostream_data.plan.subprocess import in_subprocess
from aiostream_data.plan.validate import (
    check_extends,
    check_repeat,
    check_rereadable,
    check_transform,
)
from aiostream_data.rows.structure import flatten

if TYPE_CHECKING:
    from aiostream_data.device.handover import FrameworkName, HandOff
    from aiostream_data.device.image_cast import ImageCast
    from aiostream_data.loading.loader import Loader
    from aiostream_data.loading.memory_bound import MemoryBound
    from aiostream_data.ranks import Policy, Tail
    from aiostream_data.rows.provenance import Origin
    from aiostream_data.storage.cache.options import ShardCache
    from aiostream_data.transforms.shuffle_quality import ShuffleQuality

T = TypeVar("T")
U = TypeVar("U")


class Dataset(FunctionOperators[T], BatchOperators[T], WindowOperators, DatasetMixtures, Hints):
    """A sequence of elements of type ``T``, described and not yet read.

    Every method returns a new data set. Building one does no I/O and needs no event loop; what makes no
    sense is refused as a :class:`PlanError` (a ``ValueError``) where it is written. :meth:`open` runs it.

    Attributes:
        plan: The description: a tree of frozen nodes.
    """

    def __init__(self, plan: Node) -> None:
        if not isinstance(plan, Node):
            raise ArgumentTypeError(
                f"a Dataset is made by its constructors, such as from_tensor_slices(), got {type(plan).__name__}"
            )
        super().__init__(plan)
        self._iterations = itertools.count()
        self._iteration_seed = secrets.randbits(62)
        self._iterated_in = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["plan"])  # type: ignore[misc]

    # -- records

    def parse_example(
        self: Dataset[bytes], features: Mapping[str, Feature], *, on_error: OnError = None
    ) -> Dataset[dict[str, Any]]:
        """Parse serialized ``tf.train.Example`` records into a dict of features (tf.io ``parse_example``).

        Parsing happens in native code, over whole chunks, in the reading hop where possible.

        Args:
            on_error: What becomes of a record that does not fit; see :meth:`map`.

        Raises (when iterated):
            ExampleParseError: Names URL, record, feature, expected and found.
        """
        parser = ExampleParser(features)
        policy_of(on_error)
        return self._then(op.ParseExample, "parse_example", decoder=parser, features=tuple(features), on_error=on_error)

    def parse_sequence_example(
        self: Dataset[bytes],
        context: Mapping[str, Feature],
        sequences: Mapping[str, Feature],
        *,
        on_error: OnError = None,
    ) -> Dataset[dict[str, dict[str, Any]]]:
        """Parse serialized ``tf.train.SequenceExample`` records (tf.io ``parse_sequence_example``).

        Elements are ``{"context": {name: value}, "sequences": {name: array of (steps, *shape)}}``; a
        VarLen sequence gives a :class:`~aiostream_data.formats.sequence_example.RaggedSteps`.

        Raises (when iterated):
            ExampleParseError: Names URL, record, feature, expected and found.
        """
        parser = SequenceExampleParser(context, sequences)
        name, features = "parse_sequence_example", (*context, *sequences)
        policy_of(on_error)
        return self._then(op.ParseExample, name, decoder=parser, features=features, name=name, on_error=on_error)

    # -- order

    def shuffle(
        self,
        buffer_size: int | Auto = AUTO,
        *,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        spill: bool | str | os.PathLike[str] = False,
    ) -> Dataset[T]:
        """Give elements in random order (tf.data ``shuffle``).

        With a number, out of a buffer: it is filled, then a uniformly chosen element is given and
        replaced by the next. With AUTO, whatever shuffles best: over arrays, ranges and whole files a
        random order of all of them, with no buffer; over files of records, many files are read at once
        in random order, through a buffer that gives elements out while it grows. :meth:`explain` says
        which. The order depends on seed, epoch and the input's order only.

        Args:
            buffer_size: Elements held; AUTO holds at most 8,192, or 128 MiB of them.
            seed: Without one, the loader's.
            reshuffle_each_iteration: False gives the same order in every epoch.
            spill: Let rows wait in a file once they take an eighth of the loader's ``memory_limit``: True in the
                system's folder for temporary files, a path in that folder. The order, and states, are the same. The
                file has no name, takes up to about twice the bytes of the rows that are held, and is gone with the
                process. With AUTO, it lets 128 MiB of rows be held within a smaller ``memory_limit``.

        Raises (when opened or iterated):
            SpillError: There is no such folder, no room in it, or rows come back from it damaged.
        """
        return self._then(
            op.Shuffle,
            "shuffle",
            buffer_size=auto_or_at_least_one("buffer_size", buffer_size),
            seed=seed_of(seed),
            reshuffle_each_iteration=flag("reshuffle_each_iteration", reshuffle_each_iteration),
            spill=spill_of(spill),
        )

    def repeat(self, count: int | None = None) -> Dataset[T]:
        """Give the elements ``count`` times, or for ever with None or -1 (tf.data ``repeat``).

        The next epoch is being read before this one ends; epochs never mix.

        Raises:
            StageBuildError: The source can be read only once.
        """
        endless = count is None or (isinstance(count, int) and count == -1)
        times = None if endless else at_least("count", count, 0)
        repeated: Dataset[T] = self._then(op.Repeat, "repeat", count=times)
        assert isinstance(repeated.plan, op.Repeat)
        check_repeat(repeated.plan)
        return repeated

    def take(self, count: int) -> Dataset[T]:
        """Give the first ``count`` elements; all with -1 (tf.data ``take``)."""
        return self._then(op.Take, "take", count=at_least("count", count, -1))

    def skip(self, count: int) -> Dataset[T]:
        """Leave out the first ``count`` elements; every one with -1 (tf.data ``skip``)."""
        return self._then(op.Skip, "skip", count=at_least("count", count, -1))

    def shard(self, num_shards: int, index: int) -> Dataset[T]:
        """Give every ``num_shards``-th element, beginning with number ``index`` (tf.data ``shard``).

        Do it before ``map`` and ``shuffle``, on file names where possible.
        """
        shards = at_least("num_shards", num_shards, 1)
        if at_least("index", index, 0) >= shards:
            raise PlanError(f"index must be below num_shards ({shards}), got {index}")
        return self._then(op.Shard, "shard", num_shards=shards, index=integer("index", index))

    # -- several data sets

    def zip(*datasets: Any) -> Dataset[Any]:
        """Give one element of each at a time, ending with the shortest (tf.data ``zip``).

        ``Dataset.zip(a, b)`` and ``a.zip(b)`` give tuples; ``Dataset.zip({"x": a, "y": b})``, or any
        nested structure, that structure.

        Raises:
            PlanError: A list is given, or something that is no data set.
        """
        whole: Any = datasets[0] if len(datasets) == 1 else tuple(datasets)
        structure, leaves = flatten(whole)
        if not leaves:
            raise PlanError("zip() needs at least one data set")
        nodes = tuple(_plan_of(leaf, "zip") for leaf in leaves)
        return Dataset(op.Zip(structure=structure, nodes=nodes))

    def concatenate(*datasets: Dataset[Any]) -> Dataset[Any]:
        """Give all elements of the first, then of the next (tf.data ``concatenate``)."""
        return Dataset(op.Concatenate(nodes=tuple(_plan_of(dataset, "concatenate") for dataset in datasets)))

    def enumerate(self, start: int = 0) -> Dataset[tuple[int, T]]:
        """Give (number, element) pairs, counted from ``start`` (tf.data ``enumerate``)."""
        return self._then(op.Enumerate, "enumerate", start=integer("start", start, -MOST - 1))

    # -- memory and devices

    def cache(self) -> Dataset[T]:
        """Keep the elements of the first complete pass in memory (tf.data ``cache``).

        Iterators of this process share them; an incomplete pass is thrown away. What is kept counts
        against the memory limit of the loader that read it.
        """
        return self._then(op.Cache, "cache")

    def prefetch(self, buffer_size: Concurrency = AUTO) -> Dataset[T]:
        """Let up to ``buffer_size`` elements be ready before they are asked for (tf.data ``prefetch``)."""
        size = auto_or_at_least_one("buffer_size", buffer_size)
        return self._then(op.Prefetch, "prefetch", buffer_size=size)

    def in_subprocess(self, workers: int = 1) -> Dataset[T]:
        """Run everything up to here in a process of its own, so that it takes no time from the training loop's.

        Elements come over through shared memory, as NumPy arrays that belong to the consumer. Order, states,
        hash and origins are those of the chain without it. With several workers each makes every
        ``workers``-th element; :meth:`explain` says which part of the chain all of them run.

        Raises:
            StageBuildError: A function or source cannot be sent to another process.
            PlanError: The chain has ``ordered=False`` and there are several workers.
        """
        return self._then(in_subprocess, "in_subprocess", workers=workers)

    def to_device(
        self,
        device: str = "auto",
        *,
        depth: int = 3,
        handoff: HandOff = "copy",
        framework: FrameworkName | None = None,
        transform: ImageCast | None = None,
        allow_pageable: bool = False,
    ) -> Dataset[Any]:
        """Give batches in the memory of a device; must come last.

        Batches are written into ``depth`` reusable slots and copied ahead of the consumer::

            for batch in dataset.batch(256).to_device(framework="torch"):
                loss = step(batch["image"], batch["label"])  # tensors of your own, on your current stream

        Args:
            device: "cpu", "cuda", "cuda:N", or "auto" for a GPU where there is one. "cuda" is the GPU of the process's
                LOCAL_RANK, if that is set, or CUDA's current one.
            depth: How many batches may be on the device at once, those on their way included.
            handoff: How the consumer gets a batch. "copy": as arrays of its own. "lease": as a :class:`DeviceBatch`,
                whose arrays lie in the slot until it is given back: nothing is copied. "into": the same, for
                :meth:`DeviceBatch.into`, which copies it into arrays that stay where they are, as CUDA graphs need.
            framework: Whose arrays: "cupy", "torch" or "jax". None is NumPy on "cpu" and CuPy on a GPU.
            transform: Cast uint8 images on the device, while batches are taken out; not with handoff="lease".
            allow_pageable: Do with ordinary host memory, with a warning, where none can be page-locked.

        Raises:
            PlanError: An argument is not what it may be, or they do not go together.

        Raises (when opened):
            MissingExtraError, DeviceUnavailableError: The device or the framework cannot be used here.
        """
        from aiostream_data.device.handover import HandOver
        from aiostream_data.device.image_cast import ImageCast
        from aiostream_data.device.select import check_device

        terms = HandOver(handoff=handoff, framework=framework)
        if isinstance(device, str) and device == "cpu" and framework == "cupy":
            raise PlanError("CuPy has no arrays on 'cpu': leave framework out, or name a GPU, as in 'cuda:0'")
        if transform is not None and handoff == "lease":
            raise PlanError("transform makes new arrays, and a lease is of the slot: use handoff='copy' or 'into'")
        if not isinstance(transform, (ImageCast, NoneType)):
            raise PlanError(f"transform must be an ImageCast or None, got {transform!r}")
        placed = self._then(
            op.ToDevice,
            "to_device",
            device=check_device(device),
            depth=at_least("depth", depth, 1),
            handoff=terms.handoff,
            framework=terms.framework,
            transform=transform,
            allow_pageable=flag("allow_pageable", allow_pageable),
        )
        check_transform(placed.plan)
        return placed

    def apply(self, transformation: Callable[[Dataset[T]], Dataset[U]]) -> Dataset[U]:
        """Return ``transformation(self)`` (tf.data ``apply``)."""
        if not callable(transformation):
            raise PlanError(f"apply() needs a function, got {type(transformation).__name__}")
        return transformation(self)

    # -- what is known before reading

    @property
    def element_spec(self) -> Any:
        """The structure of an element with an :class:`ArraySpec` per leaf, as far as it is known."""
        return element_spec(self.plan)

    def cardinality(self) -> int:
        """Return the number of elements, :data:`INFINITE` (-1) or :data:`UNKNOWN` (-2)."""
        return cardinality(self.plan)

    def __len__(self) -> int:
        count = cardinality(self.plan)
        if count < 0:
            read = "of unknown length until it is read, as by sum(1 for _ in dataset)"
            found = "infinite" if count == INFINITE else read
            raise UnknownLengthError(
                f"the data set is {found}; cardinality() says so without an error. A DataLoader of PyTorch, which asks "
                "for the length, needs an IterableDataset around the data set: see docs/pytorch.md"
            )
        return count

    def __bool__(self) -> bool:
        return True

    def explain(
        self,
        *,
        memory_limit: int | str | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
    ) -> str:
        """Return the plan as it will run, what it reads, and its worst-case memory; does no I/O.

        Args:
            memory_limit, shard_cache: As for :meth:`open`.
        """
        from aiostream_data.plan.explain import explain

        limit = default_limit() if memory_limit is None else parse_nbytes(memory_limit)
        return explain(self.plan, limit, str(self.memory_bound(memory_limit=limit, shard_cache=shard_cache)))

    def memory_bound(
        self,
        *,
        memory_limit: int | str | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
    ) -> MemoryBound:
        """Return the most memory that a loader of this data set takes, on the host and on the device; reads nothing.

        :meth:`open` logs it (logger "aiostream_data", level INFO), and ``print(dataset.memory_bound())`` shows what it
        is made of. What functions keep for themselves is not in it.

        Args:
            memory_limit, shard_cache: As for :meth:`open`. A shard cache in memory has a limit of its own.
        """
        from aiostream_data.loading.memory_bound import memory_bound
        from aiostream_data.storage.cache.options import ShardCache

        limit = default_limit() if memory_limit is None else parse_nbytes(memory_limit)
        return memory_bound(self.plan, limit, ShardCache.of(shard_cache))

    def shuffle_quality(self, *, max_rows: int | None = 100_000, **open_options: Any) -> ShuffleQuality:
        """Read the data set and return how well its rows are shuffled; print it with ``str``.

        Args:
            max_rows: Rows to look at, at most, from the first one on; None for all of an epoch. How
                well the end of an epoch is shuffled shows only when all rows are looked at.
            open_options: For :meth:`open`, such as ``seed``.
        """
        from aiostream_data.transforms.shuffle_quality import quality_of_elements

        with self.open(**open_options) as loader:
            return quality_of_elements((loader.last_ids for _ in loader), max_rows)

    # -- running

    def open(
        self,
        state: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        memory_limit: int | str | None = None,
        epoch: int = 0,
        seed: int | None = None,
        deterministic: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        worker: tuple[int, int] | None = None,
        replicate: int = 1,
        policy: Policy = "row",
        tail: Tail | None = None,
        counts: Sequence[int] | None = None,
        consensus: Callable[[bool], bool] | None = None,
        broadcast: Callable[[bytes | None], bytes] | None = None,
        skip: Iterable[tuple[int, int]] = (),
        block: Iterable[Any] = (),
        on_error: OnError = None,
        dead_letters: str | os.PathLike[str] | None = None,
        shard_cache: ShardCache | str | os.PathLike[str] | None = None,
        prices: Mapping[str, Any] | None = None,
        force: bool = False,
        allow: Collection[str] = (),
        debug: bool = False,
        stall_after: float | None = 120.0,
        stage_timeout: float | None = None,
        full_tracebacks: bool = False,
        profile: bool = False,
    ) -> Loader[T]:
        """Start reading and return the running :class:`Loader`.

        Called outside an event loop it waits until files were found, so that a wrong name is an error
        here; inside one, ``async with`` does.

        Args:
            state: From :meth:`Loader.state_dict`: exactly the elements that were left then are given, in the same
                order. Also a list of the states of all ranks, to go on with their hashes as one.
            memory_limit: Bytes ("256MB") for everything the loader holds; default a quarter of what the
                cgroup or the machine has.
            epoch: Number of this pass, from which shuffles and ``rng`` draw anew.
            seed: For every operator that was given none; random by default, and the state's with a state.
            deterministic: False lets every stage give results as they come: the same elements, in
                whatever order is fastest (tf.data ``options().deterministic``).
            rank, world_size: Which of how many processes this is, each of which gets its own rows. Without both
                they are looked up (torch.distributed, JAX, Ray Train, launchers' variables), unless the chain has
                a ``shard()``; ``rank=0, world_size=1`` reads everything.
            worker: Number of this process, and count, of the processes that share what this rank gets. Without it the
                workers of PyTorch's DataLoader over an IterableDataset are found: together they give each element of
                the rank once. ``(0, 1)`` gives this process all of them.
            replicate: So many consecutive ranks get the same rows.
            policy, tail, counts, consensus: How rows are shared, and what makes the ranks' numbers of batches
                equal; see :class:`aiostream_data.ranks.Sharing`.
            broadcast: Lets rank 0 list the files for all ranks. Called once by each while it opens, in a thread of the
                loader: by rank 0 with a message, by the others with None; returns rank 0's message.
            skip: Elements (first, stop) that are read and not given, counted from the stream's very beginning.
            block: Origins, (URL, record index) pairs and URLs of objects that are not given.
            on_error: What becomes of a record on which a stage fails that has no ``on_error`` of its own: "raise",
                "skip", or a policy; see :meth:`map`. Sources of files skip damage and missing files by it; with Replace
                they raise.
            dead_letters: A file of JSON lines to which every record that is skipped or replaced is appended, once;
                :meth:`replay` runs them again.
            shard_cache: A :class:`ShardCache`, or the path of a folder for one: what is read of remote shards is kept
                there for later passes, other loaders and other processes.
            prices: What stores charge, for ``stats().cost``: per 1,000 requests ("GET", "HEAD", "LIST") and per 10**9
                bytes ("egress"), of all stores, or a table for each scheme ("s3").
            force: Open a state although the plan, seed or shard list is another.
            allow: Differences to the state that do not matter, such as "shards" or "shuffle.buffer_size".
            debug: Make one element at a time in the thread that asks for it; see :meth:`debug`.
            stall_after: Seconds that an element may be waited for, after which the logger "aiostream_data" warns once,
                naming the stage that is stuck, with all that :meth:`Loader.dump` tells; None never does.
            stage_timeout: Seconds that the consumer waits for an element, whichever stage is slow. Then the loader
                fails with a :class:`~aiostream_data.errors.StageTimeoutError` that names the stuck stage; None waits
                for any time. To limit each call of a function, pass ``map(timeout=)``.
            full_tracebacks: Errors of your functions keep the frames of this package and of asyncio.
            profile: Ask the device how long every copy to it took, for ``stats().devices``; that costs a little.

        Raises:
            NoMatchError, StorageError, DeviceUnavailableError, MissingExtraError, ShardCacheError: It cannot start.
            StateMismatchError: The state is of another plan, seed or shard list; lists the differences.
            RankError: The rows cannot be shared by so many ranks.
        """
        # Imported here, since they are most of what importing everything would cost.
        from aiostream_data._engine.run_options import Diagnosing, Failing, Resuming, RunOptions
        from aiostream_data.loading.loader import Loader
        from aiostream_data.loading.memory_bound import log_memory_bound
        from aiostream_data.loading.opening import Opening, ranks_of, workers_of
        from aiostream_data.loading.saved import Saved
        from aiostream_data.loading.steering import Steering
        from aiostream_data.metrics.prices import Prices
        from aiostream_data.plan.difference import checked_allow
        from aiostream_data.ranks import Sharing
        from aiostream_data.storage.cache.options import ShardCache

        warn_without_native_core()
        saved = Saved.of(state)
        steering = Steering.of(skip, block)
        log = None if dead_letters is None else os.path.abspath(log_path("dead_letters", dead_letters))
        run = RunOptions(
            memory_limit=default_limit() if memory_limit is None else parse_nbytes(memory_limit),
            debug=flag("debug", debug),
            shard_cache=ShardCache.of(shard_cache),
            resuming=Resuming(
                force=flag("force", force),
                allow=checked_allow(several("allow", allow, "names of differences"), self.plan),
            ),
            failing=Failing(dead_letters=log, full_tracebacks=flag("full_tracebacks", full_tracebacks)),
            diagnosing=Diagnosing(
                stall_after_s=seconds_or_none("stall_after", stall_after),
                stage_timeout_s=seconds_or_none("stage_timeout", stage_timeout),
                profile=flag("profile", profile),
            ),
        )
        opening = Opening(
            plan=self.plan,
            run=run,
            epoch=at_least("epoch", epoch, 0),
            seed=seed_of(seed),
            deterministic=flag("deterministic", deterministic),
            ranks=ranks_of(self.plan, rank, world_size, replicate),
            workers=workers_of(self.plan, worker, rank, world_size),
            sharing=Sharing(policy=policy, tail=tail, counts=counts, consensus=consensus),
            broadcast=function_or_none("broadcast", broadcast),
            on_error=None if policy_of(on_error) == Raise() else on_error,
            prices=Prices.of(prices),
            saved=saved,
            steering=steering if saved is None else Steering.from_dict(saved.steering) | steering,
        )
        log_memory_bound(opening.plan, opening.run.memory_limit, opening.run.shard_cache)
        loader: Loader[T] = Loader(opening)
        if not _in_running_loop():
            loader.wait_ready()
        return loader

    def debug(self, state: Any = None, **open_options: Any) -> Loader[T]:
        """Open the data set such that one element is made at a time, in the thread that asks for it.

        Functions are called right inside ``next()``, so that ``breakpoint()``, ``print`` and profilers work in them;
        see :meth:`Loader.debug`, which does the same from where a loader stands.

        Args:
            state, open_options: As for :meth:`open`.
        """
        return self.open(state, debug=True, **open_options)

    def fetch(self, origin: Origin | Mapping[str, Any], *, memory_limit: int | str | None = None) -> Any:
        """Return a row as it was delivered, made again from where it came from.

        It is read at its source and taken through the chain, random augmentation included. Of a chain with
        ``batch`` it is the row as it went into the batch; what is done to whole batches is not done to it.

        Args:
            origin: From :meth:`Loader.origins`, or its ``as_dict()``.

        Raises:
            StateMismatchError: The plan has no such row.
        """
        from aiostream_data.loading.fetching import fetch_row
        from aiostream_data.rows.provenance import Origin

        limit = default_limit() if memory_limit is None else parse_nbytes(memory_limit)
        return fetch_row(self.plan, Origin.of(origin), limit)

    def replay(self, log: str | os.PathLike[str]) -> Dataset[T]:
        """Return a data set of what the records of a dead-letter log give now, from where they failed on.

        Each is read again at its source, and taken through the stage in which it failed and all after it;
        without ``repeat``, ``take``, ``skip`` and ``shard``, which count all rows. Open it as any other, with an
        error policy and another log for those that fail still. Without a seed it runs with that of the log. What
        sources lost is left out, with a warning: repair the files and read them.

        Args:
            log: What ``open(dead_letters=...)`` or :class:`Quarantine` wrote for this data set, or one like it.

        Raises:
            DeadLetterError: It cannot be read, is empty, or does not fit the plan.
        """
        from aiostream_data.failing.dead_letter_log import read_entries
        from aiostream_data.plan.replaying import replayed

        return Dataset(replayed(self.plan, read_entries(log)))

    def __iter__(self) -> Iterator[T]:
        """Open, iterate and close. Every iteration over this object is the next epoch, as in tf.data."""
        with self.open(epoch=self._next_epoch(), seed=self._seed_of_iterations()) as loader:
            yield from loader

    def __aiter__(self) -> AsyncIterator[T]:
        """Open and iterate; what is left is closed when the iterator is dropped."""
        return _AsyncIteration(self.open(epoch=self._next_epoch(), seed=self._seed_of_iterations()))

    def _seed_of_iterations(self) -> int | None:
        """Return the seed that all iterations over this object have; None where other processes must have it, too."""
        from aiostream_data.loading.opening import is_shared
        from aiostream_data.plan.replaying import replayed_seed

        logged = replayed_seed(self.plan)
        if logged is not None:
            return logged
        if is_shared(self.plan):
            return None
        if self._iterated_in != os.getpid():  # a fork must not repeat what its parent drew, nor its siblings
            self._iterated_in, self._iteration_seed = os.getpid(), secrets.randbits(62)
        return self._iteration_seed

    def _next_epoch(self) -> int:
        epoch = next(self._iterations)
        if epoch:
            check_rereadable(self.plan, "iterating again")
        return epoch

    def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Dataset[Any]:
        check_extends(self.plan, name)
        return Dataset(kind(input=self.plan, **arguments))

    def __repr__(self) -> str:
        from aiostream_data.plan.shown import elements_of, on_one_line, shortened

        return f"<Dataset {on_one_line(self.plan)}, each element: {shortened(elements_of(self.plan))}>"

    def _repr_html_(self) -> str:
        """Return the plan as a table, for notebooks."""
        from aiostream_data.plan.shown import as_html

        return as_html(self.plan)


class _AsyncIteration(Generic[T]):
    """Iterates a loader and closes it at the end; dropped half-way, the loader's own end stops it."""

    def __init__(self, loader: Loader[T]) -> None:
        self._loader = loader

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await anext(self._loader)
        except BaseException:
            await self._loader.aclose()
            raise


def _plan_of(dataset: Any, name: str) -> Node:
    if isinstance(dataset, list):
        cure = "pass the data sets one by one, or make one of the list with from_tensor_slices()"
        raise PlanError(f"{name}() takes data sets, and a list counts as data, not structure: {cure}")
    if not isinstance(dataset, Dataset):
        raise PlanError(f"{name}() takes data sets, got {type(dataset).__name__}")
    check_extends(dataset.plan, name)
    return dataset.plan


def _in_running_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:  # whoever runs a loop has imported it
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
