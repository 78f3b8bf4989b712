"""``Dataset.from_sql`` reads rows in the order of a key, resumes at any row, and opens connections of its own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hostile_driver import HostileConnection

from aiostream_data import Dataset, Loader, PlanError, SqlKeyError, SqlQueryError, StateMismatchError
from aiostream_data.errors import ArgumentTypeError, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere

ROWS = [(3 * number - 10, f"name {number}", number / 2 if number % 3 else None) for number in range(200)]


@pytest.fixture
def connect(tmp_path: Path) -> partial[sqlite3.Connection]:
    """A function that opens a database with 200 people."""
    path = str(tmp_path / "people.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE people (id INTEGER, name TEXT, height REAL)")
        database.executemany("INSERT INTO people VALUES (?, ?, ?)", ROWS[::-1])
        database.commit()
    return partial(sqlite3.connect, path)


def change(connect: Callable[[], sqlite3.Connection], *statements: str) -> None:
    with closing(connect()) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def people(connect: Callable[[], Any], query: str = "SELECT * FROM people", **options: Any) -> Dataset[Any]:
    return Dataset.from_sql(query, connect, **({"key": "id"} | options))


def expected() -> list[dict[str, Any]]:
    return [dict(zip(("id", "name", "height"), row, strict=True)) for row in ROWS]


def test_rows_are_dicts_in_the_order_of_the_key(connect: Callable[[], Any]) -> None:
    assert list(people(connect)) == expected()
    assert [row["name"] for row in people(connect, key="name")] == sorted(name for _, name, _ in ROWS)


def test_duckdb_is_read_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "people.duckdb")
    with closing(duckdb.connect(path)) as database:
        database.execute("CREATE TABLE people (id BIGINT, name TEXT, height DOUBLE)")
        database.executemany("INSERT INTO people VALUES (?, ?, ?)", ROWS[::-1])
    connect = partial(duckdb.connect, path, read_only=True)
    assert list(people(connect)) == expected()
    some = people(connect, "SELECT * FROM people WHERE id > ?", params=(500,))
    assert list(some) == expected()[171:]
    resumes_everywhere(some.shuffle(4, seed=1), every=15, twice=False)
    with pytest.raises(SqlQueryError, match="CatalogException"):
        list(people(connect, "SELECT * FROM nowhere"))


def test_a_run_resumes_after_every_row(connect: Callable[[], Any]) -> None:
    few = "SELECT id, name FROM people WHERE id < 20"
    resumes_everywhere(people(connect, few))
    resumes_everywhere(people(connect, few, key="name").repeat(2).shuffle(5, seed=1).batch(2))
    resumes_everywhere(people(connect), every=40)


def test_a_resumed_run_asks_for_later_rows_only(connect: partial[sqlite3.Connection]) -> None:
    with people(connect).open() as loader:
        rows = iter(loader)
        for _ in range(150):
            next(rows)
        state = loader.state_dict()
    asked: list[str] = []

    def watched() -> sqlite3.Connection:
        database = connect()
        database.set_trace_callback(asked.append)
        return database

    with people(watched).open(state) as loader:
        assert list(loader) == expected()[150:]
    pages = [" ".join(text.split()) for text in asked if "ORDER BY" in text]
    assert pages
    assert "WHERE asd_rows.id > 437 ORDER BY asd_rows.id LIMIT" in pages[0]
    assert state["position"]["after"] == "int:437"


def test_every_row_has_an_origin_and_can_be_fetched(connect: Callable[[], Any]) -> None:
    dataset = people(connect).shuffle(50, seed=2)
    with dataset.take(20).open() as loader:
        for row in loader:
            (origin,) = loader.origins()
            assert origin.index == ROWS.index(tuple(row.values()))
            assert dataset.fetch(origin) == row


def test_runs_in_any_order_of_memory_and_place_are_equal(connect: Callable[[], Any]) -> None:
    dataset = people(connect)
    with dataset.debug() as loader:
        assert list(loader) == expected()
    assert list(dataset.in_subprocess()) == expected()
    with dataset.open(memory_limit="1MiB") as loader:
        assert list(loader) == expected()
    halves = []
    for rank in range(2):
        with dataset.open(rank=rank, world_size=2) as loader:
            halves.append(list(loader))
    assert [row for pair in zip(*halves, strict=True) for row in pair] == expected()


def test_wide_rows_are_read_in_small_pages(tmp_path: Path) -> None:
    path = str(tmp_path / "wide.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE blobs (id INTEGER PRIMARY KEY, content BLOB)")
        database.executemany("INSERT INTO blobs VALUES (?, ?)", [(row, bytes(200_000)) for row in range(200)])
        database.commit()
    asked: list[str] = []

    def watched() -> sqlite3.Connection:
        database = sqlite3.connect(path)
        database.set_trace_callback(asked.append)
        return database

    assert sum(len(row["content"]) for row in Dataset.from_sql("SELECT * FROM blobs", watched, key="id")) == 40_000_000
    sizes = [int(text.rpartition(" ")[2]) for text in asked if "ORDER BY" in text]
    assert max(sizes) <= 22


def test_one_thread_opens_uses_and_closes_each_connection(connect: partial[sqlite3.Connection]) -> None:
    seen: list[str] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            seen.append(f"closed {threading.get_ident()}")
            super().close()

    def watched() -> sqlite3.Connection:
        seen.append(f"opened {threading.get_ident()}")
        return connect(factory=Watched)

    assert len(list(people(watched).repeat(2))) == 400
    assert len(seen) == 4
    by_thread: dict[str, list[str]] = {}  # the second connection may be opened before the first one is closed
    for text in seen:
        done, thread = text.split()
        by_thread.setdefault(thread, []).append(done)
    assert all(done == ["opened", "closed"] * (len(done) // 2) for done in by_thread.values())
    assert str(threading.get_ident()) not in by_thread


def test_leaving_early_closes_the_connection(connect: partial[sqlite3.Connection]) -> None:
    closed = threading.Event()

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            closed.set()

    with people(lambda: connect(factory=Watched)).open() as loader:
        next(iter(loader))
    assert closed.wait(10)


def test_parameters_are_passed_to_the_driver(connect: Callable[[], Any]) -> None:
    assert list(people(connect, "SELECT * FROM people WHERE id < ? OR id > ?;", params=(-5, 580))) == [
        row for row in expected() if row["id"] < -5 or row["id"] > 580
    ]
    named = people(connect, "SELECT * FROM people WHERE name = :name", params={"name": "name 7"}, paramstyle="named")
    assert list(named) == [expected()[7]]
    assert list(people(connect, "SELECT * FROM people WHERE name = :name", params={"name": "name 7"})) == list(named)


def test_comments_and_semicolons_end_with_the_query(connect: Callable[[], Any]) -> None:
    assert list(people(connect, "SELECT * FROM people -- all of them")) == expected()


def test_keys_with_odd_text_are_never_part_of_a_statement(connect: Callable[[], Any]) -> None:
    odd = ["'; DROP TABLE people; --", '"', "?", "%s", "{}", ":x", "\n", "", "é\0x"]
    change(connect, "CREATE TABLE odd (name TEXT)")
    with closing(connect()) as database:
        database.executemany("INSERT INTO odd VALUES (?)", [(name,) for name in odd])
        database.commit()
    dataset = people(connect, "SELECT * FROM odd", key="name")
    assert sorted(row["name"] for row in dataset) == sorted(odd)
    resumes_everywhere(dataset)
    with dataset.debug() as loader:  # pages of one row
        assert len(list(loader)) == len(odd)
    assert len(list(people(connect))) == 200


def test_an_empty_result_is_an_empty_data_set(connect: Callable[[], Any]) -> None:
    assert list(people(connect, "SELECT * FROM people WHERE id > 10000")) == []


def rows_before(loader: Loader[Any], error: type[Exception], said: str) -> list[Any]:
    """Return the rows before the error."""
    found: list[Any] = []
    with loader, pytest.raises(error, match=said):
        found.extend(loader)
    return found


@pytest.mark.parametrize("place", [0, 1, 6, 7, 8, 9, 70, 71, 72, 198])
def test_a_repeated_key_is_an_error_behind_the_rows_before_it(place: int, connect: Callable[[], Any]) -> None:
    change(connect, f"UPDATE people SET id = {ROWS[place][0]} WHERE id = {ROWS[place + 1][0]}")
    found = rows_before(people(connect).open(), SqlKeyError, "'id' is not unique: two rows have")
    assert len(found) == place + 1
    assert found[:-1] == expected()[:place]
    assert len(rows_before(people(connect).debug(), SqlKeyError, "is not unique")) == place + 1


def test_a_missing_key_is_an_error(connect: Callable[[], Any]) -> None:
    change(connect, "UPDATE people SET id = NULL WHERE id = 80")
    assert rows_before(people(connect).open(), SqlKeyError, "'id' is NULL in a row") == []
    assert len(list(people(connect, "SELECT * FROM people WHERE id IS NOT NULL"))) == 199


@pytest.mark.parametrize(
    ("query", "key", "said"),
    [
        ("SELECT * FROM people", "height", "is NULL in a row"),
        ("SELECT * FROM people", "nothing", "is no column of the query, which has id, name, height"),
        ("SELECT * FROM people", "rowid", "is no column of the query"),
        ("SELECT id + 0.5 AS id FROM people", "id", "must be int or str, got -9.5"),
        ("SELECT CAST(name AS BLOB) AS id FROM people", "id", "must be int or str, got b'name 0'"),
        ("SELECT substr(hex(zeroblob(900)), 1, 1001 + id * 0) AS id FROM people LIMIT 1", "id", "1001 characters"),
    ],
)
def test_unfit_keys_are_errors(query: str, key: str, said: str, connect: Callable[[], Any]) -> None:
    with pytest.raises(SqlKeyError, match=said):
        list(people(connect, query, key=key))


def test_keys_that_only_the_database_takes_for_equal_are_an_error(connect: Callable[[], Any]) -> None:
    change(connect, "CREATE TABLE words (word TEXT COLLATE NOCASE)", "INSERT INTO words VALUES ('a'), ('A'), ('b')")
    words = people(connect, "SELECT * FROM words", key="word")
    assert len(rows_before(words.debug(), SqlKeyError, "not unique for the database")) == 1
    assert len(rows_before(words.open(), SqlKeyError, "not unique for the database")) == 1


def test_a_run_resumes_only_where_the_database_finds_one_row(connect: Callable[[], Any]) -> None:
    change(connect, "CREATE TABLE words (word TEXT COLLATE NOCASE)", "INSERT INTO words VALUES ('a'), ('b'), ('c')")
    words = people(connect, "SELECT * FROM words", key="word")
    with words.open() as loader:
        first = [next(iter(loader))["word"] for _ in range(2)]
        state = loader.state_dict()
    assert [*first, *(row["word"] for row in words.open(state))] == ["a", "b", "c"]
    change(connect, "INSERT INTO words VALUES ('B')")
    with pytest.raises(SqlKeyError, match="two rows are equal to 'b'"):
        list(words.open(state))


def test_keys_that_differ_in_case_are_unique_without_a_collation(connect: Callable[[], Any]) -> None:
    change(connect, "CREATE TABLE words (word TEXT)", "INSERT INTO words VALUES ('a'), ('A'), ('a '), ('á'), ('b')")
    words = people(connect, "SELECT * FROM words", key="word")
    assert [row["word"] for row in words] == ["A", "a", "a ", "b", "á"]
    resumes_everywhere(words)


def test_errors_of_the_driver_are_the_cause(connect: Callable[[], Any]) -> None:
    with pytest.raises(SqlQueryError, match="no such table: nowhere") as raised:
        list(people(connect, "SELECT * FROM nowhere"))
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    with pytest.raises(SqlQueryError, match="unable to open database file"):
        list(people(partial(sqlite3.connect, "/no/such/folder/people.db")))


def test_an_error_in_the_middle_follows_the_rows_before_it(connect: partial[sqlite3.Connection]) -> None:
    calls = iter(range(100))

    class Failing(sqlite3.Connection):
        def cursor(self, *args: Any) -> Any:
            if next(calls) == 4:
                raise sqlite3.OperationalError("disk I/O error")
            return super().cursor(*args)

    found = rows_before(people(lambda: connect(factory=Failing)).debug(), SqlQueryError, "disk I/O error")
    assert found == expected()[:2]


def test_rows_that_are_gone_cannot_be_fetched(connect: Callable[[], Any]) -> None:
    with people(connect).skip(199).open() as loader:
        next(iter(loader))
        (origin,) = loader.origins()
    change(connect, "DELETE FROM people WHERE id < 10")
    with pytest.raises(StateMismatchError, match="has no row 199"):
        people(connect).fetch(origin)


def test_the_plan_shows_the_query_and_no_values(connect: Callable[[], Any]) -> None:
    shown = people(connect, "SELECT * FROM people WHERE name = ?", params=("secret",)).plan.call()
    assert "from_sql('SELECT * FROM people WHERE name = ?'" in shown
    assert "key='id', params=...)" in shown
    assert "secret" not in shown


NOTHING: Any = lambda: None  # noqa: E731


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"query": 5}, ArgumentTypeError, "query must be str"),
        ({"query": " ; "}, PlanError, "empty string"),
        ({"connection": "people.db"}, StageBuildError, "needs a function that opens a connection"),
        ({"connection": abs}, StageBuildError, "from_sql"),
        ({"key": "id; DROP TABLE people"}, PlanError, "letters, digits and underscores"),
        ({"key": "people.id"}, PlanError, "letters, digits and underscores"),
        ({"key": '"id"'}, PlanError, "letters, digits and underscores"),
        ({"key": ""}, PlanError, "letters, digits and underscores"),
        ({"key": None}, PlanError, "letters, digits and underscores"),
        ({"params": 5}, ArgumentTypeError, "params must be a sequence or a dict"),
        ({"params": "x"}, ArgumentTypeError, "params must be a sequence or a dict"),
        ({"params": {"a": 1}, "paramstyle": "qmark"}, PlanError, "sequence of values for paramstyle='qmark'"),
        ({"params": (1,), "paramstyle": "named"}, PlanError, "dict of values for paramstyle='named'"),
        ({"paramstyle": "dollar"}, PlanError, "paramstyle must be one of"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(arguments: dict[str, Any], kind: type[Exception], said: str) -> None:
    given = {"query": "SELECT 1 AS id", "connection": NOTHING, "key": "id"} | arguments
    with pytest.raises(kind, match=said):
        Dataset.from_sql(given.pop("query"), given.pop("connection"), **given)


# -- databases that return wrong rows


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ({"rows": [[1, "a"], [2]]}, SqlQueryError, "a row of 1 values for 2 columns"),
        ({"rows": [[1, "a", "b"]]}, SqlQueryError, "a row of 3 values for 2 columns"),
        ({"rows": [[1, "a"]], "names": None}, SqlQueryError, "'NoneType' object is not iterable"),
        ({"rows": [[1, "a"]] * 3, "unlimited": True}, SqlQueryError, "has returned 3 rows for LIMIT 0"),
        ({"rows": [[2, "a"], [1, "b"], [3, "c"]], "unsorted": True}, SqlKeyError, "does not ascend: 1 follows 2"),
        ({"rows": [[1 << 200, "a"]]}, SqlKeyError, "has 201 bits in a row, more than 128"),
    ],
)
def test_a_database_that_breaks_a_promise_is_an_error(script: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        list(people(partial(HostileConnection, {"names": ["id", "name"], **script})))


def test_keys_of_the_largest_integer_types_resume() -> None:
    query = "SELECT i::HUGEINT * 4000000000000000000000000000000000000 AS id FROM range(-3, 4) AS t(i)"
    dataset = people(partial(duckdb.connect, ":memory:"), query)
    assert [row["id"] for row in dataset] == [number * 4 * 10**36 for number in range(-3, 4)]
    resumes_everywhere(dataset)
    unsigned = "SELECT (18446744073709551615 - i)::UBIGINT AS id FROM range(3) AS t(i)"
    resumes_everywhere(people(partial(duckdb.connect, ":memory:"), unsigned))
