"""Read a byte range of an object with one plain GET, and say what went wrong in this package's errors."""

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
from aiostream_data.storage.wire.client import Refused, RequestTarget, Took, Unusual, WireClient
from aiostream_data.storage.wire.connection import BodyPlan, BrokenAnswer, SilentAnswer

THROTTLED: Final = frozenset({429, 503})
"""With these a store says that it is asked too much."""

WHOLE: Final = {"accept-encoding": "identity"}
"""Headers of every plain GET: the bytes are wanted as they are stored."""


class PlainDialect(NamedTuple):
    """How one kind of store says things.

    Attributes:
        version_of: Returns the version of the object from the headers of an answer.
        refusal: Returns the error for an answer that is none of success.
        hides_error: Tells by its headers whether an answer of success is none.
        heard: Is told the URL, the version and the headers of an answer of success.
        redirects: Statuses of redirects that ``refusal`` has an error for; others are for a full client.
    """

    version_of: Callable[[Mapping[str, str]], str]
    refusal: Callable[[str, Refused], StorageError]
    hides_error: Callable[[Mapping[str, str]], bool] = lambda headers: False
    heard: Callable[[str, str, Mapping[str, str]], None] = lambda url, version, headers: None
    redirects: frozenset[int] = frozenset()


async def read_plain(
    client: WireClient,
    target: RequestTarget,
    headers: Mapping[str, str],
    dialect: PlainDialect,
    shard: ShardRef,
    start: int,
    buffer: memoryview,
) -> Took:
    """Fill ``buffer`` with bytes of an object from ``start`` on.

    Args:
        headers: Of the request, the range included; see :func:`range_of`.

    Returns:
        What the answer took.

    Raises:
        Unusual: A full client has to do it; nothing is known to be wrong.
        StorageError: What went wrong; ``received`` and ``version`` say from where a further attempt may go on.
    """
    version = ""

    def accept(head: AnswerHead) -> BodyPlan:
        nonlocal version
        if dialect.hides_error(head.headers):
            raise dialect.refusal(shard.url, Refused(head.status, head.headers, b""))
        version = dialect.version_of(head.headers)
        check_version(shard.url, shard.version, version)
        skip = check_range_answer(shard.url, head.status, head.headers, start, len(buffer), shard.nbytes)
        dialect.heard(shard.url, version, head.headers)
        return BodyPlan(buffer, skip, whole=head.status == 206 or head.length == skip + len(buffer))

    try:
        return await client.get(target, headers, accept, dialect.redirects)
    except Refused as answer:
        raise refused(dialect, shard.url, answer) from None
    except StorageError as error:
        error.version = error.version or version
        raise
    except (OSError, ValueError) as raised:
        translated = _translated(shard.url, raised, len(buffer))
        translated.version = version
        raise translated from raised


@contextmanager
def translating_wire(url: str) -> Iterator[None]:
    """Turn what a connection raises inside of the block into errors of this package."""
    try:
        yield
    except (Unusual, Refused, StorageError):
        raise
    except (OSError, ValueError) as error:
        raise _translated(url, error) from error


def _translated(url: str, error: OSError | ValueError, nbytes: int = 0) -> StorageError:
    if isinstance(error, BrokenAnswer):
        return _broken(url, error, nbytes)
    if isinstance(error, MalformedAnswer):
        return StoreUnreachableError(safe_url(url), f"the server breaks the rules of HTTP: {error}")
    return translate_error(url, error)


def range_of(start: int, buffer: memoryview) -> dict[str, str]:
    """Return the headers of a plain GET of a range."""
    return {"range": range_header(start, len(buffer)), **WHOLE}


def _broken(url: str, broken: BrokenAnswer, nbytes: int) -> StorageError:
    told = f"{broken} after {broken.received} of {nbytes} bytes" if nbytes else str(broken)
    kind = StoreTimeoutError if isinstance(broken, SilentAnswer) else StoreUnreachableError
    error = kind(safe_url(url), told)
    error.received = broken.received
    return error


def refused(dialect: PlainDialect, url: str, answer: Refused) -> StorageError:
    """Return the error for an answer that is none of success, with what it says of when to come back."""
    error = dialect.refusal(url, answer)
    if isinstance(error, StoreBusyError):
        error.is_throttled = error.is_throttled or answer.status in THROTTLED
    return with_retry_after(error, answer.headers)
