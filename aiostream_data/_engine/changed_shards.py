"""Resume when the shard list has changed: decide which shards each source reads, or raise an error.

How this works. The remaining rows of an epoch come from old shards that are still listed, and from new shards. An epoch
in progress keeps its shard numbers (:mod:`~aiostream_data._engine.resume.shard_numbers`) and reads new shards after the
old shards. The remaining rows are exact unless the saved state counts rows that cannot be identified in the new shard
list. The rows of a changed shard, of a partly delivered element, and of a cache cannot be identified. If the state
counts rows that cannot be identified, resuming raises StateMismatchError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.engine_state import EngineState
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.places import Place, SavedShards
from aiostream_data._engine.resume.shard_numbers import ShardNumbers
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data._engine.sources.shards_read import Counting, ShardsRead, Source, SourceRead, is_row_by_row
from aiostream_data._engine.state_against_plan import places_in, saved_shards
from aiostream_data.errors import StateMismatchError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.changes import CONTENT
from aiostream_data.plan.ranks import files_of_a_rank
from aiostream_data.plan.shard_list import MAX_MARKED, digest_of, lasting_urls, mark, marks_of
from aiostream_data.plan.shard_match import GONE, ShardMatch, match_shards
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import urls_of
from aiostream_data.safe_url import safe_url


class ChangedShards:
    """The shards that each source of a resumed plan reads.

    Args:
        plan: The plan that the engine runs.
        context: Run context for the epoch of the saved state.
        options: Engine options that contain the saved state.
        state: Engine state that was restored from the options.

    Attributes:
        numbers: For each source key, the shard numbers of epochs that began before the shard list changed.
        gained: Keys of sources that read new shards after their saved position, and of mixtures with new inputs.

    Raises:
        StateMismatchError: The remaining rows cannot be determined. The error message names the shards and suggests a
            solution.
    """

    def __init__(self, plan: Node, context: RunContext, options: EngineOptions, state: EngineState) -> None:
        self.numbers: dict[int, Sequence[ShardNumbers]] = {}
        self.gained: set[int] = set()
        self._force = options.run.resuming.force
        self._same_records = CONTENT in options.run.resuming.allow
        held_against = options.held_against or {}
        self._summaries: Mapping[str, Any] = held_against.get("shards") or {}
        saved = saved_shards(held_against)
        book, keys = state.book, context.keys
        places = () if options.state is None else places_in(plan, options, book, exact=False, keys=keys)
        self._read = ShardsRead(plan, context, places, book)
        for mixture in {*self._read.mixtures, *state.mixtures_with_gained}:
            self._check_mixture(mixture)
            self.gained.add(keys[mixture])
        for node, shards in context.services.features.of(ListedShards).resolved.items():
            key = keys[node]
            if isinstance(node, (ListFiles, ReadFiles)) and key in saved:
                self._take_over(node, key, shards, saved[key])

    def _check_mixture(self, mixture: Node) -> None:
        """Raise StateMismatchError if the mixture has a new input but cannot deliver all rows of that input."""
        counting = [each for each in self._read.counting if mixture in walk(each.node)]
        if self._force or (not counting and mixture not in self._read.finished):
            return
        why = f"the state {counting[0].what}" if counting else "concatenate() is past that mixture in this epoch"
        raise StateMismatchError([f"{mixture.label} has a new input, and {why}"], _ELSEWHERE)

    def _take_over(self, node: Source, key: int, shards: Sequence[ShardRef], saved: SavedShards) -> None:
        read = self._read.sources[node]
        match = match_shards(self._summaries[str(key)], shards)
        if match is not None and self._same_records:
            match = replace(match, replaced=frozenset())
        if match is None or match.may_give_more:
            self.gained.add(key)
        counting = [each for each in self._read.counting if node in walk(each.node)]
        if not read.epochs and not counting:
            return
        if match is None and self._force:
            return
        if match is None:
            raise _too_long(node, saved.count, len(shards))
        if not match.changes_nothing and not self._force:
            self._check_own(node, key, shards, match)
            self._check_finished(node, match, read)
            self._check_replaced(node, shards, match, read)
            for each in counting:
                self._check_counted(node, match, each)
        if read.epochs:
            self.numbers[key] = _numbers_after(saved, match, read)
            if any(_has_more_eras(place, self.numbers[key]) for place in read.places):
                self.gained.add(key)

    def _check_own(self, node: Source, key: int, shards: Sequence[ShardRef], match: ShardMatch) -> None:
        """Raise StateMismatchError if the source lists shards that belonged to another source."""
        if not match.places or any(place != GONE for place in match.places):
            return
        urls = lasting_urls(urls_of(shards))
        marks = set(map(mark, urls))
        for name, summary in self._summaries.items():
            if name == str(key):
                continue
            if summary["digest"] == digest_of(urls) or not marks.isdisjoint(marks_of(summary) or ()):
                raise StateMismatchError(
                    [f"{_named(node)} reads shards that another source had read, such as {safe_url(shards[0].url)}"],
                    "Keep the order of the plan's sources, and add new sources after the others.",
                )

    def _check_finished(self, node: Source, match: ShardMatch, read: SourceRead) -> None:
        if read.finished and match.fresh:
            shards = f"{match.fresh} new shard{'s' * (match.fresh > 1)}"
            raise StateMismatchError(
                [f"{_named(node)} has {shards}, and concatenate() is past that source in this epoch"],
                "Read them in a separate dataset, or add them in the next epoch. force=True omits them.",
            )

    def _check_replaced(self, node: Source, shards: Sequence[ShardRef], match: ShardMatch, read: SourceRead) -> None:
        if match.replaced is None and (read.places or read.finished):
            raise _replaced(node, "at least one shard")
        begun = self._read.begun(node) if match.replaced else ()
        found = [old for old in sorted(match.replaced or ()) if read.finished or old in begun]
        if found:
            raise _replaced(node, safe_url(shards[match.place(found[0])].url), len(found) - 1)

    def _check_counted(self, node: Source, match: ShardMatch, counting: Counting) -> None:
        if match.replaced == frozenset() and counting.allows != "none":
            if counting.allows == "replaced":
                return
            keeps_first = not match.fresh or is_row_by_row(counting.node.inputs[0])
            if keeps_first and match.gone <= self._read.begun(node, is_over=True):
                return
        raise StateMismatchError([f"the state {counting.what}, and the shards of {_named(node)} changed"], _ELSEWHERE)


def _numbers_after(saved: SavedShards, match: ShardMatch, read: SourceRead) -> list[ShardNumbers]:
    """For each epoch in the saved state, return a source's shard numbers after the shard list has changed."""
    epochs = read.epochs
    current = epochs[-1] + 1 if read.in_progress is None else read.in_progress
    numbers = [each for each in saved.numbered if each.epoch >= epochs[0]]
    ends = {epochs[-1]}
    if match.replaced and epochs[0] < current:  # rows of replaced shards must not be read again in earlier epochs
        ends.add(max(epoch for epoch in epochs if epoch < current))
    if not match.changes_nothing:
        known = numbers[-1].epoch if numbers else -1
        numbers += [ShardNumbers(end, (saved.count,)) for end in sorted(ends) if end > known]
    return [_after(each, match, saved.count, current) for each in numbers]


