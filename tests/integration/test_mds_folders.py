"""Folders of MDS shards through a Dataset: files of the real library, values, damage, resuming, and stores."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from http_server import HttpObjects
from mds_files import described, encoded, index, shard, write_folder

from aiostream_data import (
    CorruptRecordError,
    Dataset,
    DecodeError,
    MdsError,
    ObjectNotFoundError,
    PlanError,
    StateMismatchError,
)
from aiostream_data.codecs import decode_image
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

REAL = Path(__file__).parent.parent / "data" / "mds"
COLUMNAR = ["text", "id", "fixed", "half", "digits", "number"]


def samples(shards: int = 3, rows: int = 5) -> list[dict[str, Any]]:
    return [
        {"data": bytes([row]) * row, "n": 100 * number + row, "text": f"naïve {row}"}
        for number in range(shards)
        for row in range(rows)
    ]


def files(shards: int = 3, rows: int = 5) -> dict[str, bytes]:
    return {
        f"shard.{number:05}.mds": shard(
            [encoded(**sample) for sample in samples(shards, rows)[number * rows : (number + 1) * rows]]
        )
        for number in range(shards)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "mds", files())


def plain(value: Any) -> Any:
    """Return a value as the script that made the files wrote it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.tolist()]
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("name", ["plain", "zstd", "gz"])
def test_files_of_the_real_library_are_read_to_equal_values(name: str) -> None:
    expected = json.loads((REAL / "expected.json").read_text())
    found = [{name: plain(value) for name, value in row.items()} for row in Dataset.from_mds(REAL / name)]
    for row in found:
        row["raw"] = row["raw"][1]
        row["wide"] = row["wide"][1] if isinstance(row["wide"], list) else row["wide"]
    for row in expected:
        row["wide"] = row["wide"][1]
    assert found == expected


def test_selected_columns_form_arrays_in_batches() -> None:
    dataset = Dataset.from_mds(REAL / "zstd", columns=COLUMNAR)
    assert list(next(iter(dataset))) == COLUMNAR
    batch = next(iter(dataset.batch(7)))
    kinds = {name: (batch[name].dtype, batch[name].shape) for name in COLUMNAR[1:]}
    assert kinds == {
        "id": (np.int64, (7,)),
        "fixed": (np.int16, (7, 2, 3)),
        "half": (np.float16, (7,)),
        "digits": (np.int64, (7,)),
        "number": (np.float64, (7,)),
    }


def test_true_decodes_the_image_columns() -> None:
    encoded_rows = list(Dataset.from_mds(REAL / "plain"))
    for row, decoded in zip(encoded_rows, Dataset.from_mds(REAL / "plain", decode=True), strict=True):
        np.testing.assert_array_equal(decoded["picture"], decode_image(row["picture"]))
        np.testing.assert_array_equal(decoded["drawing"], decode_image(row["drawing"]))
        np.testing.assert_array_equal(decoded["raw"], decoded["drawing"])
        assert decoded["data"] == row["data"]


def test_samples_of_several_shards_are_interleaved(folder: Path) -> None:
    assert list(Dataset.from_mds(folder)) == samples()
    assert list(Dataset.from_mds(folder / "index.json")) == samples()
    odd = folder.rename(folder.with_name("mds [1] {a,b}*"))
    assert list(Dataset.from_mds(odd, cycle_length=1)) == samples()
    folder = odd
    found = [row["n"] for row in Dataset.from_mds(str(folder), cycle_length=3)]
    assert found[:4] == [0, 100, 200, 1]


def test_every_run_resumes_everywhere(folder: Path) -> None:
    resumes_everywhere(Dataset.from_mds(folder, cycle_length=2, shuffle_shards=True, seed=1).shuffle(4, seed=2))
    resumes_everywhere(Dataset.from_mds(REAL / "zstd", columns=["id", "json"]).map(len))


def test_ranks_share_the_samples_and_rows_can_be_fetched(folder: Path) -> None:
    found = []
    for rank in range(3):
        dataset = Dataset.from_mds(folder).shuffle(5, seed=1)
        with dataset.open(rank=rank, world_size=3) as loader:
            for row in loader:
                found.append(row["n"])
                (origin,) = loader.origins()
                assert dataset.fetch(origin) == row
    assert sorted(found) == [row["n"] for row in samples()]


