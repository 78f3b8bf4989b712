"""The set of deleted keys, compared with a search in plain Python."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from aiostream_data.formats.deleted_keys import DeletedKeys

BOX = pa.struct([pa.field("inner", pa.string())])
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "whole": (pa.int64(), [None, 0, 1, -(2**63)]),
    "real": (pa.float32(), [None, float("nan"), 0.0, -0.0, 1.5]),
    "text": (pa.large_string(), [None, "", "a", "b"]),
    "box": (BOX, [None, {"inner": None}, {"inner": "a"}, {"inner": ""}]),
    "flag": (pa.bool_(), [None, True, False]),
}


def shown(value: Any) -> str:
    return repr(value["inner"] if isinstance(value, dict) else value)


def rows_of(random: Random, names: list[str], count: int) -> list[tuple[Any, ...]]:
    return [tuple(random.choice(VALUES[name][1]) for name in names) for _ in range(count)]


def table_of(names: list[str], rows: list[tuple[Any, ...]]) -> Any:
    columns = [pa.array([row[at] for row in rows], VALUES[name][0]) for at, name in enumerate(names)]
    return pa.table(columns, names=names)


@pytest.mark.parametrize("seed", range(30))
def test_the_rows_with_a_key_are_those_of_a_search(seed: int) -> None:
    random = Random(seed)
    names = random.sample(sorted(VALUES), random.randint(1, len(VALUES)))
    keys, rows = rows_of(random, names, random.randint(1, 30)), rows_of(random, names, random.randint(0, 50))
    sequences = [random.randint(1, 5) for _ in keys]
    made = DeletedKeys.of(pa, table_of(names, keys), np.array(sequences))
    newest: dict[tuple[str, ...], int] = {}
    for key, sequence in zip(keys, sequences, strict=True):
        plain = tuple(map(shown, key))
        newest[plain] = max(sequence, newest.get(plain, 0))
    for found in (made, pickle.loads(pickle.dumps(made))):
        for sequence in range(6):
            expected = [newest.get(tuple(map(shown, row)), 0) > sequence for row in rows]
            assert found.matches(pa, table_of(names, rows), sequence).tolist() == expected


def test_codes_of_many_values_do_not_collide() -> None:
    random = np.random.default_rng(0)
    keys, rows = (random.integers(0, 2_000, (2, 100_000)) for _ in range(2))
    made = DeletedKeys.of(pa, pa.table(list(keys), names=["a", "b"]), np.ones(100_000, np.int64))
    known = set(zip(*keys.tolist(), strict=True))
    expected = [row in known for row in zip(*rows.tolist(), strict=True)]
    assert made.matches(pa, pa.table(list(rows), names=["a", "b"]), 0).tolist() == expected
