"""Parse and validate object metadata and listings of Google Cloud Storage's JSON API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aiostream_data.errors import WrongAnswerError
from aiostream_data.safe_url import shorten
from aiostream_data.storage.key_search import ListedKey, Page
from aiostream_data.storage.object_size import as_object_nbytes
from aiostream_data.storage.urls import safe_url

_KEYS: Final = frozenset({"kind", "items", "prefixes", "nextPageToken"})


def parse_json(url: str, text: bytes) -> dict[str, Any]:
    """Parse the body of a response as a JSON object.

    Raises:
        WrongAnswerError: The body is not a JSON object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongAnswerError(
            safe_url(url), f"the answer is not JSON: it begins with {shorten(repr(text[:60]))}"
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


def page_of(url: str, answer: Mapping[str, Any]) -> Page:
    """Parse one page of a Google Cloud Storage listing.

    Raises:
        WrongAnswerError: The response is not a valid page of a listing.
    """
    items, prefixes, token = answer.get("items", []), answer.get("prefixes", []), answer.get("nextPageToken") or ""
    is_known = not answer or bool(_KEYS & set(answer))  # the answer may be empty if no object matches
    if not is_known or not isinstance(items, list) or not isinstance(prefixes, list):
        raise WrongAnswerError(safe_url(url), "the answer is JSON, but not a listing")
    if not isinstance(token, str) or not all(isinstance(prefix, str) for prefix in prefixes):
        raise WrongAnswerError(safe_url(url), "the answer is a listing with a prefix or page token that is not text")
    return Page([entry_of(url, item) for item in items], prefixes, token)
