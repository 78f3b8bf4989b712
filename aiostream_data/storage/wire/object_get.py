"""Request for one complete object, and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.wire.client import AnswerCheck, Refused, RequestTarget
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.plain_read import PlainDialect, RangeAnswer


class ObjectGet:
    """Request for one complete object, and the check of its response.

    Args:
        target: Server of the object.
        request: Complete request head.
        dialect: Rules for interpreting the responses of the store.
        shard: The object.
        buffer: Buffer for the bytes, as long as the object.
    """

    __slots__ = ("buffer", "check", "dialect", "request", "shard", "target")

    def __init__(
        self,
        target: RequestTarget,
        request: bytes,
        dialect: PlainDialect,
        shard: ShardRef,
        buffer: memoryview,
    ) -> None:
        self.target = target
        self.request = request
        self.dialect = dialect
        self.shard = shard
        self.buffer = buffer
        self.check = AnswerCheck(RangeAnswer(dialect, shard, 0, buffer).accept, dialect.redirects)


class GetResult(NamedTuple):
    """Result of a request.

    Attributes:
        failure: None if the object is in its buffer; otherwise the error, or the response with an error status.
        was_used: True if the connection had sent earlier requests.
        first_byte_s, body_s: Seconds to the first byte of the response, and from there to its last byte.
    """

    failure: BaseException | Refused | None
    was_used: bool
    first_byte_s: float
    body_s: float


GetEnded: TypeAlias = Callable[[GetResult], None]
"""Function that receives the result of a request. It must not raise an exception."""

ConnectionLeft: TypeAlias = Callable[[Connection], None]
"""Function that receives a connection that sends no more requests."""


class GetSender(Protocol):
    """Queue of requests, and the connections that send them. For one event loop.

    A connection sends the next request of the queue when it has received a response. It leaves when no request waits,
    when it is no longer usable, or when it is retired. Then the function ``left`` receives it.
    """

    @property
    def waiting(self) -> int:
        """Number of requests that no connection has sent yet."""

    @property
    def connections(self) -> int:
        """Number of connections that have not left."""

    def put(self, get: ObjectGet, ended: GetEnded) -> int:
        """Append a request to the queue, and return its number. ``ended`` is never called within this method."""

    def add(self, connection: Connection) -> bool:
        """Send the next request over a connection. Return False if no request waits."""

    def retire(self, count: int) -> None:
        """Let up to ``count`` connections leave after their current request. Earlier calls no longer apply."""

    def cancel(self, number: int) -> None:
        """Remove a request that has not ended. Afterwards, nobody writes to its buffer, and ``ended`` is not called."""
