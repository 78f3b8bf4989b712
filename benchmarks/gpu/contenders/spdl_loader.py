"""SPDL: its pipeline with its transfer to the GPU in a thread of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.gpu.work import Contender, Work


@contextmanager
def spdl(work: Work) -> Iterator[Iterator[Any]]:
    """Give batches that SPDL has page-locked and copied."""
    torch = importlib.import_module("torch")
    io = importlib.import_module("spdl.io")
    transfer = getattr(io, "transfer_tensor_h2d", None) or io.transfer_tensor
    if not work.hardware.real:
        transfer = torch.clone
    builder = importlib.import_module("spdl.pipeline").PipelineBuilder()
    builder = builder.add_source(torch.from_numpy(batch) for batch in work.batches())
    with ThreadPoolExecutor(1) as thread:
        pipeline = builder.pipe(transfer, executor=thread).add_sink(2).build(num_threads=1)
        with pipeline.auto_stop():
            yield iter(pipeline)


ALL = [Contender("SPDL transfer_tensor", "torch", spdl, "whole batches from memory, no stacking; one thread")]
