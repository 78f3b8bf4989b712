"""Answers to range requests are believed only when they give what was asked for."""

from __future__ import annotations

import asyncio

import pytest

from aiostream_data.errors import (
    ObjectChangedError,
    ShortReadError,
    StorageError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.storage.body import (
    ContentRange,
    check_range_answer,
    check_version,
    fill_buffer,
    parse_content_range,
    range_header,
)

URL = "http://host/x"


class Chunks:
    """A body that arrives in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    async def readany(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize(
    ("header", "parsed"),
    [
        ("bytes 0-9/100", ContentRange(0, 10, 100)),
        (" bytes 5-5/* ", ContentRange(5, 6, None)),
        ("bytes 9-0/100", None),
        ("bytes 0-100/100", None),
        ("bytes */100", None),
        ("items 0-9/100", None),
        ("", None),
        ("bytes 0-" + "9" * 30 + "/*", None),
    ],
)
def test_content_range_is_parsed_strictly(header: str, parsed: ContentRange | None) -> None:
    assert parse_content_range(header) == parsed


def test_the_range_header_names_the_last_byte() -> None:
    assert range_header(10, 5) == "bytes=10-14"


def test_the_right_range_has_nothing_to_skip() -> None:
    assert check_range_answer(URL, 206, {"content-range": "bytes 10-14/100"}, 10, 5) == 0


def test_a_whole_object_is_accepted_and_its_front_skipped() -> None:
    assert check_range_answer(URL, 200, {"content-length": "100"}, 10, 5) == 10


@pytest.mark.parametrize("told", ["bytes 11-15/100", "bytes 10-15/100", "bytes 10-13/100", "bytes 0-4/100", "", "x"])
def test_another_range_than_asked_for_is_refused(told: str) -> None:
    with pytest.raises(StorageError) as caught:
        check_range_answer(URL, 206, {"content-range": told}, 10, 5)
    assert not isinstance(caught.value, ShortReadError)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {"content-range": "bytes 10-11/12"}),
        (206, {"content-range": "bytes 20-19/12"}),
        (200, {"content-length": "12"}),
    ],
)
def test_an_object_that_ends_too_soon_is_a_short_read(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(ShortReadError, match="12"):
        check_range_answer(URL, status, headers, 10, 5)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {"content-range": "bytes 10-14/100"}),
        (206, {"content-range": "bytes 10-14/99"}),
        (200, {"content-length": "100"}),
    ],
)
@pytest.mark.parametrize("known", [15, 101])
def test_an_object_of_another_size_is_another_object(status: int, headers: dict[str, str], known: int) -> None:
    with pytest.raises(WrongAnswerError, match=f"size changed from {known} to"):
        check_range_answer(URL, status, headers, 10, 5, known)
    assert check_range_answer(URL, 206, {"content-range": "bytes 10-14/*"}, 10, 5, known) == 0


def test_what_has_come_is_told_with_every_piece() -> None:
    told: list[int] = []
    pieces = Chunks(b"abc", b"de", b"fgh")
    asyncio.run(fill_buffer(URL, pieces, memoryview(bytearray(4)), skip=2, exact=False, filled=told.append))
    assert told == [1, 3, 4]


def test_versions_are_compared_when_both_are_known() -> None:
    check_version(URL, "a", "a")
    check_version(URL, "", "a")
    check_version(URL, "a", "")
    with pytest.raises(ObjectChangedError):
        check_version(URL, "a", "b")


@pytest.mark.parametrize("pieces", [(b"abcdef",), (b"a", b"bc", b"def"), (b"abc", b"def")])
@pytest.mark.parametrize("skip", [0, 1, 2, 3])
def test_the_body_lands_in_place_however_it_is_cut(pieces: tuple[bytes, ...], skip: int) -> None:
    buffer = bytearray(3)
    asyncio.run(fill_buffer(URL, Chunks(*pieces), memoryview(buffer), skip=skip, exact=False))
    assert buffer == b"abcdef"[skip : skip + 3]


def test_a_body_that_breaks_off_is_worth_another_attempt() -> None:
    with pytest.raises(StoreUnreachableError, match="4 of 6"):
        asyncio.run(fill_buffer(URL, Chunks(b"abcd"), memoryview(bytearray(6))))


@pytest.mark.parametrize("pieces", [(b"abcdef",), (b"abcd", b"ef")])
def test_more_bytes_than_asked_for_are_refused(pieces: tuple[bytes, ...]) -> None:
    buffer = bytearray(b"\xee" * 8)
    with pytest.raises(StorageError, match="more than"):
        asyncio.run(fill_buffer(URL, Chunks(*pieces), memoryview(buffer)[:4]))
    assert buffer[4:] == b"\xee" * 4
