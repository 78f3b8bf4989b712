"""Draw where a data set begins: memory, Python, and local files of every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plan_functions as fn
from drawn import ROWS, SEEDS, Draw, Drawn, Kind, written
from hypothesis import strategies as st
from plan_files import pattern

import aiostream_data as asd
from aiostream_data import Dataset


def _range(draw: Draw) -> Drawn:
    first, rows = draw(st.integers(0, 5)), draw(ROWS)
    step, dtype = draw(st.sampled_from([1, 2])), draw(st.sampled_from(["int64", "int32"]))
    dataset = Dataset.range(first, first + rows * step, step, dtype=dtype)
    return Drawn(f"range({first}, {first + rows * step}, {step}, dtype={dtype!r})", dataset, "number", rows)


def _slices(draw: Draw) -> Drawn:
    rows = draw(ROWS)
    numbers = np.arange(rows, dtype=np.int64)
    shapes: list[tuple[Any, Kind]] = [
        (numbers, "number"),
        ((numbers, numbers.astype(np.float32)[:, None]), "row"),
        ({"n": numbers, "x": np.stack([numbers, -numbers], axis=1)}, "row"),
    ]
    tensors, kind = draw(st.sampled_from(shapes))
    shape = {np.ndarray: "numbers", tuple: "(n, x)", dict: "{n, x}"}[type(tensors)]
    return Drawn(f"from_tensor_slices({shape} * {rows})", Dataset.from_tensor_slices(tensors), kind, rows)


def _tensors(draw: Draw) -> Drawn:
    times = draw(st.integers(0, 9))
    return Drawn(f"from_tensors((1, 2)).repeat({times})", Dataset.from_tensors((1, 2)).repeat(times), "row", times)


def _generator(draw: Draw) -> Drawn:
    factories: list[Callable[..., Any]] = [fn.counted, fn.counted_async, fn.generated_rows]
    factory = draw(st.sampled_from(factories))
    rows = draw(ROWS)
    dataset: Dataset[Any] = Dataset.from_generator(factory, args=(100, rows))
    kind: Kind = "row" if factory is fn.generated_rows else "number"
    return Drawn(f"from_generator({factory.__name__}, args=(100, {rows}))", dataset, kind, rows)


def _iterable(draw: Draw) -> Drawn:
    rows = draw(ROWS)
    return Drawn(
        f"from_iterable([200..{200 + rows}])", Dataset.from_iterable(list(range(200, 200 + rows))), "number", rows
    )


def _list_files(draw: Draw) -> Drawn:
    seed = draw(SEEDS)
    dataset = Dataset.list_files(pattern(".txt"), seed=seed)
    if draw(st.booleans()):
        return Drawn(f"list_files('*.txt', seed={seed})", dataset, "row", 4)
    cycle, block = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    lines = dataset.interleave(fn.lines_of, cycle_length=cycle, block_length=block)
    call = f"interleave(lines_of, cycle_length={cycle}, block_length={block})"
    return Drawn(f"list_files('*.txt', seed={seed}).{call}", lines, "row", 20)


FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {
    "n": asd.FixedLen((), np.int64),
    "name": asd.FixedLen((), bytes),
    "values": asd.VarLen(np.int64),
}

READERS: dict[str, Callable[..., Dataset[Any]]] = {
    "from_tfrecord('*.tfrecord'": lambda **options: Dataset.from_tfrecord(pattern(".tfrecord"), **options),
    "from_tfrecord('*.tfrecord.gz'": lambda **options: Dataset.from_tfrecord(pattern(".tfrecord.gz"), **options),
    "from_text('*.txt'": lambda **options: Dataset.from_text(pattern(".txt"), **options),
    "from_text('*.txt.gz', encoding=None": lambda **options: Dataset.from_text(
        pattern(".txt.gz"), encoding=None, **options
    ),
    "from_fixed_length('*.bin', 8, header_nbytes=4": lambda **options: Dataset.from_fixed_length(
        pattern(".bin"), 8, header_nbytes=4, **options
    ),
}


def _files(draw: Draw) -> Drawn:
    name = draw(st.sampled_from(sorted(READERS)))
    options = draw(_reading())
    return Drawn(written(name, options), READERS[name](**options), "row", 20, ordered=options.get("ordered", True))


def _examples(draw: Draw) -> Drawn:
    options = draw(_reading())
    read: Dataset[bytes] = Dataset.from_tfrecord(pattern(".example"), **options)
    call, ordered = written("from_tfrecord('*.example'", options), options.get("ordered", True)
    if draw(st.booleans()):  # not directly after its source it is a stage of its own
        dataset = read.prefetch(2).parse_example(FEATURES)
        return Drawn(f"{call}.prefetch(2).parse_example(FEATURES)", dataset, "row", 20, ordered=ordered)
    return Drawn(f"{call}.parse_example(FEATURES)", read.parse_example(FEATURES), "row", 20, ordered=ordered)


def _whole_files(draw: Draw) -> Drawn:
    shuffled, seed = draw(st.booleans()), draw(SEEDS)
    dataset = Dataset.from_files(pattern(".bin"), shuffle_shards=shuffled, seed=seed)
    return Drawn(f"from_files('*.bin', shuffle_shards={shuffled}, seed={seed})", dataset, "row", 4)


@st.composite
def _reading(draw: Draw) -> dict[str, Any]:
    options: dict[str, Any] = {"cycle_length": draw(st.integers(1, 3)), "block_length": draw(st.integers(1, 3))}
    if draw(st.booleans()):
        options |= {"shuffle_shards": True, "seed": draw(SEEDS)}
    if draw(st.integers(0, 5)) == 5:
        options["ordered"] = False
    return {name: value for name, value in options.items() if value != 1}


SOURCES: Sequence[Callable[[Draw], Drawn]] = (
    _range,
    _slices,
    _tensors,
    _generator,
    _iterable,
    _list_files,
    _files,
    _files,
    _examples,
    _whole_files,
)
