"""Plain HTTP server: files by path, with ranges, ETags, and passwords or bearer tokens."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import unquote

from aiostream_data.testing.object_api.accounts import Account, bearer_refusal
from aiostream_data.testing.object_api.dialect import Target
from aiostream_data.testing.object_api.messages import Answer, Request, http_date
from aiostream_data.testing.object_api.objects import Objects, Slice, StoredObject
from aiostream_data.testing.object_api.reading import Unmet, asked_range, content_range, unmet_condition, whole

_TEXT = ("Content-Type", "text/plain")


class HttpDialect:
    """Dialect of plain HTTP; see :class:`~aiostream_data.testing.object_api.dialect.Dialect`."""

    def target(self, request: Request) -> Target:
        kind = {"GET": "get", "HEAD": "head"}.get(request.method)
        path = unquote(request.path).removeprefix("/")
        if kind == "get":
            return Target("get", "", path)
        return Target("head" if kind == "head" else "other", "", path)

    def refusal(self, request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
        if not accounts:
            return None
        header = request.headers.get("authorization", "")
        if not header.lower().startswith("basic "):
            return bearer_refusal(header, accounts, now_s)
        for account in accounts:
            if header[6:].strip() == b64encode(f"{account.key}:{account.secret}".encode()).decode():
                return "expired" if account.is_over(now_s) else None
        return "unknown_key"

    def refuse(self, request: Request, target: Target, reason: str, number: int) -> Answer:
        if reason == "denied":
            return self.error(request, target, 403, "", number)
        answer = self.error(request, target, 401, reason, number)
        return Answer(401, (*answer.headers, ("WWW-Authenticate", 'Basic realm="test"')), answer.body)

    def error(self, request: Request, target: Target, status: int, code: str, number: int) -> Answer:
        known = {item.value: item.phrase for item in HTTPStatus}
        text = code or known.get(status, "Unknown error")
        return Answer(status, (*_common(number), _TEXT), f"{text}\n".encode())

    def read(self, request: Request, target: Target, stored: StoredObject, number: int) -> Answer:
        about = (*_common(number), ("ETag", stored.etag), ("Last-Modified", http_date(stored.modified_s)))
        unmet = unmet_condition(request.headers, stored.etag)
        if unmet is Unmet.SAME:
            return Answer(304, about)
        if unmet is Unmet.CHANGED:
            return self.error(request, target, 412, "", number)
        about = (*about, ("Accept-Ranges", "bytes"), ("Content-Type", "application/octet-stream"))
        try:
            asked = asked_range(_valid_range(request, stored), stored.nbytes)
        except ValueError:
            refused = self.error(request, target, 416, "", number)
            return Answer(416, (*refused.headers, ("Content-Range", f"bytes */{stored.nbytes}")), refused.body)
        if asked is None:
            return Answer(200, about, whole(stored))
        part = Slice(stored, *asked)
        return Answer(206, (*about, ("Content-Range", content_range(part))), part)

    def other(self, request: Request, target: Target, objects: Objects, number: int) -> Answer:
        return self.error(request, target, 405 if target.kind == "other" else 404, "", number)


def _valid_range(request: Request, stored: StoredObject) -> str:
    """Return the Range header, or no range if the If-Range header names another version."""
    condition = request.headers.get("if-range", stored.etag)
    return request.headers.get("range", "") if condition in (stored.etag, http_date(stored.modified_s)) else ""


def _common(number: int) -> tuple[tuple[str, str], ...]:
    return (("X-Request-Id", str(number)), ("Server", "FaultServer"))
