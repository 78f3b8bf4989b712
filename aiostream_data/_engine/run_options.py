"""Validated arguments of ``open()`` for the engine and its worker processes.

``open()`` passes one RunOptions object to the engine, the stages and the worker processes. Add each new engine argument
of ``open()`` to RunOptions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from aiostream_data.storage.cache.options import ShardCache


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """Options for resuming: accepted differences between the saved pipeline and the current pipeline.

    Attributes:
        force: True to accept every difference between the saved and the current pipeline.
        allow: Names of accepted pipeline differences; see :meth:`aiostream_data.Dataset.open`.
    """

    force: bool = False
    allow: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Failing:
    """Options for reporting failures.

    Attributes:
        dead_letters: Path of the log of skipped and replaced records; None disables the log.
        full_tracebacks: True to keep the stack frames of this package in tracebacks.
    """

    dead_letters: str | None = None
    full_tracebacks: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagnosing:
    """Options for stall reports, timeouts and profiling.

    Attributes:
        stall_after_s: Seconds without an element before the log reports the stuck stage; None disables this report.
        stage_timeout_s: Seconds without an element before the run fails; None disables this timeout.
        profile: True to measure the duration of every copy to a device.
    """

    stall_after_s: float | None = None
    stage_timeout_s: float | None = None
    profile: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run.

    Attributes:
        memory_limit: Memory limit of the loader, in bytes.
        debug: True to compute one element at a time, on the consumer's thread.
        shard_cache: Local cache for parts of shards; None for no cache.
        native_threads: Maximum number of threads of each BLAS or OpenMP library in user functions; None for no limit.
        resuming, failing, diagnosing: Options for resuming, for error handling, and for diagnosis.
    """

    memory_limit: int
    debug: bool = False
    shard_cache: ShardCache | None = None
    native_threads: int | None = None
    resuming: Resuming = field(default_factory=Resuming)
    failing: Failing = field(default_factory=Failing)
    diagnosing: Diagnosing = field(default_factory=Diagnosing)
