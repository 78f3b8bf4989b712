"""Draw plans over shards that give every record once per epoch, as far as nothing ends them before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np
from metamorphic.drawing import chance
from shard_folders import RECORD_NBYTES, Folder

from aiostream_data import Dataset

T = TypeVar("T")


def one_of(random: Random, *options: T) -> T:
    """Return one of the options."""
    return random.choice(options)


# -- functions of plans; a row is a text


def as_text(record: Any) -> str:
    record = record["data"] if isinstance(record, dict) else record
    return record.decode().strip() if isinstance(record, bytes) else str(record)


def lines_of(url: str) -> Dataset[str]:
    return Dataset.from_text(url)


def alone(row: str) -> list[str]:
    return [row]


def as_data_set(row: str) -> Dataset[Any]:
    return Dataset.from_tensor_slices([row])


def as_bytes(row: str) -> Any:
    return np.frombuffer(row.encode(), np.uint8)


def of_bytes(rows: Any) -> list[str]:
    return [bytes(row[row > 0]).decode() for row in rows]


def second(number: int, row: str) -> str:
    return row


def together(*rows: str) -> str:
    return "|".join(rows)


def any_row(row: str) -> bool:
    return True


def rows_in(element: Any) -> Iterator[str]:
    """Yield the rows of an element, whatever they were put together in."""
    if isinstance(element, np.ndarray) and element.dtype == np.uint8:
        element = of_bytes(element)
    if isinstance(element, (list, tuple, np.ndarray)):
        for part in element:
            yield from rows_in(part)
    else:
        yield from str(element).split("|")


@dataclass
class Plan:
    """A drawn plan.

    Attributes:
        sources: What it reads.
        text: The program.
        times: How often every row is given.
        mixes_epochs: Rows of one epoch may be held while those of the next are read.
        complete: Nothing ends the stream before all rows were given.
        holds: Rows may be held back, and be needed after their shard was removed.
        counts: What a refusal may be due to: "unbatch", "cache", "listed", "concatenate".
        in_one_order: The order is the same for any run.
        for_ranks: Several ranks can share the rows, and all of them are delivered.
    """

    sources: Sequence[Folder]
    text: str = ""
    times: int = 1
    mixes_epochs: bool = False
    complete: bool = True
    holds: bool = False
    counts: frozenset[str] = frozenset()
    in_one_order: bool = True
    for_ranks: bool = True

    def build(self) -> Dataset[Any]:
        """Return the data set."""
        built: Dataset[Any] = build(self.text, self.sources)
        return built


def build(text: str, sources: Sequence[Folder]) -> Any:
    """Return the data set that a program gives."""
    return eval(text, {**globals(), **{folder.name: folder for folder in sources}})


def draw_plan(random: Random, sources: Sequence[Folder]) -> Plan:
    """Draw a plan over all these sources."""
    plan = Plan(sources)
    branches = [_with_operators(random, draw_source(random, plan, folder), plan, 2) for folder in sources]
    text = branches[0] if len(branches) == 1 else _joined(random, branches, plan)
    if chance(random, 0.3):
        text = _with_operators(random, text, plan, 1)
        plan.times = random.randint(2, 3)
        held, plan.holds = plan.holds, False
        text = _with_operators(random, f"{text}.repeat({plan.times})", plan, 2)
        plan.mixes_epochs, plan.holds = plan.holds or not plan.in_one_order, plan.holds or held
    else:
        text = _with_operators(random, text, plan, 3)
    plan.text = _ended(random, text, plan)
    return plan


def _ended(random: Random, text: str, plan: Plan) -> str:
    match random.random():
        case drawn if drawn < 0.15:
            plan.for_ranks = False
            return f"{text}.batch({random.randint(1, 4)})"
        case drawn if drawn < 0.22:
            plan.for_ranks = False
            return f"{text}.map(as_bytes).padded_batch({random.randint(1, 4)})"
        case drawn if drawn < 0.3:
            plan.complete = plan.for_ranks = False
            return f"{text}.take({random.randint(1, 30)})"
        case drawn if drawn < 0.33:
            return f"{text}.in_subprocess()"
    return text


def draw_source(random: Random, plan: Plan, folder: Folder) -> str:
    """Return a source that reads a folder, and gives texts."""
    reading = f"cycle_length={random.randint(1, 4)}, block_length={random.randint(1, 3)}"
    shuffled = chance(random, 0.5)
    if shuffled:
        reading += f", shuffle_shards=True, seed={one_of(random, None, 3)}"
    if chance(random, 0.15):
        reading += f", read_ahead={random.randint(1, 3)}"
    if chance(random, 0.08):
        reading += ", ordered=False"
        plan.in_one_order = plan.for_ranks = False
    pattern = f"{folder.name}.pattern"
    match folder.suffix:
        case ".tfrecord":
            return f"Dataset.from_tfrecord({pattern}, {reading}).map(as_text)"
        case ".bin":
            return f"Dataset.from_fixed_length({pattern}, {RECORD_NBYTES}, {reading}).map(as_text)"
        case ".one":
            order = one_of(random, ").shuffle()", f", shuffle_shards={shuffled})")
            return f"Dataset.from_files({pattern}{order}.map(as_text)"
        case ".txt" if chance(random, 0.25):
            return _named(random, f"Dataset.list_files({pattern}, seed={one_of(random, None, 2)})", reading, plan)
    return f"Dataset.from_text({pattern}, {reading})"


def _named(random: Random, names: str, reading: str, plan: Plan) -> str:
    """Return a source that reads the files that another one names."""
    plan.holds = True
    if chance(random, 0.3):
        plan.counts |= {"listed"}
        return f"Dataset.from_text({names}, {reading})"
    if chance(random, 0.5):
        return f"{names}.flat_map(lines_of)"
    return f"{names}.interleave(lines_of, cycle_length={random.randint(1, 3)})"


def _with_operators(random: Random, text: str, plan: Plan, most: int) -> str:
    for _ in range(random.randint(0, most)):
        text = f"{text}.{one_of(random, *OPERATORS)(random, plan)}"
    return text


Operator = Callable[[Random, Plan], str]
"""Returns a call that keeps all rows."""


def _plain(random: Random, plan: Plan) -> str:
    return one_of(random, "map(as_text)", "filter(any_row)", "prefetch(2)", "enumerate().map(second)")


def _shuffled(random: Random, plan: Plan) -> str:
    plan.holds = True
    size = random.randint(1, 12)
    return one_of(random, "shuffle()", f"shuffle({size})", f"shuffle({size}, seed=1)")


def _cut_again(random: Random, plan: Plan) -> str:
    plan.counts |= {"unbatch"}
    size, other = random.randint(1, 5), random.randint(1, 4)
    return one_of(
        random,
        f"batch({size}).unbatch()",
        f"batch({size}).rebatch({other}).unbatch()",
        f"window({size}, {size}).unbatch()",
        f"map(as_bytes).padded_batch({size}).map(of_bytes).unbatch()",
    )


def _bucketed(random: Random, plan: Plan) -> str:
    plan.counts |= {"unbatch"}
    plan.holds = True
    return "map(as_bytes).bucket_by_sequence_length(len, [7, 8], [2, 3, 2]).map(of_bytes).unbatch()"


def _expanded(random: Random, plan: Plan) -> str:
    plan.holds = True
    return one_of(random, "flat_map(alone)", f"interleave(as_data_set, cycle_length={random.randint(1, 3)})")


def _unordered(random: Random, plan: Plan) -> str:
    plan.holds, plan.in_one_order, plan.for_ranks = True, False, False
    return "map(as_text, ordered=False, concurrency=2)"


def _cached(random: Random, plan: Plan) -> str:
    plan.counts |= {"cache"}
    return "cache()"


OPERATORS: Sequence[Operator] = (
    *(_plain, _plain, _plain, _shuffled, _shuffled, _shuffled),
    *(_cut_again, _cut_again, _bucketed, _expanded, _unordered, _cached),
)


def _joined(random: Random, branches: list[str], plan: Plan) -> str:
    names = ", ".join(branches)
    match one_of(random, "concatenate", "sample", "sample", "choose", "zip"):
        case "concatenate":
            plan.counts |= {"concatenate"}
            return f"{branches[0]}.concatenate({', '.join(branches[1:])})"
        case "sample":
            stop = one_of(random, "all", "all", "first")
            plan.complete &= stop == "all"
            weights = one_of(random, None, [random.randint(1, 4) for _ in branches])
            drawn = one_of(random, "", "", f", random=True, seed={random.randrange(9)}")
            return f'Dataset.sample_from([{names}], {weights}, stop="{stop}"{drawn})'
        case "choose":
            return f'Dataset.choose_from([{names}], Dataset.range({len(branches)}).repeat(1000), stop="all")'
    plan.complete = False
    return f"Dataset.zip({names}).map(together)"
