"""R29: a state of another pipeline is refused, and the message says what differs where."""

from __future__ import annotations

import json
import pickle
from typing import Any, cast

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.plan.difference import check_matches, difference
from aiostream_data.plan.fingerprint import Fingerprint, describe_plan
from aiostream_data.plan.shard_list import summarise_shards
from aiostream_data.plan.stored import MAX_PLAN_NBYTES, MERGED, stored, stored_plan


def decode(row: Any) -> Any:
    return row


def decode_again(row: Any) -> Any:
    return (row,)


def fingerprint(dataset: asd.Dataset[Any], **others: Any) -> Fingerprint:
    return cast(Fingerprint, {"plan": describe_plan(dataset.plan), **others})


def state_of(dataset: asd.Dataset[Any], max_plan_nbytes: int = MAX_PLAN_NBYTES, **others: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(stored(fingerprint(dataset, **others), max_plan_nbytes)))
    return state


def sentences(old: asd.Dataset[Any], new: asd.Dataset[Any]) -> list[str]:
    return [str(one) for one in difference(state_of(old), fingerprint(new))]


NUMBERS = asd.Dataset.range(100)
WIDE = {f"feature_{number:03d}": asd.FixedLen((number + 1,), np.float32) for number in range(200)}

SENTENCES: list[tuple[asd.Dataset[Any], asd.Dataset[Any], list[str]]] = [
    (NUMBERS.shuffle(9), NUMBERS.shuffle(9), []),
    (
        NUMBERS.map(decode).batch(2).shuffle(10000),
        NUMBERS.map(decode).batch(2).shuffle(500),
        ["shuffle (operator 3 from the source): buffer_size was 10000, is 500"],
    ),
    (
        NUMBERS.shuffle(9, seed=3).batch(2),
        NUMBERS.shuffle(9).batch(2, drop_remainder=True),
        [
            "shuffle (operator 1 from the source): seed was 3, is not set",
            "batch (operator 2 from the source): drop_remainder was False, is True",
        ],
    ),
    (
        NUMBERS.map(decode),
        NUMBERS.map(decode_again),
        [f"map (operator 1 from the source): the function was {__name__}.decode, is {__name__}.decode_again"],
    ),
    (
        NUMBERS.map(lambda row: row + 1),
        NUMBERS.map(lambda row: row + 2),
        [f"map (operator 1 from the source): the function changed ({__name__}.<lambda>)"],
    ),
    (NUMBERS, asd.Dataset.range(101), ["range (the source): stop was 100, is 101"]),
    (NUMBERS, asd.Dataset.from_text("x"), ["read_text (the source) replaced range"]),
    (NUMBERS.batch(2), NUMBERS.map(decode).batch(2), ["map (operator 1 from the source) is new"]),
    (NUMBERS.map(decode).batch(2), NUMBERS.batch(2), ["map (operator 1 from the source) was removed"]),
    (
        NUMBERS.zip(NUMBERS.take(3)).batch(2),
        NUMBERS.zip(NUMBERS.take(4)).batch(3),
        [
            "take (operator 1 from the source, input 2 of zip): count was 3, is 4",
            "batch (operator 1 after zip): batch_size was 2, is 3",
        ],
    ),
    (
        NUMBERS.concatenate(NUMBERS.take(3), NUMBERS.skip(3)),
        NUMBERS.concatenate(NUMBERS.skip(3)),
        ["concatenate: input 2 (take) was removed"],
    ),
    (
        asd.Dataset.from_tfrecord(["s3://b/" + "x" * 200]).parse_example(WIDE).shuffle(3),
        asd.Dataset.from_tfrecord(["s3://b/" + "y" * 200]).parse_example(WIDE | {"more": asd.VarLen(bytes)}).shuffle(4),
        [
            f"read_tfrecord (the source): patterns changed, is 's3://b/{'y' * 72}...",
            "parse_example (operator 1 from the source): its arguments changed (the state stores only their hash)",
            "shuffle (operator 2 from the source): buffer_size was 3, is 4",
        ],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), SENTENCES)
def test_differences_are_sentences_from_the_source_up(
    old: asd.Dataset[Any], new: asd.Dataset[Any], expected: list[str]
) -> None:
    assert sentences(old, new) == expected


def test_kinds_and_names_can_be_allowed() -> None:
    found = difference(
        state_of(NUMBERS.map(decode).shuffle(3, seed=1).batch(2), seed=5),
        fingerprint(NUMBERS.map(decode_again).shuffle(4, seed=2), seed=6),
    )
    assert [(one.kind, one.name) for one in found] == [
        ("function", "map.function"),
        ("argument", "shuffle.buffer_size"),
        ("seed", "shuffle.seed"),
        ("operator", "batch"),
        ("seed", "seed"),
    ]


def test_r29_a_state_of_another_plan_is_refused_with_what_differs_and_what_to_do() -> None:
    old = state_of(NUMBERS.map(decode).shuffle(10000), seed=5)
    with pytest.raises(StateMismatchError) as caught:
        check_matches(old, fingerprint(NUMBERS.map(decode).shuffle(500), seed=6))
    assert str(caught.value).splitlines() == [
        "cannot resume: the state was saved from another pipeline:",
        "  shuffle (operator 2 from the source): buffer_size was 10000, is 500",
        "  the seed was 5, is 6",
        'Open the pipeline that the state was saved from, or pass allow=["argument", "seed"] (changes of these kinds) '
        "or force=True (any change)",
    ]
    assert [one.kind for one in caught.value.differences] == ["argument", "seed"]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(caught.value)).differences == caught.value.differences


