"""Questions about CUDA beside PyTorch: torch is imported before CuPy compiles its first kernel, as in most programs."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.gpu.findings import Asked, Finding, ask
from benchmarks.gpu.hardware import Hardware
from benchmarks.gpu.recorder import Recorder


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Answer the questions."""
    asked: Asked = {"U2": kernel_beside_torch, "U3 torch": stream_that_torch_names, "U11": spdl_without_ffmpeg}
    ask(asked, hardware, recorder)


def torch_with_device() -> tuple[Any, str]:
    """Return torch, and the device of its tensors: the GPU, or the host where torch sees none.

    Raises:
        ImportError: torch is not installed.
    """
    torch = importlib.import_module("torch")
    return torch, "cuda:0" if torch.cuda.is_available() else "cpu"


def kernel_beside_torch(hardware: Hardware) -> Finding:
    """Compile and run a kernel after torch has made its context."""
    torch, device = torch_with_device()
    torch.zeros(8, device=device)
    cupy = hardware.cupy
    right = (cupy.arange(1000) * 2 + 1).get().tolist() == list(range(1, 2001, 2))
    return Finding(f"kernels compile and run, and their results are {'right' if right else 'WRONG'}", settled=right)


class Lent:
    """An array on the device that notes for which stream it is asked."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append({name: repr(value) for name, value in options.items()})
        if "stream" in options:
            options["stream"] = None if isinstance(self.array, np.ndarray) else -1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def stream_that_torch_names(hardware: Hardware) -> Finding:
    """Lend torch an array on its default stream and on one of its own."""
    torch, device = torch_with_device()
    lent = Lent(hardware.cupy.arange(16))
    usual = torch.from_dlpack(lent)
    if device != "cpu":
        own = torch.cuda.Stream()
        with torch.cuda.stream(own):
            torch.from_dlpack(lent)
        lent.asked.append({"own stream": hex(own.cuda_stream)})
    right = usual.cpu().numpy().tolist() == list(range(16))
    return Finding(f"asked as {lent.asked}", settled=right, measured={"asked": lent.asked, "right": right})


def spdl_without_ffmpeg(hardware: Hardware) -> Finding:
    """Import the transfer of SPDL."""
    io = importlib.import_module("spdl.io")
    names = [name for name in ("transfer_tensor_h2d", "transfer_tensor") if hasattr(io, name)]
    return Finding(f"it imports, with {', '.join(names) or 'neither name'}", settled=bool(names))
