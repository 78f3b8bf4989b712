"""Splits of a folder that TensorFlow Datasets prepared, as ``dataset_info.json`` declares them, and their slices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Never

from aiostream_data.errors import PlanError, TfdsError
from aiostream_data.safe_url import safe_url, shorten

_TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_PLACES: Final = re.compile(r"\{(\w+)\}")
_MOST_SHARDS: Final = 10_000_000
_MOST_ROWS: Final = (1 << 63) - 1
_MOST_DIGITS: Final = len(str(_MOST_ROWS))
_NUMBER: Final = r"-?[0-9][0-9_]*(?:\.[0-9]+)?|-?\.[0-9]+"
_PART: Final = re.compile(rf"([\w-]+)(?:\[(?:({_NUMBER})(%|shard)?)?(?:(:)(?:({_NUMBER})(%|shard)?)?)?\])?")
_FORMS: Final = "Examples: 'train', 'train[:100]', 'train[10%:]', 'train[:-2shard]', 'train+test'."


class SplitShard(NamedTuple):
    """A file of a split.

    Attributes:
        name: Path of the file below the folder.
        rows: Number of its records.
    """

    name: str
    rows: int


@dataclass(frozen=True)
class SplitPart:
    """A slice of the rows of one split, in the order of its shards.

    Attributes:
        name: Name of the split; "all" for all splits.
        first, last: Ends of the slice as numbers with a unit; None for an open end. Negative ends count from the end.
        unit: "" for rows, "%" or "shard".
    """

    name: str
    first: float | None = None
    last: float | None = None
    unit: str = ""


class Piece(NamedTuple):
    """Consecutive shards of one split, of which all rows are read, or a part of a single shard.

    Attributes:
        shards: Names of the files.
        skip: Number of rows to skip at the start.
        take: Number of rows to read after them; None for all.
    """

    shards: tuple[str, ...]
    skip: int = 0
    take: int | None = None


class DatasetInfo(NamedTuple):
    """Content of ``dataset_info.json``.

    Attributes:
        url: URL of the file.
        splits: Shards of each split, by name.
    """

    url: str
    splits: dict[str, tuple[SplitShard, ...]]

    def pieces(self, parts: Sequence[SplitPart]) -> list[Piece]:
        """Return the shards and parts of shards to read, in order.

        Raises:
            PlanError: A split does not exist, or a slice is not part of its split.
        """
        found: list[Piece] = []
        for part in parts:
            names = list(self.splits) if part.name == "all" and "all" not in self.splits else [part.name]
            for name in names:
                if name not in self.splits:
                    raise PlanError(f"{safe_url(self.url)} has no split {name!r}. Its splits are {list(self.splits)}.")
                first, stop = _bounds(part, name, self.splits[name])
                found += _pieces(self.splits[name], first, stop)
        if not found:
            raise PlanError(f"the split selects no rows of {safe_url(self.url)}, which has {rows_of(self.splits)}")
        return found


def rows_of(splits: Mapping[str, Sequence[SplitShard]]) -> dict[str, int]:
    """Return the number of rows of each split."""
    return {name: sum(shard.rows for shard in shards) for name, shards in splits.items()}


def parse_split(split: Any) -> tuple[SplitPart, ...]:
    """Parse a ``split`` argument, such as ``"train[:80%]+test"``.

    Raises:
        PlanError: The argument is invalid.
    """
    if not isinstance(split, str):
        raise PlanError(f"split must be a str, got {type(split).__name__}. {_FORMS}")
    return tuple(_part(split, text.strip()) for text in split.split("+"))


def _part(split: str, text: str) -> SplitPart:
    found = _PART.fullmatch(text)
    if found is None or (text.endswith("]") and found[2] is None and found[5] is None):
        raise PlanError(f"cannot parse split={shorten(repr(split))}. {_FORMS}")
    name, first, unit, colon, last, last_unit = found.groups()
    unit = unit or last_unit or ""
    if first is None and last is None:
        return SplitPart(name)
    if name == "all":
        raise PlanError("'all' cannot be sliced. Name the splits, as in 'train[:10%]+test[:10%]'.")
    if last_unit and last_unit != unit:
        raise PlanError(f"the ends of split={shorten(repr(split))} have different units. {_FORMS}")
    ends = [None if end is None else _end(split, end, unit) for end in (first, last)]
    if colon is None:
        if unit != "shard" or ends[0] is None:
            raise PlanError(f"split={shorten(repr(split))} is not a slice. Write [first:stop], or [number of shard].")
        ends[1] = ends[0] + 1 if ends[0] != -1 else None
    return SplitPart(name, ends[0], ends[1], unit)


def _end(split: str, text: str, unit: str) -> float:
    if unit != "%" and "." in text:
        raise PlanError(f"split={shorten(repr(split))} must have whole numbers of rows or shards. {_FORMS}")
    end = float(text) if unit == "%" else int(text)
    if unit == "%" and abs(end) > 100:
        raise PlanError(f"split={shorten(repr(split))} must have percentages from -100 to 100")
    return end


def _bounds(part: SplitPart, name: str, shards: Sequence[SplitShard]) -> tuple[int, int]:
    """Return the numbers of the first row of a slice, and of the row after its last one."""
    rows = sum(shard.rows for shard in shards)
    starts = [0]
    for shard in shards:
        starts.append(starts[-1] + shard.rows)
    first, stop = (_row(end, part.unit, rows, starts) for end in (part.first, part.last))
    first, stop = 0 if first is None else first, rows if stop is None else stop
    if not 0 <= first <= rows or not 0 <= stop <= rows:
        raise PlanError(f"the slice of split {name!r} is not part of its {rows} rows in {len(shards)} shards")
    return first, stop


def _row(end: float | None, unit: str, rows: int, starts: Sequence[int]) -> int | None:
    if end is None:
        return None
    if unit == "shard":
        at = int(end) + (len(starts) - 1 if end < 0 else 0)
        return starts[at] if 0 <= at < len(starts) else -1
    row = round(end * rows / 100) if unit == "%" else int(end)
    return row + rows if row < 0 else row


def _pieces(shards: Sequence[SplitShard], first: int, stop: int) -> list[Piece]:
    """Return the whole shards of a slice, and the parts of the shards at its ends."""
    found: list[Piece] = []
    whole: list[str] = []
    start = 0
    for shard in shards:
        begin, end = max(first, start) - start, min(stop, start + shard.rows) - start
        start += shard.rows
        if begin >= end:
            continue
        if (begin, end) == (0, shard.rows):
            whole.append(shard.name)
            continue
        found += [Piece(tuple(whole))] if whole else []
        found.append(Piece((shard.name,), begin, end - begin))
        whole = []
    return [*found, Piece(tuple(whole))] if whole else found


def parse_info(url: str, content: bytes) -> DatasetInfo:
    """Parse a ``dataset_info.json``.

    Raises:
        TfdsError: The content does not describe splits of TFRecord files, or names a file outside of its folder.
    """
    try:
        info = json.loads(content)
    except (ValueError, RecursionError):
        _refuse(url, "the file is not JSON")
    name = info.get("name") if isinstance(info, dict) else None
    splits = info.get("splits") if isinstance(info, dict) else None
    if not isinstance(name, str) or not isinstance(splits, list) or not all(isinstance(each, dict) for each in splits):
        _refuse(url, "the file does not describe a dataset. Pass the folder of one version of a dataset.")
    format = info.get("fileFormat", info.get("file_format")) or "tfrecord"
    if format != "tfrecord":
        _refuse(url, f"the files have the format {shorten(repr(format))}. Only 'tfrecord' is supported.")
    found = {_text(url, split.get("name")): _shards(url, name, split) for split in splits}
    if len(found) < len(splits):
        _refuse(url, "two splits have the same name")
    return DatasetInfo(url, found)


def _shards(url: str, dataset: str, split: dict[str, Any]) -> tuple[SplitShard, ...]:
    name = _text(url, split.get("name"))
    template = _text(url, split.get("filepathTemplate") or split.get("filepath_template") or _TEMPLATE)
    lengths = split.get("shardLengths", split.get("shard_lengths"))
    if not isinstance(lengths, list) or len(lengths) > _MOST_SHARDS:
        _refuse(url, f"split {name!r} has no list of shards. Datasets of old versions lack it: prepare it again.")
    digits = max(5, len(str(len(lengths))))
    count = f"{len(lengths):0{digits}}"
    shards = []
    for number, given in enumerate(lengths):
        rows = _rows(url, name, given)
        index = f"{number:0{digits}}"
        values = {"DATASET": dataset, "SPLIT": name, "FILEFORMAT": "tfrecord", "SHARD_INDEX": index}
        values |= {"NUM_SHARDS": count, "SHARD_X_OF_Y": f"{index}-of-{count}"}
        file = _PLACES.sub(lambda found, values=values: values.get(found[1], found[0]), template)  # type: ignore[misc]
        shards.append(SplitShard(_below(url, file), rows))
    return tuple(shards)


def _rows(url: str, split: str, given: Any) -> int:
    """Return the number of rows of a shard, which may be written as a JSON number or as text."""
    is_text = isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS
    rows = int(given) if is_text or type(given) is int else -1
    if not 0 <= rows <= _MOST_ROWS:
        _refuse(url, f"split {split!r} has a shard with an invalid number of rows: {shorten(repr(given))}")
    return rows


def _text(url: str, given: Any) -> str:
    if not isinstance(given, str) or not given:
        _refuse(url, "a split lacks its name")
    return given


def _below(url: str, name: str) -> str:
    """Return the path of a file if it lies in the folder of the dataset."""
    parts = name.split("/")
    if not name.isprintable() or {"", ".", ".."} & set(parts) or set(":\\~?#{}") & set(name):
        _refuse(url, f"a split has a file outside of the folder: {shorten(repr(name))}")
    return name


def _refuse(url: str, reason: str) -> Never:
    raise TfdsError(url, None, "", reason)
