"""Splits of data sets on the Hugging Face Hub: from the configurations in README.md, or from the names of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiostream_data.errors import MissingExtraError, PlanError
from aiostream_data.formats.recognition import is_data
from aiostream_data.storage.patterns import compile_pattern

README: Final = "README.md"
MAX_README_NBYTES: Final = 4 << 20

_HEAD: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_SHARD: Final = re.compile(r"data/([\w.]+)-\d{5}-of-\d{5}\b.*", re.ASCII)
_KEYWORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_WORDS: Final = re.compile(r"[-._ 0-9/]+")
_DEFAULT: Final = "default"

Patterns = dict[str, list[str]]
"""Patterns of the files of each split, relative to the root of the repository."""


def configurations(readme: str, repository: str) -> dict[str, Mapping[str, Any]]:
    """Return the configurations that the head of README.md describes, by their names. Empty if it describes none.

    Raises:
        PlanError: The head is not valid.
        MissingExtraError: PyYAML is not installed.
    """
    head = _HEAD.match(readme)
    if head is None or "configs" not in head[1]:
        return {}
    try:
        import yaml
    except ImportError as error:
        reason = f"the configurations of {repository} need the extra: pip install 'aiostream-data[hub]'"
        raise MissingExtraError(reason) from error
    try:
        described = yaml.safe_load(head[1])
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PlanError(f"the head of README.md of {repository} is not valid YAML: {error}") from error
    configs = described.get("configs") if isinstance(described, Mapping) else None
    if not configs:
        return {}
    if not isinstance(configs, list) or not all(isinstance(config, Mapping) for config in configs):
        raise PlanError(f"configs in README.md of {repository} is not a list of configurations")
    return {str(config.get("config_name", _DEFAULT)): config for config in configs}


def chosen(configs: Mapping[str, Mapping[str, Any]], name: str | None, repository: str) -> Mapping[str, Any] | None:
    """Return the configuration of a name, the default one, or None if there are no configurations.

    Raises:
        PlanError: There is no such configuration, or a name must be chosen.
    """
    if name is not None:
        if name not in configs:
            known = f"It has {_listed(configs)}." if configs else "It has no configurations."
            raise PlanError(f"{repository} has no configuration {name!r}. {known}")
        return configs[name]
    marked = [config for config in configs.values() if config.get("default") is True]
    if marked or not configs:
        return marked[0] if marked else None
    if len(configs) > 1 and _DEFAULT not in configs:
        raise PlanError(f"{repository} has several configurations: {_listed(configs)}. Choose one with config=.")
    return configs.get(_DEFAULT) or next(iter(configs.values()))


def patterns_of_config(config: Mapping[str, Any], repository: str) -> Patterns | None:
    """Return the patterns of the files of each split. Return None if the names of the files tell the splits.

    Raises:
        PlanError: ``data_files`` has a form that is not supported, or an option of the configuration is not.
    """
    for option in ("sep", "delimiter"):
        if option in config:
            reason = f"a configuration of {repository} has the option {option!r}, which from_hub() does not apply"
            raise PlanError(f"{reason}. Pass the files as hf://datasets/{repository}/... to from_csv(delimiter=).")
    folder = config.get("data_dir")
    start = f"{folder.strip('/')}/" if isinstance(folder, str) and folder.strip("/") else ""
    given = config.get("data_files")
    if given is None:
        return {"train": [f"{start}**"]} if start else None
    entries = [given] if isinstance(given, str | Mapping) else given
    found: Patterns = {}
    for entry in entries if isinstance(entries, list) else [None]:
        split, path = ("train", entry) if isinstance(entry, str) else _entry(entry)
        paths = [path] if isinstance(path, str) else path
        if not isinstance(split, str) or not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
            raise PlanError(f"data_files in README.md of {repository} has a form that is not supported")
        found.setdefault(split, []).extend(start + path.removeprefix("./") for path in paths)
    return found


def _entry(entry: Any) -> tuple[Any, Any]:
    return (entry.get("split"), entry.get("path")) if isinstance(entry, Mapping) else (None, None)


def splits_of_names(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each split that the names tell, by the conventions of the Hub.

    Files such as ``data/train-00000-of-00004.parquet`` are splits of any name. Otherwise, words such as ``train``,
    ``test`` and ``validation`` in the paths tell the split. Without such words, all files are the split ``train``.
    """
    data = [path for path in paths if _may_be_data(path)]
    shards: dict[str, list[str]] = {}
    for path in data:
        if shard := _SHARD.fullmatch(path):
            shards.setdefault(shard[1], []).append(path)
    if shards:
        return shards
    named: dict[str, list[str]] = {}
    for path in data:
        for split in dict.fromkeys(_KEYWORDS[word] for word in _WORDS.split(path) if word in _KEYWORDS):
            named.setdefault(split, []).append(path)
    return named or ({"train": data} if data else {})


def _may_be_data(path: str) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.split("/"))
    return not hidden and is_data(path) and path.rpartition("/")[2] != "dataset_infos.json" and not path.endswith(".py")


def files_of(patterns: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Return the paths that match one of some patterns, sorted."""
    matches = [compile_pattern(pattern).fullmatch for pattern in patterns]
    return [path for path in paths if any(match(path) for match in matches)]


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names))
