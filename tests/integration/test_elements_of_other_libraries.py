"""What map may return, and what a batch makes of it: tensors, images, lists, and what stands beside them."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from other_arrays import ArrayImpl, Asking, CupyArray, Exporting, Labelled, Tensor, references, tensor
from PIL import Image

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError, PlanError, SignatureError

SIX: Any = asd.Dataset.range(6)


def element(x: Any) -> dict[str, Any]:
    """Return images and tensors at every depth of an element."""
    image = Image.new("RGB", (3, 2), (int(x), 1, 2))
    return {"image": image, "more": (tensor([x, 7], np.float16), [tensor(x, np.int16)] * 2), "n": int(x)}


async def element_later(x: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return element(x)


def elements() -> Iterator[dict[str, Any]]:
    yield from map(element, range(6))


async def elements_later() -> AsyncIterator[dict[str, Any]]:
    for x in range(6):
        yield element(x)


def stacked(first: int, stop: int) -> Any:
    """Return what NumPy makes of elements."""
    numbers = np.arange(first, stop)
    pixels = np.zeros((len(numbers), 2, 3, 3), np.uint8)
    pixels[...] = [0, 1, 2]
    pixels[..., 0] = numbers[:, None, None]
    tensors = np.stack([numbers, np.full(len(numbers), 7)], 1).astype(np.float16)
    return {"image": pixels, "more": (tensors, np.stack([numbers, numbers], 1).astype(np.int16)), "n": numbers}


def check(batch: Any, wanted: Any) -> None:
    assert list(batch) == list(wanted)
    for found, expected in zip(leaves(batch), leaves(wanted), strict=True):
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


def leaves(batch: Any) -> list[Any]:
    return [batch["image"], *batch["more"], batch["n"]]


# -- however elements are made

SOURCES: dict[str, Callable[[], Any]] = {
    "threads": lambda: SIX.map(element),
    "several threads": lambda: SIX.map(element, concurrency=3),
    "any order": lambda: SIX.map(element, ordered=False, concurrency=1),
    "inline": lambda: SIX.map(element, executor="inline"),
    "processes": lambda: SIX.map(element, executor="process", concurrency=1),
    "coroutines": lambda: SIX.map(element_later),
    "flat_map": lambda: SIX.flat_map(lambda x: [element(x)]),
    "interleave": lambda: asd.Dataset.range(1).interleave(lambda _: asd.Dataset.from_generator(elements)),
    "generator": lambda: asd.Dataset.from_generator(elements),
    "async generator": lambda: asd.Dataset.from_generator(elements_later),
    "iterable": lambda: asd.Dataset.from_iterable(list(elements())),
    "from_tensors": lambda: asd.Dataset.from_tensors(element(0)).concatenate(SIX.skip(1).map(element)),
    "filter": lambda: SIX.map(element).filter(lambda row: True),
    "cache": lambda: SIX.map(element).cache(),
    "shuffle": lambda: SIX.map(element).shuffle(1, seed=3),
    "spilled": lambda: SIX.map(element).shuffle(1, seed=3, spill=True),
    "prefetch": lambda: SIX.map(element).prefetch(2),
    "repeat": lambda: SIX.map(element).repeat(2).take(6),
    "replaced": lambda: SIX.map(element).map(partial(_refused, "map"), on_error="skip"),
    "subprocess": lambda: SIX.map(element).in_subprocess(),
    "batched in a subprocess": lambda: SIX.map(element),
}


def _refused(_: str, row: Any) -> Any:
    return row


@pytest.mark.parametrize("name", SOURCES)
def test_tensors_and_images_stack_however_they_are_made(name: str) -> None:
    dataset = SOURCES[name]().batch(4)
    dataset = dataset.in_subprocess() if name.startswith("batched") else dataset
    first, second = dataset
    check(first, stacked(0, 4))
    check(second, stacked(4, 6))


def test_tensors_and_images_stack_in_the_middle_of_a_run_that_is_taken_up_again() -> None:
    dataset = SIX.map(element).shuffle(4, seed=1).batch(2)
    whole = list(dataset)
    with dataset.open() as loader:
        next(iter(loader))
        state = loader.state_dict()
    with dataset.open(state) as loader:
        for batch, wanted in zip(loader, whole[1:], strict=True):
            check(batch, wanted)


@pytest.mark.skipif("not __import__('sys').version_info >= (3, 14)", reason="interpreters need Python 3.14")
def test_images_stack_out_of_interpreters() -> None:
    [batch] = SIX.map(element, executor="interpreter").batch(6)
    check(batch, stacked(0, 6))


# -- whatever puts them together


def batches_of(dataset: Any) -> list[Any]:
    return list(dataset)


TOGETHER: dict[str, tuple[Callable[[Any], Any], list[tuple[int, int]]]] = {
    "batch": (lambda d: d.batch(4), [(0, 4), (4, 6)]),
    "drop_remainder": (lambda d: d.batch(4, drop_remainder=True), [(0, 4)]),
    "padded_batch": (lambda d: d.padded_batch(4), [(0, 4), (4, 6)]),
    "window": (lambda d: d.window(3, shift=2), [(0, 3), (2, 5), (4, 6)]),
    "rebatch": (lambda d: d.batch(4).rebatch(3), [(0, 3), (3, 6)]),
    "unbatch": (lambda d: d.batch(4).unbatch().batch(6), [(0, 6)]),
    "buckets": (
        lambda d: d.bucket_by_sequence_length(lambda row: 1, bucket_boundaries=[9], bucket_batch_sizes=[4, 4]),
        [(0, 4), (4, 6)],
    ),
    "costs": (lambda d: d.batch(max_cost=4, cost=lambda row: 1), [(0, 4), (4, 6)]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_whatever_puts_elements_together_stacks_tensors_and_images(name: str) -> None:
    together, spans = TOGETHER[name]
    for batch, (first, stop) in zip(together(SIX.map(element)), spans, strict=True):
        check(batch, stacked(first, stop))


def test_tensors_of_several_lengths_are_padded() -> None:
    rows = SIX.map(lambda x: {"t": Tensor(np.arange(x), np.int32), "l": list(range(x))})
    for dataset in (rows.padded_batch(6), rows.batch(max_cost=99, cost="t", padded=True)):
        [batch] = dataset
        for leaf, dtype in (("t", np.int32), ("l", np.int64)):
            assert (batch[leaf].dtype, batch[leaf].shape) == (dtype, (6, 5))
            assert [row[row > 0].tolist() for row in batch[leaf]] == [list(range(1, n)) for n in range(6)]


def test_tensors_are_packed() -> None:
    [packed] = SIX.map(lambda x: {"t": Tensor(np.full(x + 1, x), np.int32)}).pack(21).batch(1)
    assert (packed["t"].dtype, packed["t"].tolist()) == (np.int32, [[x for x in range(6) for _ in range(x + 1)]])


def test_a_batch_of_tensors_is_split_into_rows_of_numpy() -> None:
    rows = list(asd.Dataset.from_tensors({"t": Tensor([[1, 2], [3, 4]], np.int8), "l": [5, 6]}).unbatch())
    assert [(type(row["t"]), row["t"].tolist(), row["l"]) for row in rows] == [
        (np.ndarray, [1, 2], 5),
        (np.ndarray, [3, 4], 6),
    ]


# -- elements that are not put together


def test_elements_are_what_the_function_returned() -> None:
    made: list[Any] = []

    def make(x: Any) -> Any:
        made.append(Tensor([x]) if x % 2 else Image.new("L", (1, 1)))
        return made[-1]

    given = list(SIX.map(make, executor="inline"))
    assert all(one is other for one, other in zip(given, made, strict=True))


def test_a_cache_keeps_tensors_and_images_as_they_were_whatever_is_done_to_them() -> None:
    cached = SIX.map(lambda x: {"t": Tensor([x]), "i": Image.new("L", (1, 1), int(x))}).cache()
    for _ in range(2):
        for n, row in enumerate(cached):
            assert (row["t"].content.tolist(), row["i"].getpixel((0, 0))) == ([n], n)
            row["t"].content[:] = 99
            row["i"].putpixel((0, 0), 99)


# -- what is refused


def error_of(dataset: Any) -> BatchShapeError:
    with pytest.raises(BatchShapeError) as caught:
        list(dataset)
    return caught.value


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cuda": (lambda x: Tensor([x], device="cuda:0"), "torch.Tensor in range record 0"),
    "cupy": (lambda x: CupyArray([x]), "cupy.ndarray in range record 0"),
    "palette": (lambda x: Image.new("P", (1, 1)), "PIL.Image.Image in range record 0"),
    "masked": (lambda x: np.ma.array([x], mask=[True]), "numpy.ma.MaskedArray in range record 0"),
    "masked without axes": (lambda x: np.ma.array(1, mask=True), "numpy.ma.MaskedArray in range record 0"),
    "large and masked": (lambda x: np.ma.array(np.zeros(9999), mask=True), "numpy.ma.MaskedArray in range record 0"),
    "labels": (lambda x: Labelled([x]), "pandas.Series in range record 0"),
    "unknown": (lambda x: Asking([x]), "other_arrays.Asking in range record 0"),
    "a later one": (lambda x: [1] if x < 3 else [1, None], "list in range record 3"),
}

PUT_TOGETHER: dict[str, Callable[[Any], Any]] = {
    "batch": lambda d: d.batch(6),
    "padded_batch": lambda d: d.padded_batch(6),
    "window": lambda d: d.window(6),
    "buckets": lambda d: d.bucket_by_sequence_length(
        lambda *_: 1, bucket_boundaries=[9], bucket_batch_sizes=[6, 6], no_padding=True
    ),
    "to_device": lambda d: d.batch(6).to_device("cpu"),
    "subprocess": lambda d: d.batch(6).in_subprocess(),
}


@pytest.mark.parametrize("together", PUT_TOGETHER)
@pytest.mark.parametrize("name", REFUSED)
def test_the_first_batch_names_both_types_the_leaf_and_the_function(name: str, together: str) -> None:
    if together == "subprocess":
        pytest.importorskip("cloudpickle")
    function, found = REFUSED[name]
    error = error_of(PUT_TOGETHER[together](SIX.map(lambda x: {"leaf": function(x)})))
    assert "'leaf'" in str(error)
    assert f"{found} cannot become a dense numpy.ndarray: " in str(error)
    assert sum(note.startswith("made by: test_the_first_batch") for note in error.__notes__) == 1


IMAGE = Image.new("L", (1, 1))

MIXED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "tensor and array": (lambda x: np.zeros(2) if x else Tensor(np.zeros(2)), "torch.Tensor", "numpy.ndarray"),
    "array and tensor": (lambda x: Tensor(np.zeros(2)) if x else np.zeros(2), "numpy.ndarray", "torch.Tensor"),
    "tensor and jax": (lambda x: ArrayImpl([0.0]) if x else Tensor([0.0]), "torch.Tensor", "jax.Array"),
    "tensor and number": (lambda x: 1.0 if x else Tensor(0.0), "torch.Tensor", "float"),
    "tensor and list": (lambda x: [1.0] if x else Tensor([0.0]), "torch.Tensor", "list"),
    "tensor and None": (lambda x: None if x else Tensor([0.0]), "torch.Tensor", "NoneType"),
    "text and tensor": (lambda x: Tensor([0.0]) if x else "a", "str", "torch.Tensor"),
    "image and array": (lambda x: np.zeros((1, 1), np.uint8) if x else IMAGE, "PIL.Image.Image", "numpy.ndarray"),
}


@pytest.mark.parametrize("together", ["batch", "padded_batch"])
@pytest.mark.parametrize("name", MIXED)
def test_arrays_of_two_libraries_in_one_leaf_are_refused_and_both_named(name: str, together: str) -> None:
    function, first, second = MIXED[name]
    error = error_of(PUT_TOGETHER[together](SIX.map(lambda x: {"leaf": function(x)})))
    assert f"cannot batch leaf 'leaf': {first} in range record 0 but {second} in range record 1." in str(error)


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        (lambda x: Tensor(np.zeros(1 + x)), "shape (1,) of float64", "shape (2,) of float64"),
        (lambda x: Image.new("L", (1 + int(x), 1)), "shape (1, 1) of uint8", "shape (1, 2) of uint8"),
    ],
)
def test_tensors_and_images_of_several_sizes_are_told_to_be_padded(
    function: Callable[[Any], Any], first: str, second: str
) -> None:
    text = str(error_of(SIX.map(function).batch(6)))
    assert f"{first} in range record 0 but {second} in range record 1" in text
    assert text.endswith("Make the shapes equal in map(), or use padded_batch().")


def test_images_of_several_modes_do_not_stack() -> None:
    text = str(error_of(SIX.map(lambda x: Image.new("RGB" if x else "L", (2, 2))).batch(6)))
    assert "shape (2, 2) of uint8 in range record 0 but shape (2, 2, 3) of uint8 in range record 1" in text
    assert text.endswith("Convert them to one type and shape in map().")


def test_the_error_says_where_the_function_stands() -> None:
    def decode(x: Any) -> Any:
        return CupyArray([x])

    error = error_of(SIX.map(decode).shuffle(3).enumerate().batch(2))
    line = decode.__code__.co_firstlineno
    [note] = [note for note in error.__notes__ if note.startswith("made by: ")]
    assert f"{decode.__qualname__} (tests/integration/{__name__}.py:{line}), in map, written at " in note


def test_a_generator_that_made_what_does_not_stack_is_named() -> None:
    def produce() -> Iterator[Any]:
        yield CupyArray([1])

    error = error_of(asd.Dataset.from_generator(produce).batch(2))
    assert any(note.startswith("made by: test_a_generator") and "in from_generator" in note for note in error.__notes__)


def test_no_function_is_named_where_none_made_the_elements() -> None:
    error = error_of(asd.Dataset.from_iterable([1, None]).batch(2))
    assert not any(note.startswith("made by: ") for note in error.__notes__)
    error = error_of(SIX.map(lambda x: int(x)).batch(4).batch(2))  # its batches differ, not what the function made
    assert not any(note.startswith("made by: ") for note in error.__notes__)


def masked(x: Any) -> Any:
    return {"m": np.ma.array([x, 7], mask=[False, True])}


MASKED: dict[str, Callable[[], Any]] = {
    "threads": lambda: SIX.map(masked),
    "processes": lambda: SIX.map(masked, executor="process", concurrency=1),
    "subprocess": lambda: SIX.map(masked).in_subprocess(),
    "cache": lambda: SIX.map(masked).cache(),
    "shuffle": lambda: SIX.map(masked).shuffle(1, seed=1),
    "spilled": lambda: SIX.map(masked).shuffle(1, seed=1, spill=True),
    "to_device": lambda: SIX.map(masked).to_device("cpu"),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_array_keeps_its_mask_wherever_it_passes(name: str) -> None:
    assert [row["m"].sum() for row in MASKED[name]()] == list(range(6))


def test_a_masked_array_is_not_split_into_rows_or_handed_to_a_batched_function() -> None:
    for dataset in (SIX.map(masked).unbatch(), SIX.map(masked).map(lambda row: row, batched=True)):
        assert "its mask would be lost" in str(error_of(dataset))


# -- values beside each other


class Beside:
    """What stands in a leaf from row to row, and what a batch of it must be: an array, or words of an error."""

    def __init__(self, values: list[Any], wanted: Any) -> None:
        self.values, self.wanted = values, wanted


class Level(enum.IntEnum):
    LOW = 1


def day(text: str, unit: Any = "D") -> Any:
    return np.datetime64(text, unit)


BESIDE: dict[str, Beside] = {
    "int, float": Beside([1, 2.5], np.array([1.0, 2.5])),
    "float, large int": Beside([0.5, 2**60], np.array([0.5, 2**60])),
    "float, int it would round": Beside([0.5, 2**53 + 1], "float64 in .* but shape () of int64"),
    "complex, int it would round": Beside([1j, 2**53 + 1], "complex128 in .*int64"),
    "int, bool": Beside([2, True], np.array([2, 1])),
    "float, bool": Beside([0.5, True], np.array([0.5, 1.0])),
    "int, None": Beside([1, None], "int64 in .*a NoneType"),
    "None, int": Beside([None, 1], "a NoneType in .*int64"),
    "NumPy int, None": Beside([np.int32(1), None], "int32 in .*a NoneType"),
    "array, None": Beside([np.zeros(2), None], "float64 in .*a NoneType"),
    "str, None": Beside(["a", None], np.array(["a", None], object)),
    "str, bytes": Beside(["a", b"a"], "a str in .*a bytes"),
    "str, int": Beside(["a", 1], "a str in .*int64"),
    "text of several lengths": Beside(["", "abc"], np.array(["", "abc"], object)),
    "NumPy text": Beside([np.str_("a"), "bc"], references(np.str_("a"), "bc")),
    "NumPy bytes": Beside([np.bytes_(b"a"), b"bc"], references(np.bytes_(b"a"), b"bc")),
    "arrays of text of several lengths": Beside([np.array(["a"]), np.array(["ab"])], np.array([["a"], ["ab"]])),
    "arrays of bytes and of text": Beside([np.array(["a"]), np.array([b"a"])], r"<U1 in .*\|S1"),
    "ints of 64 bits without a sign": Beside([1, 2**63], np.array([1, 2**63], np.uint64)),
    "ints that no dtype holds": Beside([-1, 2**63], "int64 in .*uint64"),
    "an int beyond 64 bits": Beside([1, 2**64], "an int beyond 64 bits"),
    "int32, int": Beside([np.int32(1), 1], "int32 in .*int64"),
    "float32, float64": Beside([np.zeros(1, np.float32), np.zeros(1)], "float32 in .*float64"),
    "datetime64": Beside([day("2020-01-01"), day("2020-01-02")], np.array(["2020-01-01", "2020-01-02"], "M8[D]")),
    "datetime64 and NaT": Beside([day("2020-01-01"), day("NaT")], np.array(["2020-01-01", "NaT"], "M8[D]")),
    "datetime64 of two units": Beside([day("2020-01-01"), day("2020-01-01", "s")], r"datetime64\[D\] in .*\[s\]"),
    "lists of one length": Beside([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
    "lists of several lengths": Beside([[1, 2], [3]], r"shape \(2,\) .*shape \(1,\) .*padded_batch\(\)"),
    "lists of two types": Beside([[1, 2], [0.5, 2]], "int64 in .*float64"),
    "a list with a hole": Beside([[1, 2], [1, None]], "list in .* cannot become a dense numpy.ndarray"),
    "a list of lists of several lengths": Beside([[[1], [2]], [[1], [2, 3]]], "differ in length"),
    "lists of text": Beside([["a"], ["b", "c"]], "objects"),
    "lists of dicts": Beside([[{"a": 1}], []], "objects"),
    "empty lists before lists of text": Beside([[], ["a"]], "objects"),
    "empty lists and nothing": Beside([None, []], "objects"),
    "empty lists and numbers": Beside([[1], []], r"shape \(1,\) .*shape \(0,\)"),
    "None alone": Beside([None, None], np.array([None, None])),
    "sets": Beside([{1}, {2}], np.array([{1}, {2}], object)),
    "enum and int": Beside([Level.LOW, 1], np.array([1, 1])),
    "structured": Beside(
        [np.array((1, 2.0), "i4,f8"), np.array((3, 4.0), "i4,f8")], np.array([(1, 2.0), (3, 4.0)], "i4,f8")
    ),
    "matrix and array": Beside(
        [np.ones((1, 2)).view(np.matrix), np.zeros((1, 2))], np.array([[[1.0, 1.0]], [[0.0, 0.0]]])
    ),
    "object arrays": Beside([np.array(["a", None], object)] * 2, np.array([["a", None]] * 2, object)),
    "object array of arrays": Beside([np.array([np.zeros(2), None], object)] * 2, "contains numpy.ndarray"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_values_beside_each_other_stack_without_a_loss_or_are_refused(name: str) -> None:
    values, wanted = BESIDE[name].values, BESIDE[name].wanted
    dataset = asd.Dataset.from_iterable(values).batch(2)
    if isinstance(wanted, str) and wanted != "objects":
        with pytest.raises(BatchShapeError, match=wanted.replace("shape ()", r"shape \(\)")):
            list(dataset)
        return
    [batch] = dataset
    if isinstance(wanted, str):
        assert (batch.dtype, batch.tolist()) == (np.dtype(object), values)
        return
    assert (type(batch), batch.dtype, batch.shape) == (np.ndarray, wanted.dtype, wanted.shape)
    assert [repr(value) for value in batch.tolist()] == [repr(value) for value in wanted.tolist()]


# -- sources and functions of whole arrays


def test_a_source_of_slices_takes_a_tensor_for_the_array_it_is() -> None:
    dataset = asd.Dataset.from_tensor_slices({"t": Tensor([[1, 2], [3, 4]], np.int8), "e": Exporting([1.0, 2.0])})
    assert dataset.element_spec["t"] == asd.ArraySpec((2,), np.dtype(np.int8))
    [batch] = dataset.batch(2)
    assert (batch["t"].dtype, batch["t"].tolist(), batch["e"].tolist()) == (np.int8, [[1, 2], [3, 4]], [1.0, 2.0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            np.ma.array([1, 2], mask=[True, False]),
            "element, a numpy.ma.MaskedArray, to an array: its mask would be lost",
        ),
        (Tensor([1], device="cuda:0"), "a torch.Tensor, to an array: it is on cuda:0"),
        (CupyArray([1]), "a cupy.ndarray, to an array: it is on cuda:0"),
        ([1, None], "a list, to an array: it mixes"),
        ([2**53 + 1, 0.5], "rounded to floats"),
    ],
)
def test_a_source_of_slices_refuses_what_would_lose_something(given: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        asd.Dataset.from_tensor_slices(given)


def test_slices_that_hold_tensors_stack() -> None:
    held = references(Tensor([1, 2]), Tensor([3, 4]))
    dataset = asd.Dataset.from_tensor_slices({"t": held, "n": np.arange(2)})
    for together in (dataset.batch(2), dataset.window(2), dataset.padded_batch(2)):
        [batch] = together
        assert (batch["t"].dtype, batch["t"].tolist()) == (np.int64, [[1, 2], [3, 4]])


def test_a_batched_function_may_return_tensors() -> None:
    [batch] = SIX.map(lambda rows: {"t": Tensor(rows * 2), "l": list(range(len(rows)))}, batched=True).batch(6)
    assert batch["t"].tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("made", [lambda rows: np.ma.array(rows, mask=True), lambda rows: CupyArray(rows)])
def test_a_batched_function_may_not_return_what_would_lose_something(made: Callable[[Any], Any]) -> None:
    with pytest.raises(PlanError, match=r"must return arrays, since map\(\) has batched=True, but r is a"):
        list(SIX.map(lambda rows: {"r": made(rows)}, batched=True))


def test_a_signature_is_held_against_the_arrays_that_tensors_are() -> None:
    def produce() -> Iterator[Any]:
        yield Tensor([1, 2], np.int8)
        yield CupyArray([1, 2], np.int8)

    items = iter(asd.Dataset.from_generator(produce, signature=asd.ArraySpec((2,), np.dtype(np.int8))))
    assert next(items).content.tolist() == [1, 2]
    with pytest.raises(SignatureError, match=r"got cupy.ndarray, .*on cuda:0"):
        next(items)


@pytest.mark.parametrize("value", [Tensor([1]), CupyArray([1]), Image.new("P", (2, 2)), Asking(), [1, None]])
def test_a_plan_with_such_an_element_can_be_explained(value: Any) -> None:
    dataset = asd.Dataset.from_tensors({"x": value}).repeat(3).batch(2)
    assert "from_tensors" in dataset.explain()
    assert dataset.memory_bound().host_nbytes > 0
    assert "x" in repr(dataset.element_spec)
