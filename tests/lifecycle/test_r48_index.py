"""R48: a data set with an index starts with no LIST and one GET for the index, whatever the number of shards."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from http_server import HttpObjects
from leaks import leaves_nothing

import aiostream_data as asd

CONTENT = b"one\ntwo\n"


def put_shards(server: HttpObjects, count: int) -> None:
    names = [f"{number:04}.txt" for number in range(count)]
    for name in names:
        server.put(f"/bucket/data/{name}", CONTENT)
    header = {"format": "aiostream-data-index", "version": 1, "shards": count}
    lines = [header, *({"url": name, "nbytes": len(CONTENT)} for name in names)]
    server.put("/bucket/data/index.jsonl", "\n".join(map(json.dumps, lines)).encode())


def options_of(server: HttpObjects) -> dict[str, object]:
    return {
        "endpoint_url": server.endpoint_url,
        "key": "k",
        "secret": "s",
        "client_kwargs": {"region_name": "us-east-1"},
    }


@pytest.mark.parametrize("shards", [1, 300])
@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_r48_an_indexed_data_set_starts_with_one_get_and_no_list(
    http_objects: HttpObjects, shards: int, scheme: str
) -> None:
    put_shards(http_objects, shards)
    root = "s3://bucket" if scheme == "s3" else f"{http_objects.endpoint_url}/bucket"
    options = {"hedge": False, **(options_of(http_objects) if scheme == "s3" else {})}
    dataset = asd.Dataset.from_text(index=f"{root}/data/index.jsonl", cycle_length=8, storage_options=options)
    with leaves_nothing():
        rows = list(dataset)
    assert len(rows) == 2 * shards
    asked = Counter((request.method, request.path.partition("?")[0]) for request in http_objects.requests)
    assert not [request.path for request in http_objects.requests if "list-type" in request.path]
    assert asked["GET", "/bucket/data/index.jsonl"] == 1
    assert asked["HEAD", "/bucket/data/index.jsonl"] <= 1
    of_shards = {place: count for place, count in asked.items() if "index" not in place[1]}
    assert set(of_shards) == {("GET", f"/bucket/data/{number:04}.txt") for number in range(shards)}
    assert set(of_shards.values()) == {1}
