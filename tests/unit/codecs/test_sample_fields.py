"""Decoding the fields of samples by extension."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tars import archive

from aiostream_data import ArgumentTypeError, Dataset, MissingExtraError, PlanError, SampleDecodeError
from aiostream_data.codecs import sample_fields
from aiostream_data.codecs.sample_fields import decode_array, decode_image, decode_jpeg, fields_decoder


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), **options)
    return file.getvalue()


def image(format: str, mode: str = "RGB") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, (4, 3)).save(file, format)
    return file.getvalue()


def test_true_decodes_by_the_last_part_of_the_extension(tmp_path: Path) -> None:
    members = {
        "a.json": b'{"x": [1, null]}',
        "a.txt": "é".encode(),
        "a.cls": b" 17\n",
        "a.mask.npy": npy(np.arange(6).reshape(2, 3)),
        "a.png": image("PNG"),
        "a.bin": b"\0",
    }
    (tmp_path / "a.tar").write_bytes(archive(list(members.items())))
    [sample] = Dataset.from_webdataset(str(tmp_path / "a.tar"), decode=True)
    assert sample.pop("mask.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert sample.pop("png").shape == (3, 4, 3)
    assert sample == {"__key__": "a", "json": {"x": [1, None]}, "txt": "é", "cls": 17, "bin": b"\0"}


def test_a_dict_of_functions_decodes_only_its_fields() -> None:
    decode = fields_decoder({"txt": len, "seg.png": bytes.hex})
    assert decode is not None
    sample = {"__key__": "k", "txt": b"abc", "b.txt": b"x", "png": b"1", "seg.png": b"2"}
    assert decode(sample) == {"__key__": "k", "txt": 3, "b.txt": 1, "png": b"1", "seg.png": "32"}
    assert pickle.loads(pickle.dumps(fields_decoder(True)))({"__key__": "k", "cls": b"3"}) == {"__key__": "k", "cls": 3}
    assert fields_decoder(None) is fields_decoder(False) is None


@pytest.mark.parametrize(
    ("given", "error"),
    [("json", ArgumentTypeError), ({"x": 1}, PlanError), ({".x": int}, PlanError), ({"X": int}, PlanError)],
)
def test_invalid_arguments_are_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="decode"):
        fields_decoder(given)


def test_an_error_names_file_record_member_and_cause(tmp_path: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(archive([("a.cls", b"1"), ("n/b.cls", b"one"), ("c.cls", b"3")]))
    dataset = Dataset.from_webdataset(str(tmp_path / "bad.tar"), decode=True)
    with pytest.raises(SampleDecodeError, match=r"member 'n/b.cls': ValueError: invalid literal") as raised:
        list(dataset)
    assert (raised.value.key, raised.value.extension) == ("n/b", "cls")
    assert any("bad.tar" in note and "record 1" in note for note in raised.value.__notes__)
    skipping = Dataset.from_webdataset(str(tmp_path / "bad.tar"), decode=True, on_error="skip")
    assert [sample["cls"] for sample in skipping] == [1, 3]


def test_arrays_are_those_that_numpy_wrote() -> None:
    arrays = [np.arange(24.0).reshape(2, 3, 4), np.asfortranarray(np.eye(3)), np.array(5), np.array(["a", "bc"])]
    for array in arrays:
        decoded = decode_array(npy(array))
        np.testing.assert_array_equal(decoded, array)
        assert decoded.dtype == array.dtype
        decoded[...] = decoded
    np.testing.assert_array_equal(decode_array(npy(np.zeros(0))), np.zeros(0))


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
        b"\x93NUMPY\x09\0",
        b"",
        npy(np.arange(3))[:20],
    ],
)
def test_pickles_and_arrays_that_do_not_match_their_data_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_array(data)


def test_images_are_rgb_whatever_their_mode() -> None:
    for mode in ("L", "RGB", "CMYK"):
        assert decode_jpeg(image("JPEG", mode)).shape == (3, 4, 3)
    assert decode_image(image("PNG", "RGBA")).dtype == np.uint8


def test_images_with_too_many_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_fields, "MAX_PIXELS", 11)
    with pytest.raises(ValueError, match="4 x 3 pixels"):
        decode_image(image("PNG"))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    decode = fields_decoder(True)
    assert decode is not None
    with pytest.raises(MissingExtraError, match="pip install pillow"):
        decode({"__key__": "a", "jpg": b""})
