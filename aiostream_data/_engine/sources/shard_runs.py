"""Send the large records of a local file, each read into an object of its own. See :mod:`.record_runs`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Final

from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.sources.shard_cutter import ShardCutter
from aiostream_data._engine.sources.shard_ranges import RunBlock, ShardRanges
from aiostream_data.formats.record_runs import RecordRun, RunFinder, finds_runs
from aiostream_data.plan.base import Decoder
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.records import Chunk
from aiostream_data.storage.ranges import growing_sizes

UNCOMPRESSED: Final = ("", "auto")


def finder_of(node: ReadFiles, decoders: Sequence[Decoder], url: str) -> RunFinder | None:
    """Return a finder of large records for one file; None if the format or the decoders need a framer."""
    if len(decoders) != 1 or node.compression.lower() not in UNCOMPRESSED or not finds_runs(node.format):
        return None
    return node.format.run_finder(url, decoders[0])


async def send_runs(
    finder: RunFinder, hint: Hint, ranges: ShardRanges, cutter: ShardCutter, send: Callable[[Chunk], Awaitable[None]]
) -> Hint:
    """Send large records, from the record of ``hint`` on. Return the offset of the record after the last one sent.

    The rest of the file has no large records, or must be read in ranges for another reason.
    """
    cutter.row = hint.ordinal
    while runs := await _found(finder, hint.offset, ranges):
        async with ranges.reading(ranges.shard, hint.offset, None, runs):
            await ranges.may_cut.wait()
            while (block := await ranges.next()) is not None:
                assert isinstance(block, RunBlock), "only runs were planned"
                if block.columns is None:
                    return hint
                chunk = cutter.decoded(block.run, block.columns, block.lease)
                hint = hint._replace(ordinal=cutter.row, offset=block.run.stop)
                del block
                if len(chunk):
                    await send(chunk)
                del chunk
    return hint


async def _found(finder: RunFinder, start: int, ranges: ShardRanges) -> list[RecordRun]:
    most = ranges.part_nbytes
    growing = growing_sizes(ranges.first_nbytes) if ranges.ahead.window.is_new else iter(())
    sizes = [*takewhile(lambda size: size < most, growing), most]
    find = partial(finder.find, start=start, stop=ranges.shard.nbytes or 0, sizes=sizes)
    return await ranges.stores.scan_cached(ranges.shard, find) or []
