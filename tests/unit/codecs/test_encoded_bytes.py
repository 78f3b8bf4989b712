"""Decoders take bytes and other buffers, and refuse paths, numbers and pixels as their argument."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import ArgumentTypeError
from aiostream_data.codecs import decode_audio, decode_image, decode_npy, decode_random_crop, decode_video


def random_crop(data: Any) -> Any:
    return decode_random_crop(data, np.random.default_rng(1), size=(2, 2))


DECODERS = [decode_audio, decode_image, decode_npy, decode_video, random_crop]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", ["a.jpg", Path("a.jpg"), None, 1 << 40, {"image": b""}, [1, 2]], ids=repr)
def test_something_else_than_bytes_is_refused(decode: Callable[[Any], Any], data: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"data must be the bytes of an? .*file, got "):
        decode(data)


def test_any_buffer_of_bytes_is_decoded() -> None:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    data = out.getvalue()
    buffers: list[Any] = [data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)]
    for given in buffers:
        assert decode_npy(given).tolist() == [0, 1, 2]
