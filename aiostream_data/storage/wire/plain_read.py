"""Read a byte range of an object with one plain GET request, and translate failures into this package's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from aiostream_data.errors import StorageError, StoreBusyError, StoreTimeoutError, StoreUnreachableError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.body import check_range_answer, check_version, range_header
from aiostream_data.storage.retry_after import with_retry_after
from aiostream_data.storage.translate import translate_error
from aiostream_data.storage.urls import safe_url
from aiostream_data.storage.wire.answer_head import AnswerHead, MalformedAnswer
from aiostream_data.storage.wire.chunked import OversizedBody
from aiostream_data.storage.wire.client import Refused, RequestTarget, Took, Unusual, WireClient
from aiostream_data.storage.wire.exchange import BodyPlan, BrokenAnswer, SilentAnswer

THROTTLED: Final = frozenset({429, 503})
"""HTTP statuses that report a rate limit."""

WHOLE: Final = {"accept-encoding": "identity"}
"""Headers of every plain GET request, which request the bytes exactly as stored."""


class PlainDialect(NamedTuple):
    """Rules for interpreting the responses of one kind of store.

    Attributes:
        version_of: Function that returns the version of the object from the response headers.
        refusal: Function that returns the exception for an error response, given the URL and the response.
        hides_error: Function that returns True if the headers of a successful response indicate an error.
        heard: Function that is called with the URL, version and headers of each successful response.
        redirects: Redirect statuses that the function ``refusal`` handles. An HTTP library follows redirects with other
            statuses.
    """

    version_of: Callable[[Mapping[str, str]], str]
    refusal: Callable[[str, Refused], StorageError]
    hides_error: Callable[[Mapping[str, str]], bool] = lambda headers: False
    heard: Callable[[str, str, Mapping[str, str]], None] = lambda url, version, headers: None
    redirects: frozenset[int] = frozenset()


class RangeAnswer:
    """Check of the successful response to a request for a byte range.

    Attributes:
        version: Version of the object in the response, or "" before a response.
    """

    __slots__ = ("_buffer", "_dialect", "_shard", "_start", "version")

    def __init__(self, dialect: PlainDialect, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self._dialect = dialect
        self._shard = shard
        self._start = start
        self._buffer = buffer
        self.version = ""

    def accept(self, head: AnswerHead) -> BodyPlan:
        """Return the plan that stores the requested bytes in the buffer.

        Raises:
            StorageError: The response has other bytes than the requested bytes, or another version of the object.
        """
        dialect, shard, buffer = self._dialect, self._shard, self._buffer
        if dialect.hides_error(head.headers):
            raise dialect.refusal(shard.url, Refused(head.status, head.headers, b""))
        self.version = dialect.version_of(head.headers)
        check_version(shard.url, shard.version, self.version)
        skip = check_range_answer(shard.url, head.status, head.headers, self._start, len(buffer), shard.nbytes)
        dialect.heard(shard.url, self.version, head.headers)
        return BodyPlan(buffer, skip, whole=head.status == 206 or head.length == skip + len(buffer))


async def read_plain(
    client: WireClient,
    target: RequestTarget,
    headers: Mapping[str, str],
    dialect: PlainDialect,
    shard: ShardRef,
    start: int,
    buffer: memoryview,
) -> Took:
    """Fill ``buffer`` with the bytes of an object, starting at offset ``start``.

    Args:
        client: HTTP client of the store.
        target: Server and path of the object.
        headers: Request headers, including the range; see :func:`range_of`.
        dialect: Rules for interpreting the responses of the store.
        shard: The object.
        start: Offset of the first byte to read.
        buffer: Buffer for the bytes; its length is the length of the range.

    Returns:
        Durations of the response.

    Raises:
        Unusual: The response may be valid, but only an HTTP library can handle it.
        StorageError: The read failed. A retry can resume after the first ``received`` bytes of the object's
            ``version``.
    """
    check = RangeAnswer(dialect, shard, start, buffer)
    try:
        return await client.get(target, headers, check.accept, dialect.redirects)
    except Refused as answer:
        raise refused(dialect, shard.url, answer) from None
    except StorageError as error:
        error.version = error.version or check.version
        raise
    except (OSError, ValueError) as raised:
        translated = _translated(shard.url, raised, len(buffer))
        translated.version = check.version
        raise translated from raised


@contextmanager
def translating_wire(url: str) -> Iterator[None]:
    """Translate connection errors raised in the ``with`` block into errors of this package."""
    try:
        yield
    except (Unusual, Refused, StorageError, OversizedBody):
        raise
    except (OSError, ValueError) as error:
        raise _translated(url, error) from error


def _translated(url: str, error: OSError | ValueError, nbytes: int = 0) -> StorageError:
    if isinstance(error, BrokenAnswer):
        return _broken(url, error, nbytes)
    if isinstance(error, MalformedAnswer):
        return StoreUnreachableError(safe_url(url), f"HTTP protocol error: {error}")
    return translate_error(url, error)


def range_of(start: int, buffer: memoryview) -> dict[str, str]:
    """Return the request headers for a byte range that begins at ``start`` and fills ``buffer``."""
    return {"range": range_header(start, len(buffer)), **WHOLE}


def _broken(url: str, broken: BrokenAnswer, nbytes: int) -> StorageError:
    told = f"{broken} after {broken.received} of {nbytes} bytes" if nbytes else str(broken)
    kind = StoreTimeoutError if isinstance(broken, SilentAnswer) else StoreUnreachableError
    error = kind(safe_url(url), told)
    error.received = broken.received
    return error


def refused(dialect: PlainDialect, url: str, answer: Refused) -> StorageError:
    """Return the exception for an error response, including its rate limit status and Retry-After time."""
    error = dialect.refusal(url, answer)
    if isinstance(error, StoreBusyError):
        error.is_throttled = error.is_throttled or answer.status in THROTTLED
    return with_retry_after(error, answer.headers)
