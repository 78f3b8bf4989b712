"""S3 server with the bucket in the path: object reads, listings (ListObjectsV2), and errors as XML."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiostream_data.testing.object_api import signatures
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.dialect import Target
from aiostream_data.testing.object_api.listing import from_token, list_page, to_token
from aiostream_data.testing.object_api.messages import Answer, Request, http_date
from aiostream_data.testing.object_api.objects import Objects, Slice, StoredObject
from aiostream_data.testing.object_api.reading import Unmet, asked_range, content_range, unmet_condition, whole

_PAGE_LIMIT = 1000
_CODES = {
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}
_REFUSALS = {
    "unsigned": (403, "AccessDenied"),
    "denied": (403, "AccessDenied"),
    "unknown_key": (403, "InvalidAccessKeyId"),
    "bad_signature": (403, "SignatureDoesNotMatch"),
    "expired": (400, "ExpiredToken"),
    "skewed": (403, "RequestTimeTooSkewed"),
}


_SCOPE = re.compile(r"Credential=[^/\s]+/[0-9]{8}/([^/\s]+)/")


class S3Dialect:
    """Dialect of Amazon S3; see :class:`~aiostream_data.testing.object_api.dialect.Dialect`."""

    def target(self, request: Request) -> Target:
        bucket, slash, key = unquote(request.path).removeprefix("/").partition("/")
        if request.method not in ("GET", "HEAD") or not bucket:
            return Target("other", bucket, key)
        if slash and key:
            return Target("get" if request.method == "GET" else "head", bucket, key)
        if request.method == "GET" and request.params.get("list-type") == "2":
            return Target("list", bucket, request.params.get("prefix", ""))
        return Target("bucket", bucket, "")

    def refusal(self, request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
        return signatures.refusal(request, accounts, now_s) if accounts else None

    def refuse(self, request: Request, target: Target, reason: str, number: int) -> Answer:
        status, code = _REFUSALS[reason]
        return self.error(request, target, status, code, number)

    def error(self, request: Request, target: Target, status: int, code: str, number: int) -> Answer:
        code = code or _CODES.get(status, "UnknownError")
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{escape(code)}</Code><Message>{escape(code)} says the test server.</Message>"
            f"<Resource>{escape(request.path)}</Resource><RequestId>{request_id(number)}</RequestId></Error>"
        )
        return Answer(status, (*_common(number), ("Content-Type", "application/xml")), body.encode())

    def read(self, request: Request, target: Target, stored: StoredObject, number: int) -> Answer:
        about = (*_common(number), ("ETag", stored.etag), ("Last-Modified", http_date(stored.modified_s)))
        unmet = unmet_condition(request.headers, stored.etag)
        if unmet is Unmet.SAME:
            return Answer(304, about)
        if unmet is Unmet.CHANGED:
            return self.error(request, target, 412, "", number)
        about = (*about, ("Accept-Ranges", "bytes"), ("Content-Type", "binary/octet-stream"))
        try:
            asked = asked_range(request.headers.get("range", ""), stored.nbytes)
        except ValueError:
            refused = self.error(request, target, 416, "", number)
            return Answer(416, (*refused.headers, ("Content-Range", f"bytes */{stored.nbytes}")), refused.body)
        if asked is not None:
            part = Slice(stored, *asked)
            return Answer(206, (*about, ("Content-Range", content_range(part))), part)
        return Answer(200, (*about, *_checksums(request, stored)), whole(stored))

    def other(self, request: Request, target: Target, objects: Objects, number: int) -> Answer:
        if target.kind == "other":
            return self.error(request, target, 501, "", number)
        if target.bucket not in objects.buckets:
            return self.error(request, target, 404, "NoSuchBucket", number)
        if target.kind == "list":
            return _list(self, request, target, objects, number)
        if target.kind == "bucket":
            return _describe_bucket(self, request, target, number)
        return self.error(request, target, 404, "NoSuchKey", number)


def wrong_region(request: Request, target: Target, region: str, status: int, number: int) -> Answer | None:
    """Return the error if the request is signed for a region other than the bucket's ``region``, or None."""
    signed_for = _SCOPE.search(request.headers.get("authorization", ""))
    if signed_for is None or signed_for[1] == region:
        return None
    code = "PermanentRedirect" if status == 301 else "AuthorizationHeaderMalformed"
    text = f"<Error><Code>{code}</Code><Message>Not here.</Message><Region>{escape(region)}</Region></Error>"
    told = (*_common(number), ("x-amz-bucket-region", region), ("Content-Type", "application/xml"))
    return Answer(status, told, text.encode())


