"""Draw random plans, which both libraries can run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from differential.functions import BYTES, DICT, FLOAT, INT, MAPS, PAIR, PREDICATES, ROW, VECTOR
from differential.outcomes import Plan

Kind: TypeAlias = str
"""Kind of elements; see :mod:`.functions`. ``[kind]`` is a batch of elements of a kind; few operators take OTHER."""

OTHER = "other"
_DRAWS_OF_A_PLAN = (1, 7)


def draw_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    random = Random(seed)
    plan, kind = _source(random)
    for _ in range(random.randint(*_DRAWS_OF_A_PLAN)):
        step, kind = _operator(random, kind)
        plan.append(step)
        if step == ["repeat", None]:  # of which a filter would wait for ever
            if random.random() < 0.5:
                break
            plan.append(["take", 7])
    return plan


def _source(random: Random, kind: Kind | None = None) -> tuple[Plan, Kind]:
    kind = kind or random.choice([INT, INT, INT, INT, PAIR, DICT, VECTOR, BYTES, FLOAT])
    count = random.choice([0, 1, 2, 3, 5, 8, 13])
    numbers = [random.randint(-4, 9) for _ in range(count or 1)]
    if kind == INT and random.random() < 0.05:
        return [["counter", random.randint(-3, 3), random.choice([1, 2, -1])], ["take", random.randint(0, 9)]], INT
    if kind == INT and random.random() < 0.7:
        start, step = random.randint(-3, 3), random.choice([1, 1, 1, 2, 3, -1])
        return [["range", start, start + count * step + random.choice([0, 0, 1, -1]), step]], INT
    sources: dict[Kind, Any] = {
        INT: ["slices", numbers],
        FLOAT: ["slices", [number / 4 for number in numbers]],
        PAIR: ["slices of a pair", numbers, [number * 2 for number in numbers]],
        DICT: ["slices of a dict", numbers],
        VECTOR: ["slices", [[number, 1, 2] for number in numbers]],
        BYTES: ["slices of bytes", ["x" * (number % 3) + str(number) for number in numbers]],
        ROW: ["range", 0, count, 1],
    }
    plan: Plan = [sources[kind]]
    return ([*plan, ["map", "row"]], ROW) if kind == ROW else (plan, kind)


def _is_batch(kind: Kind) -> bool:
    return kind.startswith("[")


def _operator(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    """Return an operator that accepts elements of a kind, and the kind of its results."""
    choices: list[Callable[[Random, Kind], tuple[list[Any], Kind]]] = [_same_elements, _same_elements, _joined]
    if kind in {function.takes for function in MAPS.values()}:
        choices += [_map, _map, _map]
    if kind in {takes for takes, _ in PREDICATES.values()}:
        choices.append(_filter)
    if kind in (INT, BYTES):
        choices.append(lambda random, kind: (["unique"], kind))
    if kind == INT:
        choices += [_of_numbers, _of_numbers, _of_numbers]
    if not _is_batch(kind) and kind != OTHER:
        choices += [_batch, _batch]
    if kind in (ROW, VECTOR, INT, PAIR):
        choices.append(_padded)
    if kind == ROW:
        choices.append(_buckets)
    if _is_batch(kind):
        choices += [_of_batches, _of_batches]
    return random.choice(choices)(random, kind)


def _same_elements(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    shards = random.randint(1, 3)
    return random.choice(
        [
            ["take", random.choice([-1, 0, 1, 2, 3, 5, 100])],
            ["skip", random.choice([-1, 0, 1, 2, 3, 100])],
            ["repeat", random.choice([0, 1, 2, 3, None])],
            ["shard", shards, random.randrange(shards) if random.random() < 0.9 else shards],
            ["cache"],
            ["prefetch", random.choice([1, 2, 5])],
        ]
    ), kind


def _map(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    name = random.choice([name for name, function in MAPS.items() if function.takes == kind])
    return ["map", name], MAPS[name].gives


def _filter(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    name = random.choice([name for name, (takes, _) in PREDICATES.items() if takes == kind])
    return [random.choice(["filter", "filter", "take_while"]), name], kind


def _joined(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    """Return an operator with several inputs."""
    if kind in (OTHER, ROW) or _is_batch(kind):
        return ["repeat", 2], kind
    if kind == INT and random.random() < 0.4:
        return ["zip", _source(random, INT)[0]], PAIR
    if kind == INT and random.random() < 0.4:
        choices = [random.choice([0, 0, 1, 1, 0, 1, 2]) for _ in range(random.randint(1, 9))]
        return ["choose", _source(random, INT)[0], choices, random.choice(["first", "all"])], INT
    return ["concatenate", _source(random, kind)[0]], kind


def _of_numbers(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    size = random.randint(1, 4)
    window = [size, random.choice([None, 1, 2, size + 1]), random.randint(1, 2), random.random() < 0.5]
    choices: list[tuple[list[Any], Kind]] = [
        (["scan", random.choice(["sum", "last but one"]), random.choice([0, 5])], INT),
        (["groups", random.randint(1, 4), random.randint(1, 3)], f"[{INT}]"),
        (["enumerate", random.choice([0, 5])], PAIR),
        (["window", *window], f"[{INT}]"),
        (["flat_map", random.choice(["range", "slices", "repeat"])], INT),
        (
            [
                "interleave",
                random.choice(["range", "slices", "repeat"]),
                random.randint(1, 4),
                random.randint(1, 3),
            ],
            INT,
        ),
    ]
    return random.choice(choices)


def _batch(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    size = random.choice([1, 2, 3, 4, 7]) if random.random() < 0.95 else random.choice([0, -1])
    return ["batch", size, random.random() < 0.4], f"[{kind}]" if kind != ROW else OTHER


def _padded(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    return ["padded_batch", random.randint(1, 4), random.choice([None, -1]), random.random() < 0.4], OTHER


def _buckets(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    sizes = [random.randint(1, 3) for _ in range(3)]
    return ["buckets", [1, random.choice([2, 3])], sizes, random.random() < 0.3], OTHER


def _of_batches(random: Random, kind: Kind) -> tuple[list[Any], Kind]:
    if random.random() < 0.5:
        return ["unbatch"], kind[1:-1]
    sizes = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
    return ["rebatch", sizes, random.random() < 0.4], kind
