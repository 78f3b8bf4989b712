"""Requests for pages of a listing are written and signed as botocore does it."""

from __future__ import annotations

import calendar
import time
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.storage.key_search import PageRequest
from aiostream_data.storage.s3_page_requests import query_of
from aiostream_data.storage.wire.sigv4 import AwsKey, Signer

HOST = "bucket.s3.eu-central-1.amazonaws.com"
ODD = "a b/é+%2F&=?#~'\"()*!@,;:$\U0001f600"
REQUESTS = {
    "first page": PageRequest("train/", folded=False, most=1000),
    "everything": PageRequest("", folded=False, most=1),
    "folded": PageRequest("train/", folded=True, most=1000),
    "next page": PageRequest("train/", folded=True, most=1000, token="1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="),
    "odd characters": PageRequest(ODD, folded=False, most=3, token=ODD),
}


def signature_of_botocore(key: AwsKey, path: str, query: str, headers: dict[str, str]) -> tuple[str, float]:
    """Return the signature that botocore makes of a request, and the time of the signature."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    class Unsigned(S3SigV4Auth):  # type: ignore[misc,unused-ignore]
        def payload(self, request: Any) -> str:
            return "UNSIGNED-PAYLOAD"

    request = AWSRequest("GET", f"https://{HOST}{path}?{query}", headers=headers)
    Unsigned(Credentials(key.access_key, key.secret_key, key.token), "s3", "eu-central-1").add_auth(request)
    moment = time.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    return request.headers["Authorization"].rpartition("Signature=")[2], float(calendar.timegm(moment))


@pytest.mark.parametrize("extra", [{}, {"x-amz-request-payer": "requester"}])
@pytest.mark.parametrize("token", [None, "session/token=="])
@pytest.mark.parametrize("path", ["/", "/bucket"])
@pytest.mark.parametrize("name", list(REQUESTS))
def test_the_signature_of_a_page_is_that_of_botocore(
    name: str, path: str, token: str | None, extra: dict[str, str]
) -> None:
    key, query = AwsKey("AKIDEXAMPLE", "secret/key+", token), query_of(REQUESTS[name])
    expected, now = signature_of_botocore(key, path, query, extra)
    headers = Signer("eu-central-1").headers(key, HOST, path, query, extra, now=now)
    assert headers["authorization"].rpartition("Signature=")[2] == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_prefix_and_token_arrive_as_they_are(prefix: str, token: str) -> None:
    query = query_of(PageRequest(prefix, folded=True, most=7, token=token))
    assert query.isascii()
    fields = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    more = {"continuation-token": token} if token else {}
    expected = {"delimiter": "/", "encoding-type": "url", "list-type": "2", "max-keys": "7", "prefix": prefix, **more}
    assert fields == expected
    assert [name for name, _ in parse_qsl(query, keep_blank_values=True)] == sorted(expected)
    assert unquote_to_bytes(query.rpartition("prefix=")[2]) == prefix.encode()
