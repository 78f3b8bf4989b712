"""Patterns match as glob does, and ask for no more than they need."""

from __future__ import annotations

import pytest

from aiostream_data.storage.patterns import Listing, compile_pattern, plan_listing


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a/*.bin", ["a/x.bin", "a/.bin"], ["a/b/x.bin", "b/x.bin", "a/x.bin2"]),
        ("a/?", ["a/x"], ["a/", "a/xy", "a//"]),
        ("a/[a-c]1", ["a/b1"], ["a/d1", "a/-1"]),
        ("a/[!a-c]1", ["a/d1"], ["a/b1", "a//1"]),
        ("a/[]x]", ["a/]", "a/x"], ["a/y"]),
        ("a/[^x]", ["a/y"], ["a/x"]),
        ("a/[-x]", ["a/-", "a/x"], ["a/y"]),
        ("a/[z-a]", [], ["a/b", "a/z"]),
        ("a/[x", ["a/[x"], ["a/x"]),
        ("a/**/x", ["a/x", "a/b/x", "a/b/c/x"], ["ax", "a/bx", "b/a/x"]),
        ("a/**", ["a/x", "a/b/x"], ["b/x"]),
        ("**/x", ["x", "a/b/x"], ["a/bx"]),
        ("a.b+c(d)|e", ["a.b+c(d)|e"], ["axb+c(d)|e", "e"]),
        ("a*", ["a\nb"], []),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = compile_pattern(pattern).fullmatch
    assert [name for name in matching + others if matches(name)] == matching


def test_hidden_names_are_matched_only_when_spelled_out() -> None:
    names = [".x", "a/.x", ".a/x", "a/x", "x"]
    for pattern, found in (("**/x", ["a/x", "x"]), ("*", ["x"]), (".*", [".x"]), (".a/*", [".a/x"])):
        matches = compile_pattern(pattern, skip_hidden=True).fullmatch
        assert [name for name in names if matches(name)] == found


@pytest.mark.parametrize(
    ("pattern", "listing"),
    [
        ("a/b/x-*.bin", Listing("a/b/x-", one_level=True)),
        ("a/*/x", Listing("a/", one_level=False)),
        ("**", Listing("", one_level=False)),
        ("a/x", Listing("a/x", one_level=True)),
    ],
)
def test_a_listing_is_as_narrow_as_the_pattern_allows(pattern: str, listing: Listing) -> None:
    assert plan_listing(pattern) == listing
