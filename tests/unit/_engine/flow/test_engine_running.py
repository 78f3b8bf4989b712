"""How a run ends where its last stage has given everything, and others are still at work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aiostream_data import Dataset
from aiostream_data._engine.flow.channel import StreamAborted
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.stages.prefetch import PrefetchStage


async def _cut_when_cancelled(_: PrefetchStage, inlets: Sequence[Inlet], outlet: Outlet) -> None:
    chunk = await inlets[0].receive()
    assert chunk is not None
    await outlet.send(chunk)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise StreamAborted from None  # as where the stage below was cancelled first, and this one hears of it late


def test_a_pass_is_whole_where_a_stage_that_is_not_needed_any_more_sees_its_input_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PrefetchStage, "run", _cut_when_cancelled)
    unfinished = Dataset.range(100_000).prefetch(1)
    assert list(Dataset.zip(Dataset.range(3), unfinished)) == [(0, 0), (1, 1), (2, 2)]
