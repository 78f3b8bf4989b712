"""Retry transient storage failures: the retry policy, and the store wrapper that applies it.

The unit of retry is one byte range, including its body. If the transfer of a body is interrupted, the retry requests
only the missing bytes of the same object version. If the version of the object is unknown, the retry requests the
complete range. Permanent errors (not found, denied, credentials, short objects) are raised immediately. If an attempt
is still in progress when the total time limit passes, a deadline cancels the attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from aiostream_data.errors import (
    ChecksumError,
    PlanError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.redaction import shown_option
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.alarms import Alarms
from aiostream_data.storage.base import ReadCached, Store, StoreOptions, finds_many, reads_many, reads_pieces
from aiostream_data.storage.counters import Kind, StorageCounters
from aiostream_data.storage.deadline import Deadline
from aiostream_data.storage.object_size import check_sizes
from aiostream_data.storage.urls import safe_url

T = TypeVar("T")

_TRANSIENT = (StoreUnreachableError, StoreTimeoutError, StoreBusyError, WrongAnswerError)
_SILENT = (StoreUnreachableError, StoreTimeoutError)
_LOGGER = logging.getLogger("aiostream_data")
_TELL_AFTER_S = 10.0
"""Seconds of failed attempts before the first warning is logged. Later warnings are at least this many seconds
apart."""
_YEAR_S = 365.0 * 86_400
"""Longest deadline in seconds, because event loops do not accept infinity as a time."""


def is_transient(error: BaseException) -> bool:
    """Return True if a retry of the failed request may succeed."""
    return isinstance(error, _TRANSIENT) and not getattr(error, "is_final", False)


def shows_life(error: BaseException) -> bool:
    """Return True if ``error`` proves that the store answered, unlike a time-out or a failed connection."""
    if not isinstance(error, StorageError):
        return False
    return not isinstance(error, _SILENT) or error.received > 0 or error.version != ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Retry limits, and exponential backoff with full jitter.

    Attributes:
        total_s: Time limit in seconds for all attempts together, including an attempt in progress. The value 0 allows
            one attempt without a time limit.
        connect_total_s: Total time limit in seconds until the store answers for the first time. The default is short,
            so that a wrong endpoint is reported early.
        base_s: Upper bound of the first pause between attempts, in seconds. The bound doubles with every pause.
        cap_s: Maximum pause between attempts, in seconds.
        attempts: Maximum number of attempts.
        wrong_attempts: Maximum number of attempts if responses are malformed. The limit is low, because malformed
            responses usually repeat.
    """

    total_s: float = 300.0
    connect_total_s: float = 10.0
    base_s: float = 0.1
    cap_s: float = 20.0
    attempts: int = 60
    wrong_attempts: int = 6

    def __post_init__(self) -> None:
        for name in ("total_s", "connect_total_s", "base_s", "cap_s"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
                raise PlanError(f"{name} must be at least 0 seconds, got {shown_option(seconds)}")
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise PlanError(f"attempts must be a whole number of at least 1, got {shown_option(self.attempts)}")

    @property
    def deadline_s(self) -> float | None:
        """Seconds after which an attempt in progress is cancelled, or None for no limit."""
        return min(self.total_s, _YEAR_S) if self.total_s > 0 else None

    def pause_s(self, attempt: int, elapsed_s: float, draw: float, *, reached: bool) -> float | None:
        """Return the pause before the next attempt, or None to give up.

        Args:
            attempt: Number of attempts made so far, at least 1.
            elapsed_s: Seconds since the first attempt began.
            draw: Random number, uniform in [0, 1).
            reached: True if the store has already answered a request.
        """
        budget_s = self.total_s if reached else min(self.total_s, self.connect_total_s)
        # The exponent is bounded so that a long outage cannot overflow the float.
        pause_s = draw * min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 60))
        if attempt >= self.attempts or elapsed_s + pause_s > budget_s:
            return None
        return pause_s


_OPTION_NAMES = {
    "retry_total_s": "total_s",
    "retry_connect_total_s": "connect_total_s",
    "retry_attempts": "attempts",
}


def take_retry_options(options: StoreOptions) -> tuple[RetryPolicy, dict[str, object]]:
    """Split ``storage_options`` into a retry policy and the options for the store.

    The policy is built from ``retry_total_s``, ``retry_connect_total_s`` (both in seconds) and ``retry_attempts``.

    Raises:
        PlanError: A retry option is invalid.
    """
    rest = dict(options)
    chosen = {field_name: rest.pop(key) for key, field_name in _OPTION_NAMES.items() if key in rest}
    return RetryPolicy(**chosen), rest


Check: TypeAlias = Callable[[ShardRef, int, memoryview], Awaitable[None]]
"""Coroutine function ``check(shard, start, buffer)``, which raises a ChecksumError if bytes have a wrong checksum."""


