"""Descriptions of faults in object store responses, and of the requests that receive these faults. Does no I/O.

A :class:`Fault` describes how one server response is wrong. A :class:`Rule` selects the requests that receive a fault.
The module :mod:`aiostream_data.testing.fault_server` applies faults to bytes on a socket. The module
:mod:`aiostream_data.testing.fault_store` applies faults to calls of a store.

Example: each object's first read breaks in the middle, and one request in ten gets a 503::

    from aiostream_data.testing.faults import Fault, Rule

    rules = [
        Rule(Fault(reset_at="middle"), kind="get", per="key", times=1),
        Rule(Fault(status=503, code="SlowDown", retry_after="1"), probability=0.1),
    ]
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from aiostream_data.errors import PlanError

At: TypeAlias = 'int | Literal["start", "head", "first", "middle", "last"]'
"""Position in an answer.

A number is an offset in the body, limited to the length of the body. "start" is the position before the response head,
and "head" is the middle of the head. "first" is the position after the first body byte, "middle" is the middle of the
body, and "last" is before the last body byte.
"""

Refusal: TypeAlias = Literal["unsigned", "denied", "unknown_key", "bad_signature", "expired", "skewed"]
"""Reason why a store rejects a request: wrong or missing credentials."""

Kind: TypeAlias = Literal["get", "head", "list", "bucket", "other"]
"""Kind of a request to an object store: object content, object metadata, a listing, or bucket metadata."""

_PLACES = ("start", "head", "first", "middle", "last")
_REFUSALS = ("unsigned", "denied", "unknown_key", "bad_signature", "expired", "skewed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Wrong response to one request. Unset fields leave the response correct; several fields can be combined.

    Attributes:
        status: HTTP status to send instead of the object. Status 200 with a ``code`` sends an error in a successful
            response.
        code: Error name of the store, such as ``SlowDown``. If empty, ``code`` is derived from ``status``.
        retry_after: Value of the Retry-After header, in seconds or as a date.
        refuse: Reason for rejecting the credentials; the response is the corresponding error of the store's dialect.
        redirect: Location header of a response with status 307.
        region: S3 region of the bucket. The server rejects requests signed for another region and reports the right
            region. The response is a redirect if ``status`` is 301, and otherwise has status 400.
        delay_s: Additional seconds before the first response byte.
        reset_at: Position at which the connection is reset (RST).
        truncate_at: Position at which the connection is closed normally (FIN).
        stall_at: Position at which the server stops sending for ``stall_s`` seconds.
        stall_s: Duration of the stall in seconds; None stalls until the client disconnects.
        end_early_at: Position at which the response body ends. The framing matches the shorter body, so the response
            looks complete.
        corrupt_at: Position of the response body byte to invert.
        ignore_range: Ignore the Range header and send the whole object with status 200.
        shift_range: Number of bytes by which the sent byte range is shifted; Content-Range reports the shifted range.
        content_range: Value of the Content-Range header, regardless of the sent bytes.
        chunked: Send the body in HTTP chunks, without a Content-Length header.
        change: Replace the object permanently by an object of equal size with all bytes inverted. "before" replaces the
            object before this response. "middle" sends the first half of the old body and the second half of the new
            body.
        raw: Bytes to send instead of the whole response; the server then closes the connection.
        pad_head: Size in bytes of an additional header value in the response.
        slow_head_s: Send the response head byte by byte, with a pause of this many seconds before each byte.
        interim: Number of responses with status 103 to send first.
        extra: Additional bytes to send after the response body.
        duplicate_length: Send a second Content-Length header, whose value is larger by this number.
        headers: Additional response headers, sent after the correct headers without replacing them.
        without: Names of response headers to omit.
        close_after: Close the connection after the response, without sending a Connection header.

    Raises:
        PlanError: A position or number of the fault is invalid.
    """

    status: int | None = None
    code: str = ""
    retry_after: str = ""
    refuse: Refusal | None = None
    redirect: str = ""
    region: str = ""
    delay_s: float = 0.0
    reset_at: At | None = None
    truncate_at: At | None = None
    stall_at: At | None = None
    stall_s: float | None = None
    end_early_at: At | None = None
    corrupt_at: At | None = None
    ignore_range: bool = False
    shift_range: int = 0
    content_range: str = ""
    chunked: bool = False
    change: Literal["before", "middle"] | None = None
    raw: bytes | None = None
    pad_head: int = 0
    slow_head_s: float = 0.0
    interim: int = 0
    extra: bytes = b""
    duplicate_length: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    close_after: bool = False

    def __post_init__(self) -> None:
        for name in ("reset_at", "truncate_at", "stall_at", "end_early_at", "corrupt_at"):
            _check_place(name, getattr(self, name))
        if self.status is not None and not 200 <= self.status <= 599:
            raise PlanError(f"status must be from 200 to 599, got {self.status}")
        if self.refuse is not None and self.refuse not in _REFUSALS:
            raise PlanError(f"refuse must be one of {', '.join(_REFUSALS)}, got {self.refuse!r}")
        for name in ("delay_s", "stall_s", "slow_head_s", "pad_head", "interim"):
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise PlanError(f"{name} must be at least 0, got {value!r}")

    def __str__(self) -> str:
        """Return the fields that differ from a correct response, for logs."""
        told = (
            f"{field.name}={value!r}" for field in fields(self) if (value := getattr(self, field.name)) != field.default
        )
        return f"Fault({', '.join(told)})"


