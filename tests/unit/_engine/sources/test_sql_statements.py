"""Statements of pages contain placeholders in the style of the driver, and no values."""

from __future__ import annotations

import sqlite3
import sys
import types
from contextlib import closing
from typing import Any

import pytest

from aiostream_data import SqlQueryError
from aiostream_data._engine.sources.sql_reader import SqlReader
from aiostream_data._engine.sources.sql_statements import Statements, style_of
from aiostream_data.plan.sql import SqlQuery


@pytest.mark.parametrize(
    ("style", "params", "said", "values"),
    [
        ("qmark", (), "> ? ORDER BY asd_rows.id LIMIT ?", (7, 10)),
        ("qmark", (1,), "> ? ORDER BY asd_rows.id LIMIT ?", (1, 7, 10)),
        ("format", (1,), "> %s ORDER BY asd_rows.id LIMIT %s", (1, 7, 10)),
        ("numeric", (1,), "> :2 ORDER BY asd_rows.id LIMIT :3", (1, 7, 10)),
        ("named", (), "> :asd_first ORDER BY asd_rows.id LIMIT :asd_second", {"asd_first": 7, "asd_second": 10}),
        (
            "pyformat",
            {"a": 1},
            "> %(asd_first)s ORDER BY asd_rows.id LIMIT %(asd_second)s",
            {"a": 1, "asd_first": 7, "asd_second": 10},
        ),
    ],
)
def test_a_page_follows_a_key(style: str, params: Any, said: str, values: Any) -> None:
    text, given = Statements("SELECT 1 AS id", "id", params, style).page(7, 10)
    assert text == f"SELECT * FROM (\nSELECT 1 AS id\n) AS asd_rows WHERE asd_rows.id {said}"
    assert given == values


def test_braces_in_a_query_stay() -> None:
    text, _ = Statements("SELECT '{}' AS id", "id", (), "qmark").part(3, 2)
    assert text == "SELECT * FROM (\nSELECT '{}' AS id\n) AS asd_rows ORDER BY asd_rows.id LIMIT ? OFFSET ?"


class Driver:
    """A connection whose rows have two columns of one name."""

    closed = False

    def cursor(self) -> Driver:
        return self

    description: tuple[tuple[str], ...] = (("id",), ("a",), ("a",))

    def execute(self, text: str, params: Any) -> None: ...

    def fetchall(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True


def module_with(style: str, monkeypatch: pytest.MonkeyPatch) -> Driver:
    module = types.ModuleType("some_driver")
    vars(module)["paramstyle"] = style
    monkeypatch.setitem(sys.modules, "some_driver", module)
    kind = type("Connection", (Driver,), {"__module__": "some_driver.extensions"})
    made: Driver = kind()
    return made


@pytest.mark.parametrize(
    ("declared", "params", "used"),
    [
        ("qmark", (), "qmark"),
        ("qmark", {"a": 1}, "named"),
        ("pyformat", (), "pyformat"),
        ("pyformat", (1,), "format"),
        ("format", {"a": 1}, "pyformat"),
        ("numeric", (1,), "numeric"),
        ("named", {"a": 1}, "named"),
    ],
)
def test_the_driver_declares_its_style(declared: str, params: Any, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert style_of(module_with(declared, monkeypatch), params) == used


@pytest.mark.parametrize(("declared", "params"), [("numeric", {"a": 1}), ("named", (1,))])
def test_parameters_in_another_form_are_refused(declared: str, params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlQueryError, match="some_driver has parameters of the style"):
        style_of(module_with(declared, monkeypatch), params)


def test_sqlite_and_unknown_drivers_have_question_marks() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert style_of(connection, ()) == "qmark"
    assert style_of(Driver(), ()) == "qmark"


def test_two_columns_of_one_name_are_refused() -> None:
    reader = SqlReader(SqlQuery(query="SELECT 1", connection=Driver, key="id"), None)
    with pytest.raises(SqlQueryError, match="two columns of the query have the name 'a'"):
        reader.page(1)
    reader.close()


def test_rows_of_dict_cursors_are_rows() -> None:
    class Dicts(Driver):
        description = (("id",), ("a",))
        rows: tuple[list[Any], ...] = ([], [], [{"id": 1, "a": 2}])
        asked = 0

        def fetchall(self) -> list[Any]:
            self.asked += 1
            return self.rows[self.asked - 1]

    page = SqlReader(SqlQuery(query="SELECT 1", connection=Dicts, key="id"), None).page(5)
    assert page.rows == [{"id": 1, "a": 2}]
    assert page.keys == [1]
    assert page.ended
