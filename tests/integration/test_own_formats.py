"""Files in a format of the user are read by ``Dataset.from_format`` like files of any other format."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from grouped_format import GroupedFormat, grouped
from prefixed_format import PrefixedFormat, prefixed

from aiostream_data import ArgumentTypeError, CorruptRecordError, Dataset, PlanError
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.testing.resume import resumes_everywhere


@pytest.fixture
def files(tmp_path: Path) -> str:
    for shard in range(3):
        (tmp_path / f"{shard}.rec").write_bytes(prefixed([f"{shard}:{row}".encode() for row in range(4)]))
    return str(tmp_path / "*.rec")


def test_arguments_of_file_sources_apply(files: str) -> None:
    dataset = Dataset.from_format(files, PrefixedFormat(), cycle_length=2)
    assert list(dataset)[:4] == [b"0:0", b"1:0", b"0:1", b"1:1"]
    resumes_everywhere(dataset.shuffle(3, seed=1).batch(2))
    resumes_everywhere(Dataset.from_format(files, PrefixedFormat(), shuffle_shards=True, seed=3).map(bytes.decode))


def test_processes_read_the_format(files: str) -> None:
    dataset = Dataset.from_format(files, PrefixedFormat())
    assert list(dataset.in_subprocess()) == list(dataset)


def test_compressed_files_are_detected(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(prefixed([b"one"])) + gzip.compress(prefixed([b"two"])))
    assert list(Dataset.from_format(tmp_path / "a.gz", PrefixedFormat())) == [b"one", b"two"]
    assert list(Dataset.from_format(tmp_path / "a.gz", PrefixedFormat(), verify=True)) == [b"one", b"two"]


def test_damage_names_the_file_and_the_offset(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(prefixed([b"one", b"two"])[:-1])
    with pytest.raises(CorruptRecordError, match=r"a\.rec") as raised:
        list(Dataset.from_format(tmp_path / "a.rec", PrefixedFormat()))
    assert raised.value.offset == 7
    assert list(Dataset.from_format(tmp_path / "a.rec", PrefixedFormat(), on_error="skip")) == [b"one"]


def test_formats_of_the_package_are_accepted(files: str) -> None:
    assert [len(whole) for whole in Dataset.from_format(files, WholeFileFormat())] == [28, 28, 28]


def test_the_call_is_shown_as_written(files: str) -> None:
    text = str(Dataset.from_format("a.rec", PrefixedFormat(), cycle_length=2))
    assert "from_format('a.rec', PrefixedFormat(...), cycle_length=2)" in text


def test_the_plan_is_pickled_with_its_format(files: str) -> None:
    dataset = Dataset.from_format(files, PrefixedFormat())
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


@pytest.fixture
def grouped_files(tmp_path: Path) -> str:
    for shard in range(2):
        rows = [{"label": 10 * shard + row, "x": np.zeros(64)} for row in range(5)]
        (tmp_path / f"{shard}.grouped").write_bytes(grouped(rows, 2))
    return str(tmp_path / "*.grouped")


LABELS = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_formats_with_row_groups_are_read_alike(grouped_files: str) -> None:
    dataset = Dataset.from_format(grouped_files, GroupedFormat(("label",)), cycle_length=2)
    labels = [row["label"] for row in dataset]
    assert labels[:4] == [0, 10, 1, 11]
    assert [row["label"] for row in pickle.loads(pickle.dumps(dataset))] == labels
    assert sorted(row["label"] for row in dataset.in_subprocess(workers=2)) == LABELS
    assert Dataset.from_format(grouped_files, GroupedFormat(), compression="").batch(4).element_spec is not None


@pytest.mark.parametrize(
    "options", [{"compression": "gzip"}, {"verify": True}, {"read_ahead": 2}, {"compression": "none"}], ids=str
)
def test_arguments_of_streams_are_refused_for_row_groups(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(options))):
        Dataset.from_format("x", GroupedFormat(), **options)


class NoFramer:
    name = "none"
    whole = False


class NoWhole(NoFramer):
    whole = cast(Any, None)

    def framer(self, url: str) -> None: ...


class OddName(NoWhole):
    name = "two words"
    whole = True


class OddTable(GroupedFormat):
    name = "two words"


@dataclass(frozen=True)
class Unhashable(NoWhole):
    whole = True
    options: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("format", "kind", "said"),
    [
        (PrefixedFormat, ArgumentTypeError, "got the class PrefixedFormat"),
        ("tfrecord", ArgumentTypeError, r"method framer\(url\) or directory\(url, nbytes\)"),
        (None, ArgumentTypeError, "method framer"),
        (NoFramer(), ArgumentTypeError, "method framer"),
        (NoWhole(), ArgumentTypeError, "NoWhole must have an attribute 'whole'"),
        (OddName(), PlanError, "got 'two words'"),
        (Unhashable(), PlanError, "frozen dataclass"),
        (GroupedFormat, ArgumentTypeError, "got the class GroupedFormat"),
        (OddTable(), PlanError, "got 'two words'"),
    ],
)
def test_objects_that_are_no_formats_are_refused(format: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        Dataset.from_format("x", format)
