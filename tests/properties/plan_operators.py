"""Draw one more operator after a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import plan_functions as fn
from drawn import SEEDS, Draw, Drawn, Kind, written
from hypothesis import strategies as st
from plan_mixtures import choose_from, sample_all, sample_first
from plan_windows import pack, padded_batch, rebatch, window

from aiostream_data import AUTO, Dataset
from aiostream_data.plan.base import walk

MOST = 150
"""Elements of a drawn plan, at most."""

MOST_NODES = 8
"""Nodes of a plan that is mixed with itself, at most, as every node has its part of a state."""

Operator = Callable[[Draw, Drawn], Drawn]

# -- operators of one element


FUNCTIONS: dict[Callable[..., Any], Kind] = {
    fn.number: "number",
    fn.pair: "row",
    fn.named: "row",
    fn.text: "row",
    fn.pictured: "row",
    fn.int_or_float: "other",
    fn.drawn: "row",
    fn.later: "number",
}


def _map(draw: Draw, plan: Drawn) -> Drawn:
    function = draw(st.sampled_from([one for one in FUNCTIONS if plan.may_draw or one is not fn.drawn]))
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["concurrency"] = draw(st.integers(1, 3))
    if function is fn.drawn:
        options["seed"] = draw(SEEDS)
    if draw(st.integers(0, 7)) == 7:
        options["ordered"] = False
    ordered = plan.ordered and options.get("ordered", True)
    dataset = plan.dataset.map(function, **options)
    return plan.then(written(f"map({function.__name__}", options), dataset, kind=FUNCTIONS[function], ordered=ordered)


def _map_batched(draw: Draw, plan: Drawn) -> Drawn:
    function, kind = draw(st.sampled_from([(fn.doubled, "number"), (fn.with_double, "row")]))
    call = f"map({function.__name__}, batched=True)"
    return plan.then(call, plan.dataset.map(function, batched=True), kind=kind)


def _filter(draw: Draw, plan: Drawn) -> Drawn:
    predicate = draw(st.sampled_from([fn.is_kept, fn.is_kept, fn.is_kept, fn.is_rare, fn.never]))
    return plan.then(f"filter({predicate.__name__})", plan.dataset.filter(predicate))


EXPANDING: dict[Callable[..., Any], Kind] = {
    fn.few: "number",
    fn.few_of_a_range: "number",
    fn.few_mapped: "number",
    fn.few_drawn: "row",
    fn.few_shuffled: "row",
    fn.few_generated: "number",
    fn.few_batched: "number",
}

DRAWING = (fn.few_drawn, fn.few_shuffled)


def _flat_map(draw: Draw, plan: Drawn) -> Drawn:
    function = draw(st.sampled_from([one for one in EXPANDING if plan.may_draw or one not in DRAWING]))
    dataset = plan.dataset.flat_map(function)
    changes = {"kind": EXPANDING[function], "most": 5 * plan.most, "free": function is not fn.few_batched}
    return plan.then(f"flat_map({function.__name__})", dataset, **changes)


def _interleave(draw: Draw, plan: Drawn) -> Drawn:
    function = draw(st.sampled_from([one for one in EXPANDING if plan.may_draw or one not in DRAWING]))
    options: dict[str, Any] = {"cycle_length": draw(st.integers(1, 4)), "block_length": draw(st.integers(1, 3))}
    if draw(st.integers(0, 7)) == 7:
        options["ordered"] = False
    dataset = plan.dataset.interleave(function, **options)
    changes = {"kind": EXPANDING[function], "most": 5 * plan.most, "ordered": plan.ordered and "ordered" not in options}
    changes["free"] = function is not fn.few_batched  # what comes together in its batches depends on the order
    return plan.then(written(f"interleave({function.__name__}", options), dataset, **changes)


# -- operators of order and number


def _shuffle(draw: Draw, plan: Drawn) -> Drawn:
    size = AUTO if draw(st.integers(0, 5)) == 5 else draw(st.integers(1, 12))
    seed, again = draw(SEEDS), draw(st.booleans())
    call = f"shuffle({size}, seed={seed}, reshuffle_each_iteration={again})"
    return plan.then(call, plan.dataset.shuffle(size, seed=seed, reshuffle_each_iteration=again))


def _repeat(draw: Draw, plan: Drawn) -> Drawn:
    times = draw(st.integers(0, 3))
    return plan.then(f"repeat({times})", plan.dataset.repeat(times), most=times * plan.most)


def _repeat_for_ever(draw: Draw, plan: Drawn) -> Drawn:
    count = draw(st.integers(0, 40))
    return plan.then(f"repeat().take({count})", plan.dataset.repeat().take(count), most=count)


def _take(draw: Draw, plan: Drawn) -> Drawn:
    count = draw(st.integers(-1, 25))
    most = plan.most if count < 0 else min(count, plan.most)
    return plan.then(f"take({count})", plan.dataset.take(count), most=most)


def _skip(draw: Draw, plan: Drawn) -> Drawn:
    count = draw(st.integers(0, 15))
    return plan.then(f"skip({count})", plan.dataset.skip(count))


def _shard(draw: Draw, plan: Drawn) -> Drawn:
    shards = draw(st.integers(1, 3))
    index = draw(st.integers(0, shards - 1))
    return plan.then(f"shard({shards}, {index})", plan.dataset.shard(shards, index))


def _cache(draw: Draw, plan: Drawn) -> Drawn:
    return plan.then("cache()", plan.dataset.cache())


def _prefetch(draw: Draw, plan: Drawn) -> Drawn:
    size = draw(st.integers(1, 4))
    return plan.then(f"prefetch({size})", plan.dataset.prefetch(size))


def _enumerate(draw: Draw, plan: Drawn) -> Drawn:
    kind: Kind = "row" if plan.kind in ("number", "row") else "other"
    return plan.then("enumerate()", plan.dataset.enumerate(), kind=kind)


def _batch(draw: Draw, plan: Drawn) -> Drawn:
    size, drop = draw(st.integers(1, 6)), draw(st.booleans())
    dataset = plan.dataset.batch(size, drop_remainder=drop)
    call = f"batch({size}, drop_remainder={drop})"
    return plan.then(call, dataset, kind="batch", rows=size, row_kind=plan.kind, most=plan.most // size + 1)


def _unbatch(draw: Draw, plan: Drawn) -> Drawn:
    return plan.then("unbatch()", plan.dataset.unbatch(), kind=plan.row_kind, most=plan.most * plan.rows)


def _batch_unbatch(draw: Draw, plan: Drawn) -> Drawn:
    size = draw(st.integers(1, 6))
    return plan.then(f"batch({size}).unbatch()", plan.dataset.batch(size).unbatch(), named=False)


# -- several data sets


def _zip(draw: Draw, plan: Drawn) -> Drawn:
    kind: Kind = "row" if plan.kind in ("number", "row") else "other"
    other = draw(st.sampled_from(["itself", "range(17)", "a dict"]))
    numbers = Dataset.range(17).shuffle(3, seed=1)
    if other == "itself":
        return plan.then("zip(itself)", Dataset.zip(plan.dataset, plan.dataset), kind=kind)
    if other == "range(17)":
        zipped = plan.dataset.zip(numbers)
        return plan.then("zip(range(17).shuffle(3, seed=1))", zipped, kind=kind, most=min(17, plan.most))
    zipped = Dataset.zip({"a": plan.dataset, "b": (numbers, plan.dataset)})
    call = "apply(lambda d: zip({'a': d, 'b': (range(17).shuffle(3, seed=1), d)}))"
    return plan.then(call, zipped, kind=kind, most=min(17, plan.most))


def _concatenate(draw: Draw, plan: Drawn) -> Drawn:
    if draw(st.booleans()):
        joined = plan.dataset.concatenate(plan.dataset.filter(fn.is_kept))
        return plan.then("concatenate(itself.filter(is_kept))", joined, most=2 * plan.most)
    first, text, kind = Dataset.range(900, 907), "range(900, 907)", plan.kind
    if kind != "number":  # elements of unknown types join any others
        first, text, kind = first.map(fn.number), f"{text}.map(number)", "other"
    joined = first.concatenate(plan.dataset)
    return replace(plan, text=f"{text}.concatenate({plan.text})", dataset=joined, kind=kind, most=plan.most + 7)


ANYWHERE: Sequence[Operator] = (_map, _map, _filter, _shuffle, _shuffle, _repeat, _cache, _prefetch)
"""Give the same elements whatever the order of their input."""

MIXTURES: Sequence[Operator] = (sample_first, choose_from)
WINDOWS: Sequence[Operator] = (rebatch, window, padded_batch, pack)

SELECTING: Sequence[Operator] = (_take, _skip, _shard, _enumerate, _zip, _repeat_for_ever)
IN_ORDER: Sequence[Operator] = (*SELECTING, _batch, _batch, *WINDOWS, *MIXTURES)
"""Give elements that depend on the order of their input."""

STACKING: Sequence[Operator] = (_batch, rebatch, window)
"""Need elements that can be stacked."""


def applicable(plan: Drawn) -> list[Operator]:
    """Return the operators that make sense after a plan; those that are drawn more often more than once."""
    found: list[Operator] = list(ANYWHERE)
    stackable = plan.kind in ("number", "row")
    if 5 * plan.most <= MOST:
        found += [_flat_map, _interleave]
    if 2 * plan.most <= MOST:
        found += [_concatenate]
    if plan.kind == "number":
        found += [_map_batched]
    if plan.kind == "batch":
        found += [_unbatch]
    if plan.ordered:
        found += [operator for operator in IN_ORDER if stackable or operator not in STACKING]
    if sum(1 for _ in walk(plan.dataset.plan)) > MOST_NODES:
        found = [operator for operator in found if operator not in MIXTURES]
    elif 2 * plan.most <= MOST:
        found += [sample_all]
    if stackable:
        found += [_batch_unbatch]
    if 3 * plan.most > MOST:
        found.remove(_repeat)
    return found
