"""What users import: a fixed list of documented names, quick to load, typed."""

from __future__ import annotations

import inspect
import statistics
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files

import pytest

import aiostream_data
from aiostream_data import errors

PUBLIC = [
    "AUTO",
    "INFINITE",
    "UNKNOWN",
    "AiostreamError",
    "ArraySpec",
    "Dataset",
    "DeviceBatch",
    "FixedLen",
    "FixedLenSequence",
    "ImageCast",
    "Loader",
    "Origin",
    "Quarantine",
    "Ragged",
    "RaggedArray",
    "RankError",
    "Ranks",
    "Replace",
    "Retry",
    "ShardCache",
    "ShuffleQuality",
    "Skip",
    "StateMismatchError",
    "TFRecordWriter",
    "VarLen",
    "combine_hashes",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "parse_example",
    "write_index",
]

LOADED_WHEN_FIRST_USED = [
    "aiofiles", "aiohttp", "aiobotocore", "botocore", "cupy", "fsspec", "gcsfs", "google", "jax",
    "psutil", "ray", "s3fs", "sklearn", "tensorflow", "torch", "uvloop", "zstandard",
]  # fmt: skip

IMPORT_LIMIT_S = 0.150
IMPORTS = 7


def in_fresh_python(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_the_public_names_are_these_and_no_others() -> None:
    assert aiostream_data.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(aiostream_data, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        assert inspect.getdoc(value)


@pytest.mark.parametrize("kind", [aiostream_data.Dataset, aiostream_data.DeviceBatch, aiostream_data.Loader])
def test_every_public_method_is_documented(kind: type) -> None:
    methods = {name: value for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}
    undocumented = [name for name, value in methods.items() if not inspect.getdoc(value)]
    assert methods
    assert undocumented == []


def test_every_error_derives_from_the_one_base_and_is_documented() -> None:
    found = [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]
    assert len(found) > 20
    assert [error for error in found if not issubclass(error, aiostream_data.AiostreamError) or not error.__doc__] == []


def test_the_version_is_the_installed_one() -> None:
    assert aiostream_data.__version__ == version("aiostream-data")


def test_the_package_says_that_it_is_typed() -> None:
    assert (files("aiostream_data") / "py.typed").is_file()


def test_importing_loads_no_cloud_sdk_no_device_library_and_no_framework() -> None:
    program = (
        "import sys, aiostream_data; aiostream_data.Dataset.range(3).batch(2); "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    assert set(in_fresh_python(program).split()) & set(LOADED_WHEN_FIRST_USED) == set()


def test_r46_importing_takes_less_than_150_ms() -> None:
    program = "import time; started = time.perf_counter(); import aiostream_data; print(time.perf_counter() - started)"
    seconds = [float(in_fresh_python(program)) for _ in range(IMPORTS)]
    assert statistics.median(seconds) < IMPORT_LIMIT_S, seconds


def test_r46_building_a_data_set_loads_its_modules_in_less_than_150_ms() -> None:
    # NumPy is in memory already in any program that trains; what it costs is not the package's.
    program = (
        "import numpy, time; started = time.process_time(); import aiostream_data as asd; "
        "asd.Dataset.range(10).batch(2); print(time.process_time() - started)"
    )
    seconds = [float(in_fresh_python(program)) for _ in range(IMPORTS)]
    assert statistics.median(seconds) < IMPORT_LIMIT_S, seconds
