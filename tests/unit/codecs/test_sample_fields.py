"""Decoding the fields of samples by extension."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tars import archive

from aiostream_data import ArgumentTypeError, Dataset, PlanError, SampleDecodeError
from aiostream_data.codecs.sample_fields import fields_decoder


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
