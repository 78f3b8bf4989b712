"""Every row of every batch names where it came from, and can be made again from that."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import StateMismatchError, UnknownElementError
from aiostream_data.rows.provenance import Origin

SEED = 3
FILES = 3
ROWS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 30 records in each of several formats; record r of file f says "f-r"."""
    folder = tmp_path_factory.mktemp("origins")
    for number in range(FILES):
        records = [record(number, row) for row in range(ROWS)]
        for suffix, compression in (("tfrecord", ""), ("gz", "gzip")):
            with asd.TFRecordWriter(folder / f"{number}.{suffix}", compression=compression) as writer:
                for each in records:
                    writer.write(each)
        (folder / f"{number}.txt").write_bytes(b"\n".join(records))
        (folder / f"{number}.txt.gzip").write_bytes(gzip.compress(b"\n".join(records)))
        (folder / f"{number}.fixed").write_bytes(b"".join(each.ljust(8) for each in records))
    return folder


def record(file: int, row: int) -> bytes:
    return f"{file}-{row}".encode()


def noisy(row: Any, rng: np.random.Generator) -> tuple[Any, float]:
    return row, float(rng.random())


def doubled(row: Any) -> list[Any]:
    return [(row, 0), (row, 1)]


def three_noisy(row: int) -> Dataset[Any]:
    return Dataset.range(3).map(lambda inner, rng: (row, int(inner), float(rng.random())))


def batches_and_origins(dataset: Dataset[Any], **options: Any) -> Iterator[tuple[Any, list[Origin]]]:
    """Yield every element with the origins of its rows."""
    with dataset.open(seed=SEED, **options) as loader:
        for batch in loader:
            yield batch, loader.origins(batch)


def rows_of(batch: Any) -> list[Any]:
    """Return the rows of a batch of arrays, tuples of arrays or dicts of arrays."""
    if isinstance(batch, dict):
        return [dict(zip(batch, row, strict=True)) for row in zip(*map(rows_of, batch.values()), strict=True)]
    if isinstance(batch, tuple):
        return list(zip(*map(rows_of, batch), strict=True))
    return batch.tolist() if batch.dtype == object or batch.ndim == 1 else list(batch)


READERS: dict[str, Callable[[Path], Dataset[Any]]] = {
    "*.tfrecord": lambda folder: Dataset.from_tfrecord(str(folder / "*.tfrecord"), cycle_length=2),
    "*.gz": lambda folder: Dataset.from_tfrecord(str(folder / "*.gz"), cycle_length=2),
    "*.txt": lambda folder: Dataset.from_text(str(folder / "*.txt"), encoding=None),
    "*.txt.gzip": lambda folder: Dataset.from_text(str(folder / "*.txt.gzip"), encoding=None, shuffle_shards=True),
    "*.fixed": lambda folder: Dataset.from_fixed_length(str(folder / "*.fixed"), 8, cycle_length=3).map(bytes.strip),
}
COMPRESSED = ("*.gz", "*.txt.gzip")


@pytest.mark.parametrize("files", READERS)
def test_a_record_of_a_file_names_its_url_and_number(folder: Path, files: str) -> None:
    seen = set()
    for batch, origins in batches_and_origins(READERS[files](folder).shuffle(20).batch(7)):
        assert len(origins) == len(batch)
        for row, origin in zip(batch, origins, strict=True):
            file = int(row.split(b"-")[0])
            assert row == record(file, origin.index)
            assert Path(origin.url).name == files.replace("*", str(file))
            assert (origin.epoch, origin.seed) == (0, SEED)
            assert str(origin).endswith(f"record {origin.index} (epoch 0)")
            seen.add((origin.url, origin.index))
    assert len(seen) == FILES * ROWS


@pytest.mark.parametrize("files", READERS)
def test_the_offset_of_an_origin_is_where_its_record_or_one_before_it_begins(folder: Path, files: str) -> None:
    for _, origins in batches_and_origins(READERS[files](folder).batch(7)):
        for origin in origins:
            if files in COMPRESSED:
                assert origin.offset is None
            else:
                assert origin.offset is not None
                assert 0 <= origin.offset < Path(origin.url).stat().st_size


def test_a_whole_file_names_its_url(folder: Path) -> None:
    dataset = Dataset.from_files(str(folder / "*.fixed"))
    for element, origins in batches_and_origins(dataset):
        [origin] = origins
        assert (origin.url, origin.index) == (element["url"], 0)
        assert dataset.fetch(origin) == element


def test_rows_in_memory_name_their_source_and_number() -> None:
    dataset = Dataset.from_tensor_slices({"x": np.arange(50) * 10}).shuffle(9).batch(6)
    for batch, origins in batches_and_origins(dataset):
        assert [10 * origin.index for origin in origins] == batch["x"].tolist()
        assert len({origin.url for origin in origins}) == 1


