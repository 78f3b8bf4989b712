"""Mistakes of a first hour: each is an error that names the mistake, and what to write instead."""

from __future__ import annotations

import gzip
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset as D
from aiostream_data.formats.tfrecord_writer import frame

R: Any = D.range(10)  # Any: the mistakes are not for the type checker to find
ANY: Any = D
PACKAGE: Any = asd
PAIRS: Any = D.from_tensor_slices(([[1, 2], [3, 4]], [5, 6]))
DICTS: Any = D.from_tensor_slices({"image": [[1, 2], [3, 4]], "label": [5, 6]})
SECRET = "do-not-tell"


class Slip(NamedTuple):
    """A mistake, and what its error says of it and of the remedy."""

    make: Callable[[], Any]
    names: str
    remedy: str


def read(dataset: Any, **options: Any) -> list[Any]:
    with dataset.open(**options) as loader:
        return list(loader)


def generate() -> Iterator[int]:
    yield from range(3)


async def awaited(x: Any) -> Any:
    return x


def first_of_second(row: Any) -> Any:
    return row[2]


def enter(dataset: Any) -> None:
    with dataset as loader:
        list(loader)


def examples() -> Any:
    return ANY.from_tfrecord("a.tfrecord")


def s3(**options: Any) -> list[Any]:
    return read(D.from_text("s3://bucket/key", storage_options=options))


def gs(**options: Any) -> list[Any]:
    return read(D.from_text("gs://bucket/key", storage_options=options))


def open_file() -> Any:
    with Path("a.txt").open() as file:
        return file


FIXED: Any = asd.FixedLen
INT: Any = asd.FixedLen((), "int64")

