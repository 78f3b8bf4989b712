"""A change of any argument that decides order is found and named, in random plans; other changes are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data.plan.alignment import ALONE, align
from aiostream_data.plan.difference import difference
from aiostream_data.plan.fingerprint import Fingerprint, describe_plan, digest
from aiostream_data.plan.stored import stored

Data = asd.Dataset[Any]


def decode(row: Any) -> Any:
    return row


def keep(row: Any) -> bool:
    return True


class Applied(NamedTuple):
    """An operator with arguments; ``name`` is also the method's."""

    name: str
    arguments: tuple[tuple[str, Any], ...]

    def to(self, dataset: Data) -> Data:
        result: Data = getattr(dataset, self.name)(**dict(self.arguments))
        return result

    def changed(self, argument: str, value: Any) -> Applied:
        return Applied(self.name, tuple((name, value if name == argument else old) for name, old in self.arguments))


COUNTS = st.integers(1, 10**6)
LEAST_NBYTES = 120
"""What two digests and the size of a batch take, which a state always has room for."""

SEEDS = st.none() | st.integers(0, 2**62)
FUNCTIONS: list[Callable[[Any], Any]] = [decode, keep, str, lambda row: row + 1, lambda row: row + 2]
IMPORTANT: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "map": {"function": st.sampled_from(FUNCTIONS), "seed": SEEDS, "batched": st.booleans()},
    "filter": {"predicate": st.sampled_from(FUNCTIONS)},
    "flat_map": {"function": st.sampled_from(FUNCTIONS)},
    "interleave": {"function": st.sampled_from(FUNCTIONS), "cycle_length": COUNTS, "block_length": COUNTS},
    "shuffle": {"buffer_size": COUNTS, "seed": SEEDS, "reshuffle_each_iteration": st.booleans()},
    "batch": {"batch_size": COUNTS, "drop_remainder": st.booleans()},
    "repeat": {"count": st.none() | COUNTS},
    "take": {"count": COUNTS},
    "skip": {"count": COUNTS},
    "enumerate": {"start": COUNTS},
}
UNIMPORTANT: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "map": {"concurrency": COUNTS, "executor": st.sampled_from(["thread", "inline"]), "ordered": st.booleans()},
    "prefetch": {"buffer_size": COUNTS},
}


@st.composite
def operators(draw: st.DrawFn) -> Applied:
    name = draw(st.sampled_from(sorted(IMPORTANT)))
    return Applied(name, tuple((argument, draw(values)) for argument, values in IMPORTANT[name].items()))


chains = st.lists(operators(), min_size=1, max_size=8)


def source(cycle_length: int = 1) -> Data:
    return asd.Dataset.from_tfrecord("s3://bucket/train-*.tfrecord", cycle_length=cycle_length)


def built(chain: list[Applied]) -> Data:
    dataset = source()
    for applied in chain:
        dataset = applied.to(dataset)
    return dataset


def state_of(dataset: Data, max_plan_nbytes: int) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(
        json.dumps(stored(Fingerprint(plan=describe_plan(dataset.plan)), max_plan_nbytes))
    )
    return state


def differences(old: Data, new: Data, max_plan_nbytes: int = 1 << 20) -> list[tuple[str, str, str]]:
    found = difference(state_of(old, max_plan_nbytes), Fingerprint(plan=describe_plan(new.plan)))
    return [(one.kind, one.name, one.sentence) for one in found]


@settings(max_examples=80, deadline=None)
@given(chains, st.data())
def test_a_changed_argument_is_found_and_named(chain: list[Applied], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 1))
    applied = chain[at]
    argument = data.draw(st.sampled_from(sorted(IMPORTANT[applied.name])))
    value = data.draw(IMPORTANT[applied.name][argument])
    assume(value != dict(applied.arguments)[argument])
    old, new = built(chain), built([*chain[:at], applied.changed(argument, value), *chain[at + 1 :]])
    ((_, name, sentence),) = differences(old, new)
    assert name == f"{applied.name}.{argument}"
    assert f"(operator {at + 1} from the source)" in sentence
    assert digest(describe_plan(old.plan)) != digest(describe_plan(new.plan))
    for max_nbytes in (1536, 400, 40):
        assert len(differences(old, new, max_nbytes)) == 1


@settings(max_examples=50, deadline=None)
@given(chains, operators(), st.data())
def test_an_operator_more_is_found_however_little_the_state_says(
    chain: list[Applied], more: Applied, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(chain)))
    old, new = built(chain), built([*chain[:at], more, *chain[at:]])
    ((kind, name, sentence),) = differences(old, new)
    assert (kind, name) == ("operator", more.name)
    assert sentence.endswith("is new")
    ((_, _, sentence),) = differences(new, old)
    assert sentence.endswith("was removed")
    for max_nbytes in (1536, 400, 40):
        assert differences(old, new, max_nbytes) != []


@settings(max_examples=50, deadline=None)
@given(chains, chains, st.data())
def test_a_plan_is_only_ever_told_from_another(
    first: list[Applied], second: list[Applied], data: st.DataObject
) -> None:
    max_nbytes = data.draw(st.integers(30, 3000))
    old, new = built(first), built(second)
    assert differences(old, built(first), max_nbytes) == []
    same = digest(describe_plan(old.plan)) == digest(describe_plan(new.plan))
    assert (differences(old, new, max_nbytes) == []) == same
    assert len(json.dumps(state_of(old, max_nbytes)["plan"])) <= max(max_nbytes, LEAST_NBYTES)


@settings(max_examples=50, deadline=None)
@given(chains, st.data())
def test_what_only_decides_speed_is_never_refused(chain: list[Applied], data: st.DataObject) -> None:
    changed: list[Applied] = []
    for applied in chain:
        if applied.name == "map":
            more = [(name, data.draw(values)) for name, values in UNIMPORTANT["map"].items()]
            applied = Applied("map", (*applied.arguments, *more))
        changed.append(applied)
        if data.draw(st.booleans()):
            changed.append(Applied("prefetch", (("buffer_size", data.draw(COUNTS)),)))
    old, new = built(chain), built(changed)
    assert {kind for kind, _, _ in differences(old, new)} <= {"ordered"}
    assert digest(describe_plan(old.plan)) == digest(describe_plan(new.plan))


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_pairs_are_in_order_and_leave_nothing_out(old: list[int], new: list[int]) -> None:
    pairs = align(old, new, lambda before, after: abs(before - after))
    assert [i for i, _ in pairs if i is not None] == list(range(len(old)))
    assert [j for _, j in pairs if j is not None] == list(range(len(new)))
    cost = sum(ALONE if i is None or j is None else abs(old[i] - new[j]) for i, j in pairs)
    assert cost <= ALONE * (len(old) + len(new))
    if old == new:
        assert cost == 0
