"""A format as users write one: records behind their length, in four bytes with the most significant first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aiostream_data.formats.cutting import Bytes, Cut, CuttingFramer, no_records
from aiostream_data.rows.columns import VarColumn


class PrefixedFramer(CuttingFramer):
    prefix_nbytes = 4

    def _cut(self, values: Bytes, start: int, stop: int) -> Cut:
        starts: list[int] = []
        lengths: list[int] = []
        problem = None
        while start + 4 <= stop:
            nbytes = int.from_bytes(values[start : start + 4].tobytes(), "big")
            if nbytes > 1 << 20:
                problem = f"a record claims {nbytes} bytes"
            if problem is not None or start + 4 + nbytes > stop:
                break
            starts.append(start + 4)
            lengths.append(nbytes)
            start += 4 + nbytes
        return Cut(VarColumn(values, np.array(starts, np.int64), np.array(lengths, np.int64)), start, problem)

    def _end(self, tail: Bytes) -> Cut:
        return Cut(no_records(), 0, self._cut_short(len(tail)) if len(tail) else None)


@dataclass(frozen=True, kw_only=True)
class PrefixedFormat:
    kind: ClassVar[type[CuttingFramer]] = PrefixedFramer

    @property
    def name(self) -> str:
        return "prefixed"

    @property
    def whole(self) -> bool:
        return False

    def framer(self, url: str) -> CuttingFramer:
        return self.kind(url)


def prefixed(records: Sequence[bytes]) -> bytes:
    return b"".join(len(record).to_bytes(4, "big") + record for record in records)
