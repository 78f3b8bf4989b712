"""The scenarios, and who takes part in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.workload import Tally, tally_examples, tally_examples_fully, tally_numbers

OURS = "aiostream_data"
NATIVE = ("numpy", "uvloop")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: Row of the table.
        module: ``benchmarks.compare.<module>`` with a function ``batches(workload)``.
        how: Its configuration in a few words.
        packages: Distributions whose versions are noted.
        variant: Handed to ``batches`` where one module serves several rows.
    """

    name: str
    module: str
    how: str
    packages: tuple[str, ...] = ()
    variant: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One table.

    Attributes:
        tally: The timed consumer, the same for all.
        check: What the warm-up's output is held against.
        contenders: In the order they take turns.
    """

    key: str
    title: str
    unit: str
    rows: int
    tally: Callable[[Iterable[Any]], Tally]
    check: Callable[[Iterable[Any]], Tally]
    contenders: tuple[Contender, ...]


P1 = Scenario(
    key="p1",
    title="local TFRecords of small Examples: parse, shuffle(10,000), batch(256)",
    unit="records/s",
    rows=1_000_000,
    tally=tally_examples,
    check=tally_examples_fully,
    contenders=(
        Contender(
            name=OURS,
            module="p1_aiostream_data",
            how="from_tfrecord(cycle_length=4), parse_example, shuffle, batch",
            packages=NATIVE,
        ),
        Contender(
            name="tf.data",
            module="p1_tfdata",
            how="interleave(4, AUTOTUNE, deterministic), shuffle, batch, vectorised parse_example, prefetch",
            packages=("tensorflow-cpu",),
            variant="deterministic",
        ),
        Contender(
            name="tf.data, any order",
            module="p1_tfdata",
            how="the same with deterministic=False",
            packages=("tensorflow-cpu",),
            variant="any order",
        ),
        Contender(
            name="tfrecord",
            module="p1_tfrecord",
            how="tfrecord_loader per file, shuffle_iterator, np.stack",
            packages=("tfrecord",),
        ),
        Contender(
            name="ceiling: bare loop",
            module="p1_ceiling",
            how="read, frame (CRC checked) and parse with our native kernels, one thread; no shuffle, no batch",
            packages=("numpy",),
        ),
    ),
)

P2 = Scenario(
    key="p2",
    title="a trivial map (x + 1) over integers, batch(256)",
    unit="elements/s",
    rows=1_000_000,
    tally=tally_numbers,
    check=tally_numbers,
    contenders=(
        Contender(name=OURS, module="p2_aiostream_data", how="range, map(x + 1), batch", packages=NATIVE),
        Contender(
            name="plain generator",
            module="p2_generator",
            how="map() in the caller's thread, a list of 256, np.array",
            packages=("numpy",),
            variant="plain",
        ),
        Contender(
            name="ceiling: tightest loop",
            module="p2_generator",
            how="map() in the caller's thread, islice of 256, np.fromiter",
            packages=("numpy",),
            variant="tight",
        ),
        Contender(
            name="torch DataLoader, 0 workers",
            module="p2_torch",
            how="__getitems__ by list comprehension, collate_fn=np.asarray",
            packages=("torch",),
            variant="0",
        ),
        Contender(
            name="torch DataLoader, 2 workers",
            module="p2_torch",
            how="the same in two worker processes",
            packages=("torch",),
            variant="2",
        ),
        Contender(
            name="tf.data",
            module="p2_tfdata",
            how="range, map, batch(AUTOTUNE), prefetch; the function is a TensorFlow graph",
            packages=("tensorflow-cpu",),
            variant="per element",
        ),
        Contender(
            name="tf.data, batch first",
            module="p2_tfdata",
            how="range, batch(AUTOTUNE), map(AUTOTUNE) over whole batches, prefetch",
            packages=("tensorflow-cpu",),
            variant="batch first",
        ),
        Contender(
            name="aiostream_data, batched",
            module="p2_aiostream_data",
            how="range, map(x + 1, batched=True), batch",
            packages=NATIVE,
            variant="batched",
        ),
        Contender(
            name="Grain",
            module="p2_grain",
            how="MapDataset.range, map, batch, to_iter_dataset with 2 read threads",
            packages=("grain",),
        ),
        Contender(
            name="SPDL",
            module="p2_spdl",
            how="a source of lists of 256, one pipe over each list, 2 threads",
            packages=("spdl", "spdl_core"),
        ),
    ),
)

SCENARIOS = {scenario.key: scenario for scenario in (P1, P2)}
