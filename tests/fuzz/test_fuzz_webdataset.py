"""A short run of the fuzz target for WebDataset shards, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_webdataset import check, main, mutate, seeds


def test_hostile_archives_give_samples_or_a_corrupt_record_error() -> None:
    main(["--runs", "400", "--seed", "11"])


def test_mutated_archives_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_reader_that_depends_on_block_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiostream_data.formats.webdataset import WebDatasetFramer

    monkeypatch.setattr(WebDatasetFramer, "_completes", lambda self, fresh: len(fresh) > 400)
    with pytest.raises(AssertionError):
        check(seeds()[0])
