"""Whatever a server answers, a read that succeeds gave exactly the bytes asked for."""

from __future__ import annotations

import asyncio

from hypothesis import assume, given
from hypothesis import strategies as st

from aiostream_data.errors import StorageError
from aiostream_data.storage.body import check_range_answer, fill_buffer, parse_content_range

URL = "http://host/x"
OBJECT = bytes(range(200))
OFFSETS = st.integers(0, 200)


class Chunks:
    """A body in pieces of the given sizes, the last size repeated."""

    def __init__(self, body: bytes, sizes: list[int]) -> None:
        self.body = body
        self.sizes = sizes

    async def readany(self) -> bytes:
        size = self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]
        piece, self.body = self.body[:size], self.body[size:]
        return piece


def fetch(status: int, headers: dict[str, str], chunks: Chunks, start: int, nbytes: int) -> bytes | None:
    """Return what a read of the range gives, or None when it is refused; check that it stays in its buffer."""
    memory = bytearray(b"\xee" * (nbytes + 20))
    try:
        skip = check_range_answer(URL, status, headers, start, nbytes)
        buffer = memoryview(memory)[10 : 10 + nbytes]
        asyncio.run(fill_buffer(URL, chunks, buffer, skip=skip, exact=status == 206))
    except StorageError:
        return None
    finally:
        assert memory[:10] == memory[10 + nbytes :] == b"\xee" * 10
    return bytes(memory[10 : 10 + nbytes])


@given(
    status=st.sampled_from([200, 206, 204, 416]),
    given_range=st.tuples(OFFSETS, OFFSETS),
    cut=OFFSETS,
    asked=st.tuples(OFFSETS, st.integers(1, 200)),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=5),
)
def test_a_server_that_is_honest_about_its_range_never_gives_wrong_bytes(
    status: int, given_range: tuple[int, int], cut: int, asked: tuple[int, int], sizes: list[int]
) -> None:
    first, stop = given_range
    body = OBJECT if status == 200 else OBJECT[first:stop]
    headers = {"content-range": f"bytes {first}-{stop - 1}/{len(OBJECT)}"} if status == 206 else {}
    start, nbytes = asked
    found = fetch(status, headers, Chunks(body[:cut], sizes), start, nbytes)
    assert found is None or found == OBJECT[start : start + nbytes]


@given(
    asked=st.tuples(OFFSETS, st.integers(1, 200)),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=5),
    whole=st.booleans(),
)
def test_a_right_answer_is_never_refused(asked: tuple[int, int], sizes: list[int], whole: bool) -> None:
    start, stop = asked[0], min(sum(asked), len(OBJECT))
    assume(start < stop)
    told = {"content-range": f"bytes {start}-{stop - 1}/{len(OBJECT)}"}
    body = OBJECT if whole else OBJECT[start:stop]
    found = fetch(200 if whole else 206, {} if whole else told, Chunks(body, sizes), start, stop - start)
    assert found == OBJECT[start:stop]


@given(st.text(max_size=60))
def test_any_header_is_parsed_or_refused(header: str) -> None:
    parsed = parse_content_range(header)
    assert parsed is None or 0 <= parsed.start < parsed.stop
