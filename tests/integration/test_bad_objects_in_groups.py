"""One bad object among good ones in a store: objects read in groups have the outcome that each would have alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from groups_or_alone import Outcome, alone, check_both_ways, grouped, outcome
from leaks import leaves_nothing
from many_shards import COMPRESS, CONTENT, SUFFIXES, source, write_shards

import aiostream_data as asd
from aiostream_data import Retry
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule

SHARDS = 50
BAD = 23
"""Number of the bad object, in the middle of a group."""

SECOND = 24
"""Number of a second bad object, beside the first."""

BAD_KEYS = f"*/00[{BAD // 10}][{BAD % 10}{SECOND % 10}].data*"

PASSING: dict[str, Fault] = {
    "failing": Fault(status=500),
    "reset": Fault(reset_at="middle"),
    "reset before the answer": Fault(reset_at="start"),
    "cut short": Fault(truncate_at="middle"),
    "cut short before the last byte": Fault(truncate_at="last"),
    "damaged on the way": Fault(corrupt_at="middle"),
    "shorter than announced": Fault(end_early_at="middle"),
    "another range": Fault(shift_range=1),
    "no answer to the range": Fault(ignore_range=True),
    "slow": Fault(delay_s=0.2),
    "no length": Fault(chunked=True),
    "error in a success": Fault(status=200, code="InternalError"),
    "more than asked": Fault(extra=b"more", close_after=True),
    "throttled": Fault(status=503, code="SlowDown", retry_after="0"),
}
"""Faults of the first answer for each bad object. The last one slows down the requests after it."""

LASTING: dict[str, Fault] = {
    "missing": Fault(status=404, code="NoSuchKey"),
    "forbidden": Fault(status=403, code="AccessDenied"),
    "failing": Fault(status=500),
    "reset": Fault(reset_at="middle"),
    "cut short": Fault(truncate_at="first"),
    "damaged on the way": Fault(corrupt_at="middle"),
    "changed": Fault(change="before"),
    "changed meanwhile": Fault(change="middle"),
    "stalled": Fault(stall_at="middle", stall_s=2.0),
    "throttled": Fault(status=503, code="SlowDown", retry_after="0"),
}
"""Faults of every answer for the bad objects."""


pytestmark = pytest.mark.chooses_groups


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with leaves_nothing(), fault_server("s3") as running:
        yield running


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, server: FaultServer) -> dict[tuple[str, str], str]:
    """Return the pattern of the objects of each source and compression."""
    patterns: dict[tuple[str, str], str] = {}
    for name, compression in product(CONTENT, SUFFIXES):
        folder = tmp_path_factory.mktemp(f"{name}-{compression}")
        write_shards(folder, name, compression, SHARDS)
        server.put_folder(folder.name, folder)
        patterns[name, compression] = server.url(f"{folder.name}/*")
    return patterns


def put_again(server: FaultServer, pattern: str, name: str, compression: str) -> None:
    """Restore the bad objects of a source."""
    folder = pattern.removeprefix("s3://").removesuffix("/*")
    for number in (BAD, SECOND):
        content = COMPRESS[compression](CONTENT[name](number))
        server.put(f"{folder}/{number:04}.data{SUFFIXES[compression]}", content)


def check(
    server: FaultServer, folders: dict[tuple[str, str], str], rule: Rule, number: int, log: Path, **options: Any
) -> Outcome:
    """Read the objects of a source both ways. Return the outcome, which must be the same."""
    name, compression = list(CONTENT)[number % 4], list(SUFFIXES)[number // 4 % 4]
    storage = {**server.storage_options, "retry_attempts": 2, "read_timeout": 0.3, "hedge": False}
    found = []
    for way in (grouped, alone):
        pattern = folders[name, compression]
        put_again(server, pattern, name, compression)
        dataset = source(name, pattern, compression, storage_options=storage, **options)
        server.set_rules(rule)
        with way():
            found.append(outcome(dataset, log))
        server.set_rules()
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("kind", PASSING)
def test_a_passing_fault_changes_nothing(
    server: FaultServer, folders: dict[tuple[str, str], str], kind: str, tmp_path: Path
) -> None:
    rule = Rule(PASSING[kind], kind="get", key=BAD_KEYS, times=1, per="key")
    number = list(PASSING).index(kind)
    found = check(server, folders, rule, number, tmp_path / "log.jsonl", cycle_length=(1, 3)[number % 2])
    assert found.error is None
    assert not found.skipped


@pytest.mark.parametrize("policy", [None, "skip", Retry(1, backoff_s=0.0, then="skip")], ids=["raise", "skip", "retry"])
@pytest.mark.parametrize("kind", LASTING)
def test_a_lasting_fault_concerns_only_its_objects(
    server: FaultServer, folders: dict[tuple[str, str], str], kind: str, policy: Any, tmp_path: Path
) -> None:
    once = LASTING[kind].change is not None  # a second change would restore the object
    rule = Rule(LASTING[kind], kind="get", key=BAD_KEYS, times=1 if once else None, per="key")
    number = list(LASTING).index(kind)
    check(server, folders, rule, number, tmp_path / "log.jsonl", cycle_length=(1, 3)[number % 2], on_error=policy)


ASKING: dict[str, Fault] = {
    "missing": Fault(status=404, code="NoSuchKey"),
    "failing": Fault(status=500),
    "forbidden": Fault(status=403, code="AccessDenied"),
    "stalled": Fault(delay_s=2.0),
    "no size": Fault(without=("Content-Length",), close_after=True),
}
"""Faults of every answer to a question for the size of a bad object."""


@pytest.mark.parametrize("policy", [None, "skip", Retry(1, backoff_s=0.0, then="skip")], ids=["raise", "skip", "retry"])
@pytest.mark.parametrize("kind", ASKING)
def test_an_object_whose_size_is_not_told_has_the_same_outcome_as_alone(
    server: FaultServer, folders: dict[tuple[str, str], str], kind: str, policy: Any, tmp_path: Path
) -> None:
    folder = folders["from_text", "gzip"].removesuffix("/*")
    names = [f"{folder}/{number:04}.data.gz" for number in range(SHARDS)]
    storage = {**server.storage_options, "retry_attempts": 2, "read_timeout": 0.3}
    files = asd.Dataset.from_tensor_slices(names)
    dataset = source("from_text", files, "", cycle_length=2, on_error=policy, storage_options=storage)
    server.set_rules(Rule(ASKING[kind], kind="head", key=BAD_KEYS))
    check_both_ways(dataset, tmp_path / "log.jsonl")
    server.set_rules()


def test_each_object_of_unknown_size_is_asked_once_and_read_once(server: FaultServer) -> None:
    names = [f"named/{number:03}" for number in range(40)]
    for name in names:
        server.put(name, b"x" * (3 << 20) + b"\n" if name.endswith("5") else b"line\n")
    server.clear_log()
    files = asd.Dataset.from_tensor_slices([server.url(name) for name in names])
    lines = list(asd.Dataset.from_text(files, storage_options=server.storage_options))
    assert list(map(len, lines)) == [3 << 20 if name.endswith("5") else 4 for name in names]
    log = server.log()
    assert sorted(request.name for request in log if request.kind == "head") == names
    assert sorted({request.name for request in log if request.kind == "get"}) == names


def test_objects_that_vanish_after_the_listing_are_skipped_alone(server: FaultServer, tmp_path: Path) -> None:
    for number in range(SHARDS):
        server.put(f"gone/{number:04}", CONTENT["from_text"](number))
    index = tmp_path / "index"
    asd.write_index(server.url("gone/*"), index, storage_options=server.storage_options)
    for number in (0, BAD, SECOND, SHARDS - 1):
        server.delete(f"gone/{number:04}")
    dataset = source("from_text", None, "", index=index, storage_options=server.storage_options, on_error="skip")
    found = outcome(dataset, tmp_path / "log.jsonl")
    with alone():
        assert outcome(dataset, tmp_path / "log.jsonl") == found
    assert (found.error, found.skipped) == (None, 4)
