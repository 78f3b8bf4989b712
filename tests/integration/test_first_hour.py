"""Mistakes of a first hour: each is an error that names the mistake, and what to write instead."""

from __future__ import annotations

import gzip
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
    "another extension": Slip(lambda: read(D.from_tfrecord("*.tfrecords")), "no file matches", "holds .*'a.tfrecord'"),
    "a mistyped file": Slip(lambda: read(D.from_tfrecord("b.tfrecord")), "no such object", "holds .*'a.tfrecord'"),
    "a folder": Slip(lambda: read(D.from_tfrecord("sub")), "sub: is a directory", r"add /\*"),
    "a folder that is not there": Slip(lambda: read(D.from_text("gone/*")), "no file matches", "no folder gone"),
    "an empty folder": Slip(lambda: read(D.from_text("sub/*.txt")), "no file matches", "the folder is empty"),
    "brackets in a name": Slip(lambda: read(D.from_text("a[1].txt")), "this very name", r"write a\[\[\]1\]\.txt"),
    "one slash": Slip(lambda: ANY.from_text("s3:/bucket/key"), "two slashes", "write 's3://bucket/key'"),
    "an unknown scheme": Slip(lambda: read(D.from_text("s4://b/k")), "no store is known .* s4://", "known are .*s3"),
    "no files": Slip(lambda: D.from_text(), "no files are given", "pass files=, or index="),
    "bytes for a path": Slip(lambda: ANY.from_text(b"a.txt"), "got bytes", "decode it to str"),
    "bytes in a list": Slip(lambda: ANY.from_text([b"a.txt"]), "got bytes", "decode it to str"),
    "a dict of files": Slip(lambda: ANY.from_text({"train": "a.txt"}), "got dict", "a list of its values"),
    "an open file": Slip(lambda: ANY.from_text(open_file()), "got TextIOWrapper", "pass its path"),
    "an empty path": Slip(lambda: D.from_text(""), "got an empty text", "must be URLs, paths"),
    "numbers for names": Slip(lambda: read(D.from_text(R)), "got int", "must give URLs as str"),
    "swapped arguments": Slip(lambda: ANY.from_fixed_length(3, "a.txt"), "got 'a.txt'", "must be an integer"),
    "a wrong record length": Slip(lambda: read(D.from_fixed_length("a.txt", 3)), "left over", "check record_nbytes"),
    "text as records": Slip(lambda: read(D.from_tfrecord("a.txt")), "starts like text", r"from_text\(\)"),
    "records as text": Slip(lambda: read(D.from_text("a.tfrecord")), "is a TFRecord file", r"use from_tfrecord\(\)"),
    "an archive as records": Slip(lambda: read(D.from_tfrecord("a.zip")), "is a zip archive", "unpack it"),
    "an image as text": Slip(lambda: read(D.from_text("a.png")), "is a PNG image", r"use from_files\(\)"),
    "gzip as plain": Slip(lambda: read(D.from_fixed_length("a.gz", 7)), "like gzip", "pass compression='gzip'"),
    "plain as gzip": Slip(lambda: read(D.from_text("a.txt", compression="gzip")), "plain text", "pass compression=''"),
    "a suffix as compression": Slip(lambda: D.from_text("a.txt", compression="gz"), "got 'gz'", "one of .*'gzip'"),
    "another encoding": Slip(lambda: read(D.from_text("latin.txt")), "not valid utf-8", "encoding="),
    "data as index": Slip(lambda: read(D.from_text(index="a.tfrecord")), "is a TFRecord file", "write_index"),
    "a pattern as index": Slip(lambda: asd.write_index("index", "*.txt"), "got the pattern", "files come first"),
    "an index over data": Slip(
        lambda: asd.write_index("*.txt", "a.txt"), "would be overwritten", "give the index a name"
    ),
    # stores
    "boto's key": Slip(lambda: s3(aws_access_key_id=SECRET), "'aws_access_key_id' *.*no option", "use key="),
    "boto's secret": Slip(lambda: s3(aws_secret_access_key=SECRET), "'aws_secret_access_key'", "use secret="),
    "a region": Slip(lambda: s3(region="eu-west-1"), "'region'", "use client_kwargs=.'region_name'"),
    "an endpoint without scheme": Slip(lambda: s3(endpoint_url="localhost:9"), "has no scheme", "write 'https://'"),
    "Google's credentials": Slip(lambda: gs(credentials=SECRET), "'credentials'", "use token="),
    "a key file that is not there": Slip(lambda: gs(token="key.json"), "is a file that is not there", "give the path"),
    "a scheme without slashes": Slip(lambda: s3(s3={"anon": True}), "under its scheme", "{'s3://': {"),
    "a list of options": Slip(lambda: ANY.from_text("x", storage_options=["anon"]), "got list", "is a dict"),
    # functions
    "a called function": Slip(lambda: R.map(generate()), "got generator", "without calling it"),
    "no function": Slip(lambda: R.map(None), "got NoneType", "pass one, such as a lambda"),
    "a generator function": Slip(lambda: R.map(generate), "is a generator function", r"use flat_map\(\)"),
    "a function of nothing": Slip(lambda: R.map(lambda: 1), "takes no positional argument", "with an element"),
    "an unknown executor": Slip(lambda: R.map(len, executor="processes"), "got 'processes'", "one of .*process"),
    "a predicate of arrays": Slip(
        lambda: read(R.filter(lambda x: np.arange(3))), r"returned int64\[3\]", "a scalar bool"
    ),
    "a flat_map of numbers": Slip(lambda: read(R.flat_map(lambda x: x)), "returned 0", "a Dataset or an iterable"),
    "an unknown policy": Slip(lambda: R.map(len, on_error="ignore"), "got 'ignore'", "must be 'raise', 'skip'"),
    # order and batches
    "a text for a size": Slip(lambda: R.batch("32"), "got '32'", "batch_size must be an integer"),
    "no batch size": Slip(lambda: R.batch(), "needs a batch_size", "or a max_cost"),
    "a batch of nothing": Slip(lambda: R.batch(0), "got 0", "at least 1"),
    "auto as text": Slip(lambda: R.prefetch("auto"), "got 'auto'", "an integer or AUTO"),
    "shapes that differ": Slip(lambda: read(R.map(np.zeros).batch(4)), "do not stack", r"padded_batch\(\)"),
    "a list to zip": Slip(lambda: ANY.zip([R, R]), "a list counts as data", "one by one"),
    "scalars to split": Slip(lambda: read(R.unbatch()), "cannot be split", "has no first axis"),
    "more after to_device": Slip(lambda: R.to_device("cpu").map(len), "cannot follow", "must be the last"),
    "an unknown device": Slip(lambda: R.to_device("gpu"), "got 'gpu'", "'cuda'"),
    # data in memory
    "a list as data set": Slip(lambda: ANY([1, 2]), "got list", r"such as from_tensor_slices"),
    "a generator object": Slip(lambda: ANY.from_generator(generate()), "got a generator", "the function itself"),
    "a function to iterate": Slip(lambda: ANY.from_iterable(generate), "got function", r"pass it to from_generator"),
    "an iterator twice": Slip(lambda: ANY.from_iterable(generate()).repeat(), "can be read only once", "re-iterable"),
    "slices of a generator": Slip(lambda: D.from_tensor_slices(generate()), "is a scalar", r"use from_iterable"),
    "slices of a number": Slip(lambda: D.from_tensor_slices(3), "is a scalar", r"use from_tensors\(\)"),
    "columns of two lengths": Slip(lambda: D.from_tensor_slices(([1, 2], [1])), "first axes differ", "has 2 rows"),
    "a length nobody knows": Slip(lambda: len(D.from_text("a.txt")), "unknown length", r"cardinality\(\)"),
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
    # running
    "iterating twice": Slip(
        lambda: [list(loader) for loader in [R.open()] * 2], "given all", "open the data set again"
    ),
    "a state as text": Slip(lambda: R.open("{}"), "a state is a dict, got str", r"json\.loads"),
    "a rank alone": Slip(lambda: R.open(rank=0), "world_size is not", "give both"),
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


def test_there_are_fifty_of_them() -> None:
    assert len(SLIPS) >= 50
