"""Convert a response and its fault to a script: the steps that send the response.

The functions in this module are pure, so tests compare scripts as values.

The response body is a list of parts. Some parts count as body bytes; others, such as chunk lengths, are framing. A
fault splits the parts at the position of the fault and inserts a step or ends the script there. The response head is a
separate step before the body parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from aiostream_data.testing.faults import At, Fault, place
from aiostream_data.testing.object_api.messages import Answer, write_head
from aiostream_data.testing.object_api.objects import Slice

_CHUNK_NBYTES = 64 << 10
_INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </>; rel=preload\r\n\r\n"
_NO_BODY = frozenset({204, 304})
_BEFORE_BODY = ("start", "head")


@dataclass(frozen=True, slots=True)
class Send:
    """Step that sends bytes; if ``counted``, the bytes are part of the body."""

    data: bytes
    counted: bool = False

    @property
    def nbytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class SendSlice:
    """Step that sends a slice of an object; all of its bytes are part of the body."""

    part: Slice
    counted: bool = True

    @property
    def nbytes(self) -> int:
        return self.part.nbytes


@dataclass(frozen=True, slots=True)
class Drip:
    """Step that sends data byte by byte, with a pause before each byte."""

    data: bytes
    pause_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Step that waits for ``seconds`` seconds or, if None, until the client disconnects."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class End:
    """Step that ends the connection: ``close`` sends a FIN; ``reset`` sends an RST after all sent data has arrived."""

    how: Literal["close", "reset"]


Part: TypeAlias = Send | SendSlice
Step: TypeAlias = Send | SendSlice | Drip | Wait | End
ReadSlice: TypeAlias = Callable[[Slice], bytes]

_RIGHT = Fault()


def write_script(
    answer: Answer,
    fault: Fault | None,
    *,
    method: str,
    read: ReadSlice,
    newer: Callable[[Slice], Slice] | None = None,
    close: bool = False,
) -> list[Step]:
    """Return the steps that send the response, in order.

    Args:
        answer: The correct answer.
        fault: Fault to apply; None for a correct response.
        method: Request method; the response to a HEAD request gets no body.
        read: Function that reads the bytes of a slice, needed to invert a byte.
        newer: Function that replaces the object and returns the same slice of the new version. The function is called
            if the object changes in the middle of its body.
        close: True if the client requested to close the connection.
    """
    fault = fault or _RIGHT
    if fault.raw is not None:
        return [Send(fault.raw), End("close")]
    told_nbytes = answer.nbytes
    body = [] if method == "HEAD" or answer.status in _NO_BODY else _body(answer, fault, read, newer)
    sent_nbytes = sum(part.nbytes for part in body)
    if fault.end_early_at is not None and body:
        body, _ = _cut(body, place(fault.end_early_at, sent_nbytes))
        sent_nbytes = told_nbytes = sum(part.nbytes for part in body)
    framed = _in_chunks(body) if fault.chunked and method != "HEAD" else list(body)
    if fault.extra:
        framed.append(Send(fault.extra))
    head = write_head(answer.status, _headers(answer, fault, told_nbytes, close=close))
    steps = _with_breaks(head, framed, sent_nbytes, fault)
    if (close or fault.close_after) and not isinstance(steps[-1], End):
        steps.append(End("close"))
    return steps


def moved(part: Slice, by: int) -> Slice:
    """Return a slice of equal length, shifted by ``by`` bytes but kept within the object."""
    start = max(min(part.start + by, part.stored.nbytes - part.nbytes), 0)
    if start == part.start and part.stored.nbytes > part.nbytes:  # no room in this direction
        start = max(part.start - abs(by), 0)
    return Slice(part.stored, start, start + part.nbytes)


def _body(answer: Answer, fault: Fault, read: ReadSlice, newer: Callable[[Slice], Slice] | None) -> list[Part]:
    if isinstance(answer.body, bytes):
        parts: list[Part] = [Send(answer.body, counted=True)] if answer.body else []
    else:
        parts = [SendSlice(answer.body)] if answer.body.nbytes else []
        if fault.change == "middle" and newer is not None and parts:
            first, second = _cut(parts, answer.nbytes // 2)
            parts = first + [SendSlice(newer(part.part)) if isinstance(part, SendSlice) else part for part in second]
    if fault.corrupt_at is not None and parts:
        spot = min(place(fault.corrupt_at, answer.nbytes), answer.nbytes - 1)
        spot = 0 if fault.corrupt_at == "first" else spot
        before, rest = _cut(parts, spot)
        wrong, after = _cut(rest, 1)
        parts = [
            *before,
            *(Send(bytes(255 - byte for byte in _bytes(part, read)), counted=True) for part in wrong),
            *after,
        ]
    return parts


def _bytes(part: Part, read: ReadSlice) -> bytes:
    return part.data if isinstance(part, Send) else read(part.part)


def _cut(parts: list[Part], nbytes: int) -> tuple[list[Part], list[Part]]:
    """Split parts after ``nbytes`` bytes of the response body; framing stays with the preceding part."""
    before: list[Part] = []
    for number, part in enumerate(parts):
        if part.counted and nbytes < part.nbytes:
            left, right = _halves(part, nbytes)
            return before + ([left] if nbytes else []), [right, *parts[number + 1 :]]
        before.append(part)
        nbytes -= part.nbytes if part.counted else 0
    return before, []


def _halves(part: Part, nbytes: int) -> tuple[Part, Part]:
    if isinstance(part, Send):
        return replace(part, data=part.data[:nbytes]), replace(part, data=part.data[nbytes:])
    middle = part.part.start + nbytes
    return SendSlice(replace(part.part, stop=middle)), SendSlice(replace(part.part, start=middle))


def _in_chunks(body: list[Part]) -> list[Part]:
    framed: list[Part] = []
    rest = body
    while rest:
        chunk, rest = _cut(rest, _CHUNK_NBYTES)
        nbytes = sum(part.nbytes for part in chunk)
        framed += [Send(f"{nbytes:x}\r\n".encode()), *chunk, Send(b"\r\n")]
    return [*framed, Send(b"0\r\n\r\n")]


def _headers(answer: Answer, fault: Fault, nbytes: int, *, close: bool) -> list[tuple[str, str]]:
    headers = [item for item in answer.headers if item[0] != "Content-Range" or not fault.content_range]
    if fault.content_range:
        headers.append(("Content-Range", fault.content_range))
    if fault.chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif answer.status != 304:
        headers.append(("Content-Length", str(nbytes)))
    if fault.duplicate_length is not None:
        headers.append(("Content-Length", str(nbytes + fault.duplicate_length)))
    if fault.retry_after:
        headers.append(("Retry-After", fault.retry_after))
    if close:
        headers.append(("Connection", "close"))
    if fault.pad_head:
        headers.append(("X-Padding", "x" * fault.pad_head))
    left_out = {name.lower() for name in fault.without}
    return [item for item in headers if item[0].lower() not in left_out] + list(fault.headers)


def _with_breaks(head: bytes, framed: list[Part], nbytes: int, fault: Fault) -> list[Step]:
    """Insert the pauses and disconnections that the fault requires."""
    steps: list[Step] = [Send(_INTERIM)] * fault.interim
    before_body = [at for at in (fault.reset_at, fault.truncate_at, fault.stall_at) if at in _BEFORE_BODY]
    for at in ("start", "head"):
        if at == "head":
            middle = len(head) // 2 if "head" in before_body else len(head)
            steps.append(Drip(head[:middle], fault.slow_head_s) if fault.slow_head_s else Send(head[:middle]))
        breaks = _breaks(fault, at)
        steps += breaks
        if breaks and isinstance(breaks[-1], End):
            return steps
        if at == "head" and middle < len(head):
            steps.append(Send(head[middle:]))
    return steps + _body_with_breaks(framed, nbytes, fault)


def _body_with_breaks(framed: list[Part], nbytes: int, fault: Fault) -> list[Step]:
    wanted = [at for at in (fault.stall_at, fault.truncate_at, fault.reset_at) if at is not None]
    places = {at: place(at, nbytes) for at in wanted if at not in _BEFORE_BODY}
    steps: list[Step] = []
    rest, done = framed, 0
    for at, spot in sorted(places.items(), key=lambda item: item[1]):
        before, rest = _cut_before(rest, spot - done)
        done = spot
        breaks = _breaks(fault, at)
        steps += [*before, *breaks]
        if isinstance(breaks[-1], End):
            return steps
    return steps + list(rest)


def _cut_before(parts: list[Part], nbytes: int) -> tuple[list[Part], list[Part]]:
    """Split parts after ``nbytes`` bytes of the response body; framing at the split goes to the second half."""
    before, after = _cut(parts, nbytes)
    while before and not before[-1].counted and (nbytes == 0 or not after):
        after = [before.pop(), *after]
    return before, after


def _breaks(fault: Fault, at: At) -> list[Step]:
    steps: list[Step] = []
    if fault.stall_at == at:
        steps.append(Wait(fault.stall_s))
    if fault.reset_at == at:
        steps.append(End("reset"))
    elif fault.truncate_at == at:
        steps.append(End("close"))
    return steps
