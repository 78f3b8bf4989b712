"""Statements that read a query in pages, in the order of a unique column. Values are parameters only."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from aiostream_data.errors import SqlQueryError

Params: TypeAlias = "Sequence[Any] | Mapping[str, Any]"

_ROWS: Final = "asd_rows"
_NAMES: Final = ("asd_first", "asd_second")
"""Names of the parameters of a page, in styles with names."""

_BY_NAME: Final = ("named", "pyformat")
_BY_NAME_TOO: Final = MappingProxyType({"qmark": "named", "format": "pyformat"})
"""Styles of drivers such as sqlite3, which also take a dict."""


@dataclass(frozen=True)
class Statements:
    """Statements of one query.

    Attributes:
        query: The query.
        key: Name of the unique column, a plain identifier.
        params: Values for the placeholders of the query.
        style: Style of placeholders, as in PEP 249.
    """

    query: str
    key: str
    params: Params
    style: str

    def page(self, after: Any, rows: int) -> tuple[str, Params]:
        """Return the statement for the first ``rows`` rows, or for those whose key follows ``after``."""
        if after is None:
            return self._select(f"ORDER BY {self._column} LIMIT {{}}", rows)
        return self._select(f"WHERE {self._column} > {{}} ORDER BY {self._column} LIMIT {{}}", after, rows)

    def at(self, key: Any, rows: int) -> tuple[str, Params]:
        """Return the statement for at most ``rows`` rows whose key the database compares as equal to ``key``."""
        return self._select(f"WHERE {self._column} = {{}} LIMIT {{}}", key, rows)

    def part(self, first: int, rows: int) -> tuple[str, Params]:
        """Return the statement for ``rows`` rows from row number ``first``."""
        return self._select(f"ORDER BY {self._column} LIMIT {{}} OFFSET {{}}", rows, first)

    def columns(self) -> tuple[str, Params]:
        """Return the statement for the names of the columns, without rows."""
        return self._select("LIMIT {}", 0)

    def missing_key(self) -> tuple[str, Params]:
        """Return the statement for one row whose key is NULL."""
        return self._select(f"WHERE {self._column} IS NULL LIMIT {{}}", 1)

    @property
    def _column(self) -> str:
        # Some databases read an unknown name as text. With the name of the table, it is always a column.
        return f"{_ROWS}.{self.key}"

    def _select(self, behind: str, *values: Any) -> tuple[str, Params]:
        marks = [self._mark(number) for number in range(len(values))]
        text = f"SELECT * FROM (\n{self.query}\n) AS {_ROWS} " + behind.format(*marks)
        if isinstance(self.params, Mapping) or self.style in _BY_NAME:
            return text, {**dict(self.params), **dict(zip(_NAMES, values, strict=False))}
        return text, (*self.params, *values)

    def _mark(self, number: int) -> str:
        if self.style == "qmark":
            return "?"
        if self.style == "format":
            return "%s"
        if self.style == "numeric":
            return f":{len(self.params) + number + 1}"
        return f":{_NAMES[number]}" if self.style == "named" else f"%({_NAMES[number]})s"


def style_of(connection: Any, params: Params) -> str:
    """Return the style of placeholders that the driver of a connection declares.

    Raises:
        SqlQueryError: The driver takes the parameters in another form.
    """
    package = type(connection).__module__.partition(".")[0].removeprefix("_")
    style = str(getattr(sys.modules.get(package), "paramstyle", "qmark"))
    if isinstance(params, Mapping) and style not in _BY_NAME:
        style = _BY_NAME_TOO.get(style, style)
    elif params and not isinstance(params, Mapping) and style == "pyformat":
        style = "format"
    if bool(params) and isinstance(params, Mapping) != (style in _BY_NAME):
        raise SqlQueryError(f"the driver {package} has parameters of the style {style!r}. Pass paramstyle=.")
    return style
