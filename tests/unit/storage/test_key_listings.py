"""How many listings a pattern takes, and that they end."""

from __future__ import annotations

import asyncio

import pytest
from leaks import leaves_nothing
from paged_keys import PagedKeys

from aiostream_data.errors import StorageError, StoreBusyError
from aiostream_data.storage.key_levels import MOST_PREFIXES, LevelStep, next_step
from aiostream_data.storage.key_search import LISTINGS_AT_ONCE, KeySearch, Page, PageRequest


def folders(count: int, files: int) -> PagedKeys:
    """Return directories ``a0000/``, ``a0001/`` ... with keys ``x-000000`` ... in each."""
    return PagedKeys(f"a{folder:04}/x-{file:06}" for folder in range(count) for file in range(files))


def find(space: PagedKeys, pattern: str) -> list[str]:
    return [entry.key for entry in asyncio.run(KeySearch().find("s3://b/" + pattern, pattern, space.page))]


@pytest.mark.parametrize(
    ("pattern", "step"),
    [
        ("a/b/x-*", LevelStep(("a/b/x-",), "a/b/", "x-*", "")),
        ("a*/b/x", LevelStep(("a",), "", "a*", "b/x")),
        ("a/**/x", LevelStep(("a/",), "a/", "**", "x")),
        ("a/x", LevelStep(("a/x",), "", "", "")),
        ("x-[0-2]*", LevelStep(("x-0", "x-1", "x-2"), "", "x-[0-2]*", "")),
        ("x-[ab][01]", LevelStep(("x-a0", "x-a1", "x-b0", "x-b1"), "", "x-[ab][01]", "")),
        ("x-[ab]-[01]y*", LevelStep(("x-a-0y", "x-a-1y", "x-b-0y", "x-b-1y"), "", "x-[ab]-[01]y*", "")),
        ("x-[!a]*", LevelStep(("x-",), "", "x-[!a]*", "")),
        ("x-[a-z]*", LevelStep(("x-",), "", "x-[a-z]*", "")),
        ("[z-a]", LevelStep(("",), "", "[z-a]", "")),
        ("x[a", LevelStep(("x",), "", "x[a", "")),
    ],
)
def test_the_next_listing_is_as_narrow_as_the_pattern_allows(pattern: str, step: LevelStep) -> None:
    assert next_step("", pattern) == step
    assert len(step.prefixes) <= MOST_PREFIXES


def test_a_small_tree_takes_one_listing() -> None:
    space = folders(10, 10)
    assert len(find(space, "a*/x-*")) == 100
    assert len(space.requests) == 1


def test_large_directories_that_do_not_match_are_never_listed() -> None:
    space = folders(40, 5000)
    assert find(space, "a0007/x-00000?") == [f"a0007/x-00000{n}" for n in range(10)]
    assert len(space.requests) == 1
    assert len(find(space, "a00[01]*/x-000000")) == 20
    # For each of the two prefixes a page to look at, a listing of its directories, and one key of each of those.
    assert len(space.requests) == 1 + 2 + 2 + 20


def test_many_small_directories_are_not_listed_one_by_one() -> None:
    space = folders(1000, 10)
    assert len(find(space, "a*/x-00000[0-4]")) == 5000
    assert len(space.requests) == 10


def test_directories_are_listed_at_once_but_not_all_of_them() -> None:
    space = folders(40, 1500)
    assert len(find(space, "a*/x-*")) == 40 * 1500
    assert space.most_at_once == LISTINGS_AT_ONCE


def test_a_listing_that_goes_in_a_circle_is_an_error() -> None:
    async def page(request: PageRequest) -> Page:
        return Page([], [], "b" if request.token == "a" else "a")

    with pytest.raises(StorageError, match="same page token twice"):
        asyncio.run(KeySearch().find("s3://b/x*", "x*", page))


def test_the_other_listings_come_to_their_end_when_one_fails() -> None:
    ended: list[str] = []

    async def page(request: PageRequest) -> Page:
        if request.prefix == "x0":
            raise StoreBusyError("s3://b/", "slow down")
        await asyncio.sleep(0)
        ended.append(request.prefix)
        return Page([], [], "")

    with pytest.raises(StoreBusyError):
        asyncio.run(KeySearch().find("s3://b/x[0-3]", "x[0-3]", page))
    assert sorted(ended) == ["x1", "x2", "x3"]


def test_a_search_that_is_cancelled_leaves_no_task() -> None:
    asked = asyncio.Event()

    async def page(request: PageRequest) -> Page:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        search = asyncio.ensure_future(KeySearch().find("s3://b/x[0-3]", "x[0-3]", page))
        await asked.wait()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with leaves_nothing():
        asyncio.run(main())


@pytest.mark.parametrize(("count", "requests"), [(3, 1), (2500, 3)])
def test_a_pattern_that_ends_with_a_slash_finds_folders_without_their_files(count: int, requests: int) -> None:
    space = folders(count, 5)
    assert find(space, "*/") == [f"a{number:04}/" for number in range(count)]
    assert find(space, "a0001/*") == [f"a0001/x-{number:06}" for number in range(5)]
    assert len(space.requests) == requests + 1
