"""From a saved state, find the shards that each source has read and the operators that count their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.sources.shard_turns import names_order, order_of, turns_left
from aiostream_data.plan import operators as op
from aiostream_data.plan.asserted import AssertCardinality, PadToCardinality
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.columns import ColumnOperator
from aiostream_data.plan.mixing import Choose, Mix
from aiostream_data.plan.rank_nodes import Agree, EqualRows
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.unique import Unique
from aiostream_data.plan.windows import Window

Source = ListFiles | ReadFiles

ROW_BY_ROW: Final = (
    *(op.Map, op.Filter, op.ParseExample, op.ParseRows, op.Prefetch, op.Batch, Scan, Unique, InSubprocess, ReadFiles),
    *(AssertCardinality, ColumnOperator),
)
"""Operators whose first elements depend only on the first rows of their input."""


@dataclass
class SourceRead:
    """Shards and epochs of one source that a saved state refers to.

    Attributes:
        places: Saved positions of the source in the unfinished epoch.
        finished: Epochs in which the source has emitted all its rows. The source is not read again in these epochs.
        held: Epochs with rows that the saved state refers to or counts.
    """

    places: list[Place] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    @property
    def in_progress(self) -> int | None:
        """The unfinished epoch, or None if no epoch has begun."""
        return max((place.epoch for place in self.places), default=None)

    @property
    def epochs(self) -> list[int]:
        """Epochs in which the state refers to shards by number, in ascending order."""
        return sorted({*(place.epoch for place in self.places), *self.finished, *self.held})


class Counting(NamedTuple):
    """Operator that rereads some rows on resume and skips the elements already emitted.

    Attributes:
        what: Description of the operator's saved state, for error messages.
        allows: Shard changes that the operator accepts: "none", "later" (only later rows change), or "replaced" (all
            changes except replaced shards).
    """

    node: Node
    what: str
    allows: str


class ShardsRead:
    """Shards and epochs of all sources of a plan that a saved state refers to.

    Args:
        context: Run context of the epoch in which the state was saved.
        places: Positions of the plan nodes in the saved state.
        book: Table of the rows that the saved state refers to.

    Attributes:
        sources: One :class:`SourceRead` per source, keyed by plan node.
        counting: Operators whose saved state counts rows of upstream sources.
        mixtures: Mixtures that have fewer inputs in the saved state than in the plan.
        finished: Nodes that are not read again in the unfinished epoch.
    """

    def __init__(self, plan: Node, context: RunContext, places: Iterable[Place], book: Book) -> None:
        self.sources: defaultdict[Node, SourceRead] = defaultdict(SourceRead)
        self.counting: list[Counting] = []
        self.mixtures: list[Node] = []
        self.finished: set[Node] = set()
        self._context = context
        for place in places:
            if place.node is not None and place.part.value is not None:
                self._note(place)
        for node in walk(plan):
            if isinstance(node, (ListFiles, ReadFiles)):
                self.sources[node].held += book.epochs_of(context.keys[node])
                if isinstance(node, ReadFiles) and node.files is not None and self.sources[node].epochs:
                    self.counting.append(Counting(node, "holds rows of files that another dataset lists", "none"))

    def _note(self, place: Place) -> None:
        node, state = place.node, place.part.value
        if isinstance(node, (ListFiles, ReadFiles)):
            self.sources[node].places.append(place)
        elif isinstance(node, op.Concatenate):
            for child in node.nodes[: state["turn"]]:
                self.finished.update(walk(child))
                for source, epochs in _sources_below(child, range(place.epoch, place.epoch + 1)):
                    self.sources[source].finished += epochs[-1:]  # none below repeat(0)
        elif isinstance(node, (Mix, Choose)) and len(state["inputs"]) < len(node.inputs):
            self.mixtures.append(node)
        elif isinstance(node, op.Cache) and state["input"] is None and state["given"]:
            self.counting.append(Counting(node, "counts rows of a complete cache", "none"))
            for source, epochs in _sources_below(node.input, range(state["epoch"], state["epoch"] + 1)):
                self.sources[source].held += [*epochs[:1], *epochs[-1:]]
        elif isinstance(node, (EqualRows, PadToCardinality, Agree)) and (state["again"] or state["filled"]):
            allows = "none" if state["filled"] else "later"
            self.counting.append(Counting(node, "counts rows that may fill up a rank", allows))
        elif isinstance(node, op.Unbatch) and state["skip"]:
            self.counting.append(Counting(node, "is inside an element that unbatch() was splitting", "later"))
        elif (isinstance(node, Scan) and state["state"] is None) or (
            isinstance(node, Unique) and state["keys"] is None
        ):
            self.counting.append(Counting(node, f"needs all rows before it again, for {node.label}()", "none"))
            for source, epochs in _sources_below(node.input, range(place.epoch, place.epoch + 1)):
                self.sources[source].held += [*epochs[:1], *epochs[-1:]]
        elif isinstance(node, Scan) and state["skip"]:
            self.counting.append(Counting(node, "counts rows since a stored state of scan()", "later"))
        elif isinstance(node, Window) and node.shift < node.span and state["given"]:
            self.counting.append(Counting(node, "is between windows that share rows", "replaced"))

    def begun(self, node: Source, is_over: bool = False) -> set[int]:
        """Return the shards that were opened before the source's saved position, as indices in the saved list.

        Args:
            is_over: If True, exclude shards that are still open.
        """
        found: set[int] = set()
        for place in self.sources[node].places:
            saved = place.shards
            assert saved is not None, "a source of which the state has no list is not compared"
            listed = range(saved.count) if place.numbers is None else place.numbers.all_places(saved.count)
            if is_over and isinstance(node, ListFiles):
                continue  # the files that it names may still be open in a reader
            streams = place.part.value.get("streams", ()) if is_over else ()
            found |= {listed[number] for number in self._numbers_begun(place)} - {listed[each[0]] for each in streams}
        return found

    def _numbers_begun(self, place: Place) -> Iterator[int]:
        node, state, eras = place.node, place.part.value, place.shard_eras or []
        context = self._context.for_epoch(place.epoch)
        if isinstance(node, ListFiles):
            yield from [number for era in eras for number in names_order(context, node, era)][: state["next"]]
            return
        current = eras[state.get("era", 0)]
        for era in eras[: current.number]:
            yield from range(era.first, era.first + era.count)
        if node.spread:
            _, left = turns_left([], state)
            yield from set(range(current.first, current.first + current.count)).difference(left)
        else:
            yield from order_of(context, node, (), current)[: state["next"]]


def is_row_by_row(node: Node) -> bool:
    """Return True if additional rows at the end of the sources leave the node's first elements unchanged."""
    return all(isinstance(below, ROW_BY_ROW) for below in walk(node))


def _sources_below(node: Node, epochs: range) -> Iterator[tuple[Source, range]]:
    """Yield each source that a node reads, with the source's epochs during the node's ``epochs``."""
    if isinstance(node, (ListFiles, ReadFiles)):
        yield node, epochs
    if isinstance(node, op.Repeat):
        epochs = range(epochs.start * node.turns, epochs.stop * node.turns)
    for child in node.inputs:
        yield from _sources_below(child, epochs)
