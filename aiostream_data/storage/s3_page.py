"""Parse the XML of one page of an S3 listing.

How this works: expat checks that the page is well-formed XML without a document type, so no entity is ever expanded.
After that check, one regular expression extracts all objects from a page that is written as stores usually write pages.
Building an ElementTree of the objects would take four times as long. ElementTree reads the rest of the page, and each
page that the regular expression does not match completely.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from aiostream_data.errors import WrongAnswerError
from aiostream_data.safe_url import shorten
from aiostream_data.storage.key_search import ListedKey, Page
from aiostream_data.storage.object_size import MOST_NBYTES, as_object_nbytes
from aiostream_data.storage.s3_listing import NotAListing, check_root
from aiostream_data.storage.urls import safe_url

_LEAF = r"<(?!Key>|Size>|ETag>|LastModified>)\w+(?:/>|>[^<]*</\w+>)"
_OTHERS = rf"(?:{_LEAF}|<LastModified>[0-9T:.Z-]+</LastModified>|<Owner>(?:{_LEAF})*</Owner>)*"
_ETAG = rf"<ETag>([^<]*)</ETag>{_OTHERS}"
_ENTRY: Final = re.compile(
    rf"<Contents>{_OTHERS}<Key>([^<]*)</Key>{_OTHERS}(?:{_ETAG})?"
    rf"<Size>([0-9]{{1,16}})</Size>{_OTHERS}(?:{_ETAG})?</Contents>",
)
"""An object with a key, a size and an ETag before or after the size. The page must be well-formed and without comments
and CDATA sections, so the end tags need no comparison."""

_GROUPS: Final = 4
_HEAD: Final = re.compile(
    r"\ufeff?(?:<\?xml[^>]*\?>)?\s*<ListBucketResult(?:\s[^>]*)?>(?:\s*<\w+(?:/>|>[^<]*</\w+>))*\s*"
)
"""The page before its first object, which is then a child of the root element."""

_FIELDS: Final = frozenset({"Key", "Size", "ETag", "LastModified"})
_PREFIX: Final = frozenset({"Prefix"})
_ABOUT: Final = frozenset({"IsTruncated", "NextContinuationToken", "EncodingType", "KeyCount"})
_REFERENCE: Final = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#([0-9]+)|(\w+));")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NUMBER: Final = re.compile(r"\s*[0-9]{1,18}\s*")
_YEAR: Final = re.compile(r"[0-9]{4}")


def parse_page(url: str, body: bytes | bytearray) -> Page:
    """Return the objects, common prefixes and continuation token of a page.

    Args:
        url: Pattern of the search, for error messages.
        body: Complete body of the response to ListObjectsV2.

    Raises:
        NotAListing: The body is malformed, has a document type, or is a different document.
        WrongAnswerError: A field is missing or invalid.
    """
    check_root(body)
    try:
        entries, rest = _usual_entries(body.decode())
    except UnicodeDecodeError:  # expat also reads UTF-16
        raise NotAListing("the answer is XML, but not in UTF-8") from None
    root = _tree(rest)
    try:
        entries += [_entry_of(url, each) for each in _named(root, "Contents")]
        directories = [_texts(each, _PREFIX)["Prefix"] for each in _named(root, "CommonPrefixes")]
        about = _texts(root, _ABOUT)
        token = _token_of(about)
    except KeyError as error:
        raise WrongAnswerError(safe_url(url), f"the store's listing lacks {error.args[0]}") from None
    if about.get("EncodingType") == "url":
        entries = [entry._replace(key=_decoded(entry.key)) for entry in entries] if _any_encoded(entries) else entries
        directories = [_decoded(directory) for directory in directories]
    return Page(entries, directories, token)


def _usual_entries(text: str) -> tuple[list[ListedKey], str]:
    """Return the objects of a well-formed page and the text without them. Return no objects of an unusual page.

    The removed objects are complete elements, so the remaining text is well-formed.
    """
    if "<!" in text or "\r" in text or text.rfind("<?") > 0:  # comments, CDATA, line ends or instructions
        return [], text
    parts = _ENTRY.split(text)
    if len(parts) == 1:
        return [], text
    head, *between, tail = parts[:: _GROUPS + 1]
    if _HEAD.fullmatch(head) is None or any(between) or "<Contents" in tail:
        return [], text
    keys, etags, sizes, late_etags = (parts[group :: _GROUPS + 1] for group in range(1, _GROUPS + 1))
    nbytes = list(map(int, sizes))
    if any(late_etags):
        etags, others = late_etags, etags
        if any(others):
            return [], text
    if max(nbytes) > MOST_NBYTES:
        return [], text
    return list(map(ListedKey, _plain_texts(keys), nbytes, _plain_texts([etag or "" for etag in etags]))), head + tail


def _plain_texts(written: list[str]) -> list[str]:
    """Replace the character references in well-formed texts without a document type."""
    joined = "\0".join(written)  # XML cannot contain this character, not even as a reference
    if "&" in joined:
        joined = joined.replace("&quot;", '"').replace("&#34;", '"')  # the quotes of ETags
        joined = _REFERENCE.sub(_character, joined) if "&" in joined else joined
    return joined.split("\0")


def _character(found: re.Match[str]) -> str:
    in_hex, in_decimal, name = found.groups()
    if name is not None:
        return _NAMED[name]
    return chr(int(in_decimal) if in_hex is None else int(in_hex, 16))


def _tree(text: str) -> ElementTree.Element:
    try:
        return ElementTree.XML(text, ElementTree.XMLParser(encoding="utf-8"))
    except ElementTree.ParseError:  # such as a prefix of an unknown namespace
        raise NotAListing("the listing is damaged: its XML is not well formed") from None


def _entry_of(url: str, entry: ElementTree.Element) -> ListedKey:
    fields = _texts(entry, _FIELDS)
    if (modified := fields.get("LastModified")) is not None and _YEAR.search(modified) is None:
        raise NotAListing(f"the store's listing has an invalid date: {shorten(repr(modified))}")
    return ListedKey(fields["Key"], as_object_nbytes(url, fields["Size"].strip()), fields.get("ETag", ""))


def _token_of(about: Mapping[str, str]) -> str:
    """Return the token of the next page, or "" for the last page."""
    count = about.get("KeyCount")
    if count is not None and _NUMBER.fullmatch(count) is None:
        raise NotAListing(f"the store's listing has an invalid number of keys: {shorten(repr(count))}")
    if about.get("IsTruncated", "").strip() != "true":
        return ""
    token = about["NextContinuationToken"]
    if not token:
        raise NotAListing("the store's listing has more pages, but an empty NextContinuationToken")
    return token


def _named(parent: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """Yield the children with a name, in any namespace."""
    return (child for child in parent if child.tag.rpartition("}")[2] == name)


def _texts(parent: ElementTree.Element, names: Container[str]) -> dict[str, str]:
    """Return the texts of the children with some names, in any namespace.

    Raises:
        NotAListing: Two children have the same name.
    """
    texts: dict[str, str] = {}
    for child in parent:
        name = child.tag.rpartition("}")[2]
        if name in names:
            if name in texts:
                raise NotAListing(f"the store's listing has two elements <{name}> in one element")
            texts[name] = child.text or ""
    return texts


def _decoded(text: str) -> str:
    return unquote_plus(text) if "%" in text or "+" in text else text


def _any_encoded(entries: list[ListedKey]) -> bool:
    return any("%" in entry.key or "+" in entry.key for entry in entries)