async def no_check(shard: ShardRef, start: int, buffer: memoryview) -> None:
    """Accept the bytes of a read without verifying a checksum."""


@dataclass(slots=True)
class RetryingStore:
    """Store wrapper that retries transient failures. Closing the wrapper closes ``inner``.

    Attributes:
        counts_kinds: True to count requests by kind and received bytes in this wrapper, because ``inner`` does not
            count them.
        check: Verifies the bytes of a completed range. If the verification fails, the complete range is read again.
        rng: Random generator for the jitter of pauses. The jitter does not affect the order of data.
        reached: True if the store has answered any request.
        is_remote: True to cancel attempts at the policy's deadline and to validate object sizes. False for local files:
            reads of local files cannot be interrupted, and sparse files may have any size.
    """

    inner: Store
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    counters: StorageCounters = field(default_factory=StorageCounters)
    counts_kinds: bool = True
    check: Check = no_check
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    reached: bool = False
    is_remote: bool = True
    _alarms: Alarms = field(default_factory=Alarms)
    _tell_at_s: float = 0.0

    def tell(self, error: StorageError, attempts: int, elapsed_s: float, now_s: float) -> None:
        """Log a warning about repeated failures of a request, at most once per interval for each store."""
        if elapsed_s >= _TELL_AFTER_S and now_s >= self._tell_at_s:
            self._tell_at_s = now_s + _TELL_AFTER_S
            _LOGGER.warning(
                "%s: %d attempts failed in %.0f s; the request is retried for up to %g s (retry_total_s)",
                *(error, attempts, elapsed_s, self.policy.total_s),
            )

    async def info(self, url: str) -> ShardRef:
        async def attempt() -> ShardRef:
            found = await self.inner.info(url)
            if self.is_remote:
                check_sizes([found])
            return found

        return await self._persist("HEAD", url, attempt)

    async def infos(self, urls: Sequence[str]) -> list[ShardRef | None]:
        """Find many objects with one call, without retries. See :class:`.FindsMany`."""
        if not finds_many(self.inner):
            return [None] * len(urls)
        found = await self.inner.infos(urls)
        self.reached = True
        return found

    async def glob(self, pattern: str) -> Sequence[ShardRef]:
        async def attempt() -> Sequence[ShardRef]:
            found = await self.inner.glob(pattern)
            if self.is_remote:
                check_sizes(found)
            return found

        return await self._persist("LIST", pattern, attempt)

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        """Fill ``buffer``.

        If the transfer is interrupted and the object's version is known, request only the missing bytes.
        """
        attempts = _Attempts(self, "GET")
        with self._deadline() as deadline:
            await self._read_into(attempts, shard, start, buffer)
        if deadline.passed:
            raise attempts.out_of_time(shard.url) from attempts.last_error
        self.reached = True
        self.counters.nbytes += len(buffer)
        self.counters.received_nbytes += len(buffer) if self.counts_kinds else 0

    async def read_objects(
        self, shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> dict[int, Exception | None]:
        """Read many objects with one call, without retries. See :class:`.ReadsMany`.

        The outcome of an object that was not read before the deadline is a :class:`StoreTimeoutError`.
        """
        if not reads_many(self.inner):
            return {}
        outcomes: dict[int, Exception | None] = {}
        with self._deadline() as deadline:
            outcomes = await self.inner.read_objects(shards, places)
            await self._check_objects(outcomes, shards, places)
        if deadline.passed:
            attempts = _Attempts(self, "GET")
            return {number: attempts.out_of_time(shard.url) for number, shard in enumerate(shards)}
        sizes = [len(places[number]) for number, outcome in outcomes.items() if outcome is None]
        self.reached = self.reached or bool(sizes)
        self.counters.requests += len(sizes)
        self.counters.nbytes += sum(sizes)
        self.counters.received_nbytes += sum(sizes) if self.counts_kinds else 0
        return outcomes

    async def scan_cached(self, shard: ShardRef, scan: Callable[[int], T]) -> T | None:
        """Call ``scan(descriptor)`` for a local file, without retries. See :class:`.ReadsPieces`."""
        return await self.inner.scan_cached(shard, scan) if reads_pieces(self.inner) else None

    def cached_reader(self, shard: ShardRef) -> ReadCached | None:
        """Return a reader of the page cache for one file. See :class:`.ReadsPieces`."""
        return self.inner.cached_reader(shard) if reads_pieces(self.inner) else None

    async def read_pieces(self, shard: ShardRef, start: int, places: Sequence[memoryview]) -> bool:
        """Read consecutive bytes into many buffers, without retries. See :class:`.ReadsPieces`."""
        if not reads_pieces(self.inner) or not await self.inner.read_pieces(shard, start, places):
            return False
        nbytes = sum(map(len, places))
        self.reached = True
        self.counters.requests += 1
        self.counters.nbytes += nbytes
        self.counters.received_nbytes += nbytes if self.counts_kinds else 0
        return True

    async def _check_objects(
        self, outcomes: dict[int, Exception | None], shards: Sequence[ShardRef], places: Sequence[memoryview]
    ) -> None:
        """Remove the outcomes of objects with a wrong checksum."""
        if not self.is_remote:  # file systems report no checksums
            return
        for number in [number for number, outcome in outcomes.items() if outcome is None]:
            try:
                await self.check(shards[number], 0, places[number])
            except ChecksumError:
                self.counters.mismatches += 1
                self.counters.retries += 1  # the object is read again
                del outcomes[number]

    async def _read_into(self, attempts: _Attempts, shard: ShardRef, start: int, buffer: memoryview) -> None:
        done, known = 0, shard
        while True:
            attempts.begin()
            try:
                await self.inner.read_into(known, start + done, buffer[done:] if done else buffer)
                await self.check(known, start, buffer)
                return
            except StorageError as error:
                if isinstance(error, ChecksumError):
                    done = 0  # any byte of the range may be wrong
                elif is_transient(error) and error.version and error.version == (known.version or error.version):
                    done += error.received
                    known = replace(known, version=error.version)
                pause_s = attempts.pause_after(error)
            await asyncio.sleep(pause_s)

    async def aclose(self) -> None:
        self._alarms.close()
        await self.inner.aclose()

    async def _persist(self, kind: Kind, url: str, attempt_once: Callable[[], Awaitable[T]]) -> T:
        attempts = _Attempts(self, kind)
        with self._deadline():
            result = await self._repeat(attempts, attempt_once)
            self.reached = True
            return result
        raise attempts.out_of_time(url) from attempts.last_error

    async def _repeat(self, attempts: _Attempts, attempt_once: Callable[[], Awaitable[T]]) -> T:
        while True:
            attempts.begin()
            try:
                return await attempt_once()
            except StorageError as error:
                pause_s = attempts.pause_after(error)
            await asyncio.sleep(pause_s)

    def _deadline(self) -> Deadline:
        return Deadline(self._alarms, self.policy.deadline_s if self.is_remote else None)


class _Attempts:
    """Counter of the attempts at one request. The counter also computes the pause before the next attempt.

    Attributes:
        last_error: Error of the last failed attempt, or None.
    """

    __slots__ = ("_kind", "_number", "_started_s", "_store", "last_error")

    def __init__(self, store: RetryingStore, kind: Kind) -> None:
        self.last_error: StorageError | None = None
        self._store = store
        self._kind = kind
        self._started_s = store.clock()
        self._number = 0

    def begin(self) -> None:
        """Count the start of another attempt at the request."""
        counters = self._store.counters
        counters.retries += self._number > 0
        self._number += 1
        counters.requests += 1
        if self._store.counts_kinds:
            counters.sent(self._kind)

    def pause_after(self, error: StorageError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            StorageError: ``error`` is raised again if the request must not be retried.
        """
        store = self._store
        self.last_error = error
        store.reached = store.reached or shows_life(error)
        self._count(error)
        self._started_s += error.waited_s
        now_s = store.clock()
        elapsed_s = now_s - self._started_s
        pause_s = self._pause_s(error, elapsed_s)
        if pause_s is None:
            store.counters.failures += 1
            if self._number > 1:
                error.add_note(f"gave up after {self._number} attempts in {elapsed_s:.1f} s")
            raise error
        store.tell(error, self._number, elapsed_s, now_s)
        return pause_s

    def out_of_time(self, url: str) -> StoreTimeoutError:
        """Count a failed call, and return the error to raise because the call's deadline has passed."""
        store = self._store
        store.counters.failures += 1
        store.counters.timeouts += 1
        before = f" ({self._number - 1} attempts failed)" if self._number > 1 else ""
        return StoreTimeoutError(
            safe_url(url),
            f"the store did not complete its answer within retry_total_s={store.policy.total_s:g} seconds{before}; "
            "if the store or the network is slow, raise retry_total_s",
        )

    def _count(self, error: StorageError) -> None:
        counters = self._store.counters
        counters.throttled += isinstance(error, StoreBusyError) and error.is_throttled
        counters.timeouts += isinstance(error, StoreTimeoutError)
        counters.mismatches += isinstance(error, ChecksumError)

    def _pause_s(self, error: StorageError, elapsed_s: float) -> float | None:
        policy = self._store.policy
        if not is_transient(error):
            return None
        if isinstance(error, WrongAnswerError) and self._number >= policy.wrong_attempts:
            return None
        pause_s = policy.pause_s(self._number, elapsed_s, self._store.rng.random(), reached=self._store.reached)
        asked_s = error.retry_after_s if isinstance(error, StoreBusyError) else None
        if pause_s is None or asked_s is None:
            return pause_s
        return asked_s + pause_s if elapsed_s + asked_s + pause_s <= policy.total_s else None
