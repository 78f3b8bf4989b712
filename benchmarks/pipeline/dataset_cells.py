"""Cells and contenders of the benchmark of datasets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.pipeline.cloud_work import Place
from benchmarks.pipeline.dataset_objects import (
    CONTENT,
    FIXED,
    GZIP,
    MIB,
    PART,
    RECORD,
    SIZES,
    TFRECORD,
    Objects,
    Tally,
)

LATENCIES_MS = (0, 20)
AT_ONCE = (1, 4, 16, 32, 64)
CLIENTS_BESIDE_DEFAULTS = (16, 64)
"""Requests at once of the clients that are compared with a dataset without arguments."""

AT_ONCE_OF_LOADERS = (1, 16, 64)
"""Requests at once of other loaders, whose worker processes take long to start."""

RANGE_NBYTES = 8 * MIB
"""Size of a request of the contenders that read large objects in ranges."""

WHOLE_NBYTES = 1024 * MIB
"""Maximum bytes that a client holds in memory when it reads whole objects."""

OURS, CLIENT, LOADER, LOCAL = "ours", "client", "loader", "local"
"""Groups of contenders. A dataset is compared with the fastest client or loader, but not with local copies."""


@dataclass(frozen=True)
class Cell:
    """One set of conditions.

    Attributes:
        size: A name of :data:`.SIZES`.
        tls: True if the server uses TLS.
        latency_ms: Time from a request to the first byte of its response.
        at_once: Number of concurrent requests; 0 for datasets without arguments.
    """

    size: str
    tls: bool
    latency_ms: int
    at_once: int

    @property
    def name(self) -> str:
        """Name such as ``64KiB/tls/20ms/c16`` or ``64KiB/tls/20ms/defaults``."""
        return f"{self.group}/{f'c{self.at_once}' if self.at_once else 'defaults'}"

    @property
    def group(self) -> str:
        """Name of the cells that differ only in ``at_once``."""
        return f"{self.size}/{'tls' if self.tls else 'plain'}/{self.latency_ms}ms"

    @property
    def object_nbytes(self) -> int:
        """Bytes of an object."""
        return SIZES[self.size]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One row of the table.

    Attributes:
        group: OURS, CLIENT, LOADER or LOCAL.
        module: Name of a module in ``benchmarks.compare`` with ``open_reader(work)`` and ``IMPORTS``.
        how: Configuration, in a few words.
        layout: Layout of the objects that it reads.
        unit: What it returns: records, the bytes of its requests, or decompressed objects.
        variant: Argument of the module.
        part_nbytes: Maximum bytes of one request; None for whole objects.
        beside_defaults: Number of concurrent requests beside datasets without arguments; 0 in all other cells.
        has_cycle: False for a dataset without ``cycle_length``. It is measured once for all concurrencies.
        packages: Distributions whose versions are recorded.
    """

    name: str
    group: str
    module: str
    how: str
    layout: str = FIXED
    unit: str = PART
    variant: str = ""
    part_nbytes: int | None = None
    beside_defaults: int = 0
    has_cycle: bool = True
    packages: tuple[str, ...] = ()

    def at_once(self, cell: Cell) -> int:
        """Return the number of concurrent requests, or 0 for the contender's own default."""
        at_once = self.beside_defaults or cell.at_once
        return min(at_once, WHOLE_NBYTES // cell.object_nbytes) if self.unit == CONTENT else at_once

    def takes_part(self, cell: Cell) -> bool:
        """Return True if the contender is measured in a cell."""
        at_once = self.at_once(cell)
        if self.group == OURS:
            return cell.at_once == 0 or self.has_cycle
        if (self.beside_defaults > 0) != (cell.at_once == 0):
            return False
        if self.group in (LOADER, LOCAL) and at_once not in AT_ONCE_OF_LOADERS:
            return False
        if self.group == LOCAL:  # the server makes no difference
            return not cell.tls and cell.latency_ms == 0
        if self.part_nbytes is not None:
            return cell.object_nbytes > self.part_nbytes
        return self.group == LOADER or at_once * cell.object_nbytes <= WHOLE_NBYTES

    def objects(self, cell: Cell) -> Objects:
        """Return the objects that the contender reads in a cell."""
        return Objects(cell.size, self.layout)


@dataclass(frozen=True)
class Work:
    """What a contender reads, and where.

    Attributes:
        objects: Objects on the server.
        place: Address of the server.
        root: Folder of the objects. Only contenders with local copies read it; others take sizes from it.
        at_once: Number of concurrent requests; 0 for defaults.
        variant: Argument of the contender's module.
        part_nbytes: Maximum bytes of one request; None for whole objects.
    """

    objects: Objects
    place: Place
    root: Path
    at_once: int
    variant: str
    part_nbytes: int | None

    def data(self) -> dict[str, Any]:
        """Return the work as JSON-safe data."""
        return {**asdict(self), "root": str(self.root)}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Work:
        """Return the work of :meth:`data`."""
        made = {"objects": Objects(**data["objects"]), "place": Place(**data["place"]), "root": Path(data["root"])}
        return cls(**{**data, **made})


Read: TypeAlias = Callable[[Tally], None]
"""Reads all prepared objects, and adds what it read to a tally."""

Prepare: TypeAlias = Callable[[int], Read]
"""``prepare(count)`` prepares a pass over the first ``count`` objects. The preparation is not timed."""

Reader: TypeAlias = AbstractContextManager[Prepare]


def _clients() -> list[Contender]:
    found = []
    for beside in (0, *CLIENTS_BESIDE_DEFAULTS):
        end = f", {beside} at once" if beside else ""
        for name, packages in (("obstore", ("obstore", "uvloop")), ("aiohttp", ("aiohttp",))):
            found += [
                Contender(
                    name=f"{name}{end}", group=CLIENT, module="dataset_clients", variant=name, packages=packages,
                    how="one GET per object, into memory", beside_defaults=beside,
                ),
                Contender(
                    name=f"{name}, ranges{end}", group=CLIENT, module="dataset_clients", variant=name,
                    packages=packages, how="ranges of 8 MiB, into memory", part_nbytes=RANGE_NBYTES,
                    beside_defaults=beside,
                ),
            ]  # fmt: skip
        found.append(
            Contender(
                name=f"obstore + zlib{end}", group=CLIENT, module="dataset_clients", variant="zlib", layout=GZIP,
                unit=CONTENT, packages=("obstore", "uvloop"), beside_defaults=beside,
                how="one GET per object; zlib.decompress, in a thread per CPU for objects from 64 KiB",
            )
        )  # fmt: skip
    return found


CONTENDERS: Sequence[Contender] = (
    Contender(
        name="from_files", group=OURS, module="dataset_ours", variant="from_files", how="no arguments", has_cycle=False,
        packages=("numpy", "uvloop", "s3fs", "zlib-ng"),
    ),
    Contender(
        name="from_fixed_length", group=OURS, module="dataset_ours", variant="from_fixed_length", unit=RECORD,
        how="cycle_length=N",
    ),
    Contender(
        name="from_tfrecord", group=OURS, module="dataset_ours", variant="from_tfrecord", layout=TFRECORD,
        unit=RECORD, how="cycle_length=N; every CRC is checked",
    ),
    Contender(
        name="from_tfrecord, gzip", group=OURS, module="dataset_ours", variant="from_tfrecord", layout=GZIP,
        unit=RECORD, how="cycle_length=N; every CRC is checked",
    ),
    *_clients(),
    Contender(
        name="torch, s3torchconnector", group=LOADER, module="dataset_torch_s3", packages=("torch", "s3torchconnector"),
        how="S3MapDataset in a DataLoader with N worker processes, at most 16",
    ),
    Contender(
        name="torch, fsspec", group=LOADER, module="dataset_torch_fsspec", packages=("torch", "s3fs"),
        how="s3fs cat_ranges in a DataLoader with two worker processes, N / 2 requests at once in each",
    ),
    Contender(
        name="tf.data, files", group=LOCAL, module="dataset_tfdata", variant="files", packages=("tensorflow-cpu",),
        how="local copies: tf.io.read_file, num_parallel_calls=N",
    ),
    Contender(
        name="tf.data, TFRecord", group=LOCAL, module="dataset_tfdata", variant="tfrecord", layout=TFRECORD,
        unit=RECORD, packages=("tensorflow-cpu",), how="local copies: TFRecordDataset, num_parallel_reads=N",
    ),
    Contender(
        name="tf.data, TFRecord, gzip", group=LOCAL, module="dataset_tfdata", variant="tfrecord", layout=GZIP,
        unit=RECORD, packages=("tensorflow-cpu",), how="local copies: TFRecordDataset, num_parallel_reads=N",
    ),
)  # fmt: skip


def all_cells() -> list[Cell]:
    """Return every cell of the table; the cells of one size are consecutive."""
    return [
        Cell(size, tls, latency_ms, at_once)
        for size in SIZES
        for tls in (False, True)
        for latency_ms in LATENCIES_MS
        for at_once in (*AT_ONCE, 0)
    ]
