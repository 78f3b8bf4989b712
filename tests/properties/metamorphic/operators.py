"""Draw one more operator after a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from metamorphic.drawing import MOST, STACKABLE, Drawn, Kind, arguments, chance, one_of, seed_or_none, weighted
from metamorphic.keys_and_columns import (
    aggregated,
    collated,
    columns,
    pack,
    reduced_by_key,
    scan,
    split_by_key,
    windows_by_key,
)

Operator = Callable[[Random, Drawn], Drawn]

# -- functions of one element


_FUNCTIONS: dict[str, Kind] = {
    "number": "number",
    "pair": "row",
    "named": "row",
    "pictured": "row",
    "text": "text",
    "int_or_float": "other",
}


def as_number(plan: Drawn) -> Drawn:
    """Return the plan with numbers as elements, whatever they were."""
    if plan.kind == "batch":  # its number depends on which rows came together
        plan = plan.depending_on_order() if plan.ordered else _unbatched(plan)
    return plan.then("map(number, **HOW)", kind="number")


def _map(random: Random, plan: Drawn) -> Drawn:
    function = one_of(random, *_FUNCTIONS)
    ordered = not chance(random, 0.06)
    more = "" if ordered else "concurrency=3, ordered=False"
    spec = ", spec=NUMBER" if function == "number" and chance(random, 0.5) else ""
    call = f"map({function}{spec}, {more or '**HOW'})"
    return plan.then(call, kind=_FUNCTIONS[function], ordered=plan.ordered and ordered)


def draw_numbers(random: Random, plan: Drawn) -> Drawn:
    """Append a map that draws random numbers for each row."""
    seed = arguments(seed=seed_or_none(random))
    function = one_of(random, "drawn", "drawn", "drawn_inside", "drawn_later")
    how = "**AWAITED" if function == "drawn_later" else "**HOW"
    return plan.drawing().then(f"map({', '.join(filter(None, (function, seed, how)))})", kind="row")


def _await(random: Random, plan: Drawn) -> Drawn:
    return plan.then("map(later, **AWAITED)", kind="number")


def _with_state(random: Random, plan: Drawn) -> Drawn:
    return plan.then("map(shifted, init=started, **HOW)", kind="number")


def _failing(random: Random, plan: Drawn) -> Drawn:
    policy = one_of(random, '"skip"', "asd.Skip(max_count=1000)", "asd.Replace(-1)", 'asd.Retry(1, then="skip")')
    return plan.then(f"map(fails_at_times, on_error={policy}, **HOW)", kind="number")


def _map_batched(random: Random, plan: Drawn) -> Drawn:
    function, kind = one_of(random, ("doubled", "number"), ("with_double", "row"))
    return plan.then(f"map({function}, batched=True, **HOW)", kind=kind)


def _of_views(random: Random, plan: Drawn) -> Drawn:
    return plan.then("map(encoded, **HOW)", kind="text").then("map(number_of_a_view, **HOW)", kind="number")


def _filter(random: Random, plan: Drawn) -> Drawn:
    if plan.may_draw and chance(random, 0.2):
        predicate = one_of(random, "is_drawn, **HOW", "is_drawn_later, **AWAITED")
        return plan.drawing().then(f"filter({predicate})")
    kept = "is_kept, **HOW"
    return plan.then(
        f"filter({one_of(random, kept, kept, 'is_kept_later, **AWAITED', 'is_rare, **HOW', 'never, **HOW')})"
    )


_DRAWING = ("few_drawn", "few_shuffled", "few_zipped")
_EXPANDING: dict[str, Kind] = {
    **dict.fromkeys(("few", "few_of_a_range", "few_mapped", "few_generated", "few_in_memory"), "number"),
    **dict.fromkeys(("few_concatenated", "few_batched", "few_in_batches"), "number"),
    **dict.fromkeys(_DRAWING, "row"),
}
_BY_ORDER = ("few_batched", "few_zipped", "few_concatenated")
"""Make data sets whose rows depend on the order of rows below."""


def _interleave(random: Random, plan: Drawn) -> Drawn:
    cycle, block = random.randint(1, 4), random.randint(1, 3)
    more = f", cycle_length={cycle}, block_length={block}"
    return _expanded(random, plan, "interleave", more)


def _expanded(random: Random, plan: Drawn, call: str = "flat_map", more: str = "") -> Drawn:
    if chance(random, 0.12):
        return plan.then(f'{call}(few_or_failing{more}, on_error="skip")', kind="number", most=4 * plan.most)
    more += one_of(random, "", "", ", concurrency=3")
    name = one_of(random, *(name for name in _EXPANDING if plan.may_draw or name not in _DRAWING))
    plan = plan.drawing() if name in _DRAWING else plan
    if call == "interleave" and name not in _BY_ORDER and chance(random, 0.08):
        plan, more = replace(plan, ordered=False), f"{more}, ordered=False"
    if name in _BY_ORDER:
        plan = replace(plan, free=False)
    if _EXPANDING[name] == "number" and name != "few_in_batches" and chance(random, 0.2):
        more += ", spec=NUMBER"
    call = f"{call}({name}{more})" + (".unbatch()" if name == "few_in_batches" else "")
    return plan.then(call, kind=_EXPANDING[name], most=4 * plan.most)


def _resample(random: Random, plan: Drawn) -> Drawn:
    initial = one_of(random, None, None, "[2, 1, 1]")
    plan = plan.drawing() if initial else plan.drawing().depending_on_order()
    more = arguments("class_of", "[1, 1, 2]", *filter(None, [initial]), seed=seed_or_none(random))
    return as_number(plan.then(f"rejection_resample({more})"))


# -- order and number


def shuffle(random: Random, plan: Drawn) -> Drawn:
    """Append a shuffle, of any size or of its own choice."""
    size = "AUTO" if chance(random, 0.15) else random.randint(1, 12)
    again = False if chance(random, 0.2) else None
    more = arguments(size, seed=seed_or_none(random), reshuffle_each_iteration=again)
    return plan.then(f"shuffle({more}, **SPILL)")


def repeat(random: Random, plan: Drawn) -> Drawn:
    """Append a repeat that ends."""
    times = one_of(random, 0, 1, 2, 2, 3)
    return plan.then(f"repeat({times})", most=times * plan.most)


def _repeat_for_ever(random: Random, plan: Drawn) -> Drawn:
    count = random.randrange(40)
    return plan.depending_on_order().then("repeat()").then(f"take({count})", most=count)


def _take(random: Random, plan: Drawn) -> Drawn:
    count = random.randint(-1, 25)
    return plan.depending_on_order().then(f"take({count})", most=plan.most if count < 0 else min(count, plan.most))


def _take_while(random: Random, plan: Drawn) -> Drawn:
    predicate = one_of(random, "is_usual", "is_usual", "is_kept", "never")
    return plan.depending_on_order().then(f"take_while({predicate})")


def _asserted(random: Random, plan: Drawn) -> Drawn:
    if not plan.is_counted:
        return plan
    return plan.within("@0.apply(lambda d: d.assert_cardinality(d.cardinality()) if d.cardinality() >= 0 else d)")


def _padded_rows(random: Random, plan: Drawn) -> Drawn:
    more = random.randint(0, 3)
    padded = f"d.pad_to_cardinality(d.cardinality() + {more})"
    text = f"@0.apply(lambda d: {padded} if d.cardinality() > 0 else d.map(pair, **HOW))"
    return plan.depending_on_order().within(text, kind="row", most=plan.most + more)


def _ignoring(random: Random, plan: Drawn) -> Drawn:
    return plan.then("map(fails_at_times, **HOW)", kind="number").then("ignore_errors()")


def _unique(random: Random, plan: Drawn) -> Drawn:
    key = one_of(random, "length", "number", "text")
    if plan.kind == "number" and chance(random, 0.4):
        key = ""
    return plan.depending_on_order().then(f"unique({key}{', ' if key else ''}**SPILL)")


def _skip(random: Random, plan: Drawn) -> Drawn:
    return plan.depending_on_order().then(f"skip({random.randrange(12)})")


def _shard(random: Random, plan: Drawn) -> Drawn:
    shards = random.randint(1, 3)
    return plan.depending_on_order().then(f"shard({shards}, {random.randrange(shards)})")


def _enumerate(random: Random, plan: Drawn) -> Drawn:
    start = one_of(random, "", "5")
    plan = plan.depending_on_order()
    return as_number(plan.then(f"enumerate({start})")) if chance(random, 0.6) else _as_other(plan, start)


def _as_other(plan: Drawn, start: str) -> Drawn:
    return plan.then(f"enumerate({start})", kind="row" if plan.kind in ("number", "row") else "other")


def _cache(random: Random, plan: Drawn) -> Drawn:
    return plan.then("cache()")


def _with_options(random: Random, plan: Drawn) -> Drawn:
    return plan.then(f"with_options({one_of(random, 'stage_timeout=900', 'memory_limit=1 << 30', 'native_threads=1')})")


def _prefetch(random: Random, plan: Drawn) -> Drawn:
    return plan.then(f"prefetch({random.randint(1, 4)})")


# -- elements of several rows


def _batch(random: Random, plan: Drawn) -> Drawn:
    size, drop = random.randint(1, 6), plan.ordered and chance(random, 0.4)
    plan = plan.depending_on_order() if drop else plan
    return _grouped(plan, f"batch({size}{', drop_remainder=True' if drop else ''}{_form(random, plan.kind)})", size)


def _form(random: Random, kind: Kind) -> str:
    """Draw the form of bytes and text in a batch of rows of a kind."""
    forms = {"text": ("columns", "string_dtype"), "example": ("columns",)}.get(kind, ())
    return f", strings={random.choice(forms)!r}" if forms and chance(random, 0.5) else ""


def _grouped(plan: Drawn, call: str, size: int) -> Drawn:
    most = plan.most // size + 1
    return plan.then(call, kind="batch", row_kind=plan.kind, rows=size, most=most, named=False, grouped=True)


def cut_again(random: Random, plan: Drawn) -> Drawn:
    """Append batches that are taken apart again, which makes the ids of rows wider by a pair."""
    size = random.randint(1, 6)
    return plan.then(f"batch({size})").then("unbatch()", named=False, grouped=True)


def _unbatch(random: Random, plan: Drawn) -> Drawn:
    return _unbatched(plan)


def _unbatched(plan: Drawn) -> Drawn:
    return plan.then("unbatch()", kind=plan.row_kind, most=plan.most * plan.rows)


def _rebatch(random: Random, plan: Drawn) -> Drawn:
    first = random.randint(1, 5)
    size = one_of(random, first, [first, 2, 1])
    drop = plan.ordered and chance(random, 0.3)
    plan = plan.depending_on_order() if drop else plan
    plan = plan if plan.kind == "batch" else _grouped(plan, f"batch({random.randint(1, 4)})", 1)
    call = f"rebatch({size}{', drop_remainder=True' if drop else ''}{_form(random, plan.row_kind)})"
    return plan.then(call, rows=first + 1, most=plan.most * plan.rows)


def _window(random: Random, plan: Drawn) -> Drawn:
    size, shift, stride = random.randint(1, 4), random.randint(1, 5), random.randint(1, 2)
    drop = arguments(drop_remainder=chance(random, 0.4))
    plan = plan.depending_on_order()
    windows = _grouped(plan, f"window({size}, {shift}, {stride}, {drop})", size)
    return replace(windows, most=-(-plan.most // shift))


def _buckets(random: Random, plan: Drawn) -> Drawn:
    sizes = [random.randint(1, 4) for _ in range(3)]
    more = f"[2, 4], {sizes}, " + arguments(drop_remainder=chance(random, 0.3) or None)
    plan = plan.depending_on_order()
    if plan.kind in STACKABLE and chance(random, 0.6):
        return _grouped(plan, f"bucket_by_sequence_length(length, {more.rstrip(', ')}, no_padding=True)", max(sizes))
    plan = plan.then("map(sequence, **HOW)", kind="sequence")
    padded = _grouped(plan, f"bucket_by_sequence_length(len, {more.rstrip(', ')})", max(sizes))
    return replace(padded, row_kind="other")


def _padded(random: Random, plan: Drawn) -> Drawn:
    size, drop = random.randint(1, 5), chance(random, 0.3)
    shape, fill = one_of(random, None, [7], 7), one_of(random, None, -1)
    plan = plan.depending_on_order().then("map(sequence, **HOW)", kind="sequence")
    padded = _grouped(plan, f"padded_batch({size}, {shape}, {fill}, drop_remainder={drop})", size)
    return replace(padded, row_kind="other")


def _ragged(random: Random, plan: Drawn) -> Drawn:
    size, drop = random.randint(1, 5), chance(random, 0.3)
    plan = plan.depending_on_order().then("map(sequence, **HOW)", kind="sequence")
    return replace(_grouped(plan, f"ragged_batch({size}, drop_remainder={drop})", size), row_kind="other")


def _sparse(random: Random, plan: Drawn) -> Drawn:
    size, shape = random.randint(1, 5), one_of(random, "[None]", "[7]")
    plan = plan.depending_on_order().then("map(sequence, **HOW)", kind="sequence")
    batches = _grouped(plan, f"sparse_batch({size}, {shape})", size)
    return replace(batches.then("map(dense, **HOW)"), row_kind="other")


def _window_apart(random: Random, plan: Drawn) -> Drawn:
    size, shift = random.randint(1, 4), random.randint(1, 5)
    plan = plan.depending_on_order().then("map(sequence, **HOW)", kind="sequence")
    windows = plan.then(f"window({size}, {shift}, as_datasets=True)", named=False, grouped=True)
    rows = windows.then("flat_map(rows_of_window)", kind="sequence", most=plan.most * size)
    return as_number(rows)


def _by_cost(random: Random, plan: Drawn) -> Drawn:
    rows, most = one_of(random, None, 3), random.randint(1, 16)
    more = arguments(rows, max_cost=most, on_too_large=one_of(random, "skip", "alone"))
    more += f", drop_remainder={chance(random, 0.3)}"
    plan = plan.depending_on_order()
    if plan.kind in STACKABLE and chance(random, 0.5):
        return _grouped(plan, f"batch({more}, cost=cost, padded=False)", most)
    plan = plan.then("map(sequence, **HOW)", kind="sequence")
    return replace(_grouped(plan, f"batch({more})", most), row_kind="other")


def _whole_batch(random: Random, plan: Drawn) -> Drawn:
    """Append a function of whole batches that does the same to each of their rows."""
    return plan.then("map(doubled, **HOW)")


_ANYWHERE: list[tuple[float, Operator]] = [
    (2, shuffle),
    (0.8, repeat),
    (0.6, _cache),
    (0.5, _prefetch),
    (0.1, _with_options),
]
_OF_ROWS: list[tuple[float, Operator]] = [
    *((2, _map), (0.5, _await), (0.4, _with_state), (0.6, _failing), (0.3, _ignoring), (1.2, _filter)),
    (0.8, columns),
]
_IN_ORDER: list[tuple[float, Operator]] = [
    (0.7, _take),
    (0.5, _take_while),
    (0.3, scan),
    (0.3, aggregated),
    (0.6, _unique),
    (0.4, _asserted),
    (0.7, _skip),
    (0.5, _shard),
    (0.9, _enumerate),
    (0.5, _repeat_for_ever),
    (0.6, _padded),
    (0.5, collated),
    (0.9, _buckets),
    (0.5, _by_cost),
    (0.8, windows_by_key),
    (0.4, reduced_by_key),
    (0.5, split_by_key),
    (0.6, pack),
    (0.5, _resample),
    (0.4, _ragged),
    (0.3, _sparse),
    (0.4, _window_apart),
]


def _applicable(plan: Drawn) -> list[tuple[float, Operator]]:
    """Return the operators that make sense after a plan, with weights."""
    by_place = plan.kind == "batch" and (plan.free or not plan.ordered)
    found = [(weight, op) for weight, op in _ANYWHERE if op is not repeat or 2 * plan.most <= MOST]
    if not by_place:  # what is in a batch depends on the order, so only what treats its rows alike may follow
        found += _OF_ROWS
        if 3 * plan.most <= MOST:
            found += [(1.0, _expanded), (1.0, _interleave)]
        if plan.may_draw:
            found += [(1.5, draw_numbers)]
    if plan.kind == "number":
        found += [(0.6, _map_batched)]
        found += [(0.6, _padded_rows)] if plan.ordered and plan.is_counted else []
    if plan.kind in STACKABLE:
        found += [(0.3, _of_views)]
    if plan.kind in STACKABLE:
        found += [(1.2, _batch), (1.5, cut_again), (0.4, _rebatch)]
    if plan.kind == "batch" and plan.row_kind in STACKABLE:
        found += [(2.5, _unbatch), (0.6, _rebatch)]
    if plan.kind == "batch" and plan.row_kind == "number":
        found += [(0.5, _whole_batch)]
    if plan.ordered:
        found += _IN_ORDER
    if plan.ordered and plan.kind in STACKABLE:
        found += [(0.7, _window)]
    return found


def one_more(random: Random, plan: Drawn) -> Drawn:
    """Append one drawn operator."""
    drawn: Drawn = weighted(random, _applicable(plan))(random, plan)
    return drawn