def test_every_epoch_is_told_from_the_others(folder: Path) -> None:
    dataset = READERS["*.tfrecord"](folder).shuffle(20).repeat(3).batch(9)
    found = [origin for _, origins in batches_and_origins(dataset) for origin in origins]
    assert [origin.epoch for origin in found] == [epoch for epoch in range(3) for _ in range(FILES * ROWS)]
    assert len({(origin.url, origin.index, origin.epoch) for origin in found}) == 3 * FILES * ROWS


CHAINS: dict[str, Callable[[Path], Dataset[Any]]] = {
    "records": lambda folder: READERS["*.tfrecord"](folder),
    "compressed records": lambda folder: READERS["*.gz"](folder),
    "lines": lambda folder: READERS["*.txt"](folder),
    "compressed lines": lambda folder: READERS["*.txt.gzip"](folder),
    "fixed length": lambda folder: READERS["*.fixed"](folder),
    "augmented": lambda folder: READERS["*.tfrecord"](folder).map(noisy).shuffle(20),
    "augmented after shuffle": lambda folder: READERS["*.txt"](folder).shuffle(20).map(noisy),
    "augmented in every epoch": lambda folder: READERS["*.tfrecord"](folder).map(noisy).shuffle(9).repeat(3),
    "augmented after repeat": lambda folder: READERS["*.tfrecord"](folder).repeat(2).map(noisy).shuffle(9),
    "numbers": lambda _: Dataset.range(90).map(noisy),
    "filter": lambda _: Dataset.range(90).filter(lambda row: row % 3 > 0).map(noisy),
    "flat_map": lambda folder: READERS["*.tfrecord"](folder).flat_map(doubled).map(lambda a, b: (a, b)).shuffle(9),
    "interleave of augmented": lambda _: Dataset.range(20).interleave(three_noisy, cycle_length=4).shuffle(9),
    "zip": lambda folder: Dataset.zip(READERS["*.tfrecord"](folder).shuffle(9), Dataset.range(60)),
    "enumerate": lambda folder: READERS["*.tfrecord"](folder).enumerate().shuffle(9),
    "mixture": lambda folder: Dataset.sample_from(
        [READERS["*.tfrecord"](folder).map(noisy).repeat(2), READERS["*.txt"](folder).map(noisy).shuffle(9)],
        weights=[2, 1],
        stop="all",
    ),
    "concatenate": lambda folder: READERS["*.tfrecord"](folder).concatenate(READERS["*.txt"](folder)).map(noisy),
    "take and skip": lambda _: Dataset.range(90).shuffle(20).skip(5).take(40).map(noisy),
    "unbatch": lambda _: Dataset.range(90).batch(7).unbatch().map(noisy),
    "unordered": lambda _: Dataset.range(90).map(noisy, ordered=False, concurrency=4),
    "cache": lambda folder: READERS["*.tfrecord"](folder).cache().map(noisy).repeat(2),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_row_is_made_again_from_its_origin_as_it_was_delivered(folder: Path, chain: str) -> None:
    rows = CHAINS[chain](folder)
    dataset = rows.batch(7)
    found = list(batches_and_origins(dataset))
    assert sum(len(origins) for _, origins in found) == sum(len(rows_of(batch)) for batch, _ in found)
    for batch, origins in found[:: max(1, len(found) // 4)]:
        for row, origin in list(zip(rows_of(batch), origins, strict=True))[::3]:
            assert dataset.fetch(origin) == row
            assert rows.fetch(origin.as_dict() | {"row": {**origin.row, "batches": 0}}) == row


@pytest.mark.parametrize("chain", CHAINS)
def test_elements_that_are_no_batches_have_one_origin_and_are_made_again(folder: Path, chain: str) -> None:
    dataset = CHAINS[chain](folder)
    with dataset.open(seed=SEED) as loader:
        for element in islice(loader, 5):
            [origin] = loader.origins()
            assert dataset.fetch(origin) == element


@pytest.mark.parametrize("chain", CHAINS)
def test_origins_go_through_json(folder: Path, chain: str) -> None:
    dataset = CHAINS[chain](folder).batch(7)
    batch, origins = next(iter(batches_and_origins(dataset)))
    texts = [json.dumps(origin.as_dict()) for origin in origins]
    assert [Origin.from_dict(json.loads(text)) for text in texts] == origins
    assert dataset.fetch(json.loads(texts[-1])) == rows_of(batch)[-1]


@pytest.mark.parametrize("chain", CHAINS)
def test_origins_are_the_same_after_a_resume(folder: Path, chain: str) -> None:
    if chain == "unordered":
        pytest.skip("its order differs from run to run")
    dataset = CHAINS[chain](folder).batch(7)
    whole = [[(origin.url, origin.index, origin.epoch) for origin in each] for _, each in batches_and_origins(dataset)]
    with dataset.open(seed=SEED) as loader:
        assert sum(1 for _ in islice(loader, 3)) == 3
        state = json.loads(json.dumps(loader.state_dict()))
    with dataset.open(state) as loader:
        for number, batch in enumerate(loader, 3):
            origins = loader.origins(batch)
            assert [(origin.url, origin.index, origin.epoch) for origin in origins] == whole[number]
            if number == 3:
                assert dataset.fetch(origins[0]) == rows_of(batch)[0]


def test_rows_of_zip_name_the_source_of_their_first_input(folder: Path) -> None:
    dataset = Dataset.zip(READERS["*.txt"](folder), Dataset.range(90)).batch(5)
    for (lines, _), origins in batches_and_origins(dataset):
        assert [record(int(Path(one.url).stem), one.index) for one in origins] == lines.tolist()


def test_rows_of_flat_map_name_the_record_that_they_were_made_of(folder: Path) -> None:
    inner = READERS["*.txt"](folder).flat_map(doubled).batch(5)
    for (rows, _), origins in batches_and_origins(inner):
        assert [record(int(Path(one.url).stem), one.index) for one in origins] == rows.tolist()


def test_batches_of_batches_name_all_their_rows() -> None:
    dataset = Dataset.range(24).shuffle(9).batch(3).batch(4)
    for batch, origins in batches_and_origins(dataset):
        assert [origin.index for origin in origins] == batch.ravel().tolist()


def test_origins_are_asked_for_by_the_element_or_for_the_last_one() -> None:
    with Dataset.range(20).batch(5).open() as loader:
        with pytest.raises(ValueError, match="none was received yet"):
            loader.origins()
        batch = next(iter(loader))
        assert loader.origins() == loader.origins(batch)
        with pytest.raises(UnknownElementError, match="received a ndarray that is not the last element"):
            loader.origins(batch.copy())


@dataclass(frozen=True)
class Kept:
    """An object that a function gives for several rows."""

    name: str


KEPT = [Kept("a"), Kept("b")]
ARRAYS = [np.zeros(3), np.ones(3)]

SHARED: dict[str, Callable[[int], Any]] = {
    "equal small integers": lambda number: int(number) % 3,
    "booleans": lambda number: number % 2 == 0,
    "None": lambda number: None,
    "interned strings": lambda number: "even" if number % 2 == 0 else "odd",
    "empty tuples": lambda number: (),
    "one byte": lambda number: bytes([int(number) % 2]),
    "a kept object": lambda number: KEPT[int(number) % 2],
    "a kept array": lambda number: ARRAYS[int(number) % 2],
}


@pytest.mark.parametrize("shared", SHARED)
def test_origins_of_an_object_received_for_several_rows_are_those_of_its_last_hand_over(shared: str) -> None:
    made = Dataset.range(12).map(SHARED[shared])
    with made.open() as loader:
        for number, element in enumerate(loader):
            assert [origin.index for origin in loader.origins(element)] == [number]
            assert loader.origins() == loader.origins(element)


@pytest.mark.parametrize("shared", SHARED)
def test_no_other_row_is_named_for_an_element_that_was_received_before_the_last(shared: str) -> None:
    with Dataset.range(12).map(SHARED[shared]).open() as loader:
        elements = list(islice(loader, 6))
        for element in elements:
            if element is elements[-1]:
                assert loader.origins(element)[0].index == 5
            else:
                with pytest.raises(UnknownElementError, match=r"Call loader\.origins\(\) without an argument"):
                    loader.origins(element)


def test_a_row_that_the_plan_does_not_have_is_refused(folder: Path) -> None:
    _, origins = next(iter(batches_and_origins(READERS["*.tfrecord"](folder).batch(4))))
    (folder / "short").mkdir(exist_ok=True)
    with asd.TFRecordWriter(folder / "short" / "only.tfrecord") as writer:
        writer.write(b"x")
    with pytest.raises(StateMismatchError):
        Dataset.from_tfrecord(str(folder / "short" / "*")).fetch(origins[-1])


def test_a_row_cut_out_of_a_batch_has_its_own_origin_whatever_the_other_rows_were_made_of() -> None:
    wide = Dataset.range(4).batch(2).map(sum)
    rows = Dataset.sample_from([Dataset.range(100, 103), wide], [1, 1]).batch(5).unbatch()
    with rows.open() as loader:
        found = [(int(row), [origin.index for origin in loader.origins(row)]) for row in loader]
    assert found == [(100, [0]), (1, [0]), (101, [1]), (5, [2]), (102, [2])]


def test_origins_are_asked_for_in_an_async_loop_too(folder: Path) -> None:
    async def read() -> None:
        async with READERS["*.txt"](folder).batch(7).open() as loader:
            async for batch in loader:
                origins = loader.origins(batch)
                assert [record(int(Path(one.url).stem), one.index) for one in origins] == batch.tolist()

    asyncio.run(read())


def test_knowing_origins_costs_no_memory_that_grows_with_the_rows_delivered() -> None:
    dataset = Dataset.range(20_000_000).shuffle(100, seed=1).batch(1_000)
    peaks = []
    with dataset.open() as loader:
        rows = iter(loader)
        tracemalloc.start()
        try:
            for _ in range(2):
                tracemalloc.reset_peak()
                assert sum(1 for _ in islice(rows, 8_000)) == 8_000
                assert len(loader.origins()) == 1_000
                peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 8_000_000, [f"{peak / 1e6:.0f} MB" for peak in peaks]
