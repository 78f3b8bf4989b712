"""WebDataset shards in object stores: the same samples from every store, and only the bytes that are needed."""

from __future__ import annotations

import gzip
import random
from itertools import islice
from typing import Any, Literal

import pytest
from made_tars import archive, samples_by_tarfile

from aiostream_data import CorruptRecordError, Dataset
from aiostream_data.testing.fault_server import FaultServer, fault_server
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.servers import gcs_server, s3_server

SOURCE = random.Random(1)
STREAMS = [
    archive([(f"{shard}/{row:03}.{end}", SOURCE.randbytes(3000)) for row in range(40) for end in ("jpg", "cls")])
    for shard in range(3)
]
SAMPLES = [sample for stream in STREAMS for sample in samples_by_tarfile(stream)]


@pytest.mark.parametrize("dialect", ["s3", "gcs", "http"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_samples_are_the_same_from_every_store(dialect: Literal["s3", "gcs", "http"], suffix: str) -> None:
    with fault_server(dialect) as server:
        for shard, stream in enumerate(STREAMS):
            server.put(f"set/{shard:02}.tar{suffix}", gzip.compress(stream) if suffix else stream)
        url = server.url("set/{00..02}.tar").replace("%7B", "{").replace("%7D", "}") + suffix
        server.set_rules(Rule(Fault(reset_at="middle"), kind="get", times=2))
        assert list(Dataset.from_webdataset(url, storage_options=server.storage_options)) == SAMPLES


@pytest.mark.parametrize("serve", [s3_server, gcs_server])
def test_samples_are_the_same_from_other_servers(serve: Any) -> None:
    with serve() as server:
        server.create_bucket("set")
        for shard, stream in enumerate(STREAMS):
            server.put(f"{server.scheme}://set/{shard}.tar", stream)
        dataset = Dataset.from_webdataset(f"{server.scheme}://set/*.tar", storage_options=server.storage_options)
        assert list(dataset) == SAMPLES


def _one_large_shard(server: FaultServer) -> tuple[Dataset[Any], list[dict[str, Any]]]:
    stream = archive([(f"{row:03}.bin", SOURCE.randbytes(1 << 20)) for row in range(48)])
    url = server.put("set/large.tar", stream)
    return Dataset.from_webdataset(url, storage_options=server.storage_options), samples_by_tarfile(stream)


def test_a_resumed_run_reads_only_what_is_left() -> None:
    with fault_server("s3") as server:
        dataset, samples = _one_large_shard(server)
        with dataset.open() as loader:
            assert list(islice(loader, 45)) == samples[:45]
            state = loader.state_dict()
        sent = server.counters().nbytes
        with dataset.open(state) as loader:
            assert list(loader) == samples[45:]
        assert server.counters().nbytes - sent < 16 << 20


def test_a_damaged_shard_is_named() -> None:
    with fault_server("s3") as server:
        url = server.put("set/cut.tar", STREAMS[0][:100_000])
        with pytest.raises(CorruptRecordError, match=r"cut\.tar at byte 93184") as raised:
            list(Dataset.from_webdataset(url, storage_options=server.storage_options))
    assert raised.value.reason == "the stream ends 6816 bytes into a sample"
