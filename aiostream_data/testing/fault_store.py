"""Store that injects faults according to rules, to test pipelines without sockets.

The store uses the same rules as the fault server (:mod:`aiostream_data.testing.faults`). A fault has the same effect as
in a real store. The reader gets an error of this package, truncated data, delays or wrong bytes.

Example: each ``faulty://`` object fails once, and the dataset still delivers everything::

    from aiostream_data import Dataset
    from aiostream_data.storage import memory
    from aiostream_data.storage.memory import MemoryStore
    from aiostream_data.storage.registry import register_store
    from aiostream_data.testing.fault_store import FaultStore
    from aiostream_data.testing.faults import Fault, Rule

    rules = [Rule(Fault(reset_at="middle"), kind="get", per="key", times=1)]
    register_store("faulty", lambda options, run_blocking: FaultStore(MemoryStore(), rules))
    memory.put("memory://shard.txt", b"one\\ntwo\\n")
    with Dataset.from_text("faulty://shard.txt").open() as loader:
        assert list(loader) == ["one", "two"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    StorageError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.base import Store
from aiostream_data.storage.translate import translate_status
from aiostream_data.storage.urls import safe_url, split_url
from aiostream_data.testing.fault_rules import RuleBook
from aiostream_data.testing.faults import At, Facts, Fault, Kind, Rule, place

_INVERTED = bytes(255 - value for value in range(256))
_ODD_ANSWERS = ("raw", "shift_range", "content_range", "duplicate_length", "extra")


@dataclass(slots=True)
class StoreRequest:
    """Request received by a :class:`FaultStore`.

    Attributes:
        kind: Kind of request: ``head`` for :meth:`FaultStore.info`, ``list``, or ``get``.
        url: URL as the caller passed it; for a listing, the URL pattern.
        start, stop: Requested byte range; both are 0 for requests without a range.
        fault: Injected fault, or None for a correct answer.
    """

    kind: Kind
    url: str
    start: int
    stop: int
    fault: Fault | None


Requests: TypeAlias = list[StoreRequest]


class FaultStore:
    """Store that forwards requests to ``inner`` and injects faults into requests that match a rule.

    Rules match the URL of a request without its scheme. The faults of a rule have these effects:

    - ``status`` and ``refuse`` raise the error that a real store raises for the same answer.
    - ``reset_at``, ``truncate_at`` and ``end_early_at`` fill part of the buffer and raise a StoreUnreachableError with
      the position of the break.
    - Contradictory answers raise a StoreUnreachableError and deliver no bytes.
    - ``stall_at`` pauses for ``stall_s``, or raises StoreTimeoutError after ``read_timeout_s``.
    - ``corrupt_at`` inverts one byte.
    - ``change`` gives the object a new version. A reader with the old version gets an ObjectChangedError. A reader
      without a version gets inverted bytes.
    - ``delay_s`` delays the answer.
    - Faults that affect only the wire format, such as chunked bodies or interim answers, have no effect.

    Args:
        inner: Store that serves the requests; closing the FaultStore also closes this store.
        rules: Fault rules; the first matching rule determines the fault. :meth:`set_rules` replaces the rules.
        seed: Seed of the random draws for ``probability``.
        read_timeout_s: Timeout in seconds of stalled reads; None waits until the read is cancelled.
        scheme: URL scheme of this store.
        inner_scheme: URL scheme of the URLs passed to ``inner``.

    Attributes:
        requests: All requests received so far, in order of arrival.

    Example::

        import asyncio

        from aiostream_data.storage import memory
        from aiostream_data.storage.memory import MemoryStore
        from aiostream_data.storage.retry import RetryingStore
        from aiostream_data.testing.fault_store import FaultStore
        from aiostream_data.testing.faults import Fault, Rule

        memory.put("memory://name", b"data")
        store = FaultStore(MemoryStore(), [Rule(Fault(status=503), times=2)])
        asyncio.run(RetryingStore(store).info("faulty://name"))
        assert [request.fault is not None for request in store.requests] == [True, True, False]
    """

    def __init__(
        self,
        inner: Store,
        rules: Sequence[Rule] = (),
        *,
        seed: int = 0,
        read_timeout_s: float | None = 30.0,
        scheme: str = "faulty",
        inner_scheme: str = "memory",
    ) -> None:
        self.inner = inner
        self.requests: Requests = []
        self._seed = seed
        self._read_timeout_s = read_timeout_s
        self._scheme = scheme
        self._inner_scheme = inner_scheme
        self._changes: dict[str, int] = {}
        self.set_rules(*rules)

    def set_rules(self, *rules: Rule) -> None:
        """Replace the fault rules and reset their counters."""
        self._rules = RuleBook(rules, self._seed)

    async def info(self, url: str) -> ShardRef:
        await self._before_answer(self._choose("head", url))
        return self._outer(await self.inner.info(self._inner_url(url)))

    async def glob(self, pattern: str) -> list[ShardRef]:
        await self._before_answer(self._choose("list", pattern))
        return [self._outer(shard) for shard in await self.inner.glob(self._inner_url(pattern))]

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        request = self._choose("get", shard.url, start, start + len(buffer))
        fault = request.fault
        await self._before_answer(request)
        version, changed = self._known_version(shard), self._changes.get(shard.url, 0)
        inner = replace(shard, url=self._inner_url(shard.url), version=version)
        stop, ends_with = (len(buffer), None) if fault is None else await self._end_of_body(request, len(buffer))
        await self.inner.read_into(inner, start, buffer[:stop])
        if changed % 2:
            buffer[:stop] = bytes(buffer[:stop]).translate(_INVERTED)
        if fault is not None and fault.corrupt_at is not None and stop:
            spot = min(_first_is_zero(fault.corrupt_at, stop), stop - 1)
            buffer[spot] = 255 - buffer[spot]
        if fault is not None and fault.change == "middle":
            self._changes[shard.url] = changed + 1
            half = len(buffer) // 2
            buffer[half:stop] = bytes(buffer[half:stop]).translate(_INVERTED)
        if ends_with is not None:
            mixed = fault is not None and fault.change == "middle"
            ends_with.version = "" if mixed else shard.version
            raise ends_with

    async def aclose(self) -> None:
        await self.inner.aclose()

    # -- effects of a fault ----------------------------------------------------------------------

    async def _before_answer(self, request: StoreRequest) -> None:
        """Apply the effects of a fault that occur before the first byte.

        Raises:
            StorageError: The fault replaces the answer with an error or a timeout.
        """
        fault = request.fault
        if fault is None:
            return
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        if fault.change == "before":
            self._changes[request.url] = self._changes.get(request.url, 0) + 1
        if (error := _answer_error(request.url, fault)) is not None:
            raise error
        if fault.stall_at in ("start", "head") or (request.kind != "get" and fault.stall_at is not None):
            await self._stall(request)
        breaks = (fault.reset_at, fault.truncate_at)
        if any(at in ("start", "head") or (request.kind != "get" and at is not None) for at in breaks):
            raise _broken(request.url, 0, request.stop - request.start)

    async def _end_of_body(self, request: StoreRequest, nbytes: int) -> tuple[int, StorageError | None]:
        """Return the number of bytes to deliver, and the error to raise after these bytes."""
        fault = request.fault
        assert fault is not None
        if fault.stall_at is not None and fault.stall_at not in ("start", "head"):
            await self._stall(request)
        ends = [at for at in (fault.reset_at, fault.truncate_at, fault.end_early_at) if at is not None]
        if ends:
            stop = min(place(at, nbytes) for at in ends)
            return stop, _broken(request.url, stop, nbytes) if stop < nbytes else None
        return nbytes, None

    async def _stall(self, request: StoreRequest) -> None:
        """Wait for the stall time of the fault, or until the read timeout.

        Raises:
            StoreTimeoutError: The read timeout expired before the stall time.
        """
        stall_s = request.fault.stall_s if request.fault is not None else None
        try:
            async with asyncio.timeout(self._read_timeout_s):
                if stall_s is None:
                    await asyncio.Event().wait()
                else:
                    await asyncio.sleep(stall_s)
        except TimeoutError:
            raise StoreTimeoutError(
                safe_url(request.url), f"nothing arrived for {self._read_timeout_s:g} s; is the network slow?"
            ) from None

    # -- names and versions ---------------------------------------------------------------------

    def _choose(self, kind: Kind, url: str, start: int = 0, stop: int = 0) -> StoreRequest:
        method = "HEAD" if kind == "head" else "GET"
        fault = self._rules.choose(Facts(kind, method, split_url(url).path, start, stop))
        request = StoreRequest(kind, url, start, stop, fault)
        self.requests.append(request)
        return request

    def _known_version(self, shard: ShardRef) -> str:
        """Return the inner store's version that corresponds to a version issued by this store.

        Raises:
            ObjectChangedError: The object was replaced after this store issued the version.
        """
        if not shard.version:
            return ""
        version, _, changes = shard.version.rpartition("~")
        if changes != str(self._changes.get(shard.url, 0)):
            raise ObjectChangedError(safe_url(shard.url), "the object was replaced since it was listed")
        return version

    def _outer(self, shard: ShardRef) -> ShardRef:
        url = f"{self._scheme}://{split_url(shard.url).path}"
        version = f"{shard.version}~{self._changes.get(url, 0)}" if shard.version else ""
        return replace(shard, url=url, version=version)

    def _inner_url(self, url: str) -> str:
        return f"{self._inner_scheme}://{split_url(url).path}"


def _answer_error(url: str, fault: Fault) -> StorageError | None:
    """Return the error for a fault that replaces the object or contradicts the headers, or None for other faults."""
    where = safe_url(url)
    if fault.refuse is not None:
        return _refusal(where, fault)
    if fault.status is not None:
        status = fault.status if fault.status >= 300 else 503  # a status below 300 with a code is an error too
        return translate_status(url, status, detail=fault.code)
    if fault.redirect:
        return translate_status(url, 307, detail="redirected")
    if any(getattr(fault, name) not in (None, 0, "", b"") for name in _ODD_ANSWERS):
        return StoreUnreachableError(where, "the answer contradicts itself, or what was asked for")
    return None


def _refusal(where: str, fault: Fault) -> StorageError:
    if fault.refuse == "expired":
        return CredentialsError(where, "the credentials have expired; renew them")
    if fault.refuse in ("unsigned", "unknown_key"):
        return CredentialsError(where, "the credentials are missing or unknown to the store")
    return AccessDeniedError(where, f"the store refused access ({fault.refuse}); check credentials and permissions")


def _broken(url: str, received: int, nbytes: int) -> StoreUnreachableError:
    error = StoreUnreachableError(safe_url(url), f"the connection broke off after {received} of {nbytes} bytes")
    error.received = received
    return error


def _first_is_zero(at: At, nbytes: int) -> int:
    return 0 if at == "first" else place(at, nbytes)
