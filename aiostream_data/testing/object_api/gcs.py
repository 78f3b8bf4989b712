"""Google Cloud Storage server: the JSON API, and reads through the XML API with the bucket in the path."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiostream_data.testing.object_api.accounts import Account, bearer_refusal
from aiostream_data.testing.object_api.dialect import Target
from aiostream_data.testing.object_api.listing import from_token, list_page, to_token
from aiostream_data.testing.object_api.messages import Answer, Request, http_date
from aiostream_data.testing.object_api.objects import Objects, Slice, StoredObject
from aiostream_data.testing.object_api.reading import asked_range, content_range, unmet_condition, whole
from aiostream_data.testing.object_api.s3 import iso_time, request_id

_PAGE_LIMIT = 1000
_JSON = ("Content-Type", "application/json; charset=UTF-8")
_MESSAGES = {
    304: "Not Modified",
    400: "Invalid request.",
    401: "Invalid Credentials",
    403: "The caller does not have permission to read this.",
    404: "No such object",
    412: "At least one of the pre-conditions you specified did not hold.",
    416: "Requested range not satisfiable",
    429: "The rate of requests exceeds the limit.",
    500: "Backend Error",
    501: "Not implemented",
    503: "Backend Error",
}
_XML_CODES = {
    401: "AuthenticationRequired",
    403: "AccessDenied",
    404: "NoSuchKey",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "SlowDown",
    503: "ServiceUnavailable",
}


class GcsDialect:
    """Dialect of Google Cloud Storage; see :class:`~aiostream_data.testing.object_api.dialect.Dialect`."""

    def target(self, request: Request) -> Target:
        if not _is_json(request):
            bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
            if request.method not in ("GET", "HEAD") or not bucket or not key:
                return Target("other", bucket, key)
            return Target("get" if request.method == "GET" else "head", bucket, key)
        parts = request.path.removeprefix("/download").removeprefix("/storage/v1/").split("/", 3)
        if request.method != "GET" or parts[0] != "b" or len(parts) < 2:
            return Target("other", "", "")
        bucket = unquote(parts[1])
        if len(parts) == 2:
            return Target("bucket", bucket, "")
        if parts[2] != "o":
            return Target("other", bucket, "")
        if len(parts) == 3 or not parts[3]:
            return Target("list", bucket, request.params.get("prefix", ""))
        return Target("get" if request.params.get("alt") == "media" else "head", bucket, unquote(parts[3]))

    def refusal(self, request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
        return bearer_refusal(request.headers.get("authorization", ""), accounts, now_s) if accounts else None

    def refuse(self, request: Request, target: Target, reason: str, number: int) -> Answer:
        if reason == "denied":
            return self.error(request, target, 403, "", number)
        answer = self.error(request, target, 401, "", number)
        told = ', error="invalid_token"' if reason == "expired" else ""
        challenge = ("WWW-Authenticate", f'Bearer realm="https://accounts.google.com/"{told}')
        return Answer(401, (*answer.headers, challenge), answer.body)

    def error(self, request: Request, target: Target, status: int, code: str, number: int) -> Answer:
        if not _is_json(request):
            code = code or _XML_CODES.get(status, "InternalError")
            text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{escape(code)}</Code></Error>"
            return Answer(status, (*_common(number), ("Content-Type", "application/xml")), text.encode())
        message = code or _MESSAGES.get(status, "Unknown error")
        told = {"code": status, "message": message, "errors": [{"message": message, "domain": "global"}]}
        return Answer(status, (*_common(number), _JSON), json.dumps({"error": told}).encode())

    def read(self, request: Request, target: Target, stored: StoredObject, number: int) -> Answer:
        status = _unmet_generation(request, stored)
        if status == 0:
            unmet = unmet_condition(request.headers, stored.etag)
            status = 0 if unmet is None else unmet.value
        if status == 304:
            return Answer(304, (*_common(number), ("ETag", stored.etag)))
        if status:
            return self.error(request, target, status, "", number)
        if _is_json(request) and target.kind == "head":
            return Answer(200, (*_common(number), _JSON), json.dumps(_describe(target, stored)).encode())
        about = (*_common(number), *_headers(stored))
        try:
            asked = asked_range(request.headers.get("range", ""), stored.nbytes)
        except ValueError:
            refused = self.error(request, target, 416, "", number)
            return Answer(416, (*refused.headers, ("Content-Range", f"bytes */{stored.nbytes}")), refused.body)
        if asked is None:
            return Answer(200, about, whole(stored))
        part = Slice(stored, *asked)
        return Answer(206, (*about, ("Content-Range", content_range(part))), part)

    def other(self, request: Request, target: Target, objects: Objects, number: int) -> Answer:
        if target.kind == "other":
            return self.error(request, target, 501, "", number)
        if target.bucket not in objects.buckets:
            code = "The specified bucket does not exist." if _is_json(request) else "NoSuchBucket"
            return self.error(request, target, 404, code, number)
        if target.kind == "list":
            return _list(self, request, target, objects, number)
        if target.kind == "bucket":
            told = {"kind": "storage#bucket", "id": target.bucket, "name": target.bucket, "location": "US"}
            return Answer(200, (*_common(number), _JSON), json.dumps(told).encode())
        code = f"No such object: {target.name}" if _is_json(request) else ""
        return self.error(request, target, 404, code, number)


def _is_json(request: Request) -> bool:
    return request.path.startswith(("/storage/v1/", "/download/storage/v1/"))


def _common(number: int) -> tuple[tuple[str, str], ...]:
    return (("X-GUploader-UploadID", request_id(number)), ("Server", "FaultServer"))


def _unmet_generation(request: Request, stored: StoredObject) -> int:
    """Return status 404, 412 or 304 if the object violates a generation condition of the request, else 0."""
    params, headers, found = request.params, request.headers, str(stored.generation)
    if params.get("generation", found) != found:
        return 404
    if params.get("ifGenerationMatch", headers.get("x-goog-if-generation-match", found)) != found:
        return 412
    return 304 if params.get("ifGenerationNotMatch") == found else 0


def _hashes(stored: StoredObject) -> dict[str, str]:
    if stored.crc32c is None or stored.md5 is None:
        return {}
    return {
        "crc32c": b64encode(stored.crc32c.to_bytes(4, "big")).decode(),
        "md5": b64encode(stored.md5).decode(),
    }


def _headers(stored: StoredObject) -> tuple[tuple[str, str], ...]:
    """Return the headers of object content. Even for a range, the hashes cover the whole object."""
    hashes = tuple(("x-goog-hash", f"{name}={value}") for name, value in _hashes(stored).items())
    return (
        ("x-goog-generation", str(stored.generation)),
        ("x-goog-metageneration", "1"),
        *hashes,
        ("x-goog-stored-content-encoding", "identity"),
        ("x-goog-stored-content-length", str(stored.nbytes)),
        ("ETag", stored.etag),
        ("Last-Modified", http_date(stored.modified_s)),
        ("Accept-Ranges", "bytes"),
        ("Content-Type", "application/octet-stream"),
    )


def _describe(target: Target, stored: StoredObject) -> dict[str, Any]:
    """Return the metadata of an object in the form of the JSON API, where numbers are strings."""
    hashes = _hashes(stored)
    key = stored.name.partition("/")[2]
    about = {
        "kind": "storage#object",
        "id": f"{stored.name}/{stored.generation}",
        "name": key,
        "bucket": target.bucket,
        "size": str(stored.nbytes),
        "generation": str(stored.generation),
        "metageneration": "1",
        "etag": stored.etag.strip('"'),
        "contentType": "application/octet-stream",
        "storageClass": "STANDARD",
        "timeCreated": iso_time(stored.modified_s),
        "updated": iso_time(stored.modified_s),
        "mediaLink": f"/download/storage/v1/b/{quote(target.bucket)}/o/{quote(key, safe='')}?alt=media",
    }
    return {**about, **({"crc32c": hashes["crc32c"], "md5Hash": hashes["md5"]} if hashes else {})}


def _list(dialect: GcsDialect, request: Request, target: Target, objects: Objects, number: int) -> Answer:
    params = request.params
    try:
        token, limit = params.get("pageToken", ""), params.get("maxResults", "")
        page_limit = max(1, min(int(limit), _PAGE_LIMIT)) if limit else _PAGE_LIMIT
        after = from_token(token) if token else ""
    except ValueError:
        return dialect.error(request, target, 400, "", number)
    first, last = params.get("startOffset", ""), params.get("endOffset", "")
    keys = [key for key in objects.keys(target.bucket) if first <= key and (not last or key < last)] \
        if first or last else objects.keys(target.bucket)  # fmt: skip
    page = list_page(keys, prefix=target.key, delimiter=params.get("delimiter", ""), after=after, limit=page_limit)
    told: dict[str, Any] = {"kind": "storage#objects"}
    if page.after is not None:
        told["nextPageToken"] = to_token(page.after)
    if page.prefixes:
        told["prefixes"] = list(page.prefixes)
    found = [stored for key in page.keys if (stored := objects.get(f"{target.bucket}/{key}"))]
    if found:
        told["items"] = [_describe(target, stored) for stored in found]
    return Answer(200, (*_common(number), _JSON), json.dumps(told).encode())
