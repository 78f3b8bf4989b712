"""A short run of the fuzz target for decoders of values, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_codecs import DECODERS, check, main, mutate, seeds


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning", "ignore:.*:UserWarning")
def test_hostile_values_give_arrays_or_a_decode_error() -> None:
    main(["--runs", "400", "--seed", "3"])


def test_mutated_values_are_reproducible() -> None:
    pool = seeds()
    first, second = ([mutate(data, random.Random(5)) for data in pool] for _ in range(2))
    assert first == second
    assert first != pool


def test_target_notices_a_decoder_that_raises_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, 0, lambda data: data[99])
    with pytest.raises(IndexError):
        check(b"\0" + b"short")
