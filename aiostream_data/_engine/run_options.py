"""How a data set is run: the arguments of ``open()`` that the engine and its processes need, checked.

One object goes from ``open()`` to the engine, to the stages and to worker processes. A new argument is a field here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from aiostream_data.storage.cache.options import ShardCache


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """Which differences between a state and the data set are accepted.

    Attributes:
        force: All of them.
        allow: Their names; see :meth:`aiostream_data.Dataset.open`.
    """

    force: bool = False
    allow: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Failing:
    """How failures are reported.

    Attributes:
        dead_letters: Path of the log of records that are skipped or replaced; None for none.
        full_tracebacks: Errors keep the frames of the package.
    """

    dead_letters: str | None = None
    full_tracebacks: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagnosing:
    """When a stuck run is reported, and how much is measured.

    Attributes:
        stall_after_s: Seconds without an element after which the log names the stuck stage; None never does.
        stage_timeout_s: Seconds without an element after which the run fails; None never does.
        profile: The device measures every copy to it.
    """

    stall_after_s: float | None = None
    stage_timeout_s: float | None = None
    profile: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run.

    Attributes:
        memory_limit: Bytes of the budget.
        debug: Make one element at a time, in the thread that asks for it.
        shard_cache: Where pieces of shards are kept; None for nowhere.
        resuming, failing, diagnosing: See there.
    """

    memory_limit: int
    debug: bool = False
    shard_cache: ShardCache | None = None
    resuming: Resuming = field(default_factory=Resuming)
    failing: Failing = field(default_factory=Failing)
    diagnosing: Diagnosing = field(default_factory=Diagnosing)
