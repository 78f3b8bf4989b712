"""Arrays of ``numpy.save`` are decoded, and hostile ones are refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from aiostream_data import DecodeError
from aiostream_data.codecs import decode_npy


def npy(array: Any, **more: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def test_arrays_are_those_that_numpy_wrote() -> None:
    arrays = [np.arange(24.0).reshape(2, 3, 4), np.asfortranarray(np.eye(3)), np.array(5), np.array(["a", "bc"])]
    for array in arrays:
        decoded = decode_npy(npy(array))
        np.testing.assert_array_equal(decoded, array)
        assert decoded.dtype == array.dtype
        decoded[...] = decoded
    np.testing.assert_array_equal(decode_npy(npy(np.zeros(0))), np.zeros(0))


def hostile(shape: str, descr: str = "'<f8'", data: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([{}], object), allow_pickle=True),
        hostile("(9999999999999,)"),
        hostile("(-1,)"),
        hostile("(-1, -1)", data=bytes(8)),
        hostile("(1,)", data=bytes(7)),
        hostile("(1,)", data=bytes(9)),
        hostile("(1,)", "'|O'", bytes(8)),
        hostile("(0, 9223372036854775807)"),
        b"\x93NUMPY\x09\0",
        b"",
        npy(np.arange(3))[:20],
    ],
)
def test_pickles_and_arrays_that_do_not_match_their_data_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r".+"):
        decode_npy(data)
