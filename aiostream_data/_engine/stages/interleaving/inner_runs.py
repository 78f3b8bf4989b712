"""Runs of inner datasets, each of which sends its rows through a channel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiostream_data._engine.failures.carried_error import CarriedError, as_raisable
from aiostream_data._engine.flow.channel import Receiver, ReceiverClosed, Sender
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.lineage_writer import BookWriter, Spaces
from aiostream_data._engine.resume.position import Position, State
from aiostream_data._engine.sources.files_read import BegunFile
from aiostream_data._engine.stages.interleaving.inner_places import InnerPlace
from aiostream_data._engine.stages.interleaving.inner_rows import of_one
from aiostream_data.plan.base import Node
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk

Names = Callable[[BaseException, Node, Lineage], None]
"""Function that adds notes with the outer row and the user function to an error of an inner dataset."""


async def forward(context: RunContext, node: Node, sender: Sender[Chunk], place: InnerPlace, name: Names) -> None:
    """Run an inner dataset from the state of ``place``, and send its rows."""
    with sender, carrying(sender), _named(lambda error: name(error, node, place.outer)):
        async with context.open(node, place.state) as receiver:
            place.position = receiver.position
            sender.declare(await _send_all(receiver, sender, place.outer))


async def go_on(
    context: RunContext,
    node: Node,
    sender: Sender[Chunk],
    place: InnerPlace,
    name: Names,
    begun: BegunFile,
    chunk: Chunk | None,
) -> None:
    """Send the rows of a dataset that was begun, and continue with a run.

    Args:
        chunk: The first rows; None if there are none.
    """
    with sender, carrying(sender), _named(lambda error: name(error, node, place.outer)):
        rows = begun.output.rows
        place.position = position = _PositionBehind(begun.output.position, rows)
        if chunk is not None:
            await sender.send(of_one(chunk, place.outer), chunk_nbytes(chunk))
        if begun.error is not None:
            raise as_raisable(begun.error)
        state = begun.state_of(BookWriter(Spaces(context.services.origins)))  # refers to no rows
        async with context.open(node, state) as receiver:
            position.then = receiver.position
            sender.declare(rows + await _send_all(receiver, sender, place.outer))


async def _send_all(receiver: Receiver[Chunk], sender: Sender[Chunk], outer: Lineage) -> int:
    """Send all rows of a run. Return their number."""
    receiver.wanted_for(lambda: sender.is_awaited)
    rows = 0
    async for chunk in receiver:
        rows += len(chunk)
        await sender.send(of_one(chunk, outer) if len(chunk) else chunk, chunk_nbytes(chunk))
        del chunk  # free its rows during the wait for the next
    receiver.check(rows)
    return rows


@dataclass
class _PositionBehind:
    """Position of a dataset of which the first rows were known before its run began.

    Attributes:
        first: Position of the known rows.
        rows: Number of the known rows.
        then: Position of the run; None before it begins.
    """

    first: Position
    rows: int
    then: Position | None = None

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state after the first ``rows`` rows."""
        if rows <= self.rows or self.then is None:
            return self.first.at(rows, book)
        return self.then.at(rows - self.rows, book)

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``."""
        if rows > self.rows and self.then is not None:
            self.then.forget(rows - self.rows)


@contextmanager
def _named(name: Callable[[BaseException], None]) -> Iterator[None]:
    """If the ``with`` block raises an error other than ReceiverClosed, pass the error to the function ``name``."""
    try:
        yield
    except ReceiverClosed:
        raise
    except Exception as error:
        name(error.error if isinstance(error, CarriedError) else error)
        raise
