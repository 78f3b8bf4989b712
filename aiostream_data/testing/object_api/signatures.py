"""Creation and verification of S3 signatures (AWS Signature Version 4), in headers and presigned URLs.

This test code follows AWS's public description and shares no code with the package's signer. Each implementation
therefore checks the other.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from calendar import timegm
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.messages import Request

_SKEW_S = 900.0
_HEADER = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<credential>[^,\s]+)\s*,\s*SignedHeaders=(?P<signed>[^,\s]+)\s*,\s*"
    r"Signature=(?P<signature>[0-9a-f]+)"
)


def refusal(request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
    """Return the reason why the signature of a request is rejected, or None if the signature is valid.

    The reason is one of ``unsigned``, ``unknown_key``, ``expired``, ``skewed``, ``bad_signature``.
    """
    parts = _signature_parts(request)
    if parts is None:
        return "unsigned"
    credential, signed, signature, stamp, life_s, token, payload = parts
    key, *scope = credential.split("/")
    known = [account for account in accounts if account.key == key]
    if not known:
        return "unknown_key"
    same_token = [account for account in known if account.token == token]
    if not same_token:
        return "unknown_key"
    account = same_token[-1]
    signed_s = _parse_stamp(stamp)
    if signed_s is None or len(scope) != 4 or scope[0] != stamp[:8]:
        return "bad_signature"
    if life_s is not None and now_s > signed_s + life_s:
        return "expired"
    if life_s is None and abs(now_s - signed_s) > _SKEW_S:
        return "skewed"
    wanted = _sign(request, account.secret, signed.split(";"), stamp, scope, payload)
    if "host" not in signed.split(";") or not hmac.compare_digest(wanted, signature):
        return "bad_signature"
    return "expired" if account.is_over(now_s) else None


def signed_headers(
    account: Account,
    method: str,
    host: str,
    target: str,
    *,
    region: str = "us-east-1",
    now_s: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return ``headers`` together with the headers that sign the request.

    Args:
        target: Path and query of the URL, as in the HTTP request line.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if now_s is None else now_s))
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    sent |= {"host": host, "x-amz-date": stamp, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    if account.token:
        sent["x-amz-security-token"] = account.token
    path, _, query = target.partition("?")
    request = Request(method, path, query, {}, sent)
    scope = [stamp[:8], region, "s3", "aws4_request"]
    signature = _sign(request, account.secret, sorted(sent), stamp, scope, "UNSIGNED-PAYLOAD")
    credential = "/".join([account.key, *scope])
    names = ";".join(sorted(sent))
    return {
        **sent,
        "authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
    }


def _signature_parts(request: Request) -> tuple[str, str, str, str, float | None, str, str] | None:
    """Return the credential, signed headers, signature, time, lifetime, session token and payload hash of a request."""
    params = request.params
    if "X-Amz-Signature" in params:
        life = params.get("X-Amz-Expires", "")
        return (
            params.get("X-Amz-Credential", ""),
            params.get("X-Amz-SignedHeaders", ""),
            params["X-Amz-Signature"],
            params.get("X-Amz-Date", ""),
            float(life) if life.isdecimal() else 0.0,
            params.get("X-Amz-Security-Token", ""),
            "UNSIGNED-PAYLOAD",
        )
    found = _HEADER.fullmatch(request.headers.get("authorization", "").strip())
    if found is None:
        return None
    headers = request.headers
    return (
        found["credential"],
        found["signed"],
        found["signature"],
        headers.get("x-amz-date", ""),
        None,
        headers.get("x-amz-security-token", ""),
        headers.get("x-amz-content-sha256", ""),
    )


def _sign(request: Request, secret: str, names: Sequence[str], stamp: str, scope: Sequence[str], payload: str) -> str:
    lines = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in names)
    path = quote(unquote(request.path), safe="/~")
    canonical = "\n".join([request.method, path, _canonical_query(request.query), lines, ";".join(names), payload])
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{'/'.join(scope)}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _canonical_query(query: str) -> str:
    pairs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name != "X-Amz-Signature":
            pairs.append((quote(unquote(name), safe="~"), quote(unquote(value), safe="~")))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _parse_stamp(stamp: str) -> float | None:
    try:
        return float(timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return None
