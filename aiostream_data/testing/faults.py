"""What can go wrong with one answer of an object store, and when: plain descriptions, without any I/O.

A :class:`Fault` says how one answer is wrong. A :class:`Rule` says which requests get it. Both are used by
:mod:`aiostream_data.testing.fault_server`, which does it to bytes on a socket, and by
:mod:`aiostream_data.testing.fault_store`, which does it to calls of a store.

Example: every object's first read breaks off in the middle, and one request in ten is refused for a while::

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
"""A place in an answer: behind so many bytes of the body; before the head, in the middle of it; behind the first
byte of the body, its middle, before its last byte. A number past the end of the body is its end."""

Refusal: TypeAlias = Literal["unsigned", "denied", "unknown_key", "bad_signature", "expired", "skewed"]
"""Why a store does not take the credentials that came, or that did not."""

Kind: TypeAlias = Literal["get", "head", "list", "bucket", "other"]
"""What a request asks for: the content of an object, its description, a listing, a bucket's description."""

_PLACES = ("start", "head", "first", "middle", "last")
_REFUSALS = ("unsigned", "denied", "unknown_key", "bad_signature", "expired", "skewed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """How one request is answered wrongly. What is not set stays right; several things can be wrong at once.

    Attributes:
        status: Answer with this status instead of the object; 200 with a ``code`` is an error in a success's clothes.
        code: The store's name for the error, such as ``SlowDown``; chosen by ``status`` if empty.
        retry_after: Value of a Retry-After header, in seconds or as a date.
        refuse: Refuse the credentials, in the words of the store.
        redirect: Answer 307 with this Location.
        region: The bucket is in this region of S3: what is signed for another is refused, and told this one, by
            a redirect if ``status`` is 301, and else with status 400.
        delay_s: Further time before the first byte.
        reset_at: Send so much, then reset the connection (RST).
        truncate_at: Send so much, then close the connection in good order (FIN).
        stall_at: Send so much, then nothing more for ``stall_s`` ...
        stall_s: ... seconds, or until the client goes if None.
        end_early_at: Send so much of the body, framed as if that were all: what came is whole, and too short.
        corrupt_at: Invert the byte of the body that stands here.
        ignore_range: Send the whole object with status 200.
        shift_range: Send the range so many bytes further on, and say so in Content-Range.
        content_range: Say this in Content-Range, whatever is sent.
        chunked: Send the body in chunks, without a Content-Length.
        change: Replace the object by one of the same size with every byte inverted, which stays: before this answer,
            or so that the first half of its body is the old one's and the second half the new one's.
        raw: Send these bytes in place of everything, and close.
        pad_head: Add a header with a value of so many bytes.
        slow_head_s: Send the head byte by byte, with a pause of so many seconds before each.
        interim: Send so many answers of status 103 first.
        extra: Send these bytes behind the body.
        duplicate_length: Send a second Content-Length that is larger by this.
        headers: Further headers. Written behind the right ones, without replacing them.
        without: Names of headers to leave out.
        close_after: Close the connection after the answer, without having said so.

    Raises:
        PlanError: A place or a number that makes no sense.
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
        """Return what differs from a right answer, for logs."""
        told = (
            f"{field.name}={value!r}" for field in fields(self) if (value := getattr(self, field.name)) != field.default
        )
        return f"Fault({', '.join(told)})"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests get a fault. Conditions that are not set hold for every request.

    A request gets the fault of the first rule that takes it. Those that meet ``kind``, ``method``, ``key`` and
    ``touches`` are counted, and of these the rule takes what ``after``, ``every``, ``times`` and ``probability`` say.

    Attributes:
        fault: What the request gets ...
        others: ... or one of these in its place, each equally often, drawn as ``probability`` is.
        kind: What it asks for.
        method: Its method, such as ``GET``; "" for any.
        key: Pattern of the object's name with its bucket, ``bucket/key``: ``*`` (any characters, slashes too), ``?``,
            ``[..]``. Of a listing it is the bucket and the prefix.
        touches: Byte range (start, stop) of the object: the request asks for a byte of it.
        after: Let this many requests pass first ...
        every: ... and of the others take the first, and then every so-many-th.
        times: Take no more than this many.
        per: What requests are counted by: all together, by object, or by object and range. "range" makes the first
            attempt of every range fail, and its repetition succeed; a client that resumes asks for another range.
        probability: Share of the requests that are taken. It depends on the server's seed, the request and how often
            the same one came before, never on the order in which different requests arrive.
        from_s: Seconds since the rules were set, before which the rule sleeps, ...
        until_s: ... and after which it is over.

    Raises:
        PlanError: A number out of its range.
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
    """What rules know of a request.

    Attributes:
        start, stop: The bytes asked for of an object: all of it without a Range; 0 and 0 where there is no object.
    """

    kind: Kind
    method: str
    name: str
    start: int = 0
    stop: int = 0


def place(at: At, nbytes: int) -> int:
    """Return how many bytes of a body of ``nbytes`` stand before ``at``; 0 for places before the body."""
    if isinstance(at, int):
        return min(at, nbytes)
    return {"first": min(1, nbytes), "middle": nbytes // 2, "last": max(nbytes - 1, 0)}.get(at, 0)


def _check_place(name: str, at: object) -> None:
    if at is None or at in _PLACES or (isinstance(at, int) and at >= 0):
        return
    raise PlanError(f"{name} must be a number of bytes or one of {', '.join(_PLACES)}, got {at!r}")
