"""Moving a Philox generator gives the draws that NumPy gives after setting the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import philox_py

philox = pytest.importorskip("aiostream_data._native.philox")
NUMBERS = st.integers(0, 2**64 - 1)


def draws(generator: np.random.Generator, seed: int) -> list[Any]:
    """Draw numbers of several kinds, so that buffers and halves are left over."""
    kinds: list[Callable[[], Any]] = [
        lambda: int(generator.integers(1 << 62)),
        lambda: int(generator.integers(10, dtype=np.uint32)),
        lambda: generator.random(),
        lambda: generator.standard_normal(3).tolist(),
    ]
    return [kinds[(seed >> step) % len(kinds)]() for step in range(seed % 6 + 1)]


@given(NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 1000)), min_size=1, max_size=6))
def test_both_kernels_give_the_same_draws(key: int, places: list[tuple[int, int, int]]) -> None:
    found: list[list[Any]] = []
    for kernel in (philox, philox_py):
        bits = np.random.Philox(key=key)
        seeker, generator = kernel.PhiloxSeeker(bits), np.random.Generator(bits)
        found.append([])
        for split, ordinal, seed in places:
            seeker.seek(split, ordinal)
            found[-1].append((draws(generator, seed), str(bits.state)))
    assert found[0] == found[1]


@pytest.mark.parametrize("kernel", [philox, philox_py])
def test_a_changed_key_is_restored(kernel: Any) -> None:
    bits = np.random.Philox(key=5)
    seeker, generator = kernel.PhiloxSeeker(bits), np.random.Generator(bits)
    seeker.seek(1, 2)
    expected = generator.random(3).tolist()
    bits.state = np.random.Philox(7).state
    seeker.seek(1, 2)
    assert generator.random(3).tolist() == expected


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.SFC64])
def test_other_generators_are_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="NumPy"):
        philox.PhiloxSeeker(kind(1))


def test_an_object_without_a_capsule_is_refused() -> None:
    with pytest.raises(AttributeError):
        philox.PhiloxSeeker(object())
