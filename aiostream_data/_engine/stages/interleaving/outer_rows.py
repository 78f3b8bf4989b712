"""Elements of the input of an operator that makes a dataset of each of them."""

from __future__ import annotations

from aiostream_data._engine.flow.stage_io import Inlet
from aiostream_data.rows.records import Chunk


class OuterRows:
    """Elements of an inlet, to be taken a few at a time."""

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self._chunk: Chunk | None = None
        self._row = 0
        self._at_end = False
        self._failure: Exception | None = None  # of the input, behind all elements

    async def take(self, most: int, *, may_wait: bool = True) -> Chunk | None:
        """Return the next elements, at most ``most``; None at the end.

        Args:
            may_wait: False to also return None if the next elements are not there yet, or if the input has failed.

        Raises:
            Exception: The input has failed.
        """
        while self._chunk is None or self._row == len(self._chunk):
            if self._at_end or not (may_wait or self._inlet.ready):
                return None
            if self._failure is None:
                await self._receive()
            if self._failure is not None:
                if may_wait:
                    raise self._failure
                return None
        start, self._row = self._row, min(self._row + most, len(self._chunk))
        return self._chunk.slice(start, self._row)

    async def _receive(self) -> None:
        self._chunk, self._row = None, 0
        try:
            self._chunk = await self._inlet.receive()
        except Exception as error:  # noqa: BLE001 - raised behind the elements that were taken before
            self._failure = error
        else:
            self._at_end = self._chunk is None
