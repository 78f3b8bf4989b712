"""Expressions and their types, for every constructor and operator of ``Dataset``. Type checkers read it; it never runs.

The comments for pyright mark wrong programs, and what pyright infers less of than mypy: ``Any`` instead of
``Dataset[Any]`` for some operators on elements of unknown type, and unknown types for ``Dataset.zip(a, b)``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple, TypedDict, assert_type

import numpy as np
from numpy.typing import NDArray

import aiostream_data as asd
from aiostream_data import Dataset, Loader

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Objects = NDArray[np.object_]
Row = dict[str, Any]


class Pair(NamedTuple):
    image: Floats
    label: Ints


class Sample(TypedDict):
    text: str
    label: int


class Lengths:
    def add(self, text: str) -> list[int]:
        return [len(text)]

    def flush(self) -> Iterator[int]:
        yield 0


def decode(record: Row) -> tuple[Floats, int]:
    return np.frombuffer(record["image"], np.float32), int(record["label"])


def swap(image: Floats, label: int) -> tuple[int, Floats]:
    return label, image


def label_of(image: Floats, label: int) -> int:
    return label


async def slowly_swap(image: Floats, label: int) -> tuple[int, Floats]:
    return label, image


async def fetched(url: str) -> bytes:
    return url.encode()


def words(line: str) -> list[str]:
    return line.split()


def letters(line: str) -> Iterator[str]:
    yield from line


async def slow_letters(line: str) -> AsyncIterator[str]:
    for letter in line:
        yield letter


def lines_of(url: str) -> Dataset[str]:
    return Dataset.from_text(url)


def counted(total: int, word: str) -> tuple[int, float]:
    return total + len(word), 0.5


def longer(longest: int, word: str) -> int:
    return max(longest, len(word))


async def slowly_longer(longest: int, word: str) -> int:
    return max(longest, len(word))


def lengths(lines: Dataset[str]) -> Dataset[int]:
    return lines.map(len)


def lines(lines: Dataset[str]) -> Dataset[str]:
    return lines


def joined(rows: list[str]) -> str:
    return "".join(rows)


def sources_in_memory(array: Floats, frame: object, anything: Any) -> None:
    assert_type(Dataset.range(3), Dataset[int])
    assert_type(Dataset.range(1, 9, 2, dtype=np.int32), Dataset[int])
    assert_type(Dataset.counter(), Dataset[int])
    assert_type(Dataset.random(seed=1), Dataset[int])
    assert_type(Dataset.from_tensors(3), Dataset[int])
    assert_type(Dataset.from_tensors({"x": 1.5}), Dataset[dict[str, float]])
    assert_type(Dataset.from_tensors((array, len(array))), Dataset[tuple[Floats, int]])
    assert_type(Dataset.from_list([1, 2]), Dataset[int])
    assert_type(Dataset.from_list([{"x": 1}]), Dataset[dict[str, int]])
    assert_type(Dataset.from_list([Sample(text="a", label=1)]), Dataset[Sample])
    assert_type(Dataset.from_iterable(["a", "b"]), Dataset[str])
    assert_type(Dataset.from_iterable(letters("abc")), Dataset[str])
    assert_type(Dataset.from_iterable(slow_letters("abc")), Dataset[str])
    assert_type(Dataset.from_generator(letters, args=("abc",)), Dataset[str])
    assert_type(Dataset.from_generator(slow_letters, args=("abc",)), Dataset[str])
    assert_type(Dataset.from_generator(lambda: [1.5]), Dataset[float])
    assert_type(Dataset.from_tensor_slices([1, 2]), Dataset[int])
    assert_type(Dataset.from_tensor_slices([1.5, 2.5]), Dataset[float])
    assert_type(Dataset.from_tensor_slices(["a"]), Dataset[str])
    assert_type(Dataset.from_tensor_slices([b"a"]), Dataset[bytes])
    assert_type(Dataset.from_tensor_slices({"x": array, "y": [1]}), Dataset[Row])  # pyright: ignore
    assert_type(Dataset.from_tensor_slices(array), Dataset[Any])
    assert_type(Dataset.from_tensor_slices(anything), Dataset[Any])
    assert_type(Dataset.from_tensor_slices(Pair(array, np.zeros(2, np.int64))), Dataset[Any])
    assert_type(Dataset.from_dataframe(frame), Dataset[Row])


def sources_in_files(urls: Dataset[str], anything: Any, connect: Any) -> None:
    assert_type(Dataset.list_files("*"), Dataset[str])
    assert_type(Dataset.open_any("data"), Dataset[Any])
    assert_type(Dataset.from_tfrecord("*"), Dataset[bytes])
    assert_type(Dataset.from_tfrecord(urls, shuffle_shards=True, on_error="skip"), Dataset[bytes])
    assert_type(Dataset.from_text("*"), Dataset[str])
    assert_type(Dataset.from_text(["a", "b"], cycle_length=4), Dataset[str])
    assert_type(Dataset.from_csv("*"), Dataset[Row])
    assert_type(Dataset.from_csv("*", {"x": np.float32}), Dataset[Row])
    assert_type(Dataset.from_jsonl("*"), Dataset[Any])
    assert_type(Dataset.from_fixed_length("*", 16), Dataset[bytes])
    assert_type(Dataset.from_webdataset("*"), Dataset[Row])
    assert_type(Dataset.from_files("*"), Dataset[Row])
    assert_type(Dataset.from_image_folder("data"), Dataset[Row])
    assert_type(Dataset.from_mds("data"), Dataset[Row])
    assert_type(Dataset.from_parquet("*", ["x"]), Dataset[Row])
    assert_type(Dataset.from_arrow("*"), Dataset[Row])
    assert_type(Dataset.from_npy("*"), Dataset[Any])
    assert_type(Dataset.from_tokens("*", 16), Dataset[NDArray[Any]])
    assert_type(Dataset.from_sql("select 1", connect, key="id"), Dataset[Row])
    assert_type(Dataset.from_format("*", anything), Dataset[Any])
    assert_type(Dataset.from_tfds("data"), Dataset[Row])
    assert_type(Dataset.from_hdf5("*"), Dataset[Row])
    assert_type(Dataset.from_array_record("*"), Dataset[bytes])
    assert_type(Dataset.from_hub("organization/name"), Dataset[Any])
    assert_type(Dataset.from_delta("table"), Dataset[Row])
    assert_type(Dataset.from_iceberg("db.table", catalog="local"), Dataset[Row])
    assert_type(Dataset.from_tfrecord("*").parse_example({"x": asd.FixedLen((), np.int64)}), Dataset[Row])
    assert_type(Dataset.from_tfrecord("*").parse_sequence_example({}, {}), Dataset[dict[str, Row]])


def functions_of_elements(texts: Dataset[str], rows: Dataset[Row], pairs: Dataset[tuple[Floats, int]]) -> None:
    assert_type(texts.map(len), Dataset[int])
    assert_type(texts.map(str.encode), Dataset[bytes])
    assert_type(texts.map(words), Dataset[list[str]])
    assert_type(texts.map(lambda text: (text, len(text))), Dataset[tuple[Any, int]])
    assert_type(texts.map(len, spec=asd.ArraySpec((), np.dtype(np.int64))), Dataset[int])
    assert_type(texts.map(fetched, spec=None), Dataset[bytes])
    assert_type(texts.map(len).infer_spec(), Any)
    assert_type(texts.map(fetched), Dataset[bytes])
    assert_type(texts.map(fetched, concurrency=8, ordered=False), Dataset[bytes])
    assert_type(texts.map(len, executor="process", timeout=1.0, on_error="skip"), Dataset[int])
    assert_type(texts.map(len, seed=1).map(float), Dataset[float])
    assert_type(rows.map(lambda row: row["x"]), Dataset[Any])
    assert_type(texts.map(lambda text: len(text)), Dataset[int])
    assert_type(rows.map(decode), Dataset[tuple[Floats, int]])
    assert_type(rows.map(lambda row: Sample(text=row["text"], label=1)), Dataset[Sample])
    assert_type(pairs.map(swap), Dataset[tuple[int, Floats]])
    assert_type(pairs.map(Pair), Dataset[Pair])
    assert_type(pairs.map(lambda image, label: int(label)), Dataset[int])
    assert_type(pairs.map(lambda image, label: image), Dataset[Any])
    assert_type(pairs.map(slowly_swap), Dataset[tuple[int, Floats]])
    assert_type(texts.filter(len), Dataset[str])  # type: ignore[arg-type]  # pyright: ignore
    assert_type(texts.filter(str.isdigit), Dataset[str])
    assert_type(rows.filter(lambda row: bool(row["x"])), Dataset[Row])
    assert_type(pairs.filter(lambda image, label: label > 0), Dataset[tuple[Floats, int]])
    assert_type(texts.take_while(str.isdigit), Dataset[str])
    assert_type(texts.unique(), Dataset[str])
    assert_type(pairs.unique(lambda image, label: label), Dataset[tuple[Floats, int]])
    assert_type(texts.scan(counted, 0), Dataset[float])
    assert_type(texts.scan(lambda total, text: (total + len(text), text), 0), Dataset[str])
    assert_type(texts.scan(lambda last, text: (text, (last, text)), ""), Dataset[tuple[Any, str]])
    assert_type(texts.aggregate(Lengths), Dataset[int])
    assert_type(texts.aggregate(lambda: Lengths()), Dataset[int])
    assert_type(texts.ignore_errors(), Dataset[str])
    assert_type(texts.apply(lambda dataset: dataset.map(len)), Dataset[int])
    assert_type(pairs.rejection_resample(label_of, [0.5, 0.5]), Dataset[tuple[int, tuple[Floats, int]]])


def elements_into_several(texts: Dataset[str], raw: Dataset[bytes], lists: Dataset[list[str]]) -> None:
    assert_type(texts.flat_map(lines_of), Dataset[str])
    assert_type(texts.flat_map(words), Dataset[str])
    assert_type(texts.flat_map(letters, spec=asd.ArraySpec((), np.dtype(object))), Dataset[str])
    assert_type(texts.flat_map(letters), Dataset[str])
    assert_type(texts.flat_map(slow_letters), Dataset[str])
    assert_type(texts.flat_map(Dataset.from_tfrecord), Dataset[bytes])
    assert_type(texts.flat_map(lambda text: range(3)), Dataset[int])
    assert_type(raw.flat_map(lambda data: data, executor="inline"), Dataset[Any])
    assert_type(texts.interleave(lines_of, cycle_length=4), Dataset[str])
    assert_type(texts.interleave(words, block_length=2), Dataset[str])
    assert_type(texts.interleave(letters), Dataset[str])
    assert_type(texts.interleave(slow_letters, ordered=False), Dataset[str])
    assert_type(texts.interleave(lambda url: Dataset.range(3)), Dataset[int])
    assert_type(lists.unbatch(), Dataset[str])
    assert_type(lists.flat_map(lambda part: Dataset.from_list([1.5])), Dataset[float])


def columns(rows: Dataset[Row], arrays: Dataset[dict[str, Floats]]) -> None:
    assert_type(rows.select("x"), Dataset[Row])
    assert_type(rows.drop("x"), Dataset[Row])
    assert_type(rows.rename({"x": "y"}), Dataset[Row])
    assert_type(rows.cast({"x": np.float32}), Dataset[Row])
    assert_type(rows.with_column("y", lambda row: row["x"]), Dataset[Row])
    assert_type(arrays.select("x"), Dataset[dict[str, Floats]])
    assert_type(arrays.rename({"x": "y"}).drop("y"), Dataset[dict[str, Floats]])


def batches_of_leaves(
    numbers: Dataset[int], floats: Dataset[float], texts: Dataset[str], raw: Dataset[bytes], arrays: Dataset[Floats]
) -> None:
    assert_type(numbers.batch(2), Dataset[Ints])
    assert_type(numbers.batch(2, drop_remainder=True), Dataset[Ints])
    assert_type(floats.batch(2), Dataset[NDArray[np.float64]])
    assert_type(texts.batch(2), Dataset[Objects])
    assert_type(raw.batch(2), Dataset[Objects])
    assert_type(numbers.map(np.float32).batch(2), Dataset[NDArray[np.float32]])
    assert_type(arrays.batch(2), Dataset[Floats])
    assert_type(arrays.batch(2).batch(3), Dataset[Floats])
    assert_type(texts.batch(2, strings="ragged"), Dataset[Any])
    assert_type(texts.batch(2).rebatch(3, strings="columns"), Dataset[Any])
    assert_type(texts.batch(2, collate=joined), Dataset[str])
    assert_type(numbers.batch(2, collate=sum), Dataset[int])
    assert_type(arrays.batch(max_cost=100), Dataset[Any])
    assert_type(numbers.padded_batch(2), Dataset[Ints])
    assert_type(arrays.padded_batch(2), Dataset[Floats])
    assert_type(arrays.padded_batch(2, [None], 0.5, drop_remainder=True), Dataset[Floats])
    assert_type(texts.padded_batch(2), Dataset[Any])
    assert_type(numbers.batch(4).rebatch(3), Dataset[Ints])
    assert_type(numbers.batch(4).rebatch([1, 2]), Dataset[Ints])
    assert_type(numbers.batch(4).unbatch(), Dataset[Any])
    assert_type(arrays.ragged_batch(2), Dataset[Any])
    assert_type(arrays.sparse_batch(2, [None]), Dataset[Any])
    assert_type(numbers.window(3), Dataset[Ints])
    assert_type(numbers.window(3, 1, 2, drop_remainder=True), Dataset[Ints])
    assert_type(arrays.window(3, shift=1), Dataset[Floats])
    assert_type(numbers.window(3, as_datasets=True), Dataset[Dataset[int]])
    assert_type(arrays.window(3, as_datasets=True), Dataset[Dataset[Floats]])
    assert_type(arrays.window(3, as_datasets=True).flat_map(lambda window: window.padded_batch(3)), Dataset[Any])
    assert_type(arrays.bucket_by_sequence_length(len, [8], [2, 1]), Dataset[Any])
    assert_type(arrays.pack(128), Dataset[Row])


def batches_of_structures(
    rows: Dataset[Row],
    arrays: Dataset[dict[str, Floats]],
    samples: Dataset[Sample],
    named: Dataset[Pair],
    unknown: Dataset[Any],
) -> None:
    assert_type(rows.batch(2), Dataset[Row])
    assert_type(arrays.batch(2), Dataset[Row])
    assert_type(named.batch(2), Dataset[Pair])
    assert_type(samples.batch(2), Dataset[Sample])
    assert_type(unknown.batch(2), Dataset[Any])  # pyright: ignore
    assert_type(rows.padded_batch(2), Dataset[Row])
    assert_type(arrays.padded_batch(2), Dataset[Row])
    assert_type(unknown.padded_batch(2), Dataset[Any])  # pyright: ignore
    assert_type(named.padded_batch(2), Dataset[Any])
    assert_type(rows.batch(4).rebatch(3), Dataset[Row])
    assert_type(named.batch(4).rebatch(3), Dataset[Pair])
    assert_type(rows.batch(4).unbatch(), Dataset[Row])
    assert_type(unknown.unbatch(), Dataset[Any])  # pyright: ignore
    assert_type(rows.window(2), Dataset[Row])
    assert_type(arrays.window(2), Dataset[Row])
    assert_type(unknown.window(2), Dataset[Any])  # pyright: ignore
    assert_type(rows.window(2, as_datasets=True), Dataset[dict[str, Dataset[Any]]])
    assert_type(named.window(2, as_datasets=True), Dataset[Any])
    assert_type(rows.ragged_batch(2), Dataset[Any])
    assert_type(rows.pack(128, fields="tokens"), Dataset[Row])
    assert_type(rows.bucket_by_sequence_length("x", [8], [2, 1]), Dataset[Any])


def batches_of_tuples(
    numbers: Dataset[tuple[int, int]],
    texts: Dataset[tuple[str, int]],
    raw: Dataset[tuple[bytes, int]],
    labelled: Dataset[tuple[Floats, int]],
    arrays: Dataset[tuple[Floats, Ints]],
    mixed: Dataset[tuple[str, float]],
    three: Dataset[tuple[int, str, Floats]],
) -> None:
    assert_type(numbers.batch(2), Dataset[tuple[Ints, Ints]])
    assert_type(texts.batch(2), Dataset[tuple[Objects, Ints]])
    assert_type(raw.batch(2), Dataset[tuple[Objects, Ints]])
    assert_type(labelled.batch(2), Dataset[tuple[Floats, Ints]])
    assert_type(labelled.map(swap).batch(2), Dataset[tuple[Ints, Floats]])
    assert_type(arrays.batch(2), Dataset[tuple[Floats, Ints]])
    assert_type(mixed.batch(2), Dataset[tuple[Any, Any]])
    assert_type(three.batch(2), Dataset[tuple[Any, Any, Any]])
    assert_type(labelled.batch(2).rebatch(4), Dataset[tuple[Floats, Ints]])
    assert_type(labelled.unbatch(), Dataset[Any])
    assert_type(labelled.padded_batch(2), Dataset[Any])


def groups(texts: Dataset[str], pairs: Dataset[tuple[Floats, int]]) -> None:
    assert_type(texts.group_by_window(len, lambda key, window: window, 8), Dataset[str])
    assert_type(texts.group_by_window(len, lambda key, window: window.batch(2), 8), Dataset[Objects])
    assert_type(texts.group_by_window(len, lambda key, window: [key], window_size_fn=int), Dataset[Any])
    assert_type(pairs.group_by_window(swap, lambda key, window: window.batch(2), 8), Dataset[tuple[Floats, Ints]])
    assert_type(texts.group_by_reducer(len, lambda key: 0, longer), Dataset[int])
    assert_type(texts.group_by_reducer(len, lambda key: 0, longer, float), Dataset[float])
    assert_type(texts.group_by_reducer(len, lambda key: 0, longer, lambda longest: str(longest)), Dataset[str])
    assert_type(texts.split_by(len, {1: lambda rows: rows.map(len)}), Dataset[Any])  # pyright: ignore
    assert_type(texts.split_by(len, {1: lengths, 2: lengths}), Dataset[int])
    assert_type(texts.split_by(len, {1: lengths}, 8, default=lengths), Dataset[int])
    assert_type(texts.split_by(len, {1: lengths, 2: lines}), Dataset[Any])


def several(numbers: Dataset[int], texts: Dataset[str], pairs: Dataset[Pair], unknown: Dataset[Any]) -> None:
    assert_type(numbers.zip(texts), Dataset[tuple[int, str]])
    assert_type(Dataset.zip(numbers, texts), Dataset[tuple[int, str]])  # pyright: ignore
    assert_type(Dataset.zip(numbers, pairs), Dataset[tuple[int, Pair]])  # pyright: ignore
    assert_type(Dataset.zip(numbers, texts, pairs), Dataset[tuple[int, str, Pair]])  # pyright: ignore
    assert_type(numbers.zip(texts, pairs), Dataset[tuple[int, str, Pair]])
    assert_type(numbers.zip(numbers).batch(2), Dataset[tuple[Ints, Ints]])
    assert_type(numbers.zip(unknown), Dataset[Any])  # pyright: ignore
    assert_type(Dataset.zip({"a": numbers, "b": numbers}), Dataset[dict[str, int]])  # pyright: ignore
    assert_type(Dataset.zip(numbers, texts, pairs, numbers), Dataset[Any])
    assert_type(Dataset.zip((numbers, texts)), Dataset[Any])
    assert_type(numbers.zip(texts).map(lambda number, text: text * 2), Dataset[Any])
    assert_type(numbers.concatenate(numbers), Dataset[int])
    assert_type(Dataset.concatenate(texts, texts, texts), Dataset[str])  # pyright: ignore
    assert_type(numbers.concatenate(texts), Dataset[Any])
    assert_type(Dataset.sample_from([texts, texts], [0.5, 0.5]), Dataset[str])
    assert_type(Dataset.sample_from({"a": pairs, "b": pairs}, {"a": 1.0, "b": 2.0}), Dataset[Pair])
    assert_type(numbers.index_flat_map(lambda n: [str(n)], lambda n: (n, 0), 3), Dataset[str])
    assert_type(Dataset.weighted_flat_map([numbers, numbers], [1.0, 2.0]), Dataset[int])
    assert_type(Dataset.choose_from([texts, texts], numbers), Dataset[str])


def order_and_number(texts: Dataset[str], rows: Dataset[Row], pairs: Dataset[Pair]) -> None:
    assert_type(texts.shuffle(), Dataset[str])
    assert_type(pairs.shuffle(100, seed=1, reshuffle_each_iteration=False), Dataset[Pair])
    assert_type(texts.repeat(), Dataset[str])
    assert_type(pairs.repeat(2), Dataset[Pair])
    assert_type(texts.take(2), Dataset[str])
    assert_type(texts.skip(2), Dataset[str])
    assert_type(texts.shard(2, 0), Dataset[str])
    assert_type(texts.enumerate(), Dataset[tuple[int, str]])
    assert_type(pairs.enumerate(5), Dataset[tuple[int, Pair]])
    assert_type(texts.assert_cardinality(2), Dataset[str])
    assert_type(texts.pad_to_cardinality(2), Dataset[tuple[str, bool]])
    assert_type(rows.pad_to_cardinality(2), Dataset[Row])


def running(texts: Dataset[str], rows: Dataset[Row], pairs: Dataset[Pair], arrays: Dataset[Floats]) -> None:
    assert_type(texts.cache(), Dataset[str])
    assert_type(texts.prefetch(), Dataset[str])
    assert_type(texts.prefetch(2).cache(), Dataset[str])
    assert_type(texts.in_subprocess(2), Dataset[str])
    assert_type(texts.with_options(seed=1), Dataset[str])
    assert_type(texts.options(), dict[str, Any])
    assert_type(pairs.to_device("cuda:0"), Dataset[Any])
    assert_type(rows.replay("failed.jsonl"), Dataset[Row])
    assert_type(texts.element_spec, Any)
    assert_type(texts.cardinality(), int)
    assert_type(texts.explain(), str)
    assert_type(texts.fingerprint(), str)
    assert_type(texts.memory_bound().limit, int)
    assert_type(texts.shuffle_quality(), asd.ShuffleQuality)
    assert_type(texts.fetch({}), Any)
    assert_type(texts.reduce(longer, 0), int)
    assert_type(texts.reduce(slowly_longer, 0), int)
    assert_type(texts.reduce(lambda total, text: total + text, "", seed=1), str)
    assert_type(texts.get_single_element(), str)
    assert_type(texts.open(), Loader[str])
    assert_type(arrays.open(seed=1, epoch=2, native_threads=1), Loader[Floats])
    assert_type(texts.debug(), Loader[str])
    assert_type(iter(texts), Iterator[str])
    assert_type(aiter(texts), AsyncIterator[str])


def loops(texts: Dataset[str], pairs: Dataset[tuple[Floats, int]], arrays: Dataset[dict[str, Floats]]) -> None:
    for text in texts:
        assert_type(text, str)
    for images, labels in pairs.batch(2):
        assert_type(images, Floats)
        assert_type(labels, Ints)
    for number, element in texts.enumerate():
        assert_type(number, int)
        assert_type(element, str)
    for batch in arrays.batch(2).prefetch():
        assert_type(batch, Row)
    with texts.open() as loader:
        assert_type(loader, Loader[str])
        assert_type(next(loader), str)
        assert_type(iter(loader), Iterator[str])
        assert_type(loader.state_dict(), dict[str, Any])
        assert_type(loader.origins(), list[asd.Origin])
        assert_type(loader.replay(0, 1), Loader[str])
        for text in loader:
            assert_type(text, str)
    assert_type(list(texts.map(len)), list[int])
    assert_type(sorted(texts), list[str])
    assert_type(dict(texts.enumerate()), dict[int, str])


async def loops_of_coroutines(texts: Dataset[str], pairs: Dataset[tuple[Floats, int]]) -> None:
    async for text in texts:
        assert_type(text, str)
    async for images, labels in pairs.batch(2):
        assert_type(images, Floats)
        assert_type(labels, Ints)
    async with texts.open() as loader:
        assert_type(loader, Loader[str])
        assert_type(await anext(loader), str)
        async for text in loader:
            assert_type(text, str)
    assert_type([text async for text in texts.map(len)], list[int])
    assert_type(await texts.ainfer_spec(), Any)
    assert_type(await texts.areduce(longer, 0), int)
    assert_type(await texts.areduce(slowly_longer, 0), int)
    assert_type(await pairs.aget_single_element(), tuple[Floats, int])


def arguments(texts: Dataset[str], either: Iterable[str]) -> None:
    """Programs with an error of types, which a checker must report."""
    texts.parse_example({})  # type: ignore[misc]  # pyright: ignore
    texts.map(3)  # type: ignore[call-overload]  # pyright: ignore
    texts.rejection_resample(str.upper, [0.5, 0.5])  # type: ignore[arg-type]  # pyright: ignore
    texts.batch("2")  # type: ignore[call-overload]  # pyright: ignore
    texts.take("2")  # type: ignore[arg-type]  # pyright: ignore
    texts.reduce(longer, "")  # type: ignore[arg-type]  # pyright: ignore
    Dataset.from_iterable(3)  # type: ignore[arg-type]  # pyright: ignore
    assert_type(Dataset.from_iterable(either), Dataset[str])
