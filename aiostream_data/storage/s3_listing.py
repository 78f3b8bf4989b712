"""Check pages of S3 listings, and convert pages that botocore has parsed.

botocore accepts any XML as a listing, and converts XML without known elements to an empty listing. So the raw body is
checked before botocore parses the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.parsers import expat

from aiostream_data.errors import WrongAnswerError
from aiostream_data.safe_url import shorten
from aiostream_data.storage.key_search import ListedKey, Page
from aiostream_data.storage.object_size import as_object_nbytes
from aiostream_data.storage.urls import safe_url

_LISTING: Final = re.compile(r"[?&]list-type=2(?:&|$)")
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_SIZE: Final = re.compile(rb"<(?:\w+:)?Size>([^<]*)<")
_WRITTEN: Final = re.compile(rb"\s*[0-9]{1,16}\s*")
_SHOWN_NBYTES: Final = 60


class NotAListing(ValueError):
    """Error for a response whose body is not a valid listing. The error message describes the body."""


def check_listing_body(body: bytes) -> None:
    """Check the body of an S3 listing before botocore parses the body.

    Raises:
        NotAListing: The body has a different root element, a document type, or a size that is not a number.
    """
    check_root(body)
    for size in _SIZE.finditer(body):
        if _WRITTEN.fullmatch(size[1]) is None:
            shown = bytes(size[1][:_SHOWN_NBYTES]).decode("latin-1")
            raise NotAListing(f"the store reported an invalid object size: {shorten(repr(shown))} bytes")


def check_root(body: bytes | bytearray) -> None:
    """Check that a body is well-formed XML with the root element of a listing, without a document type.

    Raises:
        NotAListing: The body is something else. The error message describes the body.
    """
    root = _root_of(body)
    if root != "ListBucketResult":
        code = _CODE.search(body) if root == "Error" else None
        told = f" with code {code[1].decode()}" if code is not None else ""
        raise NotAListing(f"the answer is not a listing: its root element is <{shorten(root)}>{told}")


def _root_of(body: bytes | bytearray) -> str:
    """Return the name of the XML root element, without its namespace.

    Raises:
        NotAListing: The body is malformed, or has a document type, which could define entities.
    """
    roots: list[str] = []
    parser = expat.ParserCreate("utf-8")  # the encoding that botocore assumes

    def start_element(name: str, _: dict[str, str]) -> None:
        roots.append(name.rpartition(":")[2])
        parser.StartElementHandler = None  # avoid callbacks for further elements

    def start_doctype(*_: object) -> None:
        raise NotAListing(_is_no_xml(body))

    parser.StartElementHandler = start_element
    parser.StartDoctypeDeclHandler = start_doctype
    try:
        parser.Parse(body, True)
    except expat.ExpatError:
        if roots == ["ListBucketResult"]:
            raise NotAListing("the listing is damaged or truncated: its XML is not well formed") from None
        if not roots:
            raise NotAListing(_is_no_xml(body)) from None
    return roots[0]


def _is_no_xml(body: bytes | bytearray) -> str:
    return f"the answer is not an XML listing: it begins with {shorten(repr(bytes(body[:_SHOWN_NBYTES])))}"


def check_listings_of(client: Any) -> None:
    """Make an aiobotocore client check the body of each listing before it parses the body.

    botocore's event hooks run too late for this check: if a response cannot be parsed, the first hook changes its
    status to 500.
    """
    http_session = client._endpoint.http_session
    send = http_session.send

    async def checked(request: Any) -> Any:
        answer = await send(request)
        if answer.status_code == 200 and _LISTING.search(str(request.url)) is not None:
            check_listing_body(await answer.content)
        return answer

    http_session.send = checked


def page_of(url: str, answer: Mapping[str, Any]) -> Page:
    """Convert a listing parsed by botocore to a page.

    Raises:
        WrongAnswerError: A field is missing or invalid.
    """
    try:
        entries = [
            ListedKey(str(entry["Key"]), as_object_nbytes(url, entry["Size"]), str(entry.get("ETag", "")))
            for entry in answer.get("Contents", ())
        ]
        directories = [str(common["Prefix"]) for common in answer.get("CommonPrefixes", ())]
        token = str(answer["NextContinuationToken"]) if answer.get("IsTruncated") else ""
    except KeyError as error:
        raise WrongAnswerError(safe_url(url), f"the store's listing lacks {error.args[0]}") from None
    return Page(entries, directories, token)
