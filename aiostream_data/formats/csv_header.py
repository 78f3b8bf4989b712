"""Compare the header of a CSV file with the columns of the dataset."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from aiostream_data.errors import CsvSchemaError
from aiostream_data.formats.csv_rules import CsvSyntax
from aiostream_data.formats.lines import Indices
from aiostream_data.safe_url import safe_url

NamedIn: TypeAlias = str
"""The source of the column names: "the schema", or the URL of the file with the first header."""


def names_of(record: bytes, syntax: CsvSyntax, encoding: str | None, url: str) -> tuple[str, ...]:
    """Return the column names of a header.

    Raises:
        CsvSchemaError: The header is damaged, or two columns have the same name.
    """
    _refuse_json(record, url)
    if b"\0" in record:
        raise CsvSchemaError(url, "", "the header contains zero bytes, so the file is no text; write the file again")
    fields = syntax.fields(_in_utf8(record, encoding, url))
    if fields is None:
        raise CsvSchemaError(url, "", "the header has text after a closing quote; pass quote=None for literal quotes")
    names = tuple(_decoded(field, "utf-8", url) for field in fields)
    for number, name in enumerate(names):
        if name in names[:number]:
            cure = "rename one of them, or pass header=False and a schema, and leave out the header with skip(1)"
            raise CsvSchemaError(url, name, f"the header has two columns named {name!r}; {cure}")
    return names


def _in_utf8(record: bytes, encoding: str | None, url: str) -> bytes:
    """Convert a header to UTF-8. In other encodings, a byte inside a character can look like a delimiter."""
    if encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return record
    return _decoded(record, encoding, url).encode()


def _decoded(text: bytes, encoding: str, url: str) -> str:
    try:
        return text.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"the header is not valid {encoding}: {error.reason}"
        raise CsvSchemaError(url, "", f"{problem}; pass the encoding of the file, as in encoding='latin-1'") from None


def _refuse_json(record: bytes, url: str) -> None:
    """Raise CsvSchemaError if the first line of a file is JSON."""
    text = record.strip()
    if text[:1] not in (b"{", b"["):
        return
    if text == b"{" or (text[:1] == b"[" and (text == b"[" or _is_json(text))):
        cure = "write one record per line for from_jsonl(), or use from_files() and json.loads"
        raise CsvSchemaError(url, "", f"the file is a JSON document, not CSV; {cure}")
    if _is_json(text):
        raise CsvSchemaError(url, "", "the first line is JSON, not a CSV header; read JSON lines with from_jsonl()")


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def order_of(
    record: bytes, syntax: CsvSyntax, encoding: str | None, expected: Sequence[str], named_in: NamedIn, url: str
) -> Indices | None:
    """Return the number of the file's column for each expected column, or None if the order is the same.

    Raises:
        CsvSchemaError: The header does not contain exactly the expected names.
    """
    if not expected:
        return None
    found = names_of(record, syntax, encoding, url)
    if found == tuple(expected):
        return None
    source = named_in if named_in == "the schema" else f"the header of {safe_url(named_in)}"
    for name in expected:
        if name not in found:
            is_data = not set(found) & set(expected)
            cure = "pass header=False if the files have no header" if is_data else _cure(named_in)
            raise CsvSchemaError(url, name, f"column {name!r} of {source} is not in the header {_shown(found)}; {cure}")
    for name in found:
        if name not in expected:
            cure = f"{_cure(named_in)}; select= leaves columns out"
            raise CsvSchemaError(url, name, f"column {name!r} of the header is not in {source}; {cure}")
    return np.array([found.index(name) for name in expected], np.int64)


def _cure(named_in: NamedIn) -> str:
    if named_in == "the schema":
        return "declare every column of the files in schema="
    return "files of one dataset need the same columns: read files with other columns as another dataset"


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return f"[{shown}{', ...' if len(names) > 8 else ''}]"
