"""Patterns of any text are understood, and listings hold every match."""

from __future__ import annotations

import glob

from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.storage.patterns import compile_pattern, plan_listing
from aiostream_data.storage.urls import has_magic

NAMES = st.text(alphabet="ab/-.[]", max_size=8)
PATTERNS = st.text(alphabet="ab/-.[]!^*?", max_size=10)


@given(st.text())
def test_any_text_is_a_pattern(pattern: str) -> None:
    assert compile_pattern(pattern).fullmatch(pattern) or has_magic(f"memory://{pattern}")


@given(PATTERNS, NAMES)
def test_every_match_is_within_the_planned_listing(pattern: str, name: str) -> None:
    if compile_pattern(pattern).fullmatch(name):
        prefix, one_level = plan_listing(pattern)
        assert name.startswith(prefix)
        assert not one_level or "/" not in name[len(prefix) :]


@given(st.text(max_size=20))
def test_an_escaped_name_matches_itself_alone(name: str) -> None:
    matches = compile_pattern(glob.escape(name)).fullmatch
    assert matches(name)
    assert not matches(name + "x")