def test_r29_a_state_of_other_shards_is_refused_and_new_ones_are_named() -> None:
    before, after = ["s3://b/x-1", "s3://b/x-2"], ["s3://b/x-1", "s3://b/x-7"]
    old = state_of(NUMBERS, shards={"0": summarise_shards(before)})
    new = Fingerprint(shards={"0": summarise_shards(after)})
    with pytest.raises(StateMismatchError, match="1 shard is new: s3://b/x-7; 1 shard of the state is missing"):
        check_matches(old, new, urls={"0": after})
    assert len(check_matches(old, new, allow=["shards"])) == 1


@pytest.mark.parametrize(
    "allow", [["argument", "seed"], ["shuffle.buffer_size", "shuffle.seed"], ["argument", "shuffle.seed", "ordered"]]
)
def test_allowed_differences_are_told_and_not_refused(allow: list[str]) -> None:
    old, new = state_of(NUMBERS.shuffle(3, seed=1)), fingerprint(NUMBERS.shuffle(4, seed=2))
    assert len(check_matches(old, new, allow=allow)) == 2
    with pytest.raises(StateMismatchError, match="seed was 1, is 2"):
        check_matches(old, new, allow=allow[:1])


def test_force_allows_everything() -> None:
    assert check_matches(state_of(NUMBERS), fingerprint(asd.Dataset.from_text("x")), force=True) != []
    assert check_matches({}, fingerprint(NUMBERS), force=True) != []


def test_what_is_always_allowed_is_never_refused() -> None:
    old = state_of(NUMBERS.map(decode), world_size=8)
    found = check_matches(old, fingerprint(NUMBERS.map(decode, ordered=False), world_size=3))
    assert [str(one) for one in found] == [
        "map (operator 1 from the source): ordered was True, is False",
        "world_size was 8, is 3",
    ]


def test_an_unknown_kind_to_allow_is_refused() -> None:
    with pytest.raises(PlanError, match=r"allow must contain kinds .*, got 'shard'"):
        check_matches(state_of(NUMBERS), fingerprint(NUMBERS), allow=["shard"])
    assert check_matches(state_of(NUMBERS), fingerprint(NUMBERS), allow="shards") == []


def test_code_is_compared_only_where_it_can_be() -> None:
    old, new = state_of(NUMBERS.map(decode)), fingerprint(NUMBERS.map(decode))
    name = f"{__name__}.decode"
    for text in (f"{name} py3.9 01234567 -", f"{name} - - -"):
        old["plan"][1]["functions"]["function"] = text
        assert difference(old, new) == []
    for text in (f"{name} src 01234567 -", f"{name} py3.9 01234567 01234567", "nonsense"):
        old["plan"][1]["functions"]["function"] = text
        assert [one.kind for one in difference(old, new)] == ["function"]


def test_a_seed_that_is_given_to_one_side_only_is_not_compared() -> None:
    assert difference(state_of(NUMBERS), fingerprint(NUMBERS, seed=3)) == []
    assert difference(state_of(NUMBERS, seed=3), fingerprint(NUMBERS)) == []


def test_a_plan_takes_little_room_in_a_state_and_ever_less_is_said_of_longer_ones() -> None:
    wide = asd.Dataset.from_tfrecord("x").parse_example(WIDE)
    endless = wide
    for _ in range(5):
        endless = endless.concatenate(endless)
    detailed, merged, digested = (state_of(dataset)["plan"] for dataset in (NUMBERS.map(decode), wide, endless))
    for plan in (detailed, merged, digested):
        assert len(json.dumps(plan)) <= MAX_PLAN_NBYTES
    assert detailed[0]["args"] == {"start": "0", "stop": "100", "step": "1"}
    assert [list(entry["args"]) for entry in merged] == [["patterns", "format"], [MERGED]]
    assert list(digested) == ["digest"]
    assert difference(state_of(endless), fingerprint(endless)) == []
    assert "only its hash" in sentences(endless, endless.batch(2))[0]


def test_marks_of_many_sources_stay_within_bounds() -> None:
    shards = {str(name): summarise_shards([f"s3://b/{name}-{at}" for at in range(100)]) for name in range(5)}
    found = state_of(NUMBERS, shards=shards)["shards"]
    assert ["marks" in summary for summary in found.values()] == [True, False, False, False, False]


@pytest.mark.parametrize(
    "plan",
    [None, 3, [], [3], [{}], [{"op": 3}], [{"op": "range", "args": [1]}], [{"op": "range", "args": {"stop": 1}}],
     [{"op": "range", "inputs": 3}], [{"op": "range", "inputs": [[]]}], {"digest": 3}, [{"op": "range"}] * 1000],
    ids=lambda _: "",
)  # fmt: skip
def test_a_damaged_plan_is_a_difference(plan: Any) -> None:
    with pytest.raises(StateMismatchError, match="stored in the state is damaged"):
        check_matches({"plan": plan}, fingerprint(NUMBERS))


def test_damaged_shards_are_a_difference() -> None:
    new = Fingerprint(shards={"0": summarise_shards(["x"])})
    for shards in (3, {"0": None}, {"0": [1]}):
        with pytest.raises(StateMismatchError, match="stored in the state is damaged"):
            check_matches({"shards": shards}, new)


def test_the_more_detailed_form_can_be_compared_with_any_shorter_one() -> None:
    dataset = asd.Dataset.from_tfrecord("s3://bucket/train-*").parse_example(WIDE).map(decode).shuffle(7, seed=3)
    sizes = {len(json.dumps(stored_plan(describe_plan(dataset.plan), limit))) for limit in range(40, 20000, 160)}
    assert len(sizes) >= 4
    for limit in range(40, 20000, 800):
        assert difference(state_of(dataset, limit), fingerprint(dataset)) == []
        assert difference(state_of(dataset, limit), fingerprint(dataset.shuffle(9))) != []
