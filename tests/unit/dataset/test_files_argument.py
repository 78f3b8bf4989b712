"""The argument ``files`` of sources: one or several URLs or paths, in an order."""

from __future__ import annotations

from typing import Any

import pytest

from aiostream_data import Dataset, PlanError


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"b.txt", "a.txt"}, r"got set, which has no order\. Pass sorted\(files\)\."),
        (frozenset({"a.txt"}), r"got frozenset, which has no order\. Pass sorted\(files\)\."),
        ({"train": "a.txt"}, r"got dict\. Pass a list of its values\."),
        (b"a.txt", r"got bytes\. Decode the bytes to str"),
        ([b"a.txt"], r"got bytes\. Decode the bytes to str"),
        (3, "got int"),
        ([], "got an empty list"),
        ("", "got an empty string"),
    ],
    ids=["set", "frozenset", "dict", "bytes", "list of bytes", "int", "empty list", "empty text"],
)
def test_files_without_an_order_or_of_another_type_are_refused(files: Any, message: str) -> None:
    for source in (Dataset.from_text, Dataset.from_parquet, Dataset.list_files):
        with pytest.raises(PlanError, match=message):
            source(files)


def test_several_files_keep_their_order() -> None:
    files: Any = iter(["b.txt", "a.txt"])
    plan: Any = Dataset.from_text(files).plan
    assert plan.patterns == ("b.txt", "a.txt")
