"""A short run of the fuzz target for folders of TensorFlow Datasets, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_tfds import IS_INFO, RECORD, check, main, mutate, seeds

from aiostream_data.errors import TfdsError
from aiostream_data.formats import tfds_examples
from aiostream_data.formats.tfds_info import parse_info


def test_hostile_descriptions_and_records_give_elements_or_an_error_of_their_own() -> None:
    main(["--runs", "300", "--seed", "11"])


def test_mutated_inputs_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfds_examples, "_inflated", lambda data, most: data[: 1 // (len(data) - len(data))])
    with pytest.raises(ZeroDivisionError):
        check(b"\x02" + RECORD)


@pytest.mark.parametrize("rows", ["-5", '"-5"', "9223372036854775808", f'"{"9" * 5000}"', "1.5", "true", "[]", '"٣"'])
def test_an_impossible_number_of_rows_is_an_error_that_names_the_split(rows: str) -> None:
    info = f'{{"name": "d", "splits": [{{"name": "train", "shardLengths": [{rows}]}}]}}'
    with pytest.raises(TfdsError, match="'train' has a shard with an invalid number of rows"):
        parse_info("dataset_info.json", info.encode())
    check(bytes([IS_INFO]) + info.encode())
