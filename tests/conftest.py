"""Servers that tests share: started by the first test that asks for one, ended with the run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from zlib import crc32

import every_stage  # noqa: F401 - before constants are replaced, of which modules make others when they are loaded
import hypothesis
import pytest
from http_server import HttpObjects, http_server
from leaks import leaves_nothing

from aiostream_data.storage import memory
from aiostream_data.testing.servers import ObjectServer, gcs_server, s3_server

BUCKET = "test-bucket"

# No deadline, as other tests run beside it; and the same cases in every usual run, others with ASD_EXAMPLES.
_IS_LONG = "ASD_EXAMPLES" in os.environ
hypothesis.settings.register_profile(
    "usual", deadline=None, derandomize=not _IS_LONG, max_examples=100 if _IS_LONG else 30
)
hypothesis.settings.load_profile("usual")

# gcsfs, which reads this when it is imported, asks for the kind of every bucket. The emulator cannot answer, and gcsfs
# tries again for a minute.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


# A shell lets processes that it starts in the background ignore Ctrl-C. Tests of Ctrl-C need Python's own handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

SAMPLED = {
    Path(__file__).parent / name: most for name, most in (("integration", 3), ("lifecycle", 3), ("properties", 6))
}
"""Folders of slow tests, each with a number of cases. A usual run takes all cases of a test function with so many.

Of a function with more cases, it takes the first case, and one sixth of the others.
"""


def _is_drawn(number: int) -> bool:
    """Return True for one number of six, even and odd ones alike."""
    return number % 3 == 0 and not number >> 8 & 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of tests with many, the same in every run.

    All run with ASD_EXAMPLES, and where one file is run.
    """
    if _IS_LONG or len({item.path for item in items}) < 2:
        return
    functions: dict[tuple[int, str], list[pytest.Item]] = {}
    for item in items:
        for folder, most in SAMPLED.items():
            if item.path.is_relative_to(folder):
                functions.setdefault((most, item.nodeid.partition("[")[0]), []).append(item)
    left_out = {
        item
        for (most, _), cases in functions.items()
        if len(cases) > most
        for item in cases[1:]
        if not _is_drawn(crc32(item.nodeid.encode()))
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_looked_for_among_what_the_module_makes() -> None:
    """Leave what modules before have made out of collections, of which tests for leaks make thousands.

    Late in a run they would take a second each, hold the GIL meanwhile, and keep threads from ending in time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check a marked module for leaks after its last test. A check after each test would take long."""
    with leaves_nothing() if request.node.get_closest_marker("leaves_nothing") else nullcontext():
        yield


@pytest.fixture(autouse=True)
def small_shards_in_groups_or_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every other test read small shards alone, as large ones are: the shards of nearly all tests are small.

    Half of the other tests read every file of one record, however small, into a ``bytes`` object of its own, and half
    of the tests that read shards alone read the members of tar archives so.
    """
    if request.node.get_closest_marker("chooses_groups"):
        return
    number = crc32(request.node.nodeid.encode())
    if number % 4 == 0:
        monkeypatch.setattr("aiostream_data._engine.sources.small_shards.SEPARATE_NBYTES", 0)
    if number % 2:
        monkeypatch.setattr("aiostream_data._engine.sources.group_limits.GROUP_NBYTES", 0)
    if number % 4 == 3:
        monkeypatch.setattr("aiostream_data.formats.webdataset_runs.OBJECT_NBYTES", 0)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[ObjectServer]:
    """An S3 server that holds an empty bucket named ``test-bucket``."""
    with s3_server() as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[ObjectServer]:
    """A GCS server that holds an empty bucket named ``test-bucket``."""
    with gcs_server() as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def http_objects() -> Iterator[HttpObjects]:
    """An HTTP server of this test's own, without objects and faults."""
    with http_server() as server:
        yield server


@pytest.fixture
def memory_objects() -> Iterator[None]:
    """An empty ``memory://``, emptied again after the test."""
    memory.clear()
    yield
    memory.clear()
