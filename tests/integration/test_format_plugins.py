"""``Dataset.open_any`` recognizes formats of installed distributions, and loads them only when it needs them."""

from __future__ import annotations

import gzip
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from grouped_format import grouped
from prefixed_format import PrefixedFormat, prefixed

from aiostream_data import ArgumentTypeError, Dataset, FormatPluginError, PlanError
from aiostream_data.formats.extending import FormatPlugin

RECORDS = [b"one", b"", b"three"]
MARK = b"\0\0\0\x08PREFIXED"
PLUGIN = "FormatPlugin(format=PrefixedFormat(), {})"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("plugin_of_"):
            del sys.modules[name]
    importlib.invalidate_caches()


def install(site: Path, name: str, module: str, target: str = "PLUGIN") -> None:
    """Install a distribution with one module and one entry point."""
    head = "from prefixed_format import PrefixedFormat\nfrom aiostream_data.formats.extending import FormatPlugin\n"
    (site / f"plugin_of_{name}.py").write_text(head + dedent(module))
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[aiostream_data.formats]\n{name} = plugin_of_{name}:{target}\n")
    importlib.invalidate_caches()


def offer(site: Path, name: str, how: str) -> None:
    install(site, name, f"PLUGIN = {PLUGIN.format(how)}")


def written(tmp_path: Path, name: str, content: bytes) -> str:
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


@pytest.mark.parametrize("name", ["a.rec", "A.REC", "a.rec.gz", "a.b.rec"])
def test_files_are_recognized_by_their_suffix(name: str, site: Path, tmp_path: Path) -> None:
    offer(site, "first", 'suffixes=("rec",)')
    content = prefixed(RECORDS)
    url = written(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)
    assert list(Dataset.open_any(url)) == RECORDS


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_files_are_recognized_by_their_first_bytes(compress: Any, site: Path, tmp_path: Path) -> None:
    offer(site, "first", f"magics=({MARK!r},)")
    url = written(tmp_path, "part-00000", compress(MARK + prefixed(RECORDS)))
    assert list(Dataset.open_any(url)) == [b"PREFIXED", *RECORDS]


def test_folders_and_patterns_are_recognized(site: Path, tmp_path: Path) -> None:
    offer(site, "first", 'suffixes=("rec",)')
    (tmp_path / "data").mkdir()
    for part in "ab":
        written(tmp_path / "data", f"{part}.rec", prefixed(RECORDS))
    assert list(Dataset.open_any(tmp_path / "data")) == RECORDS * 2
    assert list(Dataset.open_any(tmp_path / "data" / "*.rec")) == RECORDS * 2
    written(tmp_path / "data", "c.csv", b"a\n1\n")
    with pytest.raises(PlanError, match=r"several formats: 1 of CSV, 2 of prefixed"):
        Dataset.open_any(tmp_path / "data")


def test_formats_with_row_groups_are_recognized(site: Path, tmp_path: Path) -> None:
    install(
        site,
        "first",
        """
        from grouped_format import GroupedFormat
        PLUGIN = FormatPlugin(format=GroupedFormat(("label",)), suffixes=("grouped",))
        """,
    )
    url = written(tmp_path, "a.grouped", grouped([{"label": 5, "x": range(64)}], 1))
    assert list(Dataset.open_any(url)) == [{"label": 5}]


def test_the_magic_must_fit_to_the_suffix(site: Path, tmp_path: Path) -> None:
    offer(site, "first", f'suffixes=("rec",), magics=({MARK!r},)')
    assert list(Dataset.open_any(written(tmp_path, "a.rec", MARK))) == [b"PREFIXED"]
    assert list(Dataset.open_any(written(tmp_path, "b.rec", b"lines\nof text\n"))) == ["lines", "of text"]
    with pytest.raises(PlanError, match="cannot recognize the format"):
        Dataset.open_any(written(tmp_path, "c.rec", prefixed(RECORDS)))


def test_kinds_of_files_without_a_constructor_can_be_offered(site: Path, tmp_path: Path) -> None:
    offer(site, "first", 'suffixes=("orc",)')
    assert Dataset.open_any(written(tmp_path, "a.orc", b"ORC\x08\x03")).plan.call().startswith("from_format(")


def test_formats_of_the_package_are_read_without_loading_others(site: Path, tmp_path: Path) -> None:
    install(site, "first", "raise RuntimeError('loaded')")
    assert list(Dataset.open_any(written(tmp_path, "a.txt", b"one\n"))) == ["one"]
    assert "plugin_of_first" not in sys.modules


def test_a_known_format_goes_before_a_wrong_name(site: Path, tmp_path: Path) -> None:
    offer(site, "first", 'suffixes=("rec",)')
    found = Dataset.open_any(written(tmp_path, "a.rec", b"\x93NUMPY\x01\0")).plan
    assert "NpyFormat" in repr(found)


@pytest.mark.parametrize(
    ("module", "target", "said"),
    [
        ("raise RuntimeError('no licence')", "PLUGIN", "RuntimeError: no licence"),
        ("import no_such_module", "PLUGIN", "No module named 'no_such_module'"),
        ("", "PLUGIN", "AttributeError"),
        ("PLUGIN = PrefixedFormat()", "PLUGIN", "must be a FormatPlugin"),
        ("PLUGIN = FormatPlugin(format=PrefixedFormat())", "PLUGIN", "needs suffixes or magics"),
    ],
)
def test_a_broken_plugin_names_its_distribution(
    module: str, target: str, said: str, site: Path, tmp_path: Path
) -> None:
    offer(site, "first", 'suffixes=("rec",)')
    install(site, "second", module, target)
    with pytest.raises(FormatPluginError, match=said) as raised:
        Dataset.open_any(written(tmp_path, "a.rec", prefixed(RECORDS)))
    assert (raised.value.distribution, raised.value.entry_point) == ("second", "second")
    assert "the distribution second" in str(raised.value)


def test_two_distributions_with_one_suffix_are_both_named(site: Path, tmp_path: Path) -> None:
    offer(site, "first", 'suffixes=("rec",)')
    offer(site, "second", f'suffixes=("rec", "other"), magics=({MARK!r},)')
    with pytest.raises(PlanError, match=r"the suffix \.rec: prefixed of first, prefixed of second"):
        Dataset.open_any(written(tmp_path, "a.rec", prefixed(RECORDS)))


def test_two_distributions_with_one_magic_are_both_named(site: Path, tmp_path: Path) -> None:
    offer(site, "first", f"magics=({MARK!r},)")
    offer(site, "second", f"magics=({MARK[:6]!r},)")
    with pytest.raises(PlanError, match=r"PREFIXED'.*: prefixed of first, prefixed of second"):
        Dataset.open_any(written(tmp_path, "a", MARK))


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({}, PlanError, "needs suffixes or magics"),
        ({"suffixes": "rec"}, ArgumentTypeError, "suffixes must be a tuple of str"),
        ({"suffixes": (1,)}, ArgumentTypeError, "suffixes must be a tuple of str"),
        ({"suffixes": (".rec",)}, PlanError, "without a dot"),
        ({"suffixes": ("REC",)}, PlanError, "in lower case"),
        ({"magics": ("x",)}, ArgumentTypeError, "magics must be a tuple of bytes"),
        ({"magics": (b"",)}, PlanError, "must not be empty"),
        ({"format": PrefixedFormat, "suffixes": ("rec",)}, ArgumentTypeError, "got the class"),
    ],
)
def test_wrong_plugins_are_refused(arguments: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        FormatPlugin(**({"format": PrefixedFormat()} | arguments))
