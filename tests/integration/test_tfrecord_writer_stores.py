"""TFRecord files written straight into object stores: complete, or not there."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest

from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import TFRecordWriter
from aiostream_data.testing.formats import read_blocks
from aiostream_data.testing.servers import ObjectServer, gcs_server, s3_server

# Of aiohttp, about how gcsfs sends the parts of an upload.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

SMALL = [b"one", b"two"]
LARGE = [bytes([i]) * (1 << 20) for i in range(56)]  # more than one part of an upload, in s3fs and in gcsfs


def write_and_fail(writer: TFRecordWriter, records: list[bytes]) -> None:
    for record in records:
        writer.write(record)
    raise KeyError


@pytest.fixture(scope="module", params=[s3_server, gcs_server])
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with request.param() as server:
        server.create_bucket("written")
        yield server


@pytest.mark.parametrize("records", [SMALL, LARGE], ids=["small", "large"])
def test_object_holds_exactly_what_was_written(server: ObjectServer, records: list[bytes]) -> None:
    url = f"{server.scheme}://written/{len(records)}.tfrecord"
    with TFRecordWriter(url, storage_options=server.storage_options) as writer:
        for record in records:
            writer.write(record)
    filesystem = fsspec.filesystem(server.scheme, **server.storage_options)
    assert read_blocks(TFRecordFormat(), filesystem.cat_file(url)) == (records, None)


@pytest.mark.parametrize("records", [SMALL, LARGE], ids=["small", "large"])
def test_object_is_not_there_when_writing_fails(server: ObjectServer, records: list[bytes]) -> None:
    if server.scheme == "gs":
        records = SMALL  # the emulator cannot cancel an upload in parts
    url = f"{server.scheme}://written/failed-{len(records)}.tfrecord"
    with pytest.raises(KeyError), TFRecordWriter(url, storage_options=server.storage_options) as writer:
        write_and_fail(writer, records)
    filesystem = fsspec.filesystem(server.scheme, **server.storage_options)
    filesystem.invalidate_cache()
    assert not filesystem.exists(url)