def _after(numbers: ShardNumbers, match: ShardMatch, count: int, current: int) -> ShardNumbers:
    replaced = match.replaced or frozenset()
    if not replaced or numbers.epoch >= current:
        return numbers.after(match, count)
    changed = {number for number, place in enumerate(numbers.all_places(count)) if place in replaced}
    return replace(numbers.after(match, count), changed=frozenset(changed))


def _has_more_eras(place: Place, numbers: Sequence[ShardNumbers]) -> bool:
    """Return True if the source still has to start an era (a group of shards added by one list change)."""
    eras = next((each.eras for each in numbers if place.epoch <= each.epoch), None)
    if eras is None:
        return False
    if isinstance(place.node, ReadFiles):
        return bool(place.part.value.get("era", 0) < len(eras) - 1)
    before = sum(files_of_a_rank(era.count, place.node.share) for era in eras[:-1])
    return len(eras) > 1 and bool(place.part.value["next"] <= before)


def _named(node: Source) -> str:
    return node.label if node.written_at is None else f"{node.label} (written at {node.written_at})"


def _replaced(node: Source, which: str, more: int = 0) -> StateMismatchError:
    others = f", as {'was' if more == 1 else 'were'} {more:,} more" if more else ""
    return StateMismatchError(
        [f"{which} of {_named(node)} was changed after rows of it had been read: its size, time or version{others}"],
        "If the records read so far are the same, as after touch, a copy, or a repair of later records, add "
        f'"{CONTENT}" to allow= to continue after them. Otherwise restore the shard, or give the new content another '
        "name, which makes it a new shard.",
        head="cannot resume with these shards:",
    )


def _too_long(node: Source, before: int, now: int) -> StateMismatchError:
    return StateMismatchError(
        [f"the shards of {_named(node)} changed, from {before:,} to {now:,}, but the state cannot locate the changes"],
        f"Only lists of up to {MAX_MARKED} shards may change in any way. In longer lists, add new shards at the end, "
        "e.g. with one more pattern, and remove shards after the next epoch has begun.",
    )


_ELSEWHERE: Final = (
    "Resume with the sources of the state, and change them with a state of another position, such as the end of an "
    "epoch. force=True continues by row numbers, so that some rows may be lost or repeated."
)
