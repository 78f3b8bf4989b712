"""Named faults of every kind, for tests of code that must handle all faults.

Example: one request in ten fails, with all recoverable faults equally often::

    from aiostream_data.testing.fault_catalogue import chaos
    from aiostream_data.testing.fault_server import fault_server

    with fault_server("http") as server:
        server.set_rules(chaos(0.10))
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aiostream_data.testing.faults import Fault, Rule

REFUSALS: Mapping[str, Fault] = MappingProxyType(
    {
        "busy 503": Fault(status=503, code="SlowDown"),
        "busy 503 with Retry-After": Fault(status=503, code="SlowDown", retry_after="0"),
        "too many 429": Fault(status=429, retry_after="0"),
        "internal 500": Fault(status=500),
        "bad gateway 502": Fault(status=502),
        "gateway timeout 504": Fault(status=504),
        "request timeout 408": Fault(status=408),
        "busy 503 in chunks": Fault(status=503, code="SlowDown", chunked=True),
        "internal 500 without a length": Fault(status=500, without=("Content-Length",), close_after=True),
        "error in a 200": Fault(status=200, code="InternalError"),
    }
)
"""Valid error responses that request a retry."""

BREAKS: Mapping[str, Fault] = MappingProxyType(
    {
        **{f"reset at {at}": Fault(reset_at=at) for at in ("start", "head", "first", "middle", "last")},
        **{f"truncated at {at}": Fault(truncate_at=at) for at in ("start", "head", "first", "middle", "last")},
        "chunks that break off": Fault(chunked=True, truncate_at="middle"),
        "closed without a word": Fault(close_after=True),
    }
)
"""Faults that end a connection too early."""

LIES: Mapping[str, Fault] = MappingProxyType(
    {
        "short body": Fault(end_early_at="middle"),
        "short chunked body": Fault(chunked=True, end_early_at="middle"),
        "another range": Fault(shift_range=1),
        "wrong Content-Range": Fault(content_range="bytes 7-8/9"),
        "garbled Content-Range": Fault(content_range="bytes one-two/three"),
        "no Content-Range": Fault(without=("Content-Range",)),
        "two lengths": Fault(duplicate_length=1),
        "more than was asked for": Fault(extra=b"HTTP/1.1 200 more"),
        "not HTTP": Fault(raw=b"\x16\x03\x01 this is no answer\r\n\r\n"),
        "a head without end": Fault(pad_head=1 << 20),
    }
)
"""Responses that contradict themselves or the request; a client must not accept them as data."""

ODDITIES: Mapping[str, Fault] = MappingProxyType(
    {
        "range ignored": Fault(ignore_range=True),
        "chunked": Fault(chunked=True),
        "interim answers": Fault(interim=2),
        "slow head": Fault(slow_head_s=0.0002),
        "same length twice": Fault(duplicate_length=0),
        "large head": Fault(pad_head=4 << 10),
        "late": Fault(delay_s=0.05),
    }
)
"""Correct but unusual answers."""

STALLS: Mapping[str, Fault] = MappingProxyType(
    {f"stalls at {at}": Fault(stall_at=at) for at in ("start", "head", "first", "middle", "last")}
)
"""Responses that stall forever; a client detects them only with a timeout."""

UNNOTICEABLE: Mapping[str, Fault] = MappingProxyType(
    {
        **{f"corrupt at {at}": Fault(corrupt_at=at) for at in ("first", "middle", "last")},
        "changed in the middle": Fault(change="middle"),
    }
)
"""Well-formed responses with wrong bytes; only a checksum detects them."""

EVERY_FAULT: Mapping[str, Fault] = MappingProxyType(
    {**REFUSALS, **BREAKS, **LIES, **ODDITIES, **STALLS, **UNNOTICEABLE}
)
"""All faults by name."""


def chaos(share: float, *, stalls: bool = False) -> Rule:
    """Return a rule that injects recoverable faults into ``share`` of all reads. Each kind of fault is equally likely.

    The rule excludes faults that only a checksum detects. The rule includes stalls only with ``stalls=True``, because
    each stall costs a timeout.

    Args:
        share: Fraction of the read requests, from 0 to 1.
    """
    chosen = {**REFUSALS, **BREAKS, **LIES, **ODDITIES, **(STALLS if stalls else {})}
    first, *others = chosen.values()
    return Rule(first, others=tuple(others), kind="get", probability=share)
