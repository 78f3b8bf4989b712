"""A page of a listing of Google Cloud Storage is parsed at once, with the values of each of its objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import WrongAnswerError
from aiostream_data.storage.gcs_listing import entry_of, parse_page
from aiostream_data.storage.key_search import ListedKey

URL = "gs://bucket/*"
SIZES = st.integers(0, 1 << 53).map(str) | st.sampled_from(["-1", "", "x", "1,2", "١", str((1 << 53) + 1)])
VALUES = st.none() | st.booleans() | st.integers(-1, 9) | st.lists(st.just("a"), max_size=1)
ITEMS = st.fixed_dictionaries(
    {"name": st.text(max_size=5), "size": SIZES}, optional={"generation": st.text("0123456789", max_size=3)}
)


@given(st.lists(ITEMS, max_size=4), st.data())
def test_a_page_is_parsed_as_its_objects_are_parsed(items: list[Any], data: st.DataObject) -> None:
    if data.draw(st.booleans()) and items:
        field = data.draw(st.sampled_from(["name", "size", "generation"]))
        data.draw(st.sampled_from(items))[field] = data.draw(VALUES)
    text = json.dumps({"items": items, "prefixes": ["a/"], "nextPageToken": "t"}).encode()
    expected = one_by_one(items)
    if isinstance(expected, str):
        with pytest.raises(WrongAnswerError) as caught:
            parse_page(URL, text)
        assert str(caught.value) == expected
    else:
        assert parse_page(URL, text) == (expected, ["a/"], "t")


def one_by_one(items: list[Any]) -> list[ListedKey] | str:
    """Return the objects, or the message of the first error."""
    try:
        return [entry_of(URL, item) for item in items]
    except WrongAnswerError as error:
        return str(error)


@pytest.mark.parametrize("item", [None, 1, "a", [], {}])
def test_an_object_of_another_type_is_an_error(item: Any) -> None:
    with pytest.raises(WrongAnswerError, match="without a name"):
        parse_page(URL, json.dumps({"items": [item]}).encode())
