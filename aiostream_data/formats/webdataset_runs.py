"""Find large members of a local tar archive, so that each is read into an object of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native.tar_py import BLOCK, DATA, FIRST, KEY_NBYTES, NBYTES, ROW, TarWalk
from aiostream_data.formats.cutting import CuttingFramer
from aiostream_data.formats.record_runs import MOST_OBJECTS, OBJECT_NBYTES, RECORD_NBYTES, RecordRun
from aiostream_data.formats.tar_samples import SeenKeys, first_repeat, samples_of
from aiostream_data.formats.webdataset_samples import AlikeSamples, alike_samples
from aiostream_data.rows.columns import Column, SeparateBytes, VarColumn

Numbers = NDArray[np.int64]

MOST_MEMBERS: Final = 4096
"""Maximum number of members to find with one call."""


class WebDatasetRuns:
    """Finder of samples with large members. See :class:`.RunFinder`.

    It finds only samples with the same extensions, at least one of which belongs to large members.

    Args:
        framer: A framer that received no bytes.
        seen: Keys that the framer knows.
        max_sample_nbytes: Maximum size of a sample in the archive, in bytes.
        recognises: Function that returns True if the first bytes of a file are those of an uncompressed archive.
    """

    def __init__(
        self, framer: CuttingFramer, seen: SeenKeys, max_sample_nbytes: int, recognises: Callable[[bytes], bool]
    ) -> None:
        self.framer = framer
        self._seen = seen
        self._max_sample_nbytes = max_sample_nbytes
        self._recognises = recognises

    def find(self, file: int, start: int, stop: int, sizes: Sequence[int]) -> list[RecordRun]:
        """Return runs of samples. See :meth:`.RunFinder.find`."""
        walk = _native.walk_tar_file(file, start, stop, MOST_MEMBERS)
        if not len(walk.table) or not (start or self._recognises(os.pread(file, BLOCK, 0))):  # it may be compressed
            return []
        samples = samples_of(walk, 0, start, self._max_sample_nbytes)
        repeat = first_repeat(samples, walk, self._seen, start)
        count = samples.complete if repeat is None else min(samples.complete, repeat.sample)
        return list(_runs(walk, samples.edges[: count + 1], start, sizes)) if count else []


def _runs(walk: TarWalk, edges: Numbers, start: int, sizes: Sequence[int]) -> Iterator[RecordRun]:
    members = walk.table[(walk.table[:, KEY_NBYTES] >= 0) & (walk.table[:, FIRST] < edges[-1])]
    members[:, ROW] = np.searchsorted(edges, members[:, FIRST], side="right") - 1
    samples = alike_samples(walk.names, members, len(edges) - 1)
    if samples is None:
        return
    first = number = 0
    while first < len(edges) - 1:
        last = _last_of_run(samples, edges, first, sizes[min(number, len(sizes) - 1)], max(sizes[-1], RECORD_NBYTES))
        run = None if last == first else _run(samples, first, last, start, edges)
        if run is None:
            return
        yield run
        first, number = last, number + 1


def _last_of_run(samples: AlikeSamples, edges: Numbers, first: int, nbytes: int, most_nbytes: int) -> int:
    """Return the end of the run that begins with sample ``first``: the number of its last sample plus 1."""
    most_rows = MOST_OBJECTS // len(samples.extensions)
    last = min(int(np.searchsorted(edges, edges[first] + nbytes, side="right")) - 1, first + most_rows)
    is_alone = last <= first and most_rows > 0 and edges[first + 1] - edges[first] <= most_nbytes
    return first + 1 if is_alone else last


def _run(samples: AlikeSamples, first: int, last: int, start: int, edges: Numbers) -> RecordRun | None:
    """Return the samples ``first`` to ``last``, or None if they have no large members."""
    table = samples.members[first:last]
    nbytes, at = table[:, :, NBYTES], table[:, :, DATA] + start
    large = np.flatnonzero(nbytes.mean(axis=0) >= OBJECT_NBYTES)
    if not len(large):
        return None
    order = np.argsort(at[:, large], axis=None, kind="stable")
    values = np.stack([at[:, large].ravel()[order], nbytes[:, large].ravel()[order]], axis=1)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    places = rank.reshape(last - first, len(large))
    run_at = start + int(edges[first])
    columns = _RunColumns(
        keys=samples.keys.slice(first, last),
        objects={place: places[:, column].tolist() for column, place in enumerate(large.tolist())},
        starts=_among_others(at, values) - run_at,
        nbytes=nbytes,
    )
    return RecordRun(
        start=run_at,
        stop=start + int(edges[last]),
        rows=last - first,
        values=values,
        structure=samples.structure,
        columns=columns,
    )


def _among_others(at: Numbers, values: Numbers) -> Numbers:
    """Return offsets in the file without the bytes of the large values before them."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(values[:, 1])])
    found: Numbers = at - before[np.searchsorted(values[:, 0], at, side="left")]
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunColumns:
    """Function that makes the columns of a run.

    Attributes:
        keys: Keys of the samples.
        objects: For each extension with large members, the number of the object of each sample.
        starts, nbytes: Start among the bytes between large values, and size, of each member.
    """

    keys: VarColumn
    objects: dict[int, list[int]]
    starts: Numbers
    nbytes: Numbers

    def __call__(self, objects: Sequence[bytes], others: NDArray[np.uint8]) -> tuple[Column, ...]:
        def column(place: int) -> VarColumn:
            numbers = self.objects.get(place)
            if numbers is not None:
                return SeparateBytes([objects[number] for number in numbers])
            return VarColumn(others, self.starts[:, place].copy(), self.nbytes[:, place].copy())

        return (self.keys, *map(column, range(self.nbytes.shape[1])))
