"""Fuzz the reader of TensorFlow Datasets: hostile descriptions and records may only give elements or a typed error.

Run it with atheris when that is installed, or as a loop of seeded random mutations::

    python tests/fuzz/fuzz_tfds.py corpus/
    python tests/fuzz/fuzz_tfds.py --runs 100000 --seed 1
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from fuzzing import Target, run_target

from aiostream_data.errors import ExampleParseError, PlanError, TfdsError
from aiostream_data.formats.tfds_examples import TfdsExamples
from aiostream_data.formats.tfds_features import TfdsFeature, parse_features
from aiostream_data.formats.tfds_info import parse_info, parse_split
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.testing.formats import read_blocks

FOLDER = Path(__file__).parent.parent / "data" / "tfds" / "everything"
FEATURES = (FOLDER / "features.json").read_bytes()
INFO = (FOLDER / "dataset_info.json").read_bytes()
IS_INFO, IS_FEATURES, IS_RECORD, IS_BOTH = range(4)
"""First byte of an input: what the other bytes are. With IS_BOTH, features and a record follow each other."""

RECORD = read_blocks(TFRecordFormat(), (FOLDER / "everything-train.tfrecord-00000-of-00003").read_bytes()).records[0]
NUMBER = re.compile(rb"-?\d+")
SMALL = (b"0", b"1", b"-1", b"2", b"3", b"4294967296", b"9223372036854775808", b"null", b'"3"', b"1.5", b"[]")


def check(data: bytes) -> None:
    """Read a description or a record; fail on a foreign exception."""
    if not data:
        return
    kind, content = data[0] % 4, data[1:]
    if kind == IS_INFO:
        _check_info(content)
    elif kind == IS_FEATURES:
        with suppress(TfdsError):
            parse_features("features.json", content)
    elif kind == IS_RECORD:
        _check_record(parse_features("features.json", FEATURES), content)
    else:
        described, _, record = content.partition(b"\0")
        with suppress(TfdsError):
            _check_record(parse_features("features.json", described), record)


def _check_info(content: bytes) -> None:
    with suppress(TfdsError, PlanError):
        info = parse_info("dataset_info.json", content)
        for shards in info.splits.values():
            assert all(0 <= shard.rows < 1 << 63 and ".." not in Path(shard.name).parts for shard in shards)
        info.pieces(parse_split("all"))


def _check_record(features: tuple[TfdsFeature, ...], record: bytes) -> None:
    """Decode each feature alone, then all features together. Each decoding may raise only documented errors."""
    features = tuple(feature for feature in features if feature.problem is None)
    column = VarColumn(np.frombuffer(record, np.uint8), np.zeros(1, np.int64), np.array([len(record)], np.int64))
    for chosen in (*((feature,) for feature in features), features):
        with suppress(TfdsError, ExampleParseError):
            chunk = records_chunk(column, RowIds.run(0, 0, 1))
            [_] = TfdsExamples(chosen).parse(chunk, lambda row: ("memory://record", row)).elements()


def seeds() -> list[bytes]:
    """Return valid descriptions, a valid record, and both together."""
    small = json.dumps(json.loads(FEATURES)).encode()
    inputs = {IS_INFO: INFO, IS_FEATURES: FEATURES, IS_RECORD: RECORD, IS_BOTH: small + b"\0" + RECORD}
    return [bytes([kind]) + content for kind, content in inputs.items()]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes changed, or with another number in its description."""
    body = bytearray(data[1:])
    numbers = list(NUMBER.finditer(body, 0, body.find(0) if 0 in body else len(body)))
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(body) + 1)
        change = source.randrange(5)
        if change == 0 and numbers and data[0] != IS_RECORD:
            found = numbers.pop(source.randrange(len(numbers)))
            body[found.start() : found.end()] = source.choice(SMALL)
            numbers = [each for each in numbers if each.end() < found.start()]
        elif change == 1 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 2:
            del body[at : at + source.choice((1, 4, 30))]
        elif change == 3:
            body[at:at] = body[: source.choice((1, 4, 30))]
        else:
            body[at : at + 4] = source.randbytes(4)
    return data[:1] + bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate, 2000), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
