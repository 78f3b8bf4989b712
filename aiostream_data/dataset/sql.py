"""Plan node of ``from_sql``, created from validated arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.dataset.callables import check_takes_arguments
from aiostream_data.errors import ArgumentTypeError, PlanError, StageBuildError
from aiostream_data.plan.sql import SqlQuery

_STYLES: Final = ("qmark", "format", "numeric", "named", "pyformat")
_BY_NAME: Final = ("named", "pyformat")


def sql_query(query: Any, connection: Any, key: Any, params: Any, paramstyle: Any) -> SqlQuery:
    """Return the plan node of ``from_sql``.

    Raises:
        PlanError: An argument is invalid.
    """
    if not callable(connection):
        raise StageBuildError(
            f"from_sql() needs a function that opens a connection, got a {type(connection).__name__}. Pass a function, "
            "such as functools.partial(sqlite3.connect, 'data.db')."
        )
    check_takes_arguments("from_sql", connection, ())
    style = _style(paramstyle)
    return SqlQuery(
        query=_query(query), connection=connection, key=_key(key), params=_params(params, style), paramstyle=style
    )


def _query(query: Any) -> str:
    if not isinstance(query, str):
        raise ArgumentTypeError(f"query must be str, got {shown(query)}")
    text = query.strip().removesuffix(";").rstrip()
    if not text:
        raise PlanError("query must be a SELECT statement, got an empty string")
    return text


def _key(key: Any) -> str:
    """Check the name of a column. It is written into the statement, so quotes and dots are refused."""
    if not isinstance(key, str) or not key.isascii() or not key.isidentifier():
        raise PlanError(
            f"key must be the name of a column, of letters, digits and underscores, got {shown(key)}. Rename the "
            'column in the query, as in SELECT "the id" AS id.'
        )
    return key


def _style(paramstyle: Any) -> str | None:
    if paramstyle is not None and paramstyle not in _STYLES:
        raise PlanError(f"paramstyle must be one of {', '.join(map(repr, _STYLES))}, got {shown(paramstyle)}")
    return paramstyle  # type: ignore[no-any-return]


def _params(params: Any, style: str | None) -> tuple[Any, ...] | Mapping[str, Any]:
    if isinstance(params, Mapping):
        if style is not None and style not in _BY_NAME:
            raise PlanError(f"params must be a sequence of values for paramstyle={style!r}, got a dict")
        return dict(params)
    if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        raise ArgumentTypeError(f"params must be a sequence or a dict of values, got {shown(params)}")
    if params and style in _BY_NAME:
        raise PlanError(f"params must be a dict of values for paramstyle={style!r}, got {type(params).__name__}")
    return tuple(params)
