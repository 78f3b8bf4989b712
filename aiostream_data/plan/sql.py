"""Source node of the rows that a SQL query returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiostream_data.plan.base import Node
from aiostream_data.plan.written import Verbatim, call_arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class SqlQuery(Node):
    """Source that emits the rows of a query as dicts, in the order of a unique column.

    Attributes:
        query: The query, without a semicolon.
        connection: Function that opens a DB-API connection.
        key: Name of the unique column.
        params: Values for the placeholders of the query.
        paramstyle: Style of placeholders as in PEP 249; None for the style of the driver.
    """

    query: str
    connection: Callable[[], Any] = field(repr=False)
    key: str
    params: tuple[Any, ...] | Mapping[str, Any] = field(default=(), repr=False)
    paramstyle: str | None = None

    @property
    def label(self) -> str:
        return "from_sql"

    def detail(self) -> str:
        params = Verbatim("...") if self.params else None
        return call_arguments(self.query, self.connection, key=(self.key, None), params=(params, None))
