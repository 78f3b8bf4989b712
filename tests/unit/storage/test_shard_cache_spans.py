"""Which pieces answer a read, what is evicted and what files are called is decided without touching a disk."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.cache import names
from aiostream_data.storage.cache.eviction import HeldPiece, victims
from aiostream_data.storage.cache.piece_file import disk_nbytes
from aiostream_data.storage.cache.spans import MERGE_NBYTES, ByteSpan, Pieces, cover, cut

spans = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: ByteSpan(pair[0], pair[0] + pair[1]))


@given(spans, st.lists(spans, max_size=12))
def test_pieces_and_fetches_together_are_every_byte_once(wanted: ByteSpan, pieces: list[ByteSpan]) -> None:
    plan = cover(wanted, Pieces(pieces))
    given_bytes = [use.wanted for use in plan.uses] + list(plan.missing.fetches)
    assert sorted(at for span in given_bytes for at in range(*span)) == list(range(*wanted))
    for use in plan.uses:
        assert use.piece in pieces
        assert use.piece.start <= use.wanted.start < use.wanted.stop <= use.piece.stop


@given(spans, st.lists(spans, max_size=12))
def test_gaps_are_the_bytes_that_no_piece_holds(wanted: ByteSpan, pieces: list[ByteSpan]) -> None:
    held = {at for piece in pieces for at in range(*piece)}
    gaps = cover(wanted, Pieces(pieces)).missing.gaps
    assert [at for gap in gaps for at in range(*gap)] == [at for at in range(*wanted) if at not in held]


@given(st.lists(spans, max_size=12), spans)
def test_one_more_piece_is_found_like_the_others(pieces: list[ByteSpan], more: ByteSpan) -> None:
    added, made = Pieces(pieces).with_one(more), Pieces([*pieces, more])
    assert set(added.spans) == set(made.spans)
    assert all(_stop(added.holding(at)) == _stop(made.holding(at)) for at in range(90))


def _stop(span: ByteSpan | None) -> int | None:
    return None if span is None else span.stop


def test_near_gaps_are_one_request_and_far_ones_are_two() -> None:
    near = cover(ByteSpan(0, 30), Pieces([ByteSpan(10, 20)]))
    assert near.missing == ((ByteSpan(0, 30),), (ByteSpan(0, 10), ByteSpan(20, 30)))
    assert near.uses == ()
    end = MERGE_NBYTES + 11
    far = cover(ByteSpan(0, end + 10), Pieces([ByteSpan(10, end)]))
    assert far.missing.fetches == (ByteSpan(0, 10), ByteSpan(end, end + 10))
    assert [use.wanted for use in far.uses] == [ByteSpan(10, end)]


def test_a_span_is_cut_into_pieces_without_a_rest() -> None:
    assert list(cut(ByteSpan(5, 15), 4)) == [ByteSpan(5, 9), ByteSpan(9, 13), ByteSpan(13, 15)]


A, B, C = ("a" * 40, "b" * 40, "c" * 40)
OBJECTS = [
    HeldPiece(A, 1, (ByteSpan(0, 10), ByteSpan(10, 20))),
    HeldPiece(B, 9, (ByteSpan(0, 10),)),
    HeldPiece(C, 4, (ByteSpan(0, 10),)),
]
ONE = disk_nbytes(ByteSpan(0, 10))


@pytest.mark.parametrize(
    ("need", "pinned", "expected"),
    [
        (0, (), []),
        (-5, (), []),
        (1, (), [(B, ByteSpan(0, 10))]),
        (ONE, (), [(B, ByteSpan(0, 10))]),
        (ONE + 1, (), [(B, ByteSpan(0, 10)), (C, ByteSpan(0, 10))]),
        (ONE, (B,), [(C, ByteSpan(0, 10))]),
        (3 * ONE, (), [(B, ByteSpan(0, 10)), (C, ByteSpan(0, 10)), (A, ByteSpan(0, 10))]),
        (4 * ONE + 1, (), None),
        (ONE, (A, B, C), None),
    ],
)
def test_of_equal_draws_the_oldest_goes_first_and_nothing_when_that_is_not_enough(
    need: int, pinned: tuple[str, ...], expected: list[tuple[str, ByteSpan]] | None
) -> None:
    assert victims(OBJECTS, need, pinned, lambda: 0.5) == expected


def test_the_chance_to_go_grows_with_the_time_since_an_object_was_used() -> None:
    draw = random.Random(3).random
    first = Counter(key for _ in range(3000) for key, _ in victims(OBJECTS, 1, (), draw) or ())
    assert first[B] == pytest.approx(3000 * 9 / 14, rel=0.1)
    assert first[C] == pytest.approx(3000 * 4 / 14, rel=0.1)


def test_a_pass_over_more_than_fits_finds_part_of_it_though_its_order_never_changes() -> None:
    draw = random.Random(4).random
    used: dict[str, int] = {f"old {number}": 0 for number in range(90)}
    now, hits = 0, 0
    for number in range(100 * 8):
        key, now = str(number % 100), now + 1
        hits += number >= 400 and key in used
        if key not in used:
            held = [HeldPiece(one, now - at, (ByteSpan(0, 10),)) for one, at in used.items()]
            for gone, _ in victims(held, ONE, (), draw) or ():
                del used[gone]
        used[key] = now
    assert hits > 400 // 2
    assert not [key for key in used if key.startswith("old")]


def test_the_key_of_an_object_changes_with_all_that_makes_it_another_one() -> None:
    shard = ShardRef("s3://b/k", 10, "v1")
    others = [ShardRef("s3://b/k2", 10, "v1"), ShardRef("s3://b/k", 11, "v1"), ShardRef("s3://b/k", 10, "v2")]
    keys = [names.key_of("", shard), names.key_of("http://other", shard), *(names.key_of("", one) for one in others)]
    assert len(set(keys)) == len(keys)
    assert names.key_of("", ShardRef("s3a://b/k", 10, "v1")) == keys[0]
    assert "b/k" not in keys[0]


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 30))
def test_names_of_pieces_say_what_they_hold(start: int, nbytes: int) -> None:
    span = ByteSpan(start, start + nbytes)
    assert names.span_in(names.piece_name(span)) == span


@pytest.mark.parametrize(
    "name", ["0-0.piece", "5-3.piece", "00-10.piece", "0-A.piece", "0-10.piece~", "-1-4.piece", ""]
)
def test_what_the_cache_would_not_have_written_is_no_piece(name: str) -> None:
    assert names.span_in(name) is None


@pytest.mark.parametrize(
    "name", ["claim-1-2-3-4-5", "part-x", "claim-", "claim-" + "0" * 12 + "-1-1-" + "0" * 8 + "-1x"]
)
def test_what_the_cache_would_not_have_written_is_nobodys_claim(name: str) -> None:
    assert names.claim_in(name) is None
    assert names.part_owner_in(name) is None
