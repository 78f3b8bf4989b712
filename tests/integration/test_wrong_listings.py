"""What is no listing, or tells a size that is none, is a wrong answer: never an empty listing, never another error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leaks import leaves_nothing
from raw_server import RawRequest, raw_server

from aiostream_data.errors import IndexFileError, NoMatchError, StorageError, WrongAnswerError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.index_file import parse_index
from aiostream_data.storage.object_size import MOST_NBYTES, as_object_nbytes
from aiostream_data.storage.stores import StoreSet

SIZES = [
    "-1",
    "-9223372036854775808",
    "9" * 20,
    "9" * 6000,
    str(2**63),
    str(2**63 - 1),
    "1e3",
    "0x10",
    "",
    "1.5",
    "x",
    "١",
]


def listing(inside: str) -> bytes:
    name = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult {name}>{inside}</ListBucketResult>'.encode()


def contents(size: str, key: str = "<Key>a</Key>") -> str:
    return f"<Contents>{key}<Size>{size}</Size></Contents>"


BOMB = b'<!DOCTYPE z [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "&%c;&%c;&%c;&%c;&%c;&%c;&%c;&%c;">' % (c, *[c - 1] * 8) for c in range(ord("b"), ord("z"))
)
S3_BODIES: dict[str, bytes] = {
    "a page of HTML": b"<!DOCTYPE html><html><body>Please log in</body></html>",
    "a page of XHTML": b"<html><body>Please log in</body></html>",
    "another root": b"<Error><Code>AccessDenied</Code></Error>",
    "the root of another listing": b"<ListAllMyBucketsResult></ListAllMyBucketsResult>",
    "JSON": b'{"items": []}',
    "nothing": b"",
    "a space": b" ",
    "binary": bytes(range(256)),
    "cut": listing(contents("1") * 9)[:-40],
    "cut in the beginning": b"<?xml version",
    "not closed": b"<ListBucketResult>",
    "entities": BOMB + b"]><ListBucketResult><Contents><Key>&y;</Key></Contents></ListBucketResult>",
    "external entity": b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><ListBucketResult>&x;</ListBucketResult>',
    "no key": listing(contents("1", key="")),
    "no size": listing("<Contents><Key>a</Key></Contents>"),
    "no prefix": listing("<CommonPrefixes></CommonPrefixes>"),
    "no token": listing("<IsTruncated>true</IsTruncated>" + contents("1")),
    "a date that is none": listing("<Contents><Key>a</Key><LastModified>soon</LastModified><Size>1</Size></Contents>"),
    "comments without an end": b"<!-- " + b"- " * 10_000,
    **{f"size {size[:20]}": listing(contents(size)) for size in SIZES},
}
GCS_BODIES: dict[str, bytes] = {
    "a page of HTML": b"<!DOCTYPE html><html><body>Please log in</body></html>",
    "nothing": b"",
    "a list": b"[]",
    "text": b'"x"',
    "deep": b"[" * 100_000,
    "cut": b'{"items": [{"name": "a", "siz',
    "an error": b'{"error": {"code": 500}}',
    "items of another type": b'{"items": {"name": "a", "size": "1"}}',
    "items that are text": b'{"items": ["a"]}',
    "prefixes of another type": b'{"items": [], "prefixes": "a/"}',
    "a prefix of another type": b'{"items": [], "prefixes": [1]}',
    "a token of another type": b'{"items": [], "nextPageToken": {"a": 1}}',
    "a name of another type": b'{"items": [{"name": ["a"], "size": "1"}]}',
    "no name": b'{"items": [{"size": "1"}]}',
    "no size": b'{"items": [{"name": "a"}]}',
    **{f"size {size[:20]}": json.dumps({"items": [{"name": "a", "size": size}]}).encode() for size in SIZES},
    **{f"number {n}": json.dumps({"items": [{"name": "a", "size": n}]}).encode() for n in (-1, 2**63, 1.5, True)},
}


def call(case: Callable[[StoreSet], Awaitable[Any]], body: bytes, **options: Any) -> Any:
    def answer(request: RawRequest) -> None:
        request.answer(200, body, content_type="application/xml")

    async def main(url: str) -> Any:
        stores = StoreSet({"endpoint_url": url, "retry_attempts": 1, **options}, asyncio.to_thread)
        try:
            return await asyncio.wait_for(case(stores), 20)
        finally:
            await stores.aclose()

    with leaves_nothing(), raw_server(answer) as server:
        return asyncio.run(main(server.url))


def check_wrong(url: str, body: bytes, **options: Any) -> None:
    began = time.monotonic()
    with pytest.raises(WrongAnswerError) as caught:
        call(lambda stores: stores.glob(url), body, **options)
    assert url in str(caught.value)
    assert len(str(caught.value)) < 500
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", list(S3_BODIES))
def test_what_is_no_listing_of_s3_is_a_wrong_answer(name: str) -> None:
    check_wrong("s3://bucket/*", S3_BODIES[name], anon=True)


@pytest.mark.parametrize("name", list(GCS_BODIES))
def test_what_is_no_listing_of_google_is_a_wrong_answer(name: str) -> None:
    check_wrong("gs://bucket/*", GCS_BODIES[name], token="anon")


def test_the_error_says_what_it_is_instead() -> None:
    with pytest.raises(WrongAnswerError, match="not a listing: its root element is <Error>"):
        call(lambda stores: stores.glob("s3://bucket/*"), S3_BODIES["another root"], anon=True)
    with pytest.raises(WrongAnswerError, match=r"it begins with b'<!DOCTYPE html>"):
        call(lambda stores: stores.glob("s3://bucket/*"), S3_BODIES["a page of HTML"], anon=True)
    with pytest.raises(WrongAnswerError, match="invalid object size: '-1' bytes"):
        call(lambda stores: stores.glob("s3://bucket/*"), S3_BODIES["size -1"], anon=True)


@pytest.mark.parametrize(
    "body",
    [
        listing(contents("7")),
        b"\xef\xbb\xbf" + listing(contents("7")),
        b"<ListBucketResult>" + contents(" 7\n").encode() + b"</ListBucketResult>",
        b"<?xml version='1.0'?><!-- a - b --> <ListBucketResult>" + contents("7").encode() + b"</ListBucketResult>",
        b"<s3:ListBucketResult xmlns:s3='x'><s3:Contents><s3:Key>a</s3:Key><s3:Size>7</s3:Size></s3:Contents>"
        b"</s3:ListBucketResult>",
    ],
)
def test_a_listing_is_read_however_it_is_written(body: bytes) -> None:
    assert call(lambda stores: stores.glob("s3://bucket/*"), body, anon=True) == [ShardRef("s3://bucket/a", 7)]


@pytest.mark.parametrize("body", [b"<ListBucketResult/>", listing("")])
def test_an_empty_listing_of_s3_is_no_match(body: bytes) -> None:
    with pytest.raises(NoMatchError):
        call(lambda stores: stores.glob("s3://bucket/*"), body, anon=True)


@pytest.mark.parametrize("body", [b"{}", b'{"kind": "storage#objects"}', b'{"items": []}'])
def test_an_empty_listing_of_google_is_no_match(body: bytes) -> None:
    with pytest.raises(NoMatchError):
        call(lambda stores: stores.glob("gs://bucket/*"), body, token="anon")


@pytest.mark.parametrize("body", [b"<html></html>", b"[]", b"{}", b'{"name": "a", "size": "-1"}', b'{"size": "1"}'])
def test_a_look_up_of_google_that_makes_no_sense_is_a_wrong_answer(body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        call(lambda stores: stores.info("gs://bucket/a"), body, token="anon")


@pytest.mark.parametrize("store", ["http", "s3"])
def test_a_size_in_a_header_that_is_absurd_is_an_error(store: str) -> None:
    def answer(request: RawRequest) -> None:
        request.send(b"HTTP/1.1 200 x\r\ncontent-length: 9223372036854775807\r\n\r\n")

    async def main(url: str) -> None:
        options = {"endpoint_url": url, "anon": True} if store == "s3" else {}
        stores = StoreSet({"retry_attempts": 1, **options}, asyncio.to_thread)
        try:
            await stores.info("s3://bucket/a" if store == "s3" else f"{url}/a")
        finally:
            await stores.aclose()

    with leaves_nothing(), raw_server(answer) as server, pytest.raises(StorageError):
        asyncio.run(main(server.url))


@pytest.mark.parametrize("told", [0, 1, MOST_NBYTES, "0", "17", 5.0])
def test_sizes_are_whole_numbers_or_their_digits(told: object) -> None:
    assert as_object_nbytes("x://y", told) == int(told)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "told",
    [-1, MOST_NBYTES + 1, pytest.param(10**5000, id="huge"), True, None, 1.5, float("nan"), [], b"1", "+1", " 1"],
)
def test_anything_else_is_no_size(told: object) -> None:
    with pytest.raises(WrongAnswerError):
        as_object_nbytes("x://y", told)


@pytest.mark.parametrize("nbytes", ["-1", "1e400", "true", '"1"', "[]", "1.5", "9" * 30])
def test_a_size_in_an_index_that_is_none_is_an_error_of_its_line(nbytes: str) -> None:
    content = f'{{"format": "aiostream-data-index", "version": 1, "shards": 1}}\n{{"url": "a", "nbytes": {nbytes}}}\n'
    with pytest.raises(IndexFileError, match="line 2"):
        parse_index("https://host/index.jsonl", content.encode())


@pytest.mark.parametrize("content", [b"<html></html>", b"", b"[]", b"{}", b"[" * 100_000, b"\xff\xfe", b"9" * 6000])
def test_what_is_no_index_is_an_error_of_its_first_line(content: bytes) -> None:
    with pytest.raises(IndexFileError):
        parse_index("https://host/index.jsonl", content)
