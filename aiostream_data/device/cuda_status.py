"""Cause and remedy for each CUDA error status.

CuPy has no names for CUDA's status numbers. The explanations are written for users who train models, not for authors of
CUDA kernels. Explanations have no period at the end, because each explanation becomes part of an error message.
"""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
OUT_OF_MEMORY: Final = 2
INSUFFICIENT_DRIVER: Final = 35
NO_DEVICE: Final = 100
NOT_READY: Final = 600

_OLDEST_CUPY: Final = 12
_NEWEST_CUPY: Final = 13
"""Oldest and newest major CUDA version for which this package defines an extra that installs CuPy."""

CAPTURE_ADVICE: Final = (
    "Request batches outside the capture, write them into fixed arrays (handoff='into'), and capture with "
    "capture_error_mode='thread_local'"
)
"""Advice for users who receive batches while a stream is being captured into a CUDA graph."""

_KERNEL = (
    "a kernel of this process, not necessarily of this library, {}. Find the kernel with compute-sanitizer, or with "
    "CUDA_LAUNCH_BLOCKING=1"
)
_CAPTURE = f"a stream of this process is being captured into a CUDA graph. {CAPTURE_ADVICE}"
_OURS = "This is a bug in aiostream_data or in the installed CuPy. Please report it"

_SENTENCES: Final = {
    1: f"CUDA rejected an argument. {_OURS}",
    OUT_OF_MEMORY: "not enough memory is free",
    3: "CUDA cannot start in this process, usually because the process was forked after CUDA had started. Start the "
    "process by spawn or forkserver",
    4: "CUDA is shutting down because the program is ending",
    INSUFFICIENT_DRIVER: "the NVIDIA driver is missing, or too old for this CuPy. Install or update the driver",
    36: "the NVIDIA driver is too old for this call. Update the driver",
    46: "the GPU is in use by another program, or unavailable. Check its compute mode and processes with nvidia-smi",
    NO_DEVICE: "the NVIDIA driver shows no GPU to this process",
    101: "no GPU has this number",
    200: "this CuPy contains no code for this GPU model. Install a newer CuPy",
    209: "this CuPy contains no code for this GPU model. Install a newer CuPy",
    214: "the GPU's memory has an uncorrectable error. Reset or replace the GPU",
    218: "the NVIDIA driver cannot load the code that CuPy compiled. Update the driver",
    220: "a link between GPUs has an uncorrectable error. Check the hardware of the machine",
    222: "the NVIDIA driver is older than the compiler that CuPy uses. Update the driver, or install an older CuPy",
    226: "the GPU contained a hardware error, or an error of an access to another GPU's memory. Search the system log "
    "for lines with Xid",
    304: "the operating system refused the call. Check its log, and the limits of the container",
    400: f"CUDA rejected an unknown stream or event, possibly of another GPU. {_OURS}",
    700: _KERNEL.format("accessed an invalid address"),
    702: "a kernel of this process ran longer than the driver allows",
    709: "this process reset the GPU or destroyed its context. Do so only at the end of the program",
    710: _KERNEL.format("failed an assertion"),
    712: f"this host memory is already page-locked. {_OURS}",
    713: f"this host memory is not page-locked. {_OURS}",
    714: _KERNEL.format("overflowed or damaged its stack"),
    715: _KERNEL.format("contains an instruction that the GPU does not support"),
    716: _KERNEL.format("accessed an unaligned address"),
    717: _KERNEL.format("accessed an address of the wrong kind of memory"),
    718: _KERNEL.format("jumped to an invalid instruction address"),
    719: _KERNEL.format("failed"),
    721: _KERNEL.format("ended without freeing its tensor memory"),
    800: "the operating system or the driver does not permit this operation",
    801: "this system does not support this operation",
    802: "the GPUs of this machine are not initialized. Check that NVIDIA's fabric manager is running",
    803: "the parts of the NVIDIA driver have different versions, e.g. after an update. Restart the machine",
    804: "CUDA's compatibility package does not support a newer driver on this GPU. Remove the package",
    810: "the service that shares this GPU among programs (MPS) ended this program's context. Check the log of MPS",
    **dict.fromkeys(range(900, 909), _CAPTURE),
    911: "an external device that works with the GPU failed. Check the system log",
    999: "the NVIDIA driver reports an unknown error. Search the system log for lines with Xid",
}

_STICKY: Final = frozenset({4, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999})


def sentence_of(status: int) -> str:
    """Return the cause and remedy of a CUDA status number, or only the number if the status is unknown."""
    told = _SENTENCES.get(status, f"CUDA reports status {status}")
    return f"{told}. Data on the GPU is no longer reliable: restart the process" if sticky(status) else told


def sticky(status: int | None) -> bool:
    """Return True if the CUDA error ``status`` makes every later CUDA call of this process fail."""
    return status in _STICKY


def of_capture(status: int) -> bool:
    """Return True if a CUDA status number means that a stream is being captured into a CUDA graph."""
    return 900 <= status < 909


def mismatch(driver: int | None, runtime: int | None) -> str:
    """Explain why the CUDA driver is too old for the installed CuPy, and what to install.

    Args:
        driver: Newest CUDA version that the driver supports, as 1000 * major + 10 * minor. The value 0 means that no
            driver is installed; None means that the version is unknown.
        runtime: CUDA version that CuPy was built for, as 1000 * major + 10 * minor.
    """
    if driver == 0:
        return "no NVIDIA driver is installed. Install one, or use the device 'cpu'"
    if driver is None or runtime is None:
        return _SENTENCES[INSUFFICIENT_DRIVER]
    older = _may_serve(driver, runtime)
    cure = f"Replace CuPy (pip install '{_extra_for(driver)}'), or update the driver" if older else "Update the driver"
    built, serves = version_name(runtime), version_name(driver)
    return f"CuPy is built for CUDA {built}, but the NVIDIA driver supports CUDA {serves}. {cure}"


def _may_serve(driver: int, runtime: int) -> bool:
    """Return True if the driver supports an older CUDA version for which this package can install CuPy."""
    return _OLDEST_CUPY <= driver // 1000 < runtime // 1000


def _extra_for(driver: int) -> str:
    return f"aiostream-data[cupy{min(driver // 1000, _NEWEST_CUPY)}]"


def version_name(number: int | None) -> str:
    """Format CUDA's version number, e.g. 12040 as "12.4". None becomes "unknown"."""
    return "unknown" if number is None else f"{number // 1000}.{number % 1000 // 10}"
