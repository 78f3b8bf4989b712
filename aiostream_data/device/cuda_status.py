"""What the numbers mean with which CUDA reports failures: the cause, and what to do about it.

CuPy does not name these numbers. Sentences are for people who train, not for people who write kernels;
none of them ends in a full stop, since they become parts of messages.
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
"""Major versions of CUDA for which there is an extra with a CuPy."""

CAPTURE_ADVICE: Final = (
    "take batches outside of the capture, have them written into fixed arrays (handoff='into'), and capture with "
    "capture_error_mode='thread_local'"
)
"""What to do where a stream is being captured into a CUDA graph."""

_KERNEL = (
    "a kernel of this process, not necessarily of this library, {}: find it with compute-sanitizer, or with "
    "CUDA_LAUNCH_BLOCKING=1"
)
_CAPTURE = f"a stream of this process is being captured into a CUDA graph: {CAPTURE_ADVICE}"
_OURS = "this is a mistake of the library, or of the CuPy that is installed: please report it"

_SENTENCES: Final = {
    1: f"CUDA does not take a value that it was given; {_OURS}",
    OUT_OF_MEMORY: "there is no room for it",
    3: "CUDA does not start in this process, mostly because it was forked from one that had used CUDA: start it by "
    "spawn or forkserver",
    4: "CUDA is being shut down, because the program ends",
    INSUFFICIENT_DRIVER: "there is no NVIDIA driver, or it is too old for this CuPy",
    36: "the NVIDIA driver is too old for this call: update it",
    46: "the GPU is taken by another program, or not available: see nvidia-smi for its compute mode and programs",
    NO_DEVICE: "the NVIDIA driver shows no GPU to this process",
    101: "there is no GPU of this number",
    200: "this CuPy has no code for a GPU of this kind: install a newer CuPy",
    209: "this CuPy has no code for a GPU of this kind: install a newer CuPy",
    214: "the GPU's memory has an error that could not be corrected: have the GPU reset or replaced",
    218: "the NVIDIA driver cannot read the code that CuPy compiled: update the driver",
    220: "a link between GPUs has an error that could not be corrected: have the machine looked at",
    222: "the NVIDIA driver is older than the compiler that CuPy uses: update the driver, or install an older CuPy",
    226: "the GPU has contained an error of its hardware, or of an access to another GPU's memory: see the system's "
    "log for lines with Xid",
    304: "the operating system refused: see its log, and the limits that a container may set",
    400: f"CUDA does not know a stream or event that it was given, perhaps of another GPU; {_OURS}",
    700: _KERNEL.format("used an address that is not its own"),
    702: "a kernel of this process took longer than the driver allows",
    709: "somebody reset the GPU, or destroyed its context, in this process: leave that to the end of the program",
    710: _KERNEL.format("found an assertion of its own to be wrong"),
    712: f"this host memory is page-locked already; {_OURS}",
    713: f"this host memory is not page-locked; {_OURS}",
    714: _KERNEL.format("ran over its stack"),
    715: _KERNEL.format("has an instruction that the GPU does not know"),
    716: _KERNEL.format("used an address that is not aligned"),
    717: _KERNEL.format("used an address of the wrong kind of memory"),
    718: _KERNEL.format("jumped out of its code"),
    719: _KERNEL.format("failed"),
    721: _KERNEL.format("ended without giving its tensor memory back"),
    800: "the operating system or the driver does not permit it",
    801: "this system does not support it",
    802: "the machine's GPUs are not started yet: see whether NVIDIA's fabric manager runs",
    803: "the NVIDIA driver's parts are of different versions, as after an update: restart the machine",
    804: "this GPU does not take a driver newer than its own through CUDA's compatibility package: remove that package",
    810: "the service that shares this GPU among programs (MPS) ended this one's context: see its log",
    **dict.fromkeys(range(900, 909), _CAPTURE),
    911: "a device that works with the GPU has failed: see the system's log",
    999: "the NVIDIA driver does not know why: see the system's log for lines with Xid",
}

_STICKY: Final = frozenset({4, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999})


def sentence_of(status: int) -> str:
    """Return what a CUDA status means and what to do, in words; for one that is not known, its number alone."""
    told = _SENTENCES.get(status, f"CUDA reports status {status}")
    return f"{told}; nothing on the GPU can be trusted any more, so start the process again" if sticky(status) else told


def sticky(status: int | None) -> bool:
    """Return True if every later call fails too, until the process ends."""
    return status in _STICKY


def of_capture(status: int) -> bool:
    """Return True if a call failed because a stream is being captured into a CUDA graph."""
    return 900 <= status < 909


def mismatch(driver: int | None, runtime: int | None) -> str:
    """Explain why a driver does not support a CuPy, and what to install.

    Args:
        driver: Newest CUDA that the driver serves, as CUDA counts: 1000 for each major version, 10 for each minor
            one. 0 where there is no driver; None where it cannot be told.
        runtime: CUDA that CuPy was built for, in the same form.
    """
    if driver == 0:
        return "there is no NVIDIA driver: install one, or choose the device 'cpu'"
    if driver is None or runtime is None:
        return _SENTENCES[INSUFFICIENT_DRIVER]
    other = f"pip install '{_extra_for(driver)}' instead of this CuPy, or " if _may_serve(driver, runtime) else ""
    built, serves = version_name(runtime), version_name(driver)
    return f"CuPy is built for CUDA {built}, and the NVIDIA driver serves CUDA {serves}: {other}update the driver"


def _may_serve(driver: int, runtime: int) -> bool:
    """Return True if a CuPy for an older CUDA would serve this driver, and is to be had."""
    return _OLDEST_CUPY <= driver // 1000 < runtime // 1000


def _extra_for(driver: int) -> str:
    return f"aiostream-data[cupy{min(driver // 1000, _NEWEST_CUPY)}]"


def version_name(number: int | None) -> str:
    """Return a version of CUDA as people write it, from the number that CUDA has for it; None is "unknown"."""
    return "unknown" if number is None else f"{number // 1000}.{number % 1000 // 10}"
