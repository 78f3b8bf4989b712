"""Parse and validate object metadata and listings of Google Cloud Storage's JSON API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from aiostream_data.errors import WrongAnswerError
from aiostream_data.safe_url import shorten
from aiostream_data.storage.key_search import ListedKey, Page
from aiostream_data.storage.object_size import MOST_NBYTES, as_object_nbytes
from aiostream_data.storage.urls import safe_url

_KEYS: Final = frozenset({"kind", "items", "prefixes", "nextPageToken"})
_SIZES: Final = re.compile(r"[0-9]{1,16}(?:,[0-9]{1,16})*")


def parse_json(url: str, text: bytes | bytearray) -> dict[str, Any]:
    """Parse the body of a response as a JSON object.

    Raises:
        WrongAnswerError: The body is not a JSON object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongAnswerError(
            safe_url(url), f"the answer is not JSON: it begins with {shorten(repr(bytes(text[:60])))}"
        ) from None
    if not isinstance(found, dict):
        raise WrongAnswerError(safe_url(url), "the answer is JSON, but not an object")
    return found


def entry_of(url: str, told: Any) -> ListedKey:
    """Parse the metadata of one object in Google Cloud Storage.

    Raises:
        WrongAnswerError: A field is missing or has a wrong type.
    """
    if not isinstance(told, Mapping) or not isinstance(told.get("name"), str):
        raise WrongAnswerError(safe_url(url), "the answer has an object without a name")
    return ListedKey(told["name"], as_object_nbytes(url, told.get("size")), str(told.get("generation", "")))


def parse_page(url: str, text: bytes | bytearray) -> Page:
    """Parse the body of the response to a list request of Google Cloud Storage.

    Raises:
        WrongAnswerError: The response is not a valid page of a listing.
    """
    answer = parse_json(url, text)
    items, prefixes, token = answer.get("items", []), answer.get("prefixes", []), answer.get("nextPageToken") or ""
    is_known = not answer or bool(_KEYS & set(answer))  # the answer may be empty if no object matches
    if not is_known or not isinstance(items, list) or not isinstance(prefixes, list):
        raise WrongAnswerError(safe_url(url), "the answer is JSON, but not a listing")
    if not isinstance(token, str) or not all(isinstance(prefix, str) for prefix in prefixes):
        raise WrongAnswerError(safe_url(url), "the answer is a listing with a prefix or page token that is not text")
    entries = _usual_entries(items)
    return Page([entry_of(url, item) for item in items] if entries is None else entries, prefixes, token)


def _usual_entries(items: list[Any]) -> list[ListedKey] | None:
    """Parse the metadata of valid objects in a third of the time of :func:`entry_of`.

    Return None if a field is missing, invalid or has an unusual type.
    """
    try:
        names = [item["name"] for item in items]
        sizes = [item["size"] for item in items]
        versions = [item["generation"] for item in items]
    except (KeyError, TypeError):
        return None
    if set(map(type, chain(names, sizes, versions))) != {str}:
        return None
    joined = ",".join(sizes)
    if _SIZES.fullmatch(joined) is None or joined.count(",") >= len(sizes):  # a size may contain a comma
        return None
    nbytes = list(map(int, sizes))
    return list(map(ListedKey, names, nbytes, versions)) if max(nbytes) <= MOST_NBYTES else None
