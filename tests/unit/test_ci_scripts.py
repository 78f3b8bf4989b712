"""The scripts behind `make check` and `make quick`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ci"))

import check  # noqa: E402
import check_names  # noqa: E402
import check_size  # noqa: E402
import quick  # noqa: E402


def test_a_long_file_is_refused_unless_it_is_listed() -> None:
    lines = {"short.py": 400, "long.py": 401, "listed.py": 900}
    assert check_size.too_long(lines, {"listed.py"}) == ["long.py: 401 lines (limit 400)"]


def test_an_exception_for_a_short_or_missing_file_is_refused() -> None:
    found = check_size.listed_for_nothing(
        {"short.py": 10, "long.py": 500}, dict.fromkeys(["short.py", "gone.py", "long.py"], "why")
    )
    assert [line.split(":")[0] for line in found] == ["short.py", "gone.py"]


def test_every_exception_has_a_reason() -> None:
    assert all(check_size.LONGER.values())


def test_a_public_name_on_no_page_is_refused() -> None:
    found = check_names.unmentioned(["Loader", "Ranks"], "a `Loader`, a LoaderRanks")
    assert [line.split(":")[0] for line in found] == ["Ranks"]


def test_a_class_without_a_docstring_of_its_own_is_noticed() -> None:
    class Told:
        """Say what it is."""

    class Untold(Told):
        pass

    assert check_names.has_docstring("Told", Told, "")
    assert not check_names.has_docstring("Untold", Untold, "")


@pytest.mark.parametrize(("source", "documented"), [('A: Final = 1\n"""One."""\n', True), ("A: Final = 1\n", False)])
def test_the_text_below_a_constant_is_its_docstring(source: str, documented: bool) -> None:
    assert check_names.has_docstring("A", 1, source) is documented


def test_a_check_that_fails_is_reported_with_its_output() -> None:
    result = check.run("a title", ("python", "-c", "raise SystemExit('what is wrong')"))
    assert (result.passed, result.output) == (False, "what is wrong")


def test_a_tool_that_is_missing_fails_its_check() -> None:
    result = check.run("a title", ("no_such_tool",))
    assert not result.passed
    assert "make install" in result.output


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in (
        "unit/test_errors.py",
        "unit/storage/test_urls.py",
        "unit/_engine/flow/test_hop.py",
        "gpu/test_gpu.py",
    ):
        (tmp_path / "tests" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / path).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("aiostream_data/storage/urls.py", {"tests/unit/storage/test_urls.py"}),
        ("aiostream_data/storage/cache/names.py", {"tests/unit/storage/test_urls.py"}),
        ("aiostream_data/_engine/flow/channel.py", {"tests/unit/_engine/flow/test_hop.py"}),
        ("aiostream_data/errors.py", {"tests/unit/test_errors.py"}),
        ("tests/unit/test_errors.py", {"tests/unit/test_errors.py"}),
        ("tests/unit/test_gone.py", set()),
        ("tests/fakes/gate.py", set()),
        ("tests/gpu/test_gpu.py", set()),
        ("docs/memory.md", {quick.LINKS}),
        ("benchmarks/run.py", set()),
    ],
)
def test_a_change_selects_the_tests_of_its_room(tree: Path, changed: str, tests: set[str]) -> None:
    assert quick.tests_of(changed, tree) == tests


def test_changed_tests_that_measure_run_alone(tree: Path) -> None:
    (tree / "tests" / "lifecycle").mkdir()
    (tree / "tests" / "lifecycle" / "test_end.py").touch()
    chosen = quick.select(["tests/lifecycle/test_end.py", "aiostream_data/errors.py", "LICENSE"], tree)
    assert (chosen.alone, chosen.beside) == ({"tests/lifecycle/test_end.py"}, {"tests/unit/test_errors.py"})
    assert chosen.without == ["LICENSE"]