SLIPS: dict[str, Slip] = {
    # files
    "another extension": Slip(
        lambda: read(D.from_tfrecord("*.tfrecords")), "no file matches", "contains .*'a.tfrecord'"
    ),
    "a mistyped file": Slip(lambda: read(D.from_tfrecord("b.tfrecord")), "no such object", "contains .*'a.tfrecord'"),
    "a folder": Slip(lambda: read(D.from_tfrecord("sub")), "sub: is a directory", r"add /\*"),
    "one level too few": Slip(lambda: read(D.from_files("*.jpg")), "no file matches", "the folder contains .*'sub/'"),
    "a folder that is not there": Slip(
        lambda: read(D.from_text("gone/*")), "no file matches", "folder gone does not exist"
    ),
    "an empty folder": Slip(lambda: read(D.from_text("sub/*.txt")), "no file matches", "the folder is empty"),
    "brackets in a name": Slip(lambda: read(D.from_text("a[1].txt")), "this exact name", r" as a\[\[\]1\]\.txt"),
    "one slash": Slip(lambda: ANY.from_text("s3:/bucket/key"), "two slashes", "Write 's3://bucket/key'"),
    "an unknown scheme": Slip(lambda: read(D.from_text("s4://b/k")), "unsupported URL scheme s4://", "use .*s3"),
    "no files": Slip(lambda: D.from_text(), "no files are given", "Pass files=, or index="),
    "bytes for a path": Slip(lambda: ANY.from_text(b"a.txt"), "got bytes", "to str"),
    "bytes in a list": Slip(lambda: ANY.from_text([b"a.txt"]), "got bytes", "to str"),
    "a dict of files": Slip(lambda: ANY.from_text({"train": "a.txt"}), "got dict", "a list of its values"),
    "an open file": Slip(lambda: ANY.from_text(open_file()), "got TextIOWrapper", "Pass its path"),
    "an empty path": Slip(lambda: D.from_text(""), "got an empty string", "must be URLs, paths"),
    "numbers for names": Slip(lambda: read(D.from_text(R)), "got int", "must be URLs as str"),
    "swapped arguments": Slip(lambda: ANY.from_fixed_length(3, "a.txt"), "got 'a.txt'", "must be an integer"),
    "a wrong record length": Slip(lambda: read(D.from_fixed_length("a.txt", 3)), "bytes remain", "check record_nbytes"),
    "text as records": Slip(lambda: read(D.from_tfrecord("a.txt")), "starts like text", r"from_text\(\)"),
    "records as text": Slip(lambda: read(D.from_text("a.tfrecord")), "is a TFRecord file", r"use from_tfrecord\(\)"),
    "an archive as records": Slip(lambda: read(D.from_tfrecord("a.zip")), "is a zip archive", "unpack it"),
    "an image as text": Slip(lambda: read(D.from_text("a.png")), "is a PNG image", r"use from_files\(\)"),
    "gzip as plain": Slip(lambda: read(D.from_fixed_length("a.gz", 7)), "like gzip", "pass compression='gzip'"),
    "plain as gzip": Slip(lambda: read(D.from_text("a.txt", compression="gzip")), "plain text", "pass compression=''"),
    "a suffix as compression": Slip(lambda: D.from_text("a.txt", compression="gz"), "got 'gz'", "one of .*'gzip'"),
    "another encoding": Slip(lambda: read(D.from_text("latin.txt")), "not valid utf-8", "encoding="),
    "data as index": Slip(lambda: read(D.from_text(index="a.tfrecord")), "is a TFRecord file", "write_index"),
    "a pattern as index": Slip(lambda: asd.write_index("index", "*.txt"), "is a pattern", "argument order"),
    "an index over data": Slip(
        lambda: asd.write_index("*.txt", "a.txt"), "would be overwritten", "Give the index a name"
    ),
    # stores
    "boto's key": Slip(lambda: s3(aws_access_key_id=SECRET), "'aws_access_key_id' *.*not an option", "Use key="),
    "boto's secret": Slip(lambda: s3(aws_secret_access_key=SECRET), "'aws_secret_access_key'", "Use secret="),
    "a region": Slip(lambda: s3(region="eu-west-1"), "'region'", "Use client_kwargs=.'region_name'"),
    "an endpoint without scheme": Slip(lambda: s3(endpoint_url="localhost:9"), "has no scheme", "Prepend 'https://'"),
    "Google's credentials": Slip(lambda: gs(credentials=SECRET), "'credentials'", "Use token="),
    "a key file that is not there": Slip(lambda: gs(token="key.json"), "path of a missing file", "path of a key file"),
    "a scheme without slashes": Slip(lambda: s3(s3={"anon": True}), "not a valid key", "{'s3://': {"),
    "a list of options": Slip(lambda: ANY.from_text("x", storage_options=["anon"]), "got list", "must be a dict"),
    # functions
    "a called function": Slip(lambda: R.map(generate()), "got generator", "without calling it"),
    "no function": Slip(lambda: R.map(None), "got NoneType", "Pass a function, such as a lambda"),
    "a generator function": Slip(lambda: R.map(generate), "is a generator function", r"Use flat_map\(\)"),
    "a function of nothing": Slip(lambda: R.map(lambda: 1), "takes no positional argument", "with an element"),
    "an unknown executor": Slip(lambda: R.map(len, executor="processes"), "got 'processes'", "one of .*process"),
    "a predicate of arrays": Slip(
        lambda: read(R.filter(lambda x: np.arange(3))), r"returned int64\[3\]", "a scalar bool"
    ),
    "a flat_map of numbers": Slip(lambda: read(R.flat_map(lambda x: x)), "returned 0", "a Dataset or an iterable"),
    "an unknown policy": Slip(lambda: R.map(len, on_error="ignore"), "got 'ignore'", "must be 'raise', 'skip'"),
    "one parameter for a tuple": Slip(
        lambda: read(PAIRS.map(lambda x: x)), r"takes 1 argument \(x\), but is called with 2", "Define 2 parameters"
    ),
    "three parameters for a tuple": Slip(
        lambda: read(PAIRS.filter(lambda a, b, c: True)), "takes 3 arguments .*called with 2", "Define 2 parameters"
    ),
    "two parameters for a dict": Slip(
        lambda: read(DICTS.map(lambda image, label: image)), "element is a dict, {image: int64", r"read x\['image'\]"
    ),
    "two parameters for a number": Slip(
        lambda: read(R.map(lambda x, y: x)), r"takes 2 arguments \(x, y\), .*with 1", "Define one parameter"
    ),
    "a coroutine function of one": Slip(lambda: read(PAIRS.map(awaited)), r"\(x\), but is called with 2", "2 param"),
    "a function of rows, batched": Slip(
        lambda: read(PAIRS.map(lambda x: x, batched=True)), r"\(x\), but is called with 2", "Define 2 parameters"
    ),
    "a flat_map of pairs": Slip(lambda: read(PAIRS.flat_map(lambda x: [x])), r"\(x\), but is called with 2", "2 param"),
    "a misfit that is skipped": Slip(
        lambda: read(PAIRS.map(lambda x: x, on_error="skip")), r"\(x\), but is called with 2", "Define 2 parameters"
    ),
    "a misfit in a process": Slip(
        lambda: read(PAIRS.map(str.upper, executor="process")), "takes 1 argument .*called with 2", "2 parameters"
    ),
    "filtering batches": Slip(
        lambda: read(R.batch(4).filter(lambda x: x > 3)), r"returned bool\[4\]", r"filter rows before batch\(\)"
    ),
    # names of other libraries
    "tf.data's calls": Slip(lambda: R.map(len, num_parallel_calls=2), "num_parallel_calls=: use", "concurrency="),
    "torch's workers": Slip(lambda: R.open(num_workers=2), "no argument num_workers=", r"in_subprocess\(workers=\)"),
    "torch's workers of batch": Slip(lambda: R.batch(2, num_workers=2), "no argument num_workers=", "concurrency="),
    "torch's last batch": Slip(lambda: R.batch(4, drop_last=True), "no argument drop_last=", "drop_remainder="),
    "torch's shuffling": Slip(lambda: R.open(shuffle=True), "no argument shuffle=", r"use shuffle\(\)"),
    "torch's batches": Slip(lambda: R.open(batch_size=4), "no argument batch_size=", r"use batch\(\)"),
    "tf.data's compression": Slip(
        lambda: ANY.from_tfrecord("a.tfrecord", compression_type="GZIP"),
        "no argument compression_type=",
        "compression=",
    ),
    "tf.data's buffer": Slip(lambda: ANY.from_text("a.txt", buffer_size=9), "no argument buffer_size=", "prefetch"),
    "tf.data's signature": Slip(
        lambda: ANY.from_generator(generate, output_types=int), "no argument output_types=", "signature="
    ),
    "a mistyped argument": Slip(lambda: R.batch(4, drop_remainer=True), "drop_remainer", "mean drop_remainder="),
    "an argument of nobody": Slip(lambda: R.take(4, xyz=1), "no argument xyz=", "arguments are count"),
    "tf.data's AUTOTUNE": Slip(lambda: R.prefetch(-1), "at least 1, got -1", "instead of tf.data.AUTOTUNE"),
    "AUTOTUNE by name": Slip(lambda: PACKAGE.AUTOTUNE, "no attribute 'AUTOTUNE'", "use AUTO"),
    "a data set by its class": Slip(lambda: PACKAGE.TFRecordDataset, "'TFRecordDataset'", r"Dataset.from_tfrecord\(\)"),
    "a constructor of the package": Slip(lambda: PACKAGE.from_text, "'from_text'", r"use Dataset.from_text\(\)"),
    "torch's loader": Slip(lambda: PACKAGE.DataLoader, "'DataLoader'", r"use Dataset.open\(\)"),
    "a mistyped name": Slip(lambda: PACKAGE.Datasets, "'Datasets'", r"did you mean Dataset\?"),
    "a format that is not read": Slip(lambda: ANY.from_zarr("a.zarr"), "'from_zarr'", r"from_generator\(\) over"),
    "a folder of images": Slip(lambda: ANY.from_folder("sub"), "'from_folder'", r"use Dataset.from_image_folder\("),
    "a mistyped constructor": Slip(lambda: ANY.from_tfrecords("x"), "'from_tfrecords'", r"mean from_tfrecord\?"),
    "a method of tf.data": Slip(lambda: R.as_numpy_iterator(), "'as_numpy_iterator'", "elements are NumPy"),
    "a mistyped method": Slip(lambda: R.prefech(), "'prefech'", r"did you mean prefetch\?"),
    # order and batches
    "a text for a size": Slip(lambda: R.batch("32"), "got '32'", "batch_size must be an integer"),
    "no batch size": Slip(lambda: R.batch(), "needs batch_size", "or max_cost"),
    "a batch of nothing": Slip(lambda: R.batch(0), "got 0", "at least 1"),
    "auto as text": Slip(lambda: R.prefetch("auto"), "got 'auto'", "an integer or AUTO"),
    "shapes that differ": Slip(lambda: read(R.map(np.zeros).batch(4)), "cannot batch", r"padded_batch\(\)"),
    "a list to zip": Slip(lambda: ANY.zip([R, R]), "got a list", "separate arguments"),
    "scalars to split": Slip(lambda: read(R.unbatch()), "cannot split", "has no first axis"),
    "more after to_device": Slip(lambda: R.to_device("cpu").map(len), "cannot follow", "must be the last"),
    "an unknown device": Slip(lambda: R.to_device("gpu"), "got 'gpu'", "'cuda'"),
    # data in memory
    "a list as data set": Slip(lambda: ANY([1, 2]), "from list", r"such as Dataset.from_tensor_slices"),
    "a generator object": Slip(lambda: ANY.from_generator(generate()), "got a generator", "the function itself"),
    "a function to iterate": Slip(lambda: ANY.from_iterable(generate), "got function", r"to from_generator"),
    "an iterator twice": Slip(lambda: ANY.from_iterable(generate()).repeat(), "can be read only once", "re-iterable"),
    "slices of a generator": Slip(lambda: D.from_tensor_slices(generate()), "is a scalar", r"Use from_iterable"),
    "slices of a number": Slip(lambda: D.from_tensor_slices(3), "is a scalar", r"Use from_tensors\(\)"),
    "columns of two lengths": Slip(lambda: D.from_tensor_slices(([1, 2], [1])), "equal length", "has 2 rows"),
    "a length nobody knows": Slip(lambda: len(D.from_text("a.txt")), "unknown length", r"cardinality\(\)"),
    "an unknown length, counted": Slip(lambda: len(D.from_text("a.txt")), "until it is read", r"sum\(1 for _ in"),
    "an element by number": Slip(lambda: R[0], "does not support indexing", r"next\(iter\(dataset\)\)"),
    "torch's DataLoader": Slip(lambda: R[0], "PyTorch's DataLoader", "in an IterableDataset"),
    "a slice": Slip(lambda: R[:3], "does not support indexing", r"skip\(n\).take\(1\)"),
    "next of a data set": Slip(lambda: next(R), "is not an iterator", r"next\(iter\(dataset\)\)"),
    "a block that does not open": Slip(
        lambda: enter(R), "is not a context manager", r"with dataset.open\(\) as loader"
    ),
    # examples
    "a mistyped feature": Slip(lambda: read(examples().parse_example({"lable": INT})), "'lable'", "has .*'label'"),
    "a list of features": Slip(lambda: examples().parse_example(["label"]), r"got \['label'\]", "must be a dict"),
    "a dtype as feature": Slip(lambda: examples().parse_example({"label": "int64"}), "got 'int64'", "be a FixedLen"),
    "swapped shape and dtype": Slip(lambda: FIXED("int64", ()), "got 'int64'", "shape must be an int or a tuple"),
    "another kind of list": Slip(
        lambda: read(examples().parse_example({"label": asd.FixedLen((), "float32")})), "an int64 list", "integer dtype"
    ),
    "another number of values": Slip(
        lambda: read(examples().parse_example({"label": asd.FixedLen((2,), "int64")})), "found 1 values", "VarLen"
    ),
    "parsing batches": Slip(
        lambda: read(examples().batch(2).parse_example({"label": INT})), r"got object\[2\]", r"before batch\(\)"
    ),
    "parsing lines": Slip(
        lambda: read(ANY.from_text("a.txt").parse_example({"label": INT})), "got str", r"from_tfrecord\(\)"
    ),
    "text as record": Slip(lambda: frame("text"), "got a str", r"text\.encode\(\)"),  # type: ignore[arg-type]
    "a dict as record": Slip(lambda: frame({"label": 1}), "got a dict", "encode_example"),  # type: ignore[arg-type]
    "boto's names for a writer": Slip(
        lambda: asd.TFRecordWriter("s3://bucket/key", storage_options={"aws_access_key_id": SECRET}),
        "'aws_access_key_id' *.*not an option",
        "Use key=",
    ),
    "Google's names for a writer": Slip(
        lambda: asd.TFRecordWriter("gs://bucket/key", storage_options={"project_id": SECRET}),
        "'project_id'",
        "project=",
    ),
    # running
    "iterating twice": Slip(
        lambda: [list(loader) for loader in [R.open()] * 2], "no more elements", "Open the dataset again"
    ),
    "a whole checkpoint for a state": Slip(
        lambda: R.open({"step": 3, "data": {"version": 2}}), "not the state of a loader", r"under the key 'data'"
    ),
    "something else for a state": Slip(lambda: R.open({"epoch": 3}), "its keys are 'epoch'", r"state_dict\(\)"),
    "an empty state": Slip(lambda: R.open({}), "an empty dict", "None to start"),
    "no bucket": Slip(lambda: D.from_text("s3:///corpus/*.txt"), "have a bucket", "'s3://bucket/key'"),
    "a state as text": Slip(lambda: R.open("{}"), "a state must be a dict, got str", r"json\.loads"),
    "a rank alone": Slip(lambda: R.open(rank=0), "world_size is not", "Pass both"),
    "a limit in words": Slip(lambda: R.open(memory_limit="2 gigs"), "got '2 gigs'", "'256MB'"),
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.tfrecord").write_bytes(b"".join(frame(asd.encode_example({"label": row})) for row in range(4)))
    (tmp_path / "a.txt").write_text("1,2\n3,4\n")
    (tmp_path / "a[1].txt").write_text("line\n")
    (tmp_path / "latin.txt").write_bytes("é\n".encode("latin-1"))
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(99), mtime=0))
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04\x14\0" + bytes(99))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99))


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)
def test_the_error_names_the_mistake_and_the_remedy(slip: Slip) -> None:
    with pytest.raises(asd.AiostreamError, match=slip.names) as caught:
        slip.make()
    caught.match(slip.remedy)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_there_are_a_hundred_of_them() -> None:
    assert len(SLIPS) >= 100


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_function_of_rows_that_fails_on_a_batch_is_told_so(executor: Any) -> None:
    with pytest.raises(IndexError) as caught:
        read(DICTS.batch(2).shuffle(4).map(operator.itemgetter("image")).map(first_of_second, executor=executor))
    assert "element: int64[2, 2], a batch of 2: put a function of single rows before batch()" in caught.value.__notes__


def test_a_function_of_rows_that_fails_on_a_row_is_told_nothing_of_batches() -> None:
    with pytest.raises(IndexError) as caught:
        read(DICTS.batch(2).unbatch().map(lambda x: x["image"][7]))
    assert not any("a batch of" in note for note in caught.value.__notes__)


def test_next_of_a_loader_takes_elements_from_the_same_place_as_a_loop() -> None:
    with R.open() as loader:
        assert [next(loader), next(loader)] == [0, 1]
        for element in loader:
            assert element == 2
            break
        assert next(loader) == 3
        assert loader.state_dict()["elements"] == 4
        assert [*loader] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(StopIteration):
            next(loader)
    with pytest.raises(asd.LoaderClosedError):
        next(loader)


def test_a_data_set_stays_one_object_to_numpy_and_is_iterated_by_whoever_takes_iterables() -> None:
    assert np.asarray(R).shape == ()
    assert np.array([R, R]).shape == (2,)
    assert list(D.from_iterable(R).repeat(2)) == [*range(10)] * 2
    assert not hasattr(R, "no_such_thing")
    assert not hasattr(D, "__no_such_thing__")
