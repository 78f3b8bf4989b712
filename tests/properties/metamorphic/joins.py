"""Draw plans that join several others, whose rows have ids of different widths, up to three deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from metamorphic.drawing import MOST, Drawn, Kind, Step, arguments, chance, one_of, seed_or_none, weighted
from metamorphic.operators import as_number, cut_again, one_more
from metamorphic.sources import numbers, source

Join = Callable[[Random, list[Drawn]], Drawn]

# -- joins of the inputs as they are drawn


def _zip(random: Random, inputs: list[Drawn]) -> Drawn:
    kind: Kind = "row" if all(plan.kind in ("number", "row") for plan in inputs) else "other"
    names = [f"@{number}" for number in range(len(inputs))]
    if len(inputs) == 2 and chance(random, 0.5):
        text = "@0.zip(@1)"
    elif chance(random, 0.3):
        text = f'Dataset.zip({{"a": {names[0]}, "b": ({", ".join(names[1:])},)}})'
    else:
        text = f"Dataset.zip({', '.join(names)})"
    zipped = _joined(text, inputs, kind, min(plan.most for plan in inputs))
    return replace(zipped, free=False)


def _concatenate(random: Random, inputs: list[Drawn]) -> Drawn:
    text = f"@0.concatenate({', '.join(f'@{number}' for number in range(1, len(inputs)))})"
    return _joined(text, inputs, "number", sum(plan.most for plan in inputs))


def _sample_all(random: Random, inputs: list[Drawn]) -> Drawn:
    return _joined(_sample(random, len(inputs), "all"), inputs, "number", sum(plan.most for plan in inputs))


def _sample_first(random: Random, inputs: list[Drawn]) -> Drawn:
    mixed = _joined(_sample(random, len(inputs), "first"), inputs, "number", sum(plan.most for plan in inputs))
    return replace(mixed, free=False)


def _sample(random: Random, count: int, stop: str) -> str:
    weights = "None"
    if count == 2:
        weights = one_of(random, "None", "[0.5, 0.5]", "[4, 1]", "[(0, [1, 2]), (5, [3, 1])]", "weights_of")
    more = arguments(stop=stop, schedule_every=4)
    if chance(random, 0.4):
        more += ", " + arguments(random=True, seed=seed_or_none(random))
    inputs = ", ".join(f"@{number}" for number in range(count))
    if chance(random, 0.2):
        inputs = ", ".join(f'"{chr(97 + number)}": @{number}' for number in range(count))
        return f"Dataset.sample_from({{{inputs}}}, {'None' if weights.startswith('[') else weights}, {more})"
    return f"Dataset.sample_from([{inputs}], {weights}, {more})"


def _choose(random: Random, inputs: list[Drawn]) -> Drawn:
    count, stop = random.randint(0, 14), one_of(random, "first", "all")
    choices = f"Dataset.range({len(inputs)}).repeat({count})"
    choices += one_of(random, "", ".shuffle(3, seed=1)", ".batch(2).unbatch()", ".shuffle(4)")
    names = ", ".join(f"@{number}" for number in range(len(inputs)))
    text = f'Dataset.choose_from([{names}], {choices}, stop="{stop}")'
    return replace(_joined(text, inputs, "number", len(inputs) * count), free=False)


def _sample_by_vectors(random: Random, inputs: list[Drawn]) -> Drawn:
    count, stop = random.randint(0, 14), one_of(random, "first", "all")
    vectors = [[random.randint(0, 3) for _ in inputs[1:]] + [random.randint(1, 3)] for _ in range(random.randint(1, 4))]
    weights = f"Dataset.from_iterable({vectors}).repeat({count}).shuffle({random.randint(1, 4)})"
    more = arguments(stop=stop)
    if chance(random, 0.4):
        more += ", " + arguments(random=True, seed=seed_or_none(random))
    names = ", ".join(f"@{number}" for number in range(len(inputs)))
    text = f"Dataset.sample_from([{names}], {weights}, {more})"
    return replace(_joined(text, inputs, "number", len(vectors) * count), free=False)


def _in_proportion(random: Random, inputs: list[Drawn]) -> Drawn:
    """Append to the first input rows of data sets whose lengths are known."""
    rows, weights = random.randint(0, 12), [random.randint(1, 3), random.randint(1, 3)]
    known = f"[Dataset.range({rows}).map(number, **HOW), Dataset.range(500, 510).shuffle(3, **SPILL)]"
    first = _joined(f"Dataset.weighted_flat_map({known}, {weights}).concatenate(@0)", inputs[:1], "number", 0)
    return replace(first, most=inputs[0].most + 22, free=False)


def _joined(text: str, inputs: list[Drawn], kind: Kind, most: int) -> Drawn:
    return Drawn(
        Step(text, tuple(plan.step for plan in inputs)),
        kind,
        most,
        ordered=all(plan.ordered for plan in inputs),
        free=all(plan.free for plan in inputs),
        named=all(plan.named for plan in inputs),
        grouped=any(plan.grouped for plan in inputs),
    )


_OF_NUMBERS: list[tuple[float, Join]] = [(1.2, _concatenate), (1.2, _sample_all), (1.0, _sample_first), (1.0, _choose)]
_OF_NUMBERS += [(0.6, _sample_by_vectors), (0.4, _in_proportion)]
_NEED_ORDER: tuple[Join, ...] = (_zip, _sample_first, _choose, _sample_by_vectors, _in_proportion)


def join(random: Random, inputs: list[Drawn]) -> Drawn:
    """Join plans in a drawn way."""
    table = [(1.6, _zip), *_OF_NUMBERS]
    if not all(plan.ordered for plan in inputs):
        table = [(weight, kind) for weight, kind in table if kind not in _NEED_ORDER]
    elif sum(plan.most for plan in inputs) > 2 * MOST:
        table = [(1.0, _zip)]
    kind: Join = weighted(random, table)
    if kind is not _zip:
        inputs = [plan if plan.kind == "number" else as_number(plan) for plan in inputs]
    return kind(random, inputs)


# -- a plan joined with a part of itself


def join_itself(random: Random, plan: Drawn) -> Drawn:
    """Join a plan with itself, as one data set that is read in two places."""
    if plan.ordered and chance(random, 0.5):
        text = one_of(
            random,
            "@0.apply(lambda d: Dataset.zip(d, d))",
            "@0.apply(lambda d: Dataset.zip({'a': d, 'b': (Dataset.range(17).shuffle(3, seed=1), d)}))",
        )
        kind: Kind = "row" if plan.kind in ("number", "row") else "other"
        return plan.within(text, kind=kind, free=False)
    plan = plan if plan.kind == "number" else as_number(plan)
    text = one_of(
        random,
        "@0.apply(lambda d: d.concatenate(d.filter(is_kept, **HOW)))",
        '@0.apply(lambda d: Dataset.sample_from([d, d.filter(is_kept, **HOW)], stop="all"))',
    )
    return plan.within(text, most=2 * plan.most)


# -- towers


def tower(random: Random, depth: int) -> Drawn:
    """Draw a join of plans that are joins themselves, ``depth`` deep."""
    if depth == 0:
        plan = numbers(random) if chance(random, 0.6) else source(random)
        return _widened(random, plan)
    deep = tower(random, depth - 1)
    others = [tower(random, random.randrange(min(depth, 2))) for _ in range(one_of(random, 1, 1, 1, 2))]
    inputs = [deep, *others]
    random.shuffle(inputs)
    return _widened(random, join(random, inputs))


def _widened(random: Random, plan: Drawn) -> Drawn:
    """Append up to two operators, often one that changes the width of ids."""
    for _ in range(one_of(random, 0, 1, 1, 2)):
        if plan.kind in ("number", "row") and chance(random, 0.4):
            plan = cut_again(random, plan)
        else:
            plan = one_more(random, plan)
    return plan
