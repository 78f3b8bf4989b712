"""Draw operators on columns, on batches that a function makes, on groups of equal keys, and with a state."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from metamorphic.drawing import Drawn, Kind, arguments, chance, one_of

_COLUMNS = (
    "select('x', 'n')",
    "drop('x')",
    "rename({'n': 'x', 'x': 'n'})",
    "cast({'n': 'int32', 'x': 'float64'})",
    "with_column('more', number, **HOW)",
    "with_column('n', text, **HOW)",
    "with_column('x', sequence, **HOW).drop('x')",
)


def columns(random: Random, plan: Drawn) -> Drawn:
    """Append an operator on columns, of rows or of batches."""
    plan = plan.then("map(named, **HOW)", kind="row")
    if chance(random, 0.3):
        size = random.randint(1, 4)
        call = one_of(random, *_COLUMNS[:4])
        return plan.then(f"batch({size})").then(call).then("unbatch()", named=False, grouped=True)
    return plan.then(one_of(random, *_COLUMNS))


def collated(random: Random, plan: Drawn) -> Drawn:
    """Append batches that a function makes."""
    size, drop = random.randint(1, 5), arguments(drop_remainder=chance(random, 0.3) or None)
    function = one_of(random, "listed", "count_and_number")
    plan = plan.depending_on_order()
    call = f"batch({size}, collate={function}, {drop})"
    return plan.then(call, kind="other", most=plan.most // size + 1, named=False, grouped=True)


def windows_by_key(random: Random, plan: Drawn) -> Drawn:
    """Append windows of elements with equal keys."""
    size = one_of(random, random.randint(1, 5), "window_size_fn=size_of_key")
    plan = replace(plan.depending_on_order(), named=False)
    whole = plan.then(f"group_by_window(length, whole_window, {size})")
    if chance(random, 0.4):
        return whole
    function = one_of(random, "numbered_window", "twice_window", "numbers_of_window")
    return plan.then(f"group_by_window(length, {function}, {size})", kind="number")


def split_by_key(random: Random, plan: Drawn) -> Drawn:
    """Append chains of operators by key."""
    branches = one_of(random, "{4: as_numbers, 1: as_numbers_twice}", "{1: as_numbers_twice}", "{0: as_numbers}")
    size = one_of(random, None, 1, random.randint(2, 5))
    plan = plan.depending_on_order()
    call = f"split_by(length, {branches}, {size}, default=as_numbers)"
    return plan.then(call, kind="number", most=2 * plan.most, named=False)


def reduced_by_key(random: Random, plan: Drawn) -> Drawn:
    """Append one result for each key."""
    finalize = one_of(random, "", ", fails_never")
    plan = plan.depending_on_order()
    call = f"group_by_reducer(length, size_of_key, folded{finalize})"
    return plan.then(call, kind="number", most=min(plan.most, 6), named=False)


def pack(random: Random, plan: Drawn) -> Drawn:
    """Append rows of a fixed length."""
    more = arguments(
        random.randint(3, 9), open_bins=random.randint(1, 3), too_long=one_of(random, "split", "truncate", "drop")
    )
    plan = plan.depending_on_order().then("map(sequences, **HOW)", kind="sequences")
    return plan.then(f"pack({more})", kind="row", most=2 * plan.most, named=False, grouped=True)


def aggregated(random: Random, plan: Drawn) -> Drawn:
    """Append an aggregator whose state a saved place contains or not."""
    factory = one_of(random, "Collected", "StoredCollected")
    spec = one_of(random, "", ", spec=NUMBER")
    return plan.depending_on_order().then(f"aggregate({factory}{spec})", kind="number", most=2 * plan.most + 1)


def scan(random: Random, plan: Drawn) -> Drawn:
    """Append a scan, with states of several types."""
    scans: tuple[tuple[str, Kind], ...] = (
        ("totalled, 0", "number"),
        ("totalled, 0, spec=NUMBER", "number"),
        ("remembered, []", "row"),
        ("gathered, frozenset()", "number"),
    )
    call, kind = one_of(random, *scans)
    return plan.depending_on_order().then(f"scan({call})", kind=kind)
