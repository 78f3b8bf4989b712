"""A drawn case that hangs ends its test at once, with the plan and where it hangs, and is not tried again."""

from __future__ import annotations

import threading

import pytest
from drawn_cases import CaseHangs, cases, ends_within
from hypothesis import given
from hypothesis import strategies as st
from leaks import leaves_nothing

from aiostream_data import Dataset


def test_a_case_that_hangs_in_a_loader_ends_the_test_at_once() -> None:
    tried: list[int] = []
    released = threading.Event()

    @cases(20)
    @given(st.integers())
    def hangs_in_the_third_case(number: int) -> None:
        tried.append(number)
        with ends_within(0.2, f"case {len(tried)}"):
            if len(tried) == 3:
                list(Dataset.range(5).map(lambda _: released.wait(30), concurrency=1))

    with leaves_nothing():
        release = threading.Timer(0.5, released.set)  # after it was given up: nobody can end a thread
        release.start()
        with pytest.raises(CaseHangs, match=r"not ended after 0.2 s: 'case 3'(?s:.*)released.wait"):
            hangs_in_the_third_case()
        release.join()
    assert len(tried) == 3


def test_cases_that_end_in_time_are_all_tried() -> None:
    tried: list[int] = []

    @cases(40)
    @given(st.integers(0, 1 << 60))
    def ends(number: int) -> None:
        with ends_within(30, number):
            tried.append(number)

    with leaves_nothing():
        ends()
    assert len(tried) >= 5
