"""List the features of a record. The list is part of the error message about a missing feature."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiostream_data._native.example_py import DamagedMessageError, fields, map_entry
from aiostream_data.arguments import shown
from aiostream_data.codecs.file_kinds import START_NBYTES, kind_of

MOST_NAMES: Final = 20
"""Maximum number of feature names to read and show. A record may have a million names."""

MOST_CHARACTERS: Final = 40

_FIRST_TAG, _SECOND_TAG = 0x0A, 0x12


def instead_of_feature(record: bytes, name: str) -> str:
    """Return an error text for an Example without the feature ``name``. The text lists the features that exist."""
    found = _names(record, _FIRST_TAG)
    if name in found:
        return "the feature exists but has no list of values"
    hint = "; parse_sequence_example() reads its feature lists" if _names(record, _SECOND_TAG) else ""
    return _listed("features", found) + hint


def instead_of_feature_list(record: bytes) -> str:
    """Return an error text that lists the feature lists of a ``tf.train.SequenceExample``."""
    return _listed("feature lists", _names(record, _SECOND_TAG))


def instead_of_message(record: bytes) -> str:
    """Return an error text that names the file format of an invalid record, or "" if the format is unknown."""
    kind = kind_of(record[:START_NBYTES])
    return "" if kind is None else f"; the record is {kind.name}: decode it in a function passed to map()"


def _listed(what: str, names: list[str]) -> str:
    if not names:
        return f"the record has no {what}"
    more = ", ..." if len(names) > MOST_NAMES else ""
    return f"the record has the {what} {', '.join(map(_short, names[:MOST_NAMES]))}{more}"


def _short(name: str) -> str:
    return shown(name if len(name) <= MOST_CHARACTERS else name[: MOST_CHARACTERS - 3] + "...")


def _names(record: bytes, wanted: int) -> list[str]:
    """Return at most ``MOST_NAMES`` + 1 feature names, in sorted order."""
    return sorted(dict.fromkeys(islice(_keys(record, wanted), MOST_NAMES + 1)))


def _keys(record: bytes, wanted: int) -> Iterator[str]:
    """Yield the keys of a map in a protobuf message. The iterator stops at the first damaged byte."""
    buffer = memoryview(record)
    try:
        for tag, _, start, stop in fields(buffer, 0, len(buffer)):
            if tag == wanted:
                for entry_tag, _, entry_start, entry_stop in fields(buffer, start, stop):
                    if entry_tag == _FIRST_TAG:
                        yield map_entry(buffer, entry_start, entry_stop)[0].decode("utf-8", "replace")
    except DamagedMessageError:
        return
