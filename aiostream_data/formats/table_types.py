"""Compare the columns of the files of one data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiostream_data.errors import TableSchemaError
from aiostream_data.safe_url import safe_url

_DECLARE: Final = (
    "Declare a type that contains the values of all files with schema={name: type}, convert one of the files, or "
    "select other columns"
)


class TypesOfFiles:
    """Types of the columns of the files that were opened so far."""

    def __init__(self) -> None:
        self._first = ""
        self._known: dict[str, tuple[str | None, str]] = {}

    def add(self, url: str, types: Mapping[str, str | None], *, can_declare: bool = False) -> None:
        """Compare the columns of a file with those of the files before.

        Args:
            types: Type of each column after conversions; None for a column without any value, which fits every type.
            can_declare: True if the user can declare the types to which columns are converted.

        Raises:
            TableSchemaError: A column is missing, or has another type than in another file.
        """
        if not self._known:
            self._first = url
            self._known = {name: (kind, url) for name, kind in types.items()}
        for name in types.keys() - self._known.keys():
            raise _lacks(self._first, name, url)
        for name, (known, other) in self._known.items():
            if name not in types:
                raise _lacks(url, name, other)
            found = types[name]
            if known is None:
                self._known[name] = found, url
            elif found not in (None, known):
                raise TableSchemaError(
                    url,
                    name,
                    f"column {name!r} is {found}, but {known} in {safe_url(other)}. "
                    + (_DECLARE if can_declare else "Convert one of the files, or select other columns"),
                )


def _lacks(url: str, name: str, other: str) -> TableSchemaError:
    reason = f"the file has no column {name!r}, which {safe_url(other)} has. Select columns that all files have"
    return TableSchemaError(url, name, reason)
