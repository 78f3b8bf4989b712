"""Columns whose values stand in the folders of a URL, as Hive writes them: ``year=2024/month=5/part-0.parquet``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError
from aiostream_data.formats.parquet_filters import Filters
from aiostream_data.rows.columns import VarColumn
from aiostream_data.safe_url import is_http, without_tokens

MISSING: Final = "__HIVE_DEFAULT_PARTITION__"
"""Value in the name of a folder whose rows have no value."""

_WITHOUT_HOST: Final = ("", "file", "local", "memory")
"""Schemes of URLs that begin with a path, not with a host or bucket."""

_HOLDS: Final[Mapping[str, Callable[[str, Any], bool]]] = {
    "=": lambda value, wanted: bool(value == wanted),
    "==": lambda value, wanted: bool(value == wanted),
    "!=": lambda value, wanted: bool(value != wanted),
    "<": lambda value, wanted: bool(value < wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">": lambda value, wanted: bool(value > wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
}


def partitions_of(url: str) -> dict[str, str | None]:
    """Return the ``name=value`` parts of the folders in a URL, as Hive writes them.

    Percent signs are decoded, as in ``k=a%2Fb``. The value is None for ``__HIVE_DEFAULT_PARTITION__``.
    """
    pairs = [folder.split("=", 1) for folder in _folders(url) if is_partition(folder)]
    return {_decoded(name): None if value == MISSING else _decoded(value) for name, value in pairs}


def is_partition(folder: str) -> bool:
    """Return True if the name of a folder has the form ``name=value``."""
    return folder.find("=") > 0


def names_of_folders(paths: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of the partitions if all folders of files are partitions with the same names; otherwise None.

    Args:
        paths: Paths of the files below the folder of the data set.
    """
    found = {tuple(_names(path)) for path in paths}
    names = next(iter(found), ())
    return names if len(found) == 1 and names and "" not in names else None


def _names(path: str) -> Iterator[str]:
    """Yield the name of each partition, and "" for other folders."""
    for folder in path.split("/")[:-1]:
        yield _decoded(folder.split("=", 1)[0]) if is_partition(folder) else ""


def open_filters(filters: Filters, values: Mapping[str, str | None]) -> Filters | None:
    """Return the conditions that rows of a file must satisfy. Return None if its partitions exclude all rows.

    Args:
        values: Values of the partitions of the file, by name.

    Raises:
        PlanError: A partition is compared with a value that is not text.
    """
    if not filters:
        return ()
    parts = [part for part in filters if all(_holds(values, *each) for each in part if each[0] in values)]
    left = tuple(tuple(each for each in part if each[0] not in values) for part in parts)
    if not left:
        return None
    return left if all(left) else ()


def _holds(values: Mapping[str, str | None], name: str, operator: str, wanted: Any) -> bool:
    value = values[name]
    for each in wanted if operator in ("in", "not in") else (wanted,):
        if not (each is None or isinstance(each, str)):
            raise PlanError(
                f"the filter on {name!r} does not fit its type: partitions are text, but it compares with "
                f"{shown(each)}. Compare with text, such as {str(each)!r}."
            )
    if value is None or wanted is None:
        return False
    if operator in ("in", "not in"):
        return (value in wanted) == (operator == "in")
    return _HOLDS[operator](value, wanted)


def constant_text(value: str, rows: int) -> VarColumn:
    """Return a column with the same text in each row."""
    data = np.frombuffer(value.encode(errors="replace"), np.uint8)
    return VarColumn(data, np.zeros(rows, np.int64), np.full(rows, len(data), np.int64), "str")


def _folders(url: str) -> list[str]:
    """Return the names of the folders in a URL, without the host or bucket and without secrets."""
    scheme, separator, path = url.rpartition("://")
    scheme = scheme.rpartition("::")[2].lower()
    if not separator:
        scheme, path = "", url
    if separator and is_http(scheme):
        path = without_tokens(path.partition("#")[0].partition("?")[0])
        return [unquote(folder) for folder in path.split("/")[1:-1]]
    return path.split("/")[0 if scheme in _WITHOUT_HOST else 1 : -1]


def _decoded(text: str) -> str:
    """Decode the percent signs in a name or value. Text that would not be UTF-8 stays as it is."""
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        return text
