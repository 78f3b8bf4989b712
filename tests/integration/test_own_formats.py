"""Files in a format of the user are read by ``Dataset.from_format`` like files of any other format."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
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


class NoFramer:
    name = "none"
    whole = False


class NoWhole(NoFramer):
    whole = cast(Any, None)

    def framer(self, url: str) -> None: ...


class OddName(NoWhole):
    name = "two words"
    whole = True


@dataclass(frozen=True)
class Unhashable(NoWhole):
    whole = True
    options: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("format", "kind", "said"),
    [
        (PrefixedFormat, ArgumentTypeError, "got the class PrefixedFormat"),
        ("tfrecord", ArgumentTypeError, "method framer"),
        (None, ArgumentTypeError, "method framer"),
        (NoFramer(), ArgumentTypeError, "method framer"),
        (NoWhole(), ArgumentTypeError, "NoWhole must have an attribute 'whole'"),
        (OddName(), PlanError, "got 'two words'"),
        (Unhashable(), PlanError, "frozen dataclass"),
    ],
)
def test_objects_that_are_no_formats_are_refused(format: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        Dataset.from_format("x", format)