@dataclass(frozen=True, slots=True)
class Rule:
    """Selection of the requests that receive a fault. Conditions that are not set match every request.

    A request receives the fault of the first rule that selects the request. A rule counts the requests that match
    ``kind``, ``method``, ``key`` and ``touches``. The rule then selects among the matching requests by ``after``,
    ``every``, ``times`` and ``probability``.

    Attributes:
        fault: Fault that the selected requests receive.
        others: Alternative faults. Each selected request receives ``fault`` or one of ``others``, with equal
            probability. The draw depends on the same values as the draw for ``probability``.
        kind: Kind of the requests that the rule matches.
        method: HTTP method of the request, such as ``GET``; "" matches any method.
        key: Pattern of the object name ``bucket/key``: ``*`` (any characters, including slashes), ``?``, ``[..]``. For
            a listing, the name consists of the bucket and the prefix.
        touches: Byte range (start, stop) of the object; the request must read at least one byte of this range.
        after: Number of matching requests to ignore before the rule selects requests.
        every: Select every ``every``-th request, starting with the first request that ``after`` does not ignore.
        times: Maximum number of requests that the rule selects.
        per: Scope of the rule's counters: all requests together, each object, or each object and range. With "range"
            and ``times=1``, the first attempt of every range fails and its retry succeeds. A client that resumes a read
            requests another range, which has its own counters.
        probability: Fraction of the matching requests to select. The selection depends on the server's seed, the
            request, and the number of identical earlier requests. The arrival order of different requests does not
            affect the selection.
        from_s: Time at which the rule becomes active, in seconds after the rules were set.
        until_s: Time at which the rule expires, in seconds after the rules were set.

    Raises:
        PlanError: A number of the rule is out of range.
    """

    fault: Fault
    kind: Kind | None = None
    method: str = ""
    key: str = "*"
    touches: tuple[int, int] | None = None
    after: int = 0
    every: int = 1
    times: int | None = None
    per: Literal["all", "key", "range"] = "all"
    probability: float = 1.0
    from_s: float = 0.0
    until_s: float | None = None
    others: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.after < 0:
            raise PlanError(f"after must be at least 0, got {self.after}")
        if self.every < 1:
            raise PlanError(f"every must be at least 1, got {self.every}")
        if not 0.0 <= self.probability <= 1.0:
            raise PlanError(f"probability must be from 0 to 1, got {self.probability}")
        if self.per not in ("all", "key", "range"):
            raise PlanError(f"per must be 'all', 'key' or 'range', got {self.per!r}")


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a request that rules can match.

    Attributes:
        start, stop: Requested byte range. A request without a Range header requests the whole object. Both values are 0
            if the request addresses no existing object.
    """

    kind: Kind
    method: str
    name: str
    start: int = 0
    stop: int = 0


def place(at: At, nbytes: int) -> int:
    """Return the number of body bytes before position ``at`` in a body of ``nbytes``; 0 for positions in the head."""
    if isinstance(at, int):
        return min(at, nbytes)
    return {"first": min(1, nbytes), "middle": nbytes // 2, "last": max(nbytes - 1, 0)}.get(at, 0)


def _check_place(name: str, at: object) -> None:
    if at is None or at in _PLACES or (isinstance(at, int) and at >= 0):
        return
    raise PlanError(f"{name} must be a number of bytes or one of {', '.join(_PLACES)}, got {at!r}")
