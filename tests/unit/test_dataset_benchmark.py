"""The benchmark of datasets compares equal bytes, keeps finished cells, and divides by the right contender."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from benchmarks.pipeline import dataset_objects
from benchmarks.pipeline.cloud_work import BUCKET, Place
from benchmarks.pipeline.dataset_cells import CONTENDERS, LOCAL, Cell, Contender, Work, all_cells
from benchmarks.pipeline.dataset_objects import CONTENT, FIXED, GZIP, LAYOUTS, PART, RECORD, TFRECORD, Objects, Tally
from benchmarks.pipeline.dataset_reader import require_equal
from benchmarks.pipeline.dataset_reads import (
    chosen_cells,
    least_objects,
    merged,
    next_objects,
    pass_length,
    rotated,
    short_objects,
    summary,
    without_start,
)
from benchmarks.pipeline.dataset_table import all_tables, best_of, cell_table, ratio, readme_section, yardsticks

FILES = 3
COUNT = 5
"""More objects than files: two of them are links."""


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_objects, "MOST_FILES", FILES)
    monkeypatch.setattr(dataset_objects, "MOST_OBJECTS", COUNT)


def written(layout: str, root: Path, size: str = "256KiB") -> Objects:
    (root / BUCKET).mkdir(exist_ok=True)
    objects = Objects(size, layout)
    objects.write(root)
    return objects


def tally_of(values: Any) -> Tally:
    found = Tally(with_checksum=True)
    found.add_all(values)
    return found


def paths_of(objects: Objects, root: Path) -> list[Path]:
    return [root / BUCKET / objects.key(number) for number in range(COUNT)]


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("layout", [TFRECORD, GZIP])
def test_the_expected_records_are_the_records_in_the_files(tmp_path: Path, layout: str) -> None:
    objects = written(layout, tmp_path)
    with asd.Dataset.from_tfrecord(paths_of(objects, tmp_path)).open() as loader:
        read = tally_of(loader)
    assert read.count > COUNT
    require_equal(read, dataset_objects.expected(objects, RECORD, COUNT, tmp_path, None, checksum=True))


@pytest.mark.usefixtures("few_files")
def test_the_expected_parts_are_the_ranges_of_the_files(tmp_path: Path) -> None:
    objects = written(FIXED, tmp_path)
    contents = [path.read_bytes() for path in paths_of(objects, tmp_path)]
    parts = [content[start : start + 100_000] for content in contents for start in range(0, len(content), 100_000)]
    require_equal(tally_of(parts), dataset_objects.expected(objects, PART, COUNT, tmp_path, 100_000, checksum=True))
    assert sum(map(len, contents)) == objects.nbytes(tmp_path, COUNT)


@pytest.mark.usefixtures("few_files")
def test_the_expected_content_is_the_decompressed_file(tmp_path: Path) -> None:
    objects = written(GZIP, tmp_path)
    contents = [gzip.decompress(path.read_bytes()) for path in paths_of(objects, tmp_path)]
    require_equal(tally_of(contents), dataset_objects.expected(objects, CONTENT, COUNT, tmp_path, None, checksum=True))


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", ["4KiB", "256KiB"])
def test_an_object_has_about_the_size_of_its_cell(tmp_path: Path, layout: str, size: str) -> None:
    objects = written(layout, tmp_path, size)
    wanted = dataset_objects.SIZES[size]
    exact = layout != GZIP
    for path in paths_of(objects, tmp_path):
        assert path.stat().st_size == (wanted if exact else pytest.approx(wanted, rel=0.1))


@pytest.mark.usefixtures("few_files")
def test_a_changed_byte_is_not_equal(tmp_path: Path) -> None:
    objects = written(FIXED, tmp_path)
    contents = [bytearray(path.read_bytes()) for path in paths_of(objects, tmp_path)]
    contents[-1][70_000] ^= 1
    wanted = dataset_objects.expected(objects, PART, COUNT, tmp_path, None, checksum=True)
    with pytest.raises(ValueError, match="expected"):
        require_equal(tally_of(contents), wanted)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_tally_counts_the_same_one_by_one_and_together(checksum: bool) -> None:
    values = [b"ab", b"c", b""]
    together, single = Tally(checksum), Tally(checksum)
    together.add_all(values)
    for value in values:
        single.add(value)
    assert together == single
    assert (together.count, together.nbytes, together.checksum > 0) == (3, 3, checksum)
    assert together.first_at > 0.0


@pytest.mark.usefixtures("few_files")
def test_an_index_names_every_object_with_its_size(tmp_path: Path) -> None:
    objects = written(FIXED, tmp_path)
    objects.write_index(tmp_path, COUNT, tmp_path / "index")
    head, *shards = map(json.loads, (tmp_path / "index").read_text().splitlines())
    assert head["shards"] == COUNT == len(shards)
    assert {shard["nbytes"] for shard in shards} == {256 << 10}
    assert len({shard["url"] for shard in shards}) == COUNT


def test_work_survives_the_way_to_the_process_of_a_contender(tmp_path: Path) -> None:
    work = Work(
        Objects("1MiB", GZIP), Place("http://127.0.0.1:1"), tmp_path, at_once=4, variant="from_files", part_nbytes=None
    )
    assert Work.of_data(json.loads(json.dumps(work.data()))) == work


@pytest.mark.parametrize(
    ("objects", "wanted", "given"), [(100, 249.9, 250), (100, 1.0, 8), (100, 2e3, 1_000), (10, 2e3, 160)]
)
def test_the_number_of_objects_follows_the_speed_within_its_limits(objects: int, wanted: float, given: int) -> None:
    assert next_objects(objects, wanted, 8, 1_000) == given


def test_another_contender_begins_in_every_turn() -> None:
    running: list[Any] = ["a", "b", "c"]
    assert [rotated(running, turn) for turn in range(4)] == [
        ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]
    ]  # fmt: skip


# -- cells


def options(**given: Any) -> argparse.Namespace:
    everything = {
        "sizes": list(dataset_objects.SIZES), "latencies": [0, 20], "schemes": ["plain", "tls"],
        "concurrency": ["1", "4", "16", "32", "64", "defaults"],
    }  # fmt: skip
    return argparse.Namespace(**{**everything, **given})


def test_all_cells_are_chosen_without_a_selection() -> None:
    assert chosen_cells(options()) == all_cells()
    assert len(all_cells()) == 6 * 2 * 2 * 6


def test_a_selection_is_the_product_of_its_parts() -> None:
    chosen = chosen_cells(options(sizes=["1MiB"], concurrency=["16", "defaults"], schemes=["tls"]))
    assert [cell.name for cell in chosen] == [
        "1MiB/tls/0ms/c16", "1MiB/tls/0ms/defaults", "1MiB/tls/20ms/c16", "1MiB/tls/20ms/defaults"
    ]  # fmt: skip


def contender(name: str) -> Contender:
    (found,) = (each for each in CONTENDERS if each.name == name)
    return found


def test_names_of_contenders_are_unique() -> None:
    assert len({each.name for each in CONTENDERS}) == len(CONTENDERS)


def test_datasets_are_measured_in_every_cell_in_which_they_differ() -> None:
    assert all(contender("from_tfrecord").takes_part(cell) for cell in all_cells())
    assert {cell.at_once for cell in all_cells() if contender("from_files").takes_part(cell)} == {0}


def test_a_dataset_without_arguments_is_beside_clients_at_several_concurrencies() -> None:
    beside = [each.name for each in CONTENDERS if each.takes_part(Cell("1MiB", False, 20, 0))]
    assert {"obstore, 16 at once", "obstore, 64 at once"} < set(beside)
    assert "obstore" not in beside


def test_only_large_objects_are_read_in_ranges() -> None:
    ranges = contender("obstore, ranges")
    assert [size for size in dataset_objects.SIZES if ranges.takes_part(Cell(size, False, 0, 16))] == ["64MiB"]


def test_no_client_holds_more_than_a_gigabyte() -> None:
    whole = contender("aiohttp")
    assert whole.takes_part(Cell("64MiB", False, 0, 16))
    assert not whole.takes_part(Cell("64MiB", False, 0, 64))


def test_a_decompressing_client_reads_fewer_large_objects_at_once() -> None:
    decompressing = contender("obstore + zlib")
    assert decompressing.takes_part(Cell("64MiB", False, 0, 64))
    assert [decompressing.at_once(Cell(size, False, 0, 64)) for size in ("64MiB", "8MiB")] == [16, 64]


def test_local_copies_are_read_once_for_all_servers() -> None:
    local = [each for each in CONTENDERS if each.group == LOCAL]
    assert local
    for each in local:
        assert [cell for cell in all_cells() if each.takes_part(cell) and (cell.tls or cell.latency_ms)] == []
        assert each.takes_part(Cell("1MiB", False, 0, 16))


def test_a_measured_cell_replaces_its_older_result_in_the_order_of_the_table() -> None:
    first, second, third = ({"cell": cell.name, "date": "old"} for cell in all_cells()[:3])
    new = {"cell": second["cell"], "date": "new"}
    assert merged([third, second, first], new) == [first, new, third]


# -- results


def run(objects: int, wall_s: float) -> dict[str, float]:
    return {
        "wall_s": wall_s, "first_s": 0.1, "cpu_s": 0.1, "objects": objects, "nbytes": objects * 1_000,
        "server_cpu_s": 0.05,
    }  # fmt: skip


def test_a_summary_has_the_median_and_the_spread() -> None:
    found = summary([run(100, 1.0), run(100, 0.5), run(100, 2.0)], None)
    assert (found["objects_per_s"], found["objects_per_s_from_to"]) == (100.0, [50.0, 200.0])
    assert found["mb_per_s"] == 0.1
    assert len(found["runs"]) == 3


@pytest.mark.parametrize(
    ("name", "size", "wanted"),
    [
        ("obstore", "4KiB", 128),
        ("obstore", "8MiB", 128),
        ("obstore, ranges", "64MiB", 16),
        ("from_files", "8MiB", 32),
        ("obstore + zlib", "8MiB", 16),
    ],
)
def test_a_pass_has_work_for_all_concurrent_requests(name: str, size: str, wanted: int) -> None:
    assert least_objects(contender(name), Cell(size, False, 0, 64), 64) == wanted


@pytest.mark.parametrize(
    ("objects", "at_once", "wanted"),
    [(400, 0, 100), (400, 16, 100), (100, 32, 32), (100, 64, 50), (2, 64, 1), (3, 0, 1)],
)
def test_a_short_pass_reads_as_many_objects_at_once_as_the_long_one(objects: int, at_once: int, wanted: int) -> None:
    assert short_objects(objects, at_once) == wanted


def run_after(short_s: float, objects: int, wall_s: float) -> dict[str, float]:
    return {**run(objects, wall_s), **{f"short_{name}": value for name, value in run(25, short_s).items()}}


def test_short_passes_take_the_start_out_of_a_pass() -> None:
    measured = [run_after(0.4, 100, 1.0), run_after(0.1, 100, 1.0), run_after(0.7, 100, 1.2)]
    assert [left["objects"] for left in without_start(measured)] == [75, 75, 75]
    assert [left["wall_s"] for left in without_start(measured)] == pytest.approx([0.6, 0.6, 0.8])
    found = summary(measured, None)
    assert found["objects_per_s"] == pytest.approx(75 / 0.6)
    assert found["objects_per_s_with_start"] == 100.0


def test_a_slow_short_pass_at_most_doubles_the_speed() -> None:
    assert summary([run_after(0.99, 100, 1.0)], None)["objects_per_s"] == pytest.approx(200.0)


def test_only_datasets_of_large_objects_run_longer_passes() -> None:
    large, small = Cell("8MiB", False, 0, 16), Cell("1MiB", False, 0, 16)
    lengths = [pass_length(contender(name), cell) for name in ("from_files", "obstore") for cell in (small, large)]
    assert lengths == [1.0, 2.0, 0.5, 0.5]


def test_a_failed_contender_has_its_error_and_no_figures() -> None:
    assert summary([run(100, 1.0)], "broken") == {"error": "broken"}


def cell_of(cell: Cell, rates: dict[str, int]) -> dict[str, Any]:
    found = {name: summary([run(rate, 1.0)], None) for name, rate in rates.items()}
    return {"cell": cell.name, **vars(cell), "commit": "0123456789abcdef", "contenders": found}


def test_a_dataset_is_compared_with_the_fastest_client_but_not_with_local_copies() -> None:
    rates = {"from_tfrecord": 80, "obstore": 60, "aiohttp": 100, "tf.data, TFRecord": 900}
    cell = cell_of(Cell("1MiB", False, 0, 16), rates)
    assert ratio(cell, "from_tfrecord") == pytest.approx(0.8)


def test_gzip_is_compared_only_with_contenders_that_decompress() -> None:
    rates = {"from_tfrecord, gzip": 45, "obstore": 60, "obstore + zlib": 50}
    cell = cell_of(Cell("1MiB", False, 0, 16), rates)
    assert ratio(cell, "from_tfrecord, gzip") == pytest.approx(0.9)


def test_a_dataset_without_arguments_is_compared_with_all_concurrencies() -> None:
    defaults = cell_of(Cell("1MiB", False, 0, 0), {"from_files": 80})
    others = [cell_of(Cell("1MiB", False, 0, at_once), {"obstore": 50 * at_once}) for at_once in (1, 4)]
    assert ratio(defaults, "from_files") is None
    assert ratio(defaults, "from_files", others) == pytest.approx(0.4)


def test_nothing_is_the_fastest_of_no_results() -> None:
    assert best_of([], yardsticks(FIXED)) == ("", {})


def whole_result() -> dict[str, Any]:
    cells = [
        cell_of(Cell("1MiB", False, 20, 16), {"from_tfrecord": 80, "obstore": 160}),
        cell_of(Cell("1MiB", False, 20, 0), {"from_files": 90, "from_tfrecord": 100, "obstore, 16 at once": 200}),
    ]
    cells[0]["contenders"]["aiohttp"] = {"error": "broken"}
    at = {"date": "today", "cpu_model": "a CPU", "cpus": [0, 1], "python": "3"}
    return {"cells": cells, "circumstances": at, "server": "nginx", "versions": {"obstore": "1"}}


def test_the_tables_show_the_ratio_of_every_cell() -> None:
    text = all_tables(whole_result())
    assert "| 1MiB/plain/20ms | from_tfrecord | 0.50 | 0.50 |" in text
    assert "| aiohttp | - | - |" in text
    assert "0.50 of obstore" in cell_table(whole_result()["cells"][0])


def test_a_dataset_without_cycle_length_is_compared_with_the_clients_of_every_cell() -> None:
    assert "| 1MiB/plain/20ms | from_files | 0.56 | 0.45 |" in all_tables(whole_result())


def test_the_summary_names_the_fastest_client() -> None:
    (row,) = (line for line in readme_section(whole_result()).splitlines() if "20 ms" in line)
    assert row == "| 1 MiB | 20 ms | 0.1 | - | 0.1 | 0.2 (obstore) | - | - | - | - |"