def test_an_open_event_loop_does_not_prevent_reading_the_index(folder: Path) -> None:
    async def first() -> Any:
        async with Dataset.from_mds(folder).open() as loader:
            return await anext(loader)

    assert asyncio.run(first()) == samples()[0]


def test_datasets_of_several_folders_are_combined_by_operators(folder: Path) -> None:
    both = Dataset.from_mds(folder).concatenate(Dataset.from_mds(folder, columns=["n", "data", "text"]))
    assert [row["n"] for row in both] == [row["n"] for row in samples()] * 2
    with pytest.raises(PlanError, match="concatenate"):
        list(Dataset.from_tensor_slices([str(folder)]).interleave(Dataset.from_mds))


def test_a_state_of_other_columns_is_refused(folder: Path) -> None:
    with Dataset.from_mds(folder).open() as loader:
        next(loader)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="select"):
        Dataset.from_mds(folder, columns=["n"]).open(state)


def test_a_damaged_shard_is_named_and_can_be_skipped(folder: Path) -> None:
    path = folder / "shard.00001.mds"
    content = path.read_bytes()
    path.write_bytes(content[:-28] + b"\xff" * 4 + content[-24:])  # in the sizes of a sample
    with pytest.raises(CorruptRecordError, match=r"shard\.00001\.mds"):
        list(Dataset.from_mds(folder))
    found = [row["n"] for row in Dataset.from_mds(folder, on_error="skip")]
    assert [n for n in found if n // 100 != 1] == [row["n"] for row in samples() if row["n"] // 100 != 1]


@pytest.mark.parametrize("listed", [0, 4, 6])
@pytest.mark.parametrize("compression", [None, "gz"])
def test_a_shard_with_another_number_of_samples_than_the_index_lists_is_named_and_can_be_skipped(
    folder: Path, listed: int, compression: str | None
) -> None:
    described_as = json.loads((folder / "index.json").read_text())
    if compression is not None:
        for each in described_as["shards"]:
            path = folder / each["raw_data"]["basename"]
            zipped = gzip.compress(path.read_bytes())
            path.with_suffix(".gz").write_bytes(zipped)
            file = {"basename": path.with_suffix(".gz").name, "bytes": len(zipped)}
            each |= {"compression": compression, "zip_data": file}
    described_as["shards"][1]["samples"] = listed
    (folder / "index.json").write_text(json.dumps(described_as))
    dataset = Dataset.from_mds(folder)
    message = rf"shard\.00001\.(mds|gz).*the shard has 5 samples, but the index lists {listed}\. Write the index again"
    with pytest.raises(CorruptRecordError, match=message):
        list(dataset)
    left = [row["n"] for row in samples() if row["n"] // 100 != 1]
    assert [row["n"] for row in Dataset.from_mds(folder, on_error="skip")] == left
    resumes_everywhere(Dataset.from_mds(folder, cycle_length=2, on_error="skip"))


def test_an_index_without_numbers_of_samples_is_read(folder: Path) -> None:
    described_as = json.loads((folder / "index.json").read_text())
    for each in described_as["shards"]:
        del each["samples"]
    (folder / "index.json").write_text(json.dumps(described_as))
    assert list(Dataset.from_mds(folder)) == samples()


@pytest.mark.parametrize("nbytes", [-1, -30, 5])
def test_a_shard_of_another_size_than_the_index_declares_is_an_error(folder: Path, nbytes: int) -> None:
    path = folder / "shard.00002.mds"
    content = path.read_bytes()
    path.write_bytes(content[:nbytes] if nbytes < 0 else content + bytes(nbytes))
    with pytest.raises((CorruptRecordError, OSError), match=r"shard\.00002\.mds"):
        list(Dataset.from_mds(folder))


def test_a_truncated_compressed_shard_is_an_error(tmp_path: Path) -> None:
    data = files(1)["shard.00000.mds"]
    stored = gzip.compress(data)
    for stop in range(0, len(stored), 9):
        zipped = {"basename": "a.gz", "bytes": stop}
        write_folder(tmp_path, {"a.mds": data}, compression="gz", zip_data=zipped)
        (tmp_path / "a.gz").write_bytes(stored[:stop])
        with pytest.raises(CorruptRecordError):
            list(Dataset.from_mds(tmp_path))


@pytest.mark.parametrize(
    ("encoding", "value", "message"),
    [
        ("str", b"\xff", "not valid UTF-8"),
        ("json", b"{", "Expecting property name"),
        ("json", b"[" * 100_000, "recursion"),
        ("str_int", b"9" * 30, "does not fit into 64 bits"),
        ("str_int", b"1.5", "invalid literal"),
        ("str_float", b"one", "could not convert"),
        ("str_decimal", b"one", "not a decimal number"),
        ("ndarray:int32", b"\x04\x02" + bytes(7), "does not match its 7 bytes"),
        ("ndarray", b"\x07", "unknown dtype 7"),
        ("pil", bytes(20), "mode that is not supported"),
    ],
)
def test_values_that_cannot_be_decoded_are_named(tmp_path: Path, encoding: str, value: bytes, message: str) -> None:
    header = described({"good": "str", "x": encoding})
    rows = [len(part).to_bytes(4, "little") for part in (b"", value)]
    data = shard([b"".join(rows) + value], header)
    write_folder(tmp_path, {"a.mds": data}, header)
    with pytest.raises(MdsError, match=message) as raised:
        list(Dataset.from_mds(tmp_path))
    assert (raised.value.record, raised.value.column) == (0, "x")
    assert "a.mds" in raised.value.url
    assert list(Dataset.from_mds(tmp_path, on_error="skip")) == []
    assert list(Dataset.from_mds(tmp_path, columns=["good"])) == [{"good": ""}]


def test_pickles_and_unknown_encodings_are_refused_unless_they_are_not_selected(tmp_path: Path) -> None:
    for encoding in ("pkl", "list[jpeg]"):
        header = described({"n": "int", "x": encoding})
        write_folder(tmp_path, {"a.mds": shard([bytes(4) + bytes(8)], header)}, header)
        with pytest.raises(MdsError, match="Select other columns"):
            Dataset.from_mds(tmp_path).open()
        assert list(Dataset.from_mds(tmp_path, columns=["n"])) == [{"n": 0}]


def test_images_that_cannot_be_decoded_are_an_error_or_skipped(tmp_path: Path) -> None:
    header = described({"image": "png"})
    write_folder(tmp_path, {"a.mds": shard([b"\x03\0\0\0abc"], header)}, header)
    with pytest.raises(DecodeError):
        list(Dataset.from_mds(tmp_path, decode=True))
    assert list(Dataset.from_mds(tmp_path, decode=True, on_error="skip")) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset.from_mds(cast(Any, ["a"])), "folder must be the URL or path of one folder"),
        (lambda: Dataset.from_mds(""), "folder must be"),
        (lambda: Dataset.from_mds("a", columns=[]), "columns must be different names"),
        (lambda: Dataset.from_mds("a", columns="ab"), "columns must be a list"),
        (lambda: Dataset.from_mds("a", decode=cast(Any, "all")), "decode must be True or None"),
        (lambda: Dataset.from_mds("a", max_sample_nbytes=0), "max_sample_nbytes must be at least 1"),
        (lambda: Dataset.from_mds("a", cycle_length=0), "cycle_length must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused_at_once(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


def test_what_the_index_lacks_is_reported_when_the_dataset_is_opened(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"has no column 'm'\. Its columns are \['data', 'n', 'text'\]"):
        Dataset.from_mds(folder, columns=["m"]).open()
    with pytest.raises(ObjectNotFoundError, match=r"index\.json"):
        Dataset.from_mds(tmp_path / "missing").open()


def test_memory_and_http_deliver_the_same_samples(http_objects: HttpObjects, memory_objects: None) -> None:
    content = {**files(), "index.json": json.dumps(index(files())).encode()}
    urls = [http_objects.put(f"/mds/{name}", data) for name, data in content.items()]
    for name, data in content.items():
        memory.put(f"memory://mds/{name}", data)
    assert list(Dataset.from_mds("memory://mds")) == samples()
    assert list(Dataset.from_mds(urls[0].rpartition("/")[0])) == samples()


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_samples_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        content = files(3, 200)
        for name, data in {**content, "index.json": json.dumps(index(content)).encode()}.items():
            server.put(f"bucket/mds/{name}", data)
        dataset = Dataset.from_mds(f"{scheme}://bucket/mds", cycle_length=2, storage_options=server.storage_options)
        with dataset.open() as loader:
            left = [next(loader)["n"] for _ in range(150)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            left += [row["n"] for row in loader]
        assert sorted(left) == sorted(row["n"] for row in samples(3, 200))
