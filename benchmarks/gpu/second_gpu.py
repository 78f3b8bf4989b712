"""Use a second GPU as a program would, and note which contexts there are and what the calling thread had before.

``python -m benchmarks.gpu.second_gpu WAY [--self-check]`` prints what was noted, as JSON. Contexts last as long as a
process, so each way needs one of its own. Values are read through the driver: CuPy would make contexts.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data.device.device_batch import DeviceBatch
from benchmarks.gpu.driver import Contexts, driver_of
from benchmarks.gpu.hardware import Hardware, open_hardware

ROWS, BATCH = 48, 4
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 16, 16, 3), np.uint8)
SEED = 7
CAST = asd.ImageCast(dtype="float16", flip="random")

HAND_OVERS: dict[str, dict[str, Any]] = {
    "copy": {},
    "copy, cast": {"transform": CAST},
    "lease": {"handoff": "lease"},
    "into": {"handoff": "into"},
    "into, cast": {"handoff": "into", "transform": CAST},
}
"""Name to options of ``to_device``. A cast cannot be lent: it is made while a batch is taken out."""

Visits = dict[str, dict[str, Any]]
"""What was noted of each use, as JSON-safe data: see :meth:`Visitor.visit`."""


@dataclass(frozen=True)
class Visitor:
    """Opens loaders on GPUs, each from a thread of its own."""

    hardware: Hardware
    driver: Contexts

    @property
    def gpus(self) -> int:
        """GPUs of this machine."""
        return int(self.hardware.cupy.cuda.runtime.getDeviceCount())

    def contexts(self) -> list[int]:
        """Return the GPUs on which this process has a context."""
        return [index for index in range(self.gpus) if self.driver.has_context(index)]

    def visit(self, device: str, options: dict[str, Any], prepare: Callable[[], object] = lambda: None) -> Any:
        """Take all batches from a loader in a new thread, and close it.

        Args:
            options: Of ``to_device``.
            prepare: Called first, in that thread.

        Returns:
            ``opened``: the device; ``right``: True when all values were; ``before`` and ``contexts``: the GPUs that had
            a context before and after; ``standing``: current GPU and context of the thread before, after opening,
            after each batch, and after closing.
        """
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(self._visit, device, options, prepare).result()

    def _visit(self, device: str, options: dict[str, Any], prepare: Callable[[], object]) -> dict[str, Any]:
        expected = list(_batches("cpu", {"transform": options.get("transform")}))
        prepare()
        before, standing, right = self.contexts(), [self._standing()], True
        target = _first_of(_batches(device, {**options, "handoff": "copy"})) if "into" in options.values() else None
        with _batches(device, options) as loader:
            standing.append(self._standing())
            for batch, wanted in zip(loader, expected, strict=True):
                right = self._arrived(batch, target, wanted) and right
                standing.append(self._standing())
            (copies,) = loader.stats().devices
        del batch, target, loader
        gc.collect()  # what is freed late is freed by this thread
        standing.append(self._standing())
        told = {"opened": copies.device, "right": right, "before": before, "contexts": self.contexts()}
        return {**told, "standing": standing}

    def _standing(self) -> list[int]:
        context = self.driver.current()  # first: to ask for the device must not be what makes one
        return [int(self.hardware.cupy.cuda.runtime.getDevice()), context]

    def _arrived(self, batch: Any, target: Any, wanted: Any) -> bool:
        if target is not None:
            return self._is_right(batch.into(target), wanted)
        if not isinstance(batch, DeviceBatch):
            return self._is_right(batch, wanted)
        with batch:
            return self._is_right(batch.arrays(), wanted)

    def _is_right(self, arrays: Any, wanted: Any) -> bool:
        return all(self._holds(arrays[name], wanted[name]) for name in wanted)

    def _holds(self, array: Any, wanted: Any) -> bool:
        is_tensor = hasattr(array, "data_ptr")
        address = array.data_ptr() if is_tensor else int(array.data.ptr)
        index = array.device.index if is_tensor else array.device.id
        return self.driver.read(index, address, wanted.nbytes) == bytes(wanted.tobytes())


def objections(visit: dict[str, Any]) -> list[str]:
    """Return what is wrong with a visit, in words; nothing when it left behind only the context that it asked for."""
    gpus = sorted({*visit["before"], int(visit["opened"].partition(":")[2])})
    told = [] if visit["right"] else ["values were wrong"]
    if visit["contexts"] != gpus:
        told.append(f"there are contexts on GPUs {visit['contexts']}, and {gpus} were asked for")
    device, context = visit["standing"][0]
    is_own = context == 0 and visit["opened"] == f"cuda:{device}"  # it would be given this GPU's at its next call
    moved = [now for now in visit["standing"] if now[0] != device or (now[1] != context and not is_own)]
    if moved:
        told.append(f"the thread had GPU and context {[device, context]}, and then {moved[0]}")
    return told


def _batches(device: str, options: dict[str, Any]) -> asd.Loader[Any]:
    rows = asd.Dataset.from_tensor_slices({"image": IMAGES, "number": np.arange(ROWS)})
    return rows.batch(BATCH).to_device(device, **options).open(seed=SEED)


def _first_of(loader: asd.Loader[Any]) -> Any:
    with loader:
        return next(iter(loader))


def named(visitor: Visitor) -> Visits:
    """Name the second GPU, in threads that have never used CUDA: their current GPU is the first."""
    return {name: visitor.visit("cuda:1", options) for name, options in HAND_OVERS.items()}


def used(visitor: Visitor) -> Visits:
    """Name a GPU in threads that have a context on another."""
    runtime = visitor.hardware.cupy.cuda.runtime

    def use(index: int) -> None:
        runtime.setDevice(index)
        runtime.free(0)

    pairs = ((0, 1), (1, 0))
    return {
        f"{name}, cuda:{other} from a thread of cuda:{own}": visitor.visit(f"cuda:{other}", options, partial(use, own))
        for own, other in pairs
        for name, options in HAND_OVERS.items()
    }


def chosen(visitor: Visitor) -> Visits:
    """Choose the second GPU by PyTorch, and name none."""
    torch = _torch(visitor.hardware)
    return {
        framework: visitor.visit("cuda", {"framework": framework}, lambda: torch.cuda.set_device(1))
        for framework in ("torch", "cupy")
    }


def _torch(hardware: Hardware) -> Any:
    if hardware.real:
        return importlib.import_module("torch")
    return importlib.import_module("fake_torch").install_beside(hardware.cupy)


WAYS = {"named": named, "used": used, "chosen": chosen}


def main() -> None:
    """Print what one way of use gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--self-check", action="store_true")
    arguments = parser.parse_args()
    hardware = open_hardware(arguments.self_check)
    print(json.dumps(WAYS[arguments.way](Visitor(hardware, driver_of(hardware)))))


if __name__ == "__main__":
    main()
