"""State of a test server, and its decision for each request. This module uses no sockets and does not wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from aiostream_data.testing.fault_rules import RuleBook
from aiostream_data.testing.fault_script import Step, Wait, moved, write_script
from aiostream_data.testing.faults import Facts, Fault
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.dialect import Dialect, DialectName, Target
from aiostream_data.testing.object_api.gcs import GcsDialect
from aiostream_data.testing.object_api.messages import Answer, Request
from aiostream_data.testing.object_api.objects import Objects, Slice, StoredObject
from aiostream_data.testing.object_api.plain import HttpDialect
from aiostream_data.testing.object_api.reading import clipped_range, content_range
from aiostream_data.testing.object_api.s3 import S3Dialect, wrong_region
from aiostream_data.testing.request_log import RequestLog, SeenRequest
from aiostream_data.testing.wire_model import Capacity, WireModel

_DIALECTS: dict[DialectName, Callable[[], Dialect]] = {"s3": S3Dialect, "gcs": GcsDialect, "http": HttpDialect}


def nothing_to_drop() -> None:
    """Placeholder for ``drop_connections`` while no server serves the site."""


class FaultSite:
    """Objects, rules, accounts, wire model and request log of one test server.

    Attributes may be replaced while the server runs.

    Args:
        dialect: API of the server: ``s3``, ``gcs`` or ``http``.
        seed: Seed of all random draws of the server.
    """

    def __init__(self, dialect: DialectName = "s3", *, seed: int = 0) -> None:
        self.dialect_name: DialectName = dialect
        self.dialect = _DIALECTS[dialect]()
        self.seed = seed
        self.objects = Objects()
        self.rules = RuleBook(seed=seed)
        self.accounts: tuple[Account, ...] = ()
        self.log = RequestLog()
        self.drop_connections: Callable[[], None] = nothing_to_drop
        self._rng = random.Random(seed)
        self.set_wire(WireModel())

    def set_wire(self, wire: WireModel) -> None:
        """Change latency, bandwidth and limits of the server. A new bandwidth applies only to new connections."""
        self.wire = wire
        per_s = wire.max_requests_per_s
        self._capacity = None if per_s is None else Capacity(per_s, time.monotonic())

    def decide(self, request: Request, connection: int) -> tuple[list[Step], SeenRequest]:
        """Return the response steps for a request, and its entry in the request log."""
        number = self.log.next_number()
        target = self.dialect.target(request)
        stored = self.objects.get(target.name) if target.kind in ("get", "head") else None
        start, stop = clipped_range(request.headers.get("range", ""), stored.nbytes) if stored else (0, 0)
        fault = self.rules.choose(Facts(target.kind, request.method, target.name, start, stop))
        if fault is not None and fault.change == "before" and stored is not None:
            stored = self.objects.invert(target.name)
        answer = self._answer(request, target, stored, fault, number)
        steps = write_script(
            answer,
            fault,
            method=request.method,
            read=self.objects.read,
            newer=self._newer,
            close=request.headers.get("connection", "").lower() == "close",
        )
        delay_s = self.wire.draw_first_byte_s(self._rng) + (fault.delay_s if fault is not None else 0.0)
        if delay_s > 0.0:
            steps.insert(0, Wait(delay_s))
        has_range = stored is not None and "range" in request.headers
        seen = SeenRequest(
            number, connection, time.time(), request.method, target.kind, target.name,
            start if has_range else None, stop if has_range else None, request.headers, request.query,
            0 if fault is not None and fault.raw is not None else answer.status, fault=str(fault) if fault else "",
        )  # fmt: skip
        self.log.began(seen)
        return steps, seen

    def close(self) -> None:
        """Close the file that contains the stored objects."""
        self.objects.close()

    def _answer(
        self, request: Request, target: Target, stored: StoredObject | None, fault: Fault | None, number: int
    ) -> Answer:
        refused = self._refusal(request, target, fault, number)
        if refused is not None:
            return refused
        if stored is None:
            return self.dialect.other(request, target, self.objects, number)
        if fault is not None and fault.ignore_range:
            request = replace(request, headers={**request.headers, "range": ""})
        answer = self.dialect.read(request, target, stored, number)
        if fault is not None and fault.shift_range and answer.status == 206 and isinstance(answer.body, Slice):
            part = moved(answer.body, fault.shift_range)
            kept = tuple(item for item in answer.headers if item[0] != "Content-Range")
            return Answer(206, (*kept, ("Content-Range", content_range(part))), part)
        return answer

    def _refusal(self, request: Request, target: Target, fault: Fault | None, number: int) -> Answer | None:
        if fault is not None and fault.region:
            return wrong_region(request, target, fault.region, fault.status or 400, number)
        if fault is not None and fault.status is not None:
            return self.dialect.error(request, target, fault.status, fault.code, number)
        if fault is not None and fault.redirect:
            answer = self.dialect.error(request, target, 307, fault.code or "TemporaryRedirect", number)
            return Answer(307, (*answer.headers, ("Location", fault.redirect)), answer.body)
        reason: str | None = fault.refuse if fault is not None else None
        reason = reason or self.dialect.refusal(request, self.accounts, time.time())
        if reason is not None:
            return self.dialect.refuse(request, target, reason, number)
        if self._capacity is not None and not self._capacity.take(time.monotonic()):
            return self.dialect.error(request, target, 503, "", number)
        return None

    def _newer(self, part: Slice) -> Slice:
        """Replace the object and return the same slice of the object's new version."""
        stored = self.objects.invert(part.stored.name)
        return replace(part, stored=stored)