def request_id(number: int) -> str:
    """Return the request id that the server assigns to a request number."""
    return f"{number:016X}"


def _common(number: int) -> tuple[tuple[str, str], ...]:
    return (("x-amz-request-id", request_id(number)), ("x-amz-id-2", "aiostream-data"), ("Server", "FaultServer"))


def _checksums(request: Request, stored: StoredObject) -> tuple[tuple[str, str], ...]:
    """Return the checksum header of a whole object if the client requests the checksum."""
    if request.headers.get("x-amz-checksum-mode", "").upper() != "ENABLED" or stored.crc32 is None:
        return ()
    told = b64encode(stored.crc32.to_bytes(4, "big")).decode()
    return (("x-amz-checksum-crc32", told), ("x-amz-checksum-type", "FULL_OBJECT"))


def _describe_bucket(dialect: S3Dialect, request: Request, target: Target, number: int) -> Answer:
    if request.method == "HEAD":
        return Answer(200, (*_common(number), ("x-amz-bucket-region", "us-east-1")))
    if "location" in request.params:
        body = b'<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>'
        return Answer(200, (*_common(number), ("Content-Type", "application/xml")), body)
    return dialect.error(request, target, 501, "", number)


def _list(dialect: S3Dialect, request: Request, target: Target, objects: Objects, number: int) -> Answer:
    params = request.params
    limit, delimiter = params.get("max-keys", ""), params.get("delimiter", "")
    try:
        token = params.get("continuation-token")
        after = from_token(token) if token is not None else params.get("start-after", "")
        page_limit = min(int(limit), _PAGE_LIMIT) if limit else _PAGE_LIMIT
    except ValueError:
        return dialect.error(request, target, 400, "InvalidArgument", number)
    page = list_page(objects.keys(target.bucket), prefix=target.key, delimiter=delimiter, after=after, limit=page_limit)
    written = quote if params.get("encoding-type") == "url" else escape
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
        f"<Name>{escape(target.bucket)}</Name><Prefix>{written(target.key)}</Prefix>",
        f"<MaxKeys>{page_limit}</MaxKeys><KeyCount>{len(page.keys) + len(page.prefixes)}</KeyCount>",
        f"<IsTruncated>{'true' if page.after is not None else 'false'}</IsTruncated>",
    ]
    if delimiter:
        lines.append(f"<Delimiter>{written(delimiter)}</Delimiter>")
    if params.get("encoding-type") == "url":
        lines.append("<EncodingType>url</EncodingType>")
    if page.after is not None:
        lines.append(f"<NextContinuationToken>{to_token(page.after)}</NextContinuationToken>")
    lines += [_entry(written(key), stored) for key in page.keys if (stored := objects.get(f"{target.bucket}/{key}"))]
    lines += [f"<CommonPrefixes><Prefix>{written(prefix)}</Prefix></CommonPrefixes>" for prefix in page.prefixes]
    body = "".join([*lines, "</ListBucketResult>"]).encode()
    return Answer(200, (*_common(number), ("Content-Type", "application/xml")), body)


def _entry(key: str, stored: StoredObject) -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>{iso_time(stored.modified_s)}</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{stored.nbytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def iso_time(seconds: float) -> str:
    """Format a Unix time as the listings of object stores do."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
