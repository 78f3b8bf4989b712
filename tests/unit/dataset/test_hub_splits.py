"""The files of the splits of data sets on the Hub: configurations in README.md, and names of files."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from aiostream_data import MissingExtraError, PlanError
from aiostream_data.dataset.hub_splits import (
    chosen,
    configurations,
    files_of,
    patterns_of_config,
    splits_of_names,
)

README = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
  - split: test
    path:
    - data/test-*.parquet
    - ./more/test.parquet
- config_name: small
  data_files: small/*.csv
---
# Name
"""


def test_readme_describes_configurations() -> None:
    configs = configurations(README, "org/name")
    assert list(configs) == ["default", "small"]
    assert patterns_of_config(configs["default"], "org/name") == {
        "train": ["data/train-*.parquet"],
        "test": ["data/test-*.parquet", "more/test.parquet"],
    }
    assert patterns_of_config(configs["small"], "org/name") == {"train": ["small/*.csv"]}


@pytest.mark.parametrize(
    "readme", ["", "# Name", "---\nlicense: mit\n---\n", "---\nconfigs:\n---\n", "text\n" + README]
)
def test_a_readme_without_configurations_has_none(readme: str) -> None:
    assert configurations(readme, "org/name") == {}


@pytest.mark.parametrize(
    ("config", "patterns"),
    [
        ({}, None),
        ({"data_dir": "a/b/"}, {"train": ["a/b/**"]}),
        ({"data_dir": "a", "data_files": [{"split": "dev", "path": "x.csv"}]}, {"dev": ["a/x.csv"]}),
        ({"data_files": ["x.csv", "y.csv"]}, {"train": ["x.csv", "y.csv"]}),
        ({"data_files": {"split": "test", "path": ["x.csv"]}}, {"test": ["x.csv"]}),
    ],
)
def test_forms_of_data_files(config: dict[str, Any], patterns: dict[str, list[str]] | None) -> None:
    assert patterns_of_config(config, "org/name") == patterns


@pytest.mark.parametrize(
    "given", [3, [3], [{"split": 3, "path": "x"}], [{"split": "train"}], [{"split": "a", "path": [1]}]]
)
def test_other_forms_of_data_files_are_refused(given: Any) -> None:
    with pytest.raises(PlanError, match="a form that is not supported"):
        patterns_of_config({"data_files": given}, "org/name")


def test_options_that_change_the_values_of_a_file_are_refused() -> None:
    with pytest.raises(PlanError, match=r"'sep'.*from_csv\(delimiter=\)"):
        patterns_of_config({"data_files": "x.csv", "sep": ";"}, "org/name")


@pytest.mark.parametrize(
    "head", ["configs: [", "configs: 3", "configs: [3]", "configs: !!python/object/apply:os.getcwd []"]
)
def test_an_invalid_head_is_an_error(head: str) -> None:
    with pytest.raises(PlanError, match=r"README\.md of org/name"):
        configurations(f"---\n{head}\n---\n", "org/name")


def test_the_default_configuration_is_chosen() -> None:
    configs = configurations(README, "org/name")
    assert chosen(configs, None, "org/name") is configs["default"]
    assert chosen(configs, "small", "org/name") is configs["small"]
    assert chosen({}, None, "org/name") is None
    only: dict[str, Any] = {"one": {"config_name": "one"}}
    assert chosen(only, None, "org/name") is only["one"]
    marked = {**only, "two": {"config_name": "two", "default": True}}
    assert chosen(marked, None, "org/name") is marked["two"]


@pytest.mark.parametrize(
    ("configs", "name", "message"),
    [
        ({"one": {}, "two": {}}, None, "several configurations: 'one', 'two'"),
        ({"one": {}, "two": {}}, "three", "no configuration 'three'. It has 'one', 'two'"),
        ({}, "three", "It has no configurations"),
    ],
)
def test_a_configuration_that_cannot_be_chosen_is_an_error(configs: Any, name: str | None, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        chosen(configs, name, "org/name")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert configurations("# no head", "org/name") == {}
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[hub\]"):
        configurations(README, "org/name")


@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        (["a.csv", "b/c.csv"], {"train": ["a.csv", "b/c.csv"]}),
        (["train.csv", "test.csv"], {"train": ["train.csv"], "test": ["test.csv"]}),
        (["train/0.csv", "dev/0.csv"], {"train": ["train/0.csv"], "validation": ["dev/0.csv"]}),
        (["my_train_data.csv", "my-val-1.csv"], {"train": ["my_train_data.csv"], "validation": ["my-val-1.csv"]}),
        (["train.csv", "other.csv"], {"train": ["train.csv"]}),
        (["trainer.csv"], {"train": ["trainer.csv"]}),
        (
            ["data/extra-00000-of-00002.parquet", "data/extra-00001-of-00002.parquet", "train.csv"],
            {"extra": ["data/extra-00000-of-00002.parquet", "data/extra-00001-of-00002.parquet"]},
        ),
        (["README.md", ".gitattributes", ".hidden/train.csv", "__pycache__/x.csv", "load.py"], {}),
    ],
)
def test_names_of_files_tell_the_splits(paths: list[str], splits: dict[str, list[str]]) -> None:
    assert splits_of_names(paths) == splits


def test_patterns_match_paths_from_the_root() -> None:
    paths = ["a.csv", "b/a.csv", "b/c/a.csv", "b/c/d.txt"]
    assert files_of(["b/**"], paths) == paths[1:]
    assert files_of(["**/*.csv"], paths) == paths[:3]
    assert files_of(["*.csv", "b/c/d.txt"], paths) == ["a.csv", "b/c/d.txt"]
