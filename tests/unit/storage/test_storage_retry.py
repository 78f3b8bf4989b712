"""What may succeed later is tried again, for a bounded time; the rest is raised at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectNotFoundError,
    PlanError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.retry import RetryingStore, RetryPolicy, is_transient, shows_life, take_retry_options

NO_PAUSE = RetryPolicy(base_s=0.0)
SHARD = ShardRef("x://y")


class ScriptedStore:
    """Fails with the given errors, one per request, then succeeds."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self.errors = list(errors)
        self.requests = 0

    async def info(self, url: str) -> ShardRef:
        self._next()
        return SHARD

    async def glob(self, pattern: str) -> list[ShardRef]:
        self._next()
        return [SHARD]

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self._next()
        buffer[:] = b"a" * len(buffer)

    async def aclose(self) -> None:
        """Hold nothing."""

    def _next(self) -> None:
        self.requests += 1
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize("kind", [StoreBusyError, StoreTimeoutError, StoreUnreachableError])
def test_a_passing_failure_is_retried(kind: type[StorageError]) -> None:
    async def case() -> None:
        store = RetryingStore(ScriptedStore([kind("x", "later")] * 2), NO_PAUSE)
        buffer = bytearray(3)
        await store.read_into(SHARD, 0, memoryview(buffer))
        assert buffer == b"aaa"
        assert (store.counters.requests, store.counters.retries, store.counters.nbytes) == (3, 2, 3)

    asyncio.run(case())


@pytest.mark.parametrize(
    "kind", [ObjectNotFoundError, AccessDeniedError, CredentialsError, ShortReadError, StorageError]
)
def test_a_lasting_failure_is_raised_at_once(kind: type[StorageError]) -> None:
    async def case() -> None:
        inner = ScriptedStore([kind("x", "never")])
        with pytest.raises(kind):
            await RetryingStore(inner, NO_PAUSE).info("x")
        assert inner.requests == 1

    asyncio.run(case())


def test_errors_that_are_not_of_storage_pass_through() -> None:
    async def case() -> None:
        inner = ScriptedStore([PlanError("no such scheme")])
        with pytest.raises(PlanError):
            await RetryingStore(inner, NO_PAUSE).glob("x")
        assert inner.requests == 1

    asyncio.run(case())


def test_the_number_of_attempts_is_bounded_and_told() -> None:
    async def case() -> None:
        inner = ScriptedStore([StoreBusyError("x", "busy")] * 10)
        store = RetryingStore(inner, RetryPolicy(base_s=0.0, attempts=4))
        with pytest.raises(StoreBusyError) as caught:
            await store.info("x")
        assert inner.requests == 4
        assert "4 attempts" in caught.value.__notes__[0]
        assert store.counters.failures == 1

    asyncio.run(case())


def test_a_store_that_never_answered_is_given_up_sooner() -> None:
    policy = RetryPolicy(total_s=100, connect_total_s=10)
    assert policy.pause_s(1, 11.0, 0.0, reached=False) is None
    assert policy.pause_s(1, 11.0, 0.0, reached=True) == 0.0
    assert policy.pause_s(1, 101.0, 0.0, reached=True) is None


@pytest.mark.parametrize(
    ("errors", "reached"),
    [
        ([StoreUnreachableError("x", "refused")], False),
        ([StoreBusyError("x", "busy"), StoreUnreachableError("x", "refused")], True),
        ([ObjectNotFoundError("x", "missing")], True),
        ([], True),
    ],
)
def test_any_answer_shows_that_the_store_is_there(errors: list[Exception], reached: bool) -> None:
    async def case() -> None:
        store = RetryingStore(ScriptedStore(errors), RetryPolicy(base_s=0.0, attempts=max(len(errors), 1)))
        try:
            await store.info("x")
        except StorageError:
            assert errors
        assert store.reached is reached

    asyncio.run(case())


@pytest.mark.parametrize(("received", "version"), [(1, ""), (0, '"etag"')])
def test_an_answer_that_broke_off_shows_it_as_well(received: int, version: str) -> None:
    broken = StoreUnreachableError("x", "the connection failed")
    assert not shows_life(broken)
    broken.received, broken.version = received, version
    assert shows_life(broken)


