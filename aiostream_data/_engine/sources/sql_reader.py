"""Read the rows of a query through a DB-API connection. Every method blocks and runs on one thread."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from aiostream_data._engine.sources.sql_statements import Params, Statements, style_of
from aiostream_data.arguments import shown
from aiostream_data.errors import SqlKeyError, SqlQueryError
from aiostream_data.plan.sql import SqlQuery
from aiostream_data.safe_url import safe_text

Key: TypeAlias = "int | str"

MAX_KEY: Final = 1_000
"""Maximum length of a key in characters. States contain keys."""

MAX_KEY_BITS: Final = 128
"""Maximum size of a key that is an integer, as in ``HUGEINT`` of DuckDB."""

_Row: TypeAlias = "tuple[Any, ...]"


class SqlPage(NamedTuple):
    """Consecutive rows.

    Attributes:
        rows: The rows, as dicts of columns.
        keys: The key of each row.
        failure: Error of the row after these rows, or None.
        ended: True if no row follows.
    """

    rows: list[dict[str, Any]]
    keys: list[Key]
    failure: SqlKeyError | None
    ended: bool


class SqlReader:
    """Reader of one run. The first call opens a connection.

    Args:
        node: The query.
        after: Key of the last row that an earlier run has read, or None.
    """

    def __init__(self, node: SqlQuery, after: Key | None) -> None:
        self._node = node
        self._after = after
        self._next: Key | None = None  # key of the row that the last page looked at, but did not return
        self._connection: Any = None
        self._statements: Statements | None = None

    def page(self, rows: int) -> SqlPage:
        """Read the next ``rows`` rows, and look at the key of the row after them.

        Raises:
            SqlQueryError: The database has refused the connection or the query.
            SqlKeyError: The key is NULL in a row, or is no column of the query.
        """
        if self._connection is None:
            self._open()
            self._check_key()
        names, found = self._run(self._statement.page(self._after, rows + 1), rows + 1)
        page = self._checked(names, found, rows)
        self._after = page.keys[-1] if page.keys else self._after
        return page

    def part(self, first: int, rows: int) -> list[dict[str, Any]]:
        """Read ``rows`` rows from row number ``first``; fewer if the query has fewer rows."""
        if self._connection is None:
            self._open()
        names, found = self._run(self._statement.part(first, rows), rows)
        return [dict(zip(names, row, strict=True)) for row in found]

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> None:
        node = self._node
        self._connection = self._asked(node.connection)
        style = node.paramstyle or style_of(self._connection, node.params)
        self._statements = Statements(node.query, node.key, node.params, style)

    @property
    def _statement(self) -> Statements:
        assert self._statements is not None
        return self._statements

    def _check_key(self) -> None:
        self._run(self._statement.columns(), 0)
        _, found = self._run(self._statement.missing_key(), 1)
        if found:
            raise SqlKeyError(self._node.key, "is NULL in a row. Leave such rows out, as with WHERE ... IS NOT NULL")
        if self._after is not None and (failure := self._ambiguous(self._after)) is not None:
            raise failure

    def _ambiguous(self, key: Key) -> SqlKeyError | None:
        """Return an error if the database compares two rows as equal to ``key``, as a collation can do."""
        _, found = self._run(self._statement.at(key, 2), 2)
        if len(found) < 2:
            return None
        reason = f"is not unique for the database: two rows are equal to {shown(key)}"
        return SqlKeyError(self._node.key, f"{reason}. Choose a unique column, or a collation that tells them apart")

    def _checked(self, names: list[str], found: list[_Row], rows: int) -> SqlPage:
        place = names.index(self._node.key)
        keys: list[Key] = []
        failure = self._changed(found[0][place] if found else None)
        before = self._after
        for row in found if failure is None else ():
            key = row[place]
            failure = self._problem(key, before)
            if failure is not None or len(keys) == rows:
                break
            keys.append(key)
            before = key
        self._next = found[rows][place] if len(found) > rows else None
        given = [dict(zip(names, row, strict=True)) for row in found[: len(keys)]]
        return SqlPage(given, keys, failure, len(found) <= rows)

    def _changed(self, first: Any) -> SqlKeyError | None:
        """Return an error if a page does not begin with the row that the page before has looked at."""
        if self._next is None or first == self._next:
            return None
        return SqlKeyError(
            self._node.key,
            f"is not unique for the database at {shown(self._next)}, or rows have changed while they were read",
        )

    def _problem(self, key: Any, before: Key | None) -> SqlKeyError | None:
        if type(key) not in (int, str):
            return SqlKeyError(self._node.key, f"must be int or str, got {shown(key)}. Convert it, as with CAST")
        if isinstance(key, str) and len(key) > MAX_KEY:
            return SqlKeyError(self._node.key, f"has {len(key)} characters in a row, more than {MAX_KEY}")
        if isinstance(key, int) and key.bit_length() > MAX_KEY_BITS:
            return SqlKeyError(self._node.key, f"has {key.bit_length()} bits in a row, more than {MAX_KEY_BITS}")
        if key == before:
            return SqlKeyError(self._node.key, f"is not unique: two rows have {shown(key)}. Choose a unique column")
        if isinstance(key, int) and isinstance(before, int) and key < before:
            reason = f"{shown(key)} follows {shown(before)}. The database is damaged, or ignores ORDER BY"
            return SqlKeyError(self._node.key, f"does not ascend: {reason}")
        if isinstance(key, str) and isinstance(before, str) and _folded(key) == _folded(before):
            return self._ambiguous(key)
        return None

    def _run(self, statement: tuple[str, Params], most: int) -> tuple[list[str], list[_Row]]:
        """Return the names of the columns, and all rows, which are at most ``most``."""
        names, rows = self._asked(lambda: _fetched(self._connection, *statement))
        if self._node.key not in names:
            raise SqlKeyError(self._node.key, f"is no column of the query, which has {', '.join(names)}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SqlQueryError(f"two columns of the query have the name {twice!r}. Rename one of them, as with AS.")
        if len(rows) > most:
            raise SqlQueryError(f"the database has returned {len(rows)} rows for LIMIT {most}.")
        lengths = {*map(len, rows)} - {len(names)}
        if lengths:
            raise SqlQueryError(f"the database has returned a row of {min(lengths)} values for {len(names)} columns.")
        return names, rows

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Call the driver.

        Raises:
            SqlQueryError: The driver has raised an error.
        """
        try:
            return call()
        except Exception as error:
            text = safe_text(str(error)).strip().rstrip(".")
            raise SqlQueryError(f"the database has failed: {type(error).__name__}: {text}.") from error


def _folded(key: str) -> str:
    """Return a key without what collations may ignore: case, accents, width, and spaces at the end."""
    parts = unicodedata.normalize("NFKD", key.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part)).rstrip()


def _fetched(connection: Any, text: str, params: Params) -> tuple[list[str], list[_Row]]:
    cursor = connection.cursor()
    try:
        cursor.execute(text, params)
        rows = [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in cursor.fetchall()]
        return [str(column[0]) for column in cursor.description], rows
    finally:
        cursor.close()
