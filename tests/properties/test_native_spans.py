"""The native kernels that read pieces of files do what their clear twins do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data._native import spans_py as twin

native = pytest.importorskip("aiostream_data._native.spans", exc_type=ImportError)
BOTH = pytest.mark.parametrize("kernels", [native, twin], ids=["native", "twin"])

CONTENT = np.random.default_rng(0).integers(0, 256, 5_000).astype(np.uint8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("spans") / "content"
    path.write_bytes(CONTENT.tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def spans() -> st.SearchStrategy[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Starts and lengths of pieces of the content: apart, adjacent, overlapping and empty ones."""
    pairs = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=20)
    adjacent = st.lists(st.integers(0, 200), max_size=20).map(
        lambda sizes: [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    )
    return st.one_of(pairs, adjacent).map(_as_vectors)


def _as_vectors(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]  # strided views


@given(spans(), st.booleans())
def test_both_read_the_same_bytes(file: int, pieces: tuple[Any, Any], ahead: bool) -> None:
    expected = b"".join(
        CONTENT[start : start + length].tobytes() for start, length in zip(*map(np.ndarray.tolist, pieces), strict=True)
    )
    assert native.read_spans(file, *pieces, ahead).tobytes() == expected
    assert twin.read_spans(file, *pieces, ahead).tobytes() == expected


@given(spans())
def test_both_find_the_same_checksums(pieces: tuple[Any, Any]) -> None:
    ours, theirs = native.crc32c_spans(CONTENT, *pieces), twin.crc32c_spans(CONTENT, *pieces)
    assert ours.dtype == theirs.dtype == np.uint32
    assert ours.tolist() == theirs.tolist()


KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110, 0x1F1E1D1C1B1A1918)


@given(spans())
def test_both_find_the_same_hashes(pieces: tuple[Any, Any]) -> None:
    ours, theirs = native.highway_spans(CONTENT, *pieces, KEY), twin.highway_spans(CONTENT, *pieces, KEY)
    assert ours.dtype == theirs.dtype == np.uint64
    assert ours.tolist() == theirs.tolist()


@BOTH
def test_hashes_are_those_of_highwayhash_for_every_length_of_the_last_packet(kernels: ModuleType) -> None:
    lengths = np.arange(66)
    hashes = kernels.highway_spans(np.arange(66, dtype=np.uint8), np.zeros(66, np.int64), lengths, KEY)
    assert [int(hashes[length]) for length in (0, 1, 2)] == [0x907A56DE22C26E53, 0x7EAB43AAC7CDDD78, 0xB8D0569AB0B53D62]
    assert len(set(hashes.tolist())) == 66


def vector(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


@BOTH
def test_a_file_that_ends_before_is_an_error(kernels: ModuleType, file: int) -> None:
    with pytest.raises(EOFError, match="10 bytes at 4995"):
        kernels.read_spans(file, vector(0, 4_995), vector(5, 10))
    with pytest.raises(EOFError):
        kernels.read_spans(file, vector(9_000), vector(1))


@BOTH
def test_a_file_that_cannot_be_read_is_an_error_with_its_reason(kernels: ModuleType, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="descriptor") as caught:
            kernels.read_spans(descriptor, vector(0), vector(1))
    finally:
        os.close(descriptor)
    assert caught.value.errno == errno.EBADF


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda kernels: kernels.read_spans(0, vector(1), vector()),
        lambda kernels: kernels.read_spans(0, vector(-1), vector(1)),
        lambda kernels: kernels.read_spans(0, vector(1), vector(-1)),
        lambda kernels: kernels.read_spans(0, vector(1).astype(np.int32), vector(1)),
        lambda kernels: kernels.crc32c_spans(CONTENT[::2], vector(0), vector(1)),
        lambda kernels: kernels.crc32c_spans(CONTENT.view(np.int8), vector(0), vector(1)),
        lambda kernels: kernels.highway_spans(CONTENT, vector(0), vector(1, 2), KEY),
    ],
)
def test_what_are_no_spans_is_refused(kernels: ModuleType, call: Callable[[ModuleType], Any]) -> None:
    with pytest.raises(ValueError, match=r"vector|begins at"):
        call(kernels)


@BOTH
def test_spans_outside_of_the_values_are_refused(kernels: ModuleType) -> None:
    for start, length in [(4_999, 2), (6_000, 0), (6_000, 1)]:
        with pytest.raises(IndexError, match="5000 bytes"):
            kernels.crc32c_spans(CONTENT, vector(start), vector(length))
        with pytest.raises(IndexError, match="5000 bytes"):
            kernels.highway_spans(CONTENT, vector(start), vector(length), KEY)
