"""Compare the columns of the files of one data set."""

from __future__ import annotations

from collections.abc import Mapping

from aiostream_data.errors import TableSchemaError
from aiostream_data.safe_url import safe_url


class TypesOfFiles:
    """Types of the columns of the files that were opened so far."""

    def __init__(self) -> None:
        self._first = ""
        self._known: dict[str, tuple[str | None, str]] = {}

    def add(self, url: str, types: Mapping[str, str | None]) -> None:
        """Compare the columns of a file with those of the files before. Types are never converted.

        Args:
            types: Type of each column; None for a column without any value, which fits every type.

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
                    "Convert one of the files, or select other columns",
                )


def _lacks(url: str, name: str, other: str) -> TableSchemaError:
    reason = f"the file has no column {name!r}, which {safe_url(other)} has. Select columns that all files have"
    return TableSchemaError(url, name, reason)
