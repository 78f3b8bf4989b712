"""A page of a listing is parsed as botocore parses it; damaged and hostile pages are errors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import WrongAnswerError
from aiostream_data.storage.key_search import ListedKey, Page
from aiostream_data.storage.s3_listing import NotAListing, check_listing_body, page_of
from aiostream_data.storage.s3_page import parse_page

URL = "s3://bucket/*"
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=20)
ETAGS = st.sampled_from(["", '"abc"', "abc", '"a&b-2"', '"<é>"'])


@lru_cache(maxsize=1)
def output_shape() -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape


def by_botocore(body: bytes) -> Page:
    """Parse a page with the check and the parser that the library uses."""
    from botocore.handlers import decode_list_object_v2
    from botocore.parsers import create_parser

    check_listing_body(body)
    answer = {"status_code": 200, "headers": {}, "body": body}
    parsed: dict[str, Any] = create_parser("rest-xml").parse(answer, output_shape())
    decode_list_object_v2(parsed, {"encoding_type_auto_set": True})
    return page_of(URL, parsed)


def as_aws(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def as_go(text: str) -> str:
    """Escape text as servers written in Go do."""
    return escape(text, {'"': "&#34;", "'": "&#39;", "\n": "&#xA;"})


def as_numbers(text: str) -> str:
    return "".join(f"&#x{ord(each):X};" if number % 2 else f"&#{ord(each)};" for number, each in enumerate(text))


def in_cdata(text: str) -> str:
    return f"<![CDATA[{text}]]>" if "]]" not in text else escape(text)


WRITINGS = {"aws": as_aws, "go": as_go, "numbers": as_numbers, "cdata": in_cdata}
ORDERS = {
    "aws": "<LastModified>2024-01-01T00:00:00.000Z</LastModified>{etag}<ChecksumAlgorithm>CRC32</ChecksumAlgorithm>"
    "{size}<StorageClass>STANDARD</StorageClass>",
    "r2": "{size}<LastModified>2024-01-01T00:00:00.000Z</LastModified>{etag}<StorageClass/>",
    "owner": "{etag}{size}<Owner><ID>1</ID><DisplayName></DisplayName></Owner>",
    "bare": "{size}{etag}",
    "date of HTTP": "<LastModified>Mon, 01 Jan 2024 00:00:00 GMT</LastModified>{etag}{size}",
    "restored": "{etag}{size}<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus>",
    "lines": "\n  {etag}\n  {size}\n",
    "comment": "<!-- > -->{etag}<?x y?>{size}",
}


def page(inside: str, *, root: str = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">') -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}{inside}</ListBucketResult>'.encode()


def contents(key: str = "a", size: object = 1, etag: str = '"e"', order: str = "aws", writing: str = "aws") -> str:
    write = WRITINGS[writing]
    inner = ORDERS[order].format(size=f"<Size>{size}</Size>", etag=f"<ETag>{write(etag)}</ETag>" if etag else "")
    return f"<Contents><Key>{write(key)}</Key>{inner}</Contents>"


@given(
    st.lists(st.tuples(TEXT, st.integers(0, 1 << 53), ETAGS, st.sampled_from(list(ORDERS))), max_size=4),
    st.lists(TEXT, max_size=3),
    st.sampled_from(list(WRITINGS)),
    st.booleans(),
    st.booleans(),
)
def test_a_page_is_parsed_as_botocore_parses_it(
    keys: list[tuple[str, int, str, str]], prefixes: list[str], writing: str, is_encoded: bool, has_more: bool
) -> None:
    encode = quote_plus if is_encoded else str
    write = WRITINGS[writing]
    more = "<NextContinuationToken>1/a=&amp;</NextContinuationToken>" if has_more else ""
    inside = (
        f"<Name>bucket</Name><Prefix></Prefix><KeyCount>{len(keys)}</KeyCount><MaxKeys>1000</MaxKeys>{more}"
        f"<IsTruncated>{str(has_more).lower()}</IsTruncated>"
        + "<EncodingType>url</EncodingType>" * is_encoded
        + "".join(contents(encode(key), size, etag, order, writing) for key, size, etag, order in keys)
        + "".join(f"<CommonPrefixes><Prefix>{write(encode(each))}</Prefix></CommonPrefixes>" for each in prefixes)
    )
    found = parse_page(URL, page(inside))
    assert found == by_botocore(page(inside))
    assert found == ([(key, size, etag) for key, size, etag, _ in keys], prefixes, "1/a=&" if has_more else "")


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("writing", list(WRITINGS))
def test_each_store_writes_pages_in_its_own_way(order: str, writing: str) -> None:
    key = "a b/'\"&amp;<>é\U0001f600"
    body = page("".join(contents(f"{key}{number}", number, '"x"', order, writing) for number in range(3)))
    assert parse_page(URL, body).entries == [ListedKey(f"{key}{number}", number, '"x"') for number in range(3)]
    assert parse_page(URL, body) == by_botocore(body)


def test_usual_and_unusual_objects_of_one_page_keep_their_order() -> None:
    body = page("".join(contents(str(n), n, '"e"', order) for n, order in enumerate(ORDERS)))
    assert [entry.key for entry in parse_page(URL, body).entries] == [str(n) for n in range(len(ORDERS))]


def test_a_page_that_breaks_off_anywhere_is_an_error() -> None:
    body = page(contents("a") + contents("b") + "<CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>")
    for come in range(len(body)):
        with pytest.raises(NotAListing):
            parse_page(URL, body[:come])


@given(st.data())
def test_a_damaged_page_is_an_error_or_a_page_of_valid_sizes(data: st.DataObject) -> None:
    body = bytearray(page(contents("a", 17) + contents("b", 18, order="owner")))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse_page(URL, body)
    except (NotAListing, WrongAnswerError):
        return
    assert all(0 <= entry.nbytes <= 1 << 53 for entry in found.entries)
    assert "\0" not in "".join(entry.key + entry.version for entry in found.entries)


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE ListBucketResult><ListBucketResult/>",
        b'<!DOCTYPE r [<!ENTITY k "v">]><ListBucketResult>&k;</ListBucketResult>',
        b'<!DOCTYPE r [<!ENTITY k SYSTEM "file:///etc/passwd">]><ListBucketResult>&k;</ListBucketResult>',
        b'<!DOCTYPE r SYSTEM "http://localhost/x.dtd"><ListBucketResult/>',
        b"<ListBucketResult><Contents><Key>&undefined;</Key><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>&#0;</Key><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>\xff</Key><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>\xed\xa0\x80</Key><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><x:Contents/></ListBucketResult>",
        b"<Error><Code>SlowDown</Code><Message>words</Message></Error>",
        b"<ListBucketResults></ListBucketResults>",
        '<?xml version="1.0" encoding="UTF-16"?><ListBucketResult/>'.encode("utf-16"),
        b"",
        b"\0" * 100,
    ],
)
def test_a_document_that_is_no_listing_is_an_error(body: bytes) -> None:
    with pytest.raises(NotAListing):
        parse_page(URL, body)


def test_an_error_document_with_status_200_is_told_with_its_code() -> None:
    with pytest.raises(NotAListing, match="root element is <Error> with code SlowDown"):
        parse_page(URL, b"<Error><Code>SlowDown</Code></Error>")


@pytest.mark.parametrize("size", ["-1", "+1", "1.5", "", "x", "1e3", "0x10", "9" * 16, "9" * 17, "9" * 6000, "١"])
@pytest.mark.parametrize("order", ["aws", "lines"])
def test_a_size_that_is_none_is_an_error(size: str, order: str) -> None:
    with pytest.raises(WrongAnswerError, match="invalid object size"):
        parse_page(URL, page(contents("a") + contents("b", size, order=order)))


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("<Contents><Size>1</Size></Contents>", "lacks Key"),
        ("<Contents><Key>a</Key></Contents>", "lacks Size"),
        ("<CommonPrefixes></CommonPrefixes>", "lacks Prefix"),
        ("<IsTruncated>true</IsTruncated>", "lacks NextContinuationToken"),
        ("<IsTruncated>true</IsTruncated><NextContinuationToken/>", "empty NextContinuationToken"),
        ("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>", "two elements <Key>"),
        ("<Contents><Key>a</Key><Size>1</Size><Size>2</Size></Contents>", "two elements <Size>"),
        ("<Contents><Key>a</Key><ETag>x</ETag><Size>1</Size><ETag>y</ETag></Contents>", "two elements <ETag>"),
        ("<IsTruncated>false</IsTruncated><IsTruncated>true</IsTruncated>", "two elements <IsTruncated>"),
        ("<KeyCount>many</KeyCount>", "invalid number of keys"),
        ("<Contents><Key>a</Key><LastModified>soon</LastModified><Size>1</Size></Contents>", "invalid date"),
    ],
)
def test_a_missing_or_contradictory_field_is_an_error(inside: str, words: str) -> None:
    with pytest.raises((NotAListing, WrongAnswerError), match=words):
        parse_page(URL, page(inside))


def test_objects_inside_of_other_elements_are_none_of_the_listing() -> None:
    body = page(f"<Other>{contents('a')}</Other>{contents('b')}{contents('c')}<Other>{contents('d')}</Other>")
    assert [entry.key for entry in parse_page(URL, body).entries] == ["b", "c"]
    assert [entry.key for entry in parse_page(URL, page(f"<Other>{contents('a')}</Other>")).entries] == []


def test_a_token_of_the_last_page_is_ignored() -> None:
    inside = "<IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
    assert parse_page(URL, page(inside)) == ([], [], "")


def test_a_page_of_deep_or_endless_elements_is_parsed_in_time() -> None:
    deep = b"<a>" * 100_000 + b"</a>" * 100_000
    assert parse_page(URL, b"<ListBucketResult>" + deep + b"</ListBucketResult>").entries == []
    leaves = "<x>1</x>" * 100_000
    assert parse_page(URL, page(f"<Contents>{leaves}<Key>a</Key><Size>1</Size></Contents>")).entries[0].nbytes == 1
    with pytest.raises(WrongAnswerError, match="lacks Key"):
        parse_page(URL, page(f"<Contents>{leaves}</Contents>" * 3))
