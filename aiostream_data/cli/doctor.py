"""Diagnose an installation: package versions, native core, installed extras and device."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from aiostream_data import __version__, _native
from aiostream_data.device.cuda_opening import describe_gpus
from aiostream_data.device.select import open_backend
from aiostream_data.device.verified import verification
from aiostream_data.errors import AiostreamError, DeviceUnavailableError, MissingExtraError
from aiostream_data.metrics.allocator import allocator_state

EXTRAS = {
    "s3": ("s3fs", "aiohttp"),
    "gcs": ("gcsfs", "aiohttp"),
    "http": ("aiohttp",),
    "hub": ("aiohttp", "pyyaml"),
    "files": ("aiofiles",),
    "fsspec": ("fsspec",),
    "gzip": ("zlib-ng",),
    "zstd": ("zstandard",),
    "lz4": ("lz4",),
    "snappy": ("cramjam",),
    "process": ("cloudpickle",),
    "parquet": ("pyarrow",),
    "images": ("pillow", "simplejpeg"),
    "audio": ("soundfile",),
    "video": ("av",),
    "json": ("msgspec",),
    "arrow": ("pyarrow",),
    "hdf5": ("h5py",),
    "sparse": ("scipy",),
    "threads": ("threadpoolctl",),
    "delta": ("deltalake", "pyarrow", "pyroaring"),
    "iceberg": ("pyiceberg", "pyarrow"),
    "uvloop": ("uvloop",),
}
"""Packages that each extra installs. The diagnosis looks up these packages by name and never imports them."""

CUPY_PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


def diagnose() -> Iterator[str]:
    """Yield the text lines of the diagnosis."""
    yield f"aiostream_data {__version__}, Python {platform.python_version()}, NumPy {version('numpy')}"
    yield f"{platform.system()} {platform.machine()}"
    yield describe_native()
    for extra, packages in EXTRAS.items():
        yield f"extra {extra}: {_describe_packages(extra, packages)}"
    yield f"device: {_describe_device()}"
    yield str(verification())
    yield from _describe_memory()


def describe_native() -> str:
    """Describe the native core and the CRC-32C implementation in one line."""
    if not _native.HAVE_NATIVE:
        return "native core: NOT built (is there a C compiler?); the slower pure-Python twins run instead"
    return f"native core: built, CRC-32C {'in hardware' if _native.hardware_crc() else 'in software'}"


def _describe_memory() -> Iterator[str]:
    """Yield the memory use of the allocator, and recommended settings if the allocator's memory is fragmented."""
    state = allocator_state()
    if state is None:
        yield "memory: what the allocator holds cannot be told, as this is not glibc 2.33 or later"
        return
    yield f"memory: {state}"
    if state.advice is not None:
        yield state.advice


def _describe_packages(extra: str, packages: tuple[str, ...]) -> str:
    found = {package: _version_of(package) for package in packages}
    missing = [package for package, number in found.items() if number is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'aiostream-data[{extra}]'"
    return ", ".join(f"{package} {number}" for package, number in found.items())


def _describe_device() -> str:
    """Describe the device that ``to_device()`` would choose. The function imports CuPy only if CuPy is installed."""
    if not any(_version_of(package) for package in CUPY_PACKAGES):
        return "cpu (CuPy is not installed: pip install 'aiostream-data[cupy12]' or [cupy13])"
    try:
        return f"{open_backend('cuda').device} ({describe_gpus()})"
    except (MissingExtraError, DeviceUnavailableError) as error:
        absent = isinstance(error, MissingExtraError) or error.absent
        return f"{'cpu' if absent else 'none, since the GPU does not work'} ({error})"
    except AiostreamError as error:
        return f"none ({error})"


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
