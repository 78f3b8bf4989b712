"""Listings of any key space, in pages of any size, find what the pattern matches and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st
from paged_keys import PagedKeys

from aiostream_data.errors import StoreBusyError
from aiostream_data.storage.key_levels import next_step
from aiostream_data.storage.key_search import FoundKeys, KeySearch
from aiostream_data.storage.patterns import finds_folders

SEGMENTS = st.text(alphabet="ab01.-", min_size=0, max_size=3)
KEYS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(bool), max_size=60, unique=True)
PATTERN_SEGMENTS = st.one_of(
    SEGMENTS,
    st.just("**"),
    st.lists(st.sampled_from(["a", "0", "*", "?", "[ab]", "[0-1]", "[!a]", "-"]), max_size=4).map("".join),
)
PATTERNS = st.lists(PATTERN_SEGMENTS, min_size=1, max_size=4).map("/".join)


def matches(key: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match segments one by one, as the documentation of glob says it."""
    if not pattern:
        return not key
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(key)
        return any(matches(key[skipped:], pattern[1:]) and all(key[:skipped]) for skipped in range(len(key) + 1))
    return bool(key) and fnmatchcase(key[0], pattern[0]) and matches(key[1:], pattern[1:])


@given(KEYS, PATTERNS, st.integers(1, 5))
def test_what_is_found_is_what_matches(keys: list[str], pattern: str, page_keys: int) -> None:
    space = PagedKeys(keys, page_keys)
    found = asyncio.run(KeySearch().find("s3://b/" + pattern, pattern, space.page))
    wanted = sorted(key for key in keys if matches(key.split("/"), pattern.split("/")) and not key.endswith("/"))
    if finds_folders(pattern):
        root = pattern.removesuffix("*/")
        below = [key[len(root) :].partition("/") for key in keys if key.startswith(root)]
        wanted = sorted({f"{root}{name}/" for name, slash, _ in below if slash})
    if "**" not in pattern:  # about empty segments under ** there are several opinions
        assert [entry.key for entry in found] == wanted
    else:
        assert [key.key for key in found if "//" not in f"/{key.key}"] == [
            key for key in wanted if "//" not in f"/{key}"
        ]
    assert len(set(space.requests)) == len(space.requests)


@given(KEYS, PATTERNS, st.integers(1, 5), st.lists(st.booleans(), max_size=30))
def test_a_search_that_is_begun_again_asks_for_no_page_twice(
    keys: list[str], pattern: str, page_keys: int, failing: list[bool]
) -> None:
    space, search = PagedKeys(keys, page_keys, failing), KeySearch()

    async def persist() -> FoundKeys:
        while True:
            try:
                return await search.find("s3://b/" + pattern, pattern, space.page)
            except StoreBusyError:
                continue

    found = asyncio.run(persist())
    assert found == asyncio.run(KeySearch().find("x", pattern, PagedKeys(keys).page))
    assert len(space.requests) == len(set(space.requests)) + space.failures


@given(PATTERNS, st.text(alphabet="ab01.-/", max_size=8))
def test_every_match_begins_with_one_of_the_prefixes(pattern: str, key: str) -> None:
    step = next_step("", pattern)
    if matches(key.split("/"), pattern.split("/")):
        assert sum(key.startswith(prefix) for prefix in step.prefixes) == 1
