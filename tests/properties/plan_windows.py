"""Draw an operator that makes batches, windows, buckets or packed rows of elements that may differ in length."""

from __future__ import annotations

from typing import Any

import plan_functions as fn
from drawn import Draw, Drawn, written
from hypothesis import strategies as st

from aiostream_data.plan.windows import TooLong


def window(draw: Draw, plan: Drawn) -> Drawn:
    """Stack windows, which may overlap or leave elements out."""
    size, shift, stride = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 2))
    drop = draw(st.booleans())
    dataset = plan.dataset.window(size, shift, stride, drop_remainder=drop)
    call = f"window({size}, {shift}, {stride}, drop_remainder={drop})"
    return plan.then(call, dataset, kind="batch", rows=size, row_kind=plan.kind, most=-(-plan.most // shift))


def rebatch(draw: Draw, plan: Drawn) -> Drawn:
    """Cut batches anew."""
    first, drop = draw(st.integers(1, 5)), draw(st.booleans())
    sizes: list[int | list[int]] = [first, [first, 2, 1]]
    size = draw(st.sampled_from(sizes))
    dataset = plan.dataset.batch(3).rebatch(size, drop_remainder=drop)
    call = f"batch(3).rebatch({size}, drop_remainder={drop})"
    return plan.then(call, dataset, kind="batch", rows=first + 1, row_kind=plan.kind)


def padded_batch(draw: Draw, plan: Drawn) -> Drawn:
    """Fill up what is short, in batches, batches by cost, or buckets of like length."""
    made = plan.dataset.map(fn.sequence)
    options: dict[str, Any]
    kind = draw(st.sampled_from(["rows", "cost", "length"]))
    if kind == "rows":
        size, drop = draw(st.integers(1, 5)), draw(st.booleans())
        shape, fill = draw(st.sampled_from([None, [7]])), draw(st.sampled_from([None, -1]))
        dataset = made.padded_batch(size, shape, fill, drop_remainder=drop)
        call = f"padded_batch({size}, {shape}, {fill}, drop_remainder={drop})"
    elif kind == "cost":
        most, options = draw(st.sampled_from([None, 3])), {"max_cost": draw(st.integers(1, 20))}
        options |= {"on_too_large": draw(st.sampled_from(["skip", "alone"])), "drop_remainder": draw(st.booleans())}
        dataset = made.batch(most, **options)
        call = written(f"batch({most}", options)
    else:
        options = {"bucket_batch_sizes": draw(st.lists(st.integers(1, 4), min_size=3, max_size=3))}
        options["drop_remainder"] = draw(st.booleans())
        dataset = made.bucket_by_sequence_length(len, [2, 4], **options)
        call = written("bucket_by_sequence_length(len, [2, 4]", options)
    return plan.then(f"map(sequence).{call}", dataset, kind="other")


def pack(draw: Draw, plan: Drawn) -> Drawn:
    """Lay sequences into rows."""
    length, bins = draw(st.integers(3, 9)), draw(st.integers(1, 3))
    policies: list[TooLong] = ["split", "truncate", "drop"]
    too_long = draw(st.sampled_from(policies))
    packed = plan.dataset.map(fn.sequences).pack(length, open_bins=bins, too_long=too_long)
    call = f"map(sequences).pack({length}, open_bins={bins}, too_long={too_long!r})"
    return plan.then(call, packed, kind="row", most=2 * plan.most)
