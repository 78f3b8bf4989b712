"""Whatever stands in a leaf: a batch holds exactly its values, or is refused, and never refers to arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from other_arrays import (
    ArrayImpl,
    Asking,
    CupyArray,
    Exporting,
    Half,
    Interfaced,
    Labelled,
    Tensor,
    WithUnit,
    references,
)
from PIL import Image

import aiostream_data as asd

PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__", "__dlpack__")

contents = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).integers(0, 100, shape).astype(dtype),
    st.sampled_from([(), (), (2,), (2,), (3,), (2, 2)]),
    st.sampled_from(["i8", "i8", "u1", "f4", "?"]),
    st.integers(0, 9),
)
arrays = st.one_of(
    contents,
    st.builds(Tensor, contents),
    st.builds(ArrayImpl, contents),
    st.builds(Exporting, contents),
    st.builds(lambda content: content[()], contents),
)
images = st.builds(Image.new, st.sampled_from(["L", "L", "RGB", "1", "P"]), st.just((2, 2)), st.integers(0, 200))
refused = st.sampled_from(
    [
        CupyArray([1]), Half([1]), Tensor([1], device="cuda:0"), np.ma.array([1, 2], mask=[True, False]), Asking([1]),
        Interfaced(), Labelled([1]), np.ones(2).view(WithUnit), np.ma.masked,
    ]
)  # fmt: skip
plain = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63), 0.5, True, None, 1j]),
    st.sampled_from(["a", b"b", np.str_("c"), np.bytes_(b"d")]),
)  # fmt: skip
values = st.one_of(arrays, images, refused, plain)
nested = st.one_of(
    values,
    st.lists(values, max_size=3),
    st.lists(st.lists(plain, max_size=2), max_size=2),
    st.builds(references, values, values),
)
alike = nested.flatmap(lambda value: st.lists(st.just(value), min_size=1, max_size=4))
rows = st.one_of(alike, st.lists(nested, min_size=1, max_size=4))

TOGETHER: dict[str, Callable[[Any], Any]] = {
    "batch": lambda d: d.batch(2),
    "padded_batch": lambda d: d.padded_batch(2),
    "window": lambda d: d.window(2, shift=1),
    "shuffle": lambda d: d.shuffle(3, seed=1).batch(2),
    "cache": lambda d: d.cache().batch(2),
    "unbatch": lambda d: d.batch(2).unbatch().batch(2),
    "unbatch at once": lambda d: d.unbatch().batch(2),
    "batch of batches": lambda d: d.batch(1).batch(2),
}


def objects_in(batch: Any) -> Iterator[Any]:
    for leaf in batch.values():
        assert isinstance(leaf, np.ndarray)
        if leaf.dtype == np.dtype(object):
            yield from leaf.flat


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows, st.sampled_from(sorted(TOGETHER)), st.booleans())
def test_no_batch_refers_to_arrays(values: list[Any], together: str, as_slices: bool) -> None:
    dataset = asd.Dataset.from_iterable([{"a": value} for value in values])
    if as_slices:
        dataset = asd.Dataset.from_tensor_slices({"a": references(*values)})
    try:
        batches = list(TOGETHER[together](dataset))
    except asd.AiostreamError:
        return
    for batch in batches:
        for value in objects_in(batch):
            is_text = isinstance(value, (str, bytes))  # NumPy's text is str, and also an array without axes
            assert is_text or not any(hasattr(value, name) for name in PROTOCOLS), type(value)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows)
def test_a_batch_holds_exactly_the_values_that_its_rows_had(values: list[Any]) -> None:
    try:
        [batch] = asd.Dataset.from_iterable(values).batch(len(values))
    except asd.BatchShapeError:
        return
    for row, value in zip(batch, values, strict=True):
        held = content_of(value)
        if isinstance(held, np.ndarray):
            assert held.dtype == batch.dtype
        assert as_plain(row) == as_plain(held), value


def content_of(value: Any) -> Any:
    if isinstance(value, (Tensor, ArrayImpl, Exporting)):
        return value.content
    if isinstance(value, Image.Image):
        return np.asarray(value)
    return value


def as_plain(value: Any) -> Any:
    """Return a value as Python's numbers, which compare without rounding."""
    value = content_of(value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return list(map(as_plain, value)) if isinstance(value, list) else value
