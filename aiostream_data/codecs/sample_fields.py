"""Decode the fields of a sample by the extensions of their files: JSON, text, numbers, arrays and images."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from aiostream_data.codecs.arrays import decode_npy
from aiostream_data.codecs.images import decode_image
from aiostream_data.errors import ArgumentTypeError, MissingExtraError, PlanError, SampleDecodeError

FieldDecoder: TypeAlias = Callable[[bytes], Any]
Decode: TypeAlias = "bool | Mapping[str, FieldDecoder] | None"

_KEY: Final = "__key__"


def decode_text(data: bytes) -> str:
    """Decode UTF-8 text."""
    return data.decode()


BY_EXTENSION: Final[Mapping[str, FieldDecoder]] = {
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("txt", "text", "transcript"), decode_text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), int),
    "npy": decode_npy,
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"), decode_image),
    **dict.fromkeys(("ppm", "pgm", "pbm", "pnm"), decode_image),
}
"""Functions of ``decode=True``. Fields with other extensions stay bytes."""


class FieldsDecoder:
    """Function that decodes the fields of a sample. Picklable if all functions are picklable.

    Args:
        decoders: Function for each extension. ``"seg.png"`` matches this extension only, ``"png"`` also matches
            ``"seg.png"``.
    """

    def __init__(self, decoders: Mapping[str, FieldDecoder]) -> None:
        self._decoders = dict(decoders)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return a decoded copy of a sample.

        Raises:
            SampleDecodeError: A built-in function cannot decode a field.
        """
        return {name: self._decoded(sample, name, value) for name, value in sample.items()}

    def _decoded(self, sample: dict[str, Any], name: str, value: Any) -> Any:
        decode = None if name == _KEY else self._decoders.get(name, self._decoders.get(name.rpartition(".")[2]))
        if decode is None:
            return value
        try:
            return decode(value)
        except MissingExtraError:
            raise
        except Exception as error:
            raise SampleDecodeError(sample[_KEY], name, f"{type(error).__name__}: {error}") from error


def fields_decoder(decode: Any) -> FieldsDecoder | None:
    """Return the function for a ``decode`` argument: True, False, None, or functions by extension.

    Raises:
        PlanError: The argument is invalid.
    """
    if decode is None or decode is False:
        return None
    if decode is True:
        return FieldsDecoder(BY_EXTENSION)
    if not isinstance(decode, Mapping):
        raise ArgumentTypeError(f"decode must be True, None or a dict of functions, got {type(decode).__name__}")
    for name, function in decode.items():
        if not isinstance(name, str) or not callable(function):
            raise PlanError(f"decode must be a dict from extensions to functions, got {name!r}: {function!r}")
        if name != name.lower() or name.startswith("."):
            raise PlanError(f"extensions in decode must be in lower case and without a dot in front, got {name!r}")
    return FieldsDecoder(decode)
