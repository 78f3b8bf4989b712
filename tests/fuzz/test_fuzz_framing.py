"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_framing import check, main, mutate, seeds


def test_hostile_bytes_give_records_or_a_corrupt_record_error() -> None:
    main(["--runs", "1500", "--seed", "11"])


def test_mutations_are_reproducible_and_do_change_something() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second
    assert all(mutated[3:] != data[3:] for mutated, data in zip(first, seeds(), strict=True))


def test_target_notices_a_framer_that_depends_on_block_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiostream_data.formats.tfrecord import TFRecordFramer

    monkeypatch.setattr(TFRecordFramer, "_completes", lambda self, fresh: len(fresh) > 100)
    with pytest.raises(AssertionError):
        check(seeds()[0])
