"""What errors, notes, logs and plans show of a URL has no signature or password in it."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest
from http_server import HttpObjects

import aiostream_data as asd
from aiostream_data.errors import CorruptRecordError, ExampleParseError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.http import target_of
from aiostream_data.storage.wire.client import Refused
from aiostream_data.storage.wire.sigv4 import AwsKey

SECRET = "do-not-tell"


def fail(record: bytes) -> bytes:
    raise ValueError("refused")


@pytest.fixture
def signed(http_objects: HttpObjects, tmp_path: Path) -> Callable[[bool], str]:
    """Return a function that gives the signed URL of a file of records, damaged or not."""

    def put(damaged: bool) -> str:
        path = tmp_path / "a.tfrecord"
        with asd.TFRecordWriter(path) as writer:
            for number in range(3):
                writer.write(b"no example %d" % number)
        data = bytearray(path.read_bytes())
        data[30] ^= damaged
        return http_objects.put("/a.tfrecord", bytes(data)) + f"?X-Amz-Signature={SECRET}"

    return put


def told(dataset: asd.Dataset[Any], kind: type[BaseException], **options: Any) -> str:
    with pytest.raises(kind) as caught, dataset.open(**options) as loader:
        list(loader)
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_the_record_of_an_error_is_named_without_signature(executor: Any, signed: Callable[[bool], str]) -> None:
    text = told(asd.Dataset.from_tfrecord(signed(False)).map(fail, executor=executor, concurrency=1), ValueError)
    assert "a.tfrecord?X-Amz-Signature=*** record 0" in text
    assert SECRET not in text


def test_damage_and_examples_that_do_not_fit_are_told_without_signature(signed: Callable[[bool], str]) -> None:
    text = told(asd.Dataset.from_tfrecord(signed(True)), CorruptRecordError)
    features = {"x": asd.FixedLen((), "int64")}
    text += told(asd.Dataset.from_tfrecord(signed(False)).parse_example(features), ExampleParseError)
    assert text.count("a.tfrecord?X-Amz-Signature=***") == 2
    assert SECRET not in text


def test_plans_dumps_states_and_dead_letters_show_no_signature(signed: Callable[[bool], str], tmp_path: Path) -> None:
    dataset = asd.Dataset.from_tfrecord(signed(False))
    log = tmp_path / "bad.jsonl"
    with dataset.open() as loader:
        next(iter(loader))
        shown = [dataset.explain(), str(dataset), loader.dump(), str(loader.report()), str(loader.state_dict())]
    with dataset.map(fail).open(on_error="skip", dead_letters=log) as loader:
        assert list(loader) == []
    assert [text for text in [*shown, log.read_text()] if SECRET in text] == []
    assert len(list(dataset.map(len).replay(log))) == 3


def test_credentials_and_shards_are_shown_without_what_signs_and_credentials_are_not_pickled() -> None:
    key = AwsKey("AKIAEXAMPLE", SECRET, SECRET)
    shard = ShardRef(f"https://host/a?X-Amz-Signature={SECRET}", 5, '"etag"')
    answer = Refused(403, {}, f"<SignatureProvided>{SECRET}</SignatureProvided>".encode())
    shown = [str(key), f"{key}", pformat([key]), repr({"key": key}), repr(shard), pformat(shard), repr(answer)]
    assert [text for text in shown if SECRET in text] == []
    assert "AKIAEXAMPLE" in repr(key)
    assert repr(ShardRef("s3://b/k", 5, "v")) == "ShardRef(url='s3://b/k', nbytes=5, version='v')"
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(key)
    assert pickle.loads(pickle.dumps(shard)) == shard


def test_a_plan_shows_neither_options_nor_signatures() -> None:
    options = {"secret": SECRET, "https://": {"headers": {"authorization": SECRET}}}
    url = f"https://host/a?X-Amz-Signature={SECRET}"
    for dataset in (
        asd.Dataset.from_text(url, storage_options=options).map(len).batch(2),
        asd.Dataset.from_tfrecord(index=url, storage_options=options).shuffle(3),
        asd.Dataset.list_files(url, storage_options=options),
    ):
        assert SECRET not in repr(dataset.plan) + str(dataset.plan) + pformat(dataset.plan)
    target = target_of(url)
    assert target is not None
    assert SECRET not in f"{target!r} {target}"


def test_a_factory_is_named_and_not_printed_with_its_arguments() -> None:
    class Factory:
        def __repr__(self) -> str:
            return SECRET

        def __call__(self) -> list[int]:
            return [1]

    assert "Factory" in asd.Dataset.from_generator(Factory()).explain()
    assert SECRET not in asd.Dataset.from_generator(Factory()).explain()
