"""``Dataset.from_delta``: deletion vectors in the log and in files, after checkpoints, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import delta_logs as logs
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset
from aiostream_data.dataset.deletion_vectors import DamagedVectorError
from aiostream_data.dataset.delta_log import Vector
from aiostream_data.errors import CorruptRecordError, MissingExtraError, TableSnapshotError
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("deltalake")
pytest.importorskip("pyroaring")

import deltalake
from puffin_files import vector

SCHEMA = logs.struct_of(logs.field("id", "long"))
COMMITS = "_delta_log/{:020}"


def rows(first: int = 0, count: int = 5) -> pa.Table:
    return pa.table({"id": range(first, first + count)})


def ids(folder: Path, **arguments: Any) -> list[int]:
    return sorted(int(row["id"]) for row in Dataset.from_delta(folder, **arguments))


def written(folder: Path, vector: Mapping[str, Any] | None, **more: Any) -> Path:
    """Write a table of one file of 5 rows."""
    folder.mkdir(exist_ok=True)
    added = logs.add(folder, "0.parquet", rows(), **({"deletionVector": vector} if vector else {}), **more)
    logs.write_log(folder, SCHEMA, [added], features=["deletionVectors"])
    return folder


@pytest.mark.parametrize("prefix", ["", "a1"])
def test_vectors_of_several_files_are_stored_in_one(tmp_path: Path, prefix: str) -> None:
    folder = tmp_path / "a b ä"
    folder.mkdir()
    stored = logs.stored_vectors(folder, [(vector([1]), 1), (vector([]), 0), (vector([0, 4]), 2)], prefix)
    added = [logs.add(folder, f"{at}.parquet", rows(10 * at), deletionVector=each) for at, each in enumerate(stored)]
    logs.write_log(folder, SCHEMA, added, features=["deletionVectors"])
    assert ids(folder) == [0, 2, 3, 4, 10, 11, 12, 13, 14, 21, 22, 23]
    resumes_everywhere(Dataset.from_delta(folder))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_vector_can_have_a_url(tmp_path: Path, scheme: str) -> None:
    (stored,) = logs.stored_vectors(tmp_path, [(vector([3]), 1)])
    (file,) = tmp_path.glob("deletion_vector_*.bin")
    url = f"{scheme}{file}".replace(" ", "%20")
    assert ids(written(tmp_path / "clone", {**stored, "storageType": "p", "pathOrInlineDv": url})) == [0, 1, 2, 4]


def test_the_log_need_not_have_the_number_of_rows(tmp_path: Path) -> None:
    assert ids(written(tmp_path / "a", logs.deletion_vector([0, 2]), stats=None)) == [1, 3, 4]
    with pytest.raises(CorruptRecordError, match="deletes rows that the file, which has 5 rows, does not have"):
        ids(written(tmp_path / "b", logs.deletion_vector([0, 5]), stats=None))


def test_padding_behind_a_vector_in_the_log_is_ignored(tmp_path: Path) -> None:
    one = logs.deletion_vector([2])
    assert one["sizeInBytes"] == 34
    assert ids(written(tmp_path / "a", one)) == ids(written(tmp_path / "b", {**one, "sizeInBytes": 36})) == [0, 1, 3, 4]


def test_columns_of_tables_with_vectors_are_widened(tmp_path: Path) -> None:
    old = logs.add(tmp_path, "0.parquet", rows().cast(pa.schema([("id", pa.int16())])))
    old["add"]["deletionVector"] = logs.deletion_vector([0, 1])
    changed = logs.struct_of(
        {
            **logs.field("id", "long"),
            "metadata": {
                "delta.typeChanges": [
                    {"fromType": "short", "toType": "integer"},
                    {"fromType": "integer", "toType": "long"},
                ]
            },
        }
    )
    logs.write_log(
        tmp_path,
        changed,
        [old, logs.add(tmp_path, "1.parquet", rows(2**40))],
        features=["deletionVectors", "typeWidening"],
    )
    assert ids(tmp_path) == [2, 3, 4, *range(2**40, 2**40 + 5)]
    assert ids(tmp_path, filters=[("id", "<", 4)]) == [2, 3]


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path, logs.deletion_vector([0]))
    monkeypatch.setitem(__import__("sys").modules, "pyroaring", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[delta\]"):
        ids(table)


# -- damaged vectors


def stored(folder: Path, changed: Callable[[bytes], bytes] = bytes, **more: Any) -> dict[str, Any]:
    data = vector([1, 3])
    (found,) = logs.stored_vectors(folder, [(changed(data), 2)])
    return {**found, "sizeInBytes": len(data) - 8, **more}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda folder: stored(folder, lambda data: flipped(data, 30)), "the checksum of a deletion vector is wrong"),
        (lambda folder: stored(folder, lambda data: data[:-1]), "lies outside of the file"),
        (lambda folder: stored(folder, offset=0), "it is not a deletion vector"),
        (lambda folder: stored(folder, offset=None), "it is not a deletion vector"),
        (lambda folder: stored(folder, sizeInBytes=20), "it is not a deletion vector"),
        (lambda folder: stored(folder, sizeInBytes=2**31 - 1), "lies outside of the file"),
        (lambda folder: stored(folder, cardinality=1), "it deletes 2 rows, but 1 in the log"),
        (lambda folder: stored(folder, pathOrInlineDv="0" * 20), "not found"),
        (lambda folder: stored(folder, pathOrInlineDv="0" * 19), "its text is not Z85"),
        (lambda folder: stored(folder, pathOrInlineDv="%%%%%" * 4), "its text is not Z85"),
        (lambda folder: stored(folder, pathOrInlineDv="../x" + "0" * 20), "other characters than letters and digits"),
        (lambda folder: stored(folder, storageType="q"), "its kind 'q' is unknown"),
        (lambda folder: {**logs.deletion_vector([1]), "cardinality": 2}, "it deletes 1 rows, but 2 in the log"),
        (lambda folder: {**logs.deletion_vector([1]), "sizeInBytes": 8}, "it has another length than the log says"),
        (lambda folder: {**logs.deletion_vector([1]), "sizeInBytes": 37}, "it has another length than the log says"),
        (lambda folder: {**logs.deletion_vector([1]), "pathOrInlineDv": "é" * 45}, "its text is not Z85"),
        (lambda folder: logs.deletion_vector(range(6)), "deletes more than the 5 rows of its file"),
    ],
)
def test_damaged_vectors_are_an_error_that_names_the_file(
    tmp_path: Path, made: Callable[[Path], dict[str, Any]], reason: str
) -> None:
    written(tmp_path, made(tmp_path))
    with pytest.raises(
        TableSnapshotError, match=rf"the deletion vector of 0\.parquet cannot be read: .*{reason}"
    ) as raised:
        ids(tmp_path)
    assert raised.value.feature == "deletionVectors"


@pytest.mark.parametrize("path", ["s3://bucket/x.bin", "../x.bin", "/a/../x.bin"])
def test_a_vector_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    written(tmp_path, {**stored(tmp_path), "storageType": "p", "pathOrInlineDv": path})
    with pytest.raises(TableSnapshotError, match="the log names the data file"):
        ids(tmp_path)


@pytest.mark.parametrize("changed", [{"storageType": ["u"]}, {"pathOrInlineDv": {}}, {"cardinality": "1"}])
def test_values_of_other_types_are_an_error(tmp_path: Path, changed: dict[str, Any]) -> None:
    entry = {**stored(tmp_path), **changed}
    with pytest.raises(DamagedVectorError):
        Vector.of(entry)
    written(tmp_path, entry)
    with pytest.raises(TableSnapshotError):
        ids(tmp_path)


@pytest.mark.parametrize("changed", [{"sizeInBytes": -1}, {"offset": -1}, {"cardinality": -1}])
def test_negative_numbers_are_an_error(tmp_path: Path, changed: dict[str, int]) -> None:
    written(tmp_path, {**stored(tmp_path), **changed})
    with pytest.raises(TableSnapshotError):
        ids(tmp_path)


# -- checkpoints


def test_a_file_whose_vector_changes_has_the_newest_one(tmp_path: Path) -> None:
    versions: list[list[dict[str, Any]]] = [[logs.add(tmp_path, "0.parquet", rows())]]
    for deleted in ([1], [1, 3], None, [4]):
        (before,) = (each["add"] for each in versions[-1] if "add" in each)
        after = {**before, **({"deletionVector": logs.deletion_vector(deleted)} if deleted else {})}
        if deleted is None:
            del after["deletionVector"]
        versions.append([{"add": after}, {"remove": {**removed(before)}}])
    logs.write_log(tmp_path, SCHEMA, *versions, features=["deletionVectors"])
    expected = [[0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 2, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3]]
    assert [ids(tmp_path, version=version) for version in range(5)] == expected


def removed(add: Mapping[str, Any]) -> dict[str, Any]:
    vector = {"deletionVector": add["deletionVector"]} if "deletionVector" in add else {}
    return {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, **vector}


def drop_commits(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / (COMMITS.format(number) + ".json")).unlink()


def test_parts_of_a_checkpoint_replace_the_commits_before_it(tmp_path: Path) -> None:
    added = [
        logs.add(tmp_path, f"{at}.parquet", rows(10 * at), deletionVector=logs.deletion_vector([at])) for at in range(3)
    ]
    logs.write_log(tmp_path, SCHEMA, added[:2], [added[2]], features=["deletionVectors"])
    table = deltalake.DeltaTable(tmp_path)
    table.create_checkpoint()
    expected = [1, 2, 3, 4, 10, 12, 13, 14, 20, 21, 23, 24]
    (whole,) = tmp_path.glob("_delta_log/*.checkpoint.parquet")
    content = parquet.read_table(whole)
    whole.unlink()
    (tmp_path / "_delta_log/_last_checkpoint").unlink()
    for part in range(2):
        name = f"{COMMITS.format(1)}.checkpoint.{part + 1:010}.{2:010}.parquet"
        parquet.write_table(content.slice(part * 3, 3 if part == 0 else None), tmp_path / name)
    (tmp_path / f"{COMMITS.format(1)}.checkpoint.{1:010}.{9:010}.parquet").write_bytes(b"incomplete")
    assert ids(tmp_path) == expected
    drop_commits(tmp_path, 0, 1)
    assert ids(tmp_path) == expected


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_sidecars_of_a_checkpoint_are_read(tmp_path: Path, format: str) -> None:
    added = [
        logs.add(tmp_path, f"{at}.parquet", rows(10 * at), deletionVector=logs.deletion_vector([at])) for at in range(2)
    ]
    logs.write_log(tmp_path, SCHEMA, added, [], features=["deletionVectors", "v2Checkpoint"])
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    (whole,) = tmp_path.glob("_delta_log/*.checkpoint.parquet")
    content = parquet.read_table(whole)
    whole.unlink()
    (tmp_path / "_delta_log/_last_checkpoint").unlink()
    sidecars = tmp_path / "_delta_log/_sidecars"
    sidecars.mkdir(exist_ok=True)
    name = "0d6a7cf1-0000-4000-8000-000000000001"
    parquet.write_table(
        content.select(["add", "remove"]).filter(content["add"].is_valid()), sidecars / f"{name}.parquet"
    )
    size = (sidecars / f"{name}.parquet").stat().st_size
    lines = [json.loads(line) for line in (tmp_path / (COMMITS.format(0) + ".json")).read_text().splitlines()[:2]]
    lines += [
        {"checkpointMetadata": {"version": 1}},
        {"sidecar": {"path": f"{name}.parquet", "sizeInBytes": size, "modificationTime": 1}},
    ]
    path = tmp_path / f"{COMMITS.format(1)}.checkpoint.{name}.{format}"
    if format == "json":
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    else:
        top = content.select(["protocol", "metaData"]).filter(content["add"].is_null())
        sidecar = [lines[-1]["sidecar"], *[None] * (len(top) - 1)]
        top = top.append_column("sidecar", pa.array(sidecar))
        parquet.write_table(top, path)
    assert ids(tmp_path) == [1, 2, 3, 4, 10, 12, 13, 14]
    drop_commits(tmp_path, 0)
    assert ids(tmp_path) == [1, 2, 3, 4, 10, 12, 13, 14]


def test_random_logs_delete_the_rows_that_deltalake_finds(tmp_path: Path) -> None:
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _check_random_log(folder, Random(seed))


def _check_random_log(folder: Path, random: Random) -> None:
    versions: list[list[dict[str, Any]]] = []
    files: dict[str, dict[str, Any]] = {}
    kept: list[dict[str, set[int]]] = []
    deleted: dict[str, set[int]] = {}
    for number in range(12):
        actions: list[dict[str, Any]] = []
        name = f"{number}.parquet"
        files[name] = logs.add(folder, name, rows(10 * number))["add"]
        deleted[name] = set()
        actions.append({"add": files[name]})
        for other in random.sample(sorted(set(files) - {name}), min(len(files) - 1, random.randint(0, 3))):
            chosen = deleted[other] | set(random.sample(range(5), random.randint(1, 2)))
            if chosen == deleted[other]:
                continue  # the same logical file
            actions.append({"remove": removed(files[other])})
            if random.random() < 0.2:
                del files[other], deleted[other]
                continue
            deleted[other] = chosen
            described = logs.deletion_vector(sorted(chosen))
            if random.random() < 0.5:
                content = vector(sorted(chosen)), len(chosen)
                (described,) = logs.stored_vectors(folder, [content], number=100 * number + len(actions))
            files[other] = {**files[other], "deletionVector": described}
            actions.append({"add": files[other]})
        random.shuffle(actions)
        versions.append(actions)
        kept.append({name: set(each) for name, each in deleted.items()})
    logs.write_log(folder, SCHEMA, *versions, features=["deletionVectors"])
    for version in random.sample(range(12), 2):
        deltalake.DeltaTable(folder, version=version).create_checkpoint()
    for version in (*random.sample(range(12), 3), 11):
        assert of_deltalake(folder, version) == {name: each for name, each in kept[version].items() if each}
        expected = [
            10 * int(name.split(".")[0]) + row
            for name, each in kept[version].items()
            for row in range(5)
            if row not in each
        ]
        assert ids(folder, version=version) == sorted(expected)


def of_deltalake(folder: Path, version: int) -> dict[str, set[int]]:
    """Return the deleted rows of each file that the library finds."""
    batches = pa.RecordBatchReader.from_stream(deltalake.DeltaTable(folder, version=version).deletion_vectors())
    found = [row for batch in batches for row in batch.to_pylist()]
    masks = {Path(row["filepath"]).name: row["selection_vector"] for row in found}
    return {name: {row for row, kept in enumerate(mask) if not kept} for name, mask in masks.items()}


def test_a_gap_in_the_log_is_an_error(tmp_path: Path) -> None:
    added = logs.add(tmp_path, "0.parquet", rows(), deletionVector=logs.deletion_vector([0]))
    logs.write_log(tmp_path, SCHEMA, [added], [], [], features=["deletionVectors"])
    drop_commits(tmp_path, 1)
    with pytest.raises(TableSnapshotError):
        ids(tmp_path, version=2)