def test_the_clock_ends_the_attempts() -> None:
    async def case() -> None:
        times = iter(range(0, 1000, 4))
        inner = ScriptedStore([StoreUnreachableError("x", "refused")] * 100)
        policy = RetryPolicy(base_s=0.0, connect_total_s=10)
        store = RetryingStore(inner, policy, clock=lambda: float(next(times)))
        with pytest.raises(StoreUnreachableError):
            await store.info("x")
        assert inner.requests == 3  # at 4 s and 8 s there was time left, at 12 s no more

    asyncio.run(case())


def test_pauses_double_up_to_the_cap_and_are_jittered_from_zero() -> None:
    policy = RetryPolicy(base_s=1.0, cap_s=5.0, total_s=1e9)
    longest = [policy.pause_s(attempt, 0.0, 1.0, reached=True) for attempt in (1, 2, 3, 4, 50)]
    assert longest == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.pause_s(3, 0.0, 0.25, reached=True) == 1.0
    assert policy.pause_s(3, 0.0, 0.0, reached=True) == 0.0


def test_two_clients_do_not_pause_in_step() -> None:
    policy = RetryPolicy()
    first, second = random.Random(1), random.Random(2)
    pauses = [
        [policy.pause_s(attempt, 0.0, rng.random(), reached=True) for attempt in range(1, 8)] for rng in (first, second)
    ]
    assert all(a != b for a, b in zip(*pauses, strict=True))


def test_cancelling_during_a_pause_is_prompt() -> None:
    async def case() -> None:
        inner = ScriptedStore([StoreBusyError("x", "busy")] * 10)
        store = RetryingStore(inner, RetryPolicy(base_s=1000.0, cap_s=1000.0, total_s=1e9), rng=random.Random(3))
        waiting = asyncio.ensure_future(store.info("x"))
        while inner.requests == 0:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(case())


def test_retry_options_are_taken_out_of_storage_options() -> None:
    policy, rest = take_retry_options(
        {"retry_total_s": 7, "retry_connect_total_s": 2, "retry_attempts": 3, "anon": True}
    )
    assert (policy.total_s, policy.connect_total_s, policy.attempts) == (7, 2, 3)
    assert rest == {"anon": True}


@pytest.mark.parametrize(
    "options",
    [
        {"retry_total_s": -1}, {"retry_attempts": 0}, {"retry_total_s": float("nan")}, {"retry_total_s": "5"},
        {"retry_connect_total_s": None}, {"retry_attempts": 2.5}, {"retry_attempts": True},
    ],
)  # fmt: skip
def test_senseless_retry_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="at least"):
        take_retry_options(options)


def test_only_errors_of_the_store_are_transient() -> None:
    assert not is_transient(ConnectionError())
    assert is_transient(StoreTimeoutError("x", "slow"))


def test_a_server_that_is_not_who_it_says_is_not_asked_again() -> None:
    error = StoreUnreachableError("s3://bucket/x", "the certificate was rejected")
    assert is_transient(error)
    error.is_final = True
    assert not is_transient(error)


def test_a_request_that_fails_for_long_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter(range(0, 1_000, 4))

    async def case() -> None:
        inner = ScriptedStore([StoreBusyError("s3://b/x", "the store is busy (HTTP 500)")] * 9)
        store = RetryingStore(inner, RetryPolicy(base_s=0.0), clock=lambda: float(next(seconds)))
        await asyncio.gather(store.info("s3://b/x"))

    asyncio.run(case())
    told = [record.getMessage() for record in caplog.records if record.name == "aiostream_data"]
    assert 2 <= len(told) < 9
    assert told[0].startswith("s3://b/x: the store is busy (HTTP 500): ")
    assert "attempts failed in" in told[0]
    assert "retried for up to 300 s (retry_total_s)" in told[0]


def test_a_request_that_soon_succeeds_is_not_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def case() -> None:
        await RetryingStore(ScriptedStore([StoreBusyError("x", "busy")] * 9), NO_PAUSE).info("x")

    asyncio.run(case())
    assert [record for record in caplog.records if record.name == "aiostream_data"] == []
