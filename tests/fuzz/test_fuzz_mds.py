"""A short run of the fuzz target for MDS shards, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_mds import FORMAT, check, main, mutate, seeds

from aiostream_data.formats.mds import MdsFramer
from aiostream_data.testing.formats import read_blocks


def test_hostile_shards_give_samples_or_an_error_of_their_own() -> None:
    main(["--runs", "150", "--seed", "11"])


def test_the_shard_without_changes_is_sound() -> None:
    records, error = read_blocks(FORMAT, seeds()[0][1:])
    assert (len(records), error) == (3, None)


def test_mutated_shards_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_reader_that_depends_on_block_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MdsFramer, "_completes", lambda self, fresh: len(fresh) > 400)
    with pytest.raises(AssertionError):
        check(seeds()[0])
