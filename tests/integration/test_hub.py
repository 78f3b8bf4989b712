"""Data sets on the Hugging Face Hub: splits, pinned commits, tokens, gated data sets and errors of the server."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hub_server import TOKEN, Hub, hub_server
from made_tars import archive
from pyarrow import parquet

from aiostream_data import (
    AccessDeniedError,
    CorruptRecordError,
    CredentialsError,
    Dataset,
    NoMatchError,
    ObjectNotFoundError,
    PlanError,
    StateMismatchError,
    StoreBusyError,
    WrongAnswerError,
)
from aiostream_data.testing.resume import resumes_everywhere


def table(*numbers: int) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"n": list(numbers)}), file)
    return file.getvalue()


FILES = {
    "README.md": b"# Numbers",
    ".gitattributes": b"",
    "data/train-00000-of-00003.parquet": table(1, 2, 3),
    "data/train-00001-of-00003.parquet": table(4),
    "data/train-00002-of-00003.parquet": table(5, 6),
    "data/test-00000-of-00001.parquet": table(7),
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        server.commit("org/numbers", FILES)
        yield server


def numbers(dataset: Dataset[Any]) -> list[int]:
    return [row["n"] for row in dataset]


def test_splits_are_read_by_the_format_of_their_files(hub: Hub) -> None:
    assert numbers(Dataset.from_hub("org/numbers")) == [1, 2, 3, 4, 5, 6]
    assert numbers(Dataset.from_hub("org/numbers", "test")) == [7]
    assert sorted(numbers(Dataset.from_hub("org/numbers", cycle_length=3, shuffle_shards=True, seed=2))) == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_damaged_files_are_skipped_if_the_policy_says_so(hub: Hub) -> None:
    hub.commit("org/numbers", {**FILES, "data/train-00001-of-00003.parquet": b"PAR1 and nothing else"})
    with pytest.raises(CorruptRecordError):
        numbers(Dataset.from_hub("org/numbers"))
    assert numbers(Dataset.from_hub("org/numbers", on_error="skip")) == [1, 2, 3, 5, 6]


def jsonl(n: int) -> bytes:
    return json.dumps({"n": n}).encode() + b"\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.csv", b"n\n5\n"),
        ("train.tsv", b"n\tm\n5\t6\n"),
        ("train.jsonl", jsonl(5)),
        ("train/records.json", jsonl(5)),
        ("train.parquet", table(5)),
    ],
)
def test_every_format_of_rows_is_read(hub: Hub, name: str, content: bytes) -> None:
    hub.commit("org/one", {name: content})
    assert numbers(Dataset.from_hub("org/one")) == [5]


def test_archives_and_text_are_read(hub: Hub) -> None:
    hub.commit("org/tars", {"train-0.tar": archive([("a.txt", b"text")])})
    assert [row["txt"] for row in Dataset.from_hub("org/tars")] == [b"text"]
    hub.commit("org/text", {"train.txt": b"one\ntwo\n"})
    assert list(Dataset.from_hub("org/text")) == ["one", "two"]


def test_configurations_of_the_readme_choose_the_files(hub: Hub) -> None:
    second = "- config_name: b\n  data_files:\n  - {split: dev, path: b.csv}\n"
    head = f"configs:\n- config_name: a\n  data_files: a/*.csv\n{second}"
    files = {"README.md": f"---\n{head}---\n".encode(), "a/1.csv": b"n\n1\n", "a/2.csv": b"n\n2\n", "b.csv": b"n\n3\n"}
    hub.commit("org/configs", files)
    assert numbers(Dataset.from_hub("org/configs", config="a")) == [1, 2]
    assert numbers(Dataset.from_hub("org/configs", "dev", config="b")) == [3]
    with pytest.raises(PlanError, match="Choose one with config="):
        Dataset.from_hub("org/configs")


def test_the_commit_is_pinned_when_the_dataset_is_made(hub: Hub) -> None:
    dataset = Dataset.from_hub("org/numbers")
    first = hub.repositories["org/numbers"].refs["main"]
    with dataset.open() as loader:
        next(loader)
        state = json.loads(json.dumps(loader.state_dict()))
    hub.commit("org/numbers", {"data/train-00000-of-00001.parquet": table(9)})
    with dataset.open(state) as loader:
        assert [row["n"] for row in loader] == [2, 3, 4, 5, 6]
    with Dataset.from_hub("org/numbers", revision=first).open(state) as loader:
        assert [row["n"] for row in loader] == [2, 3, 4, 5, 6]
    with (
        pytest.raises(StateMismatchError, match="3 shards of the state are missing"),
        Dataset.from_hub("org/numbers").open(state),
    ):
        pass
    assert numbers(Dataset.from_hub("org/numbers")) == [9]


def test_runs_resume_after_every_row(hub: Hub) -> None:
    resumes_everywhere(Dataset.from_hub("org/numbers", shuffle_shards=True, seed=1).shuffle(3, seed=1))


def test_one_loader_reads_one_commit_of_a_branch(hub: Hub) -> None:
    dataset = Dataset.from_parquet("hf://datasets/org/numbers/data/train-*.parquet")
    with dataset.open() as loader:
        found = [next(loader)["n"]]
        hub.commit("org/numbers", {"data/train-00000-of-00001.parquet": table(9)})
        found += [row["n"] for row in loader]
    assert found == [1, 2, 3, 4, 5, 6]
    assert numbers(dataset) == [9]


def test_branches_and_references_are_revisions(hub: Hub) -> None:
    hub.commit("org/numbers", {"train.csv": b"n\n8\n"}, "refs/convert/csv")
    assert numbers(Dataset.from_hub("org/numbers", revision="refs/convert/csv")) == [8]
    assert numbers(Dataset.from_csv("hf://datasets/org/numbers@refs/convert/csv/train.csv")) == [8]
    assert numbers(Dataset.open_any("hf://datasets/org/numbers@refs%2Fconvert%2Fcsv/*.csv")) == [8]


# -- tokens


def stored(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return {}


def of_the_environment(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return {}


def given(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    return {"token": TOKEN}


@pytest.mark.parametrize("provide", [stored, of_the_environment, given])
@pytest.mark.parametrize("limit", ["is_private", "is_gated"])
def test_a_token_opens_private_and_gated_data_sets(
    hub: Hub, provide: Callable[..., dict[str, Any]], limit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setattr(hub.repositories["org/numbers"], limit, True)
    dataset = Dataset.from_hub("org/numbers", **provide(hub, monkeypatch, tmp_path))
    assert numbers(dataset) == [1, 2, 3, 4, 5, 6]
    assert TOKEN not in repr(dataset) + str(dataset.explain())
    assert hub.downloads
    assert not any("authorization" in headers for headers in hub.downloads), "the token was sent to another host"


def test_a_token_of_the_environment_can_be_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.repositories["org/numbers"].is_private = True
    with pytest.raises(CredentialsError, match=r"or it is private\. Check the name, or pass token="):
        Dataset.from_hub("org/numbers", token=False)


def test_a_gated_data_set_names_the_page_where_to_ask(hub: Hub) -> None:
    hub.repositories["org/numbers"].is_gated = True
    for token, kind in ((False, CredentialsError), ("hf_other", AccessDeniedError)):
        with pytest.raises(
            kind, match=r"ask for access at http://127.*/datasets/org/numbers and pass token="
        ) as caught:
            list(Dataset.from_hub("org/numbers", token=token))
        assert "hf_other" not in str(caught.value)


# -- errors


def test_what_does_not_exist_is_named(hub: Hub) -> None:
    with pytest.raises(CredentialsError, match="no data set 'org/none'"):
        Dataset.from_hub("org/none")
    with pytest.raises(ObjectNotFoundError, match=r"no revision 'v9'.*/refs"):
        Dataset.from_hub("org/numbers", revision="v9")
    with pytest.raises(PlanError, match=r"no split 'dev'. Its splits are 'test', 'train'"):
        Dataset.from_hub("org/numbers", "dev")
    with pytest.raises(ObjectNotFoundError, match="no such file"):
        list(Dataset.from_csv("hf://datasets/org/numbers/data/a.csv"))
    with pytest.raises(NoMatchError, match="matches"):
        list(Dataset.from_csv("hf://datasets/org/numbers/data/*.csv"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.csv": b"", "b.parquet": b""}, "1 of CSV, 1 of Parquet"),
        ({"a.png": b"", "b.png": b""}, "2 of images"),
        ({"a.bin": b""}, "none of a known format"),
        ({"README.md": b""}, "It has no data files"),
    ],
)
def test_files_that_cannot_be_chosen_are_an_error(hub: Hub, files: dict[str, bytes], message: str) -> None:
    hub.commit("org/odd", files)
    with pytest.raises(PlanError, match=message):
        Dataset.from_hub("org/odd")


@pytest.mark.parametrize(
    "url", ["hf://org/name/a.csv", "hf://datasets/name", "hf://datasets/org/..x y/a", "hf://spaces/a/b/c"]
)
def test_other_urls_are_refused_with_the_form_of_a_url(hub: Hub, url: str) -> None:
    with pytest.raises(PlanError, match="hf://datasets/ORGANIZATION/NAME/PATH"):
        list(Dataset.from_csv(url))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repository": "name"}, "organization/name"),
        ({"repository": 3}, "repository must be a text"),
        ({"split": ""}, "split must be a text"),
        ({"revision": None}, "revision must be a text"),
        ({"config": 3}, "config must be"),
        ({"token": True}, "token must be"),
        ({"storage_options": {"endpoint": "hub"}}, "endpoint of hf:// must be"),
    ],
)
def test_invalid_arguments_are_refused_at_once(hub: Hub, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Dataset.from_hub(**{"repository": "org/numbers", **arguments})
    assert not hub.requests


def test_a_busy_server_is_asked_again(hub: Hub) -> None:
    hub.refuse = [503, 429]
    assert numbers(Dataset.from_hub("org/numbers")) == [1, 2, 3, 4, 5, 6]
    hub.refuse = [503]
    with pytest.raises(StoreBusyError):
        Dataset.from_hub("org/numbers", storage_options={"retry_attempts": 1})


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"sha": 3}', b"[" * 100_000])
def test_an_answer_of_another_server_is_an_error(hub: Hub, answer: bytes) -> None:
    hub.answers = [answer]
    with pytest.raises(WrongAnswerError, match="check the endpoint"):
        Dataset.from_hub("org/numbers", storage_options={"retry_attempts": 1})


@pytest.mark.parametrize("answer", [b"{}", b"[3]", b'[{"path": 3}]', b'[{"type": "file", "path": "a"}]'])
def test_a_malformed_listing_is_an_error(hub: Hub, answer: bytes) -> None:
    hub.answers = [b'{"sha": "1"}', answer]
    with pytest.raises(WrongAnswerError):
        Dataset.from_hub("org/numbers", storage_options={"retry_attempts": 1})


def test_a_listing_that_leads_to_another_server_is_not_followed(hub: Hub) -> None:
    hub.answers = [b'{"sha": "1"}', b"[]"]
    hub.link = '<http://localhost:1/more>; rel="next"'
    with pytest.raises(WrongAnswerError, match="another server"):
        Dataset.from_hub("org/numbers", storage_options={"retry_attempts": 1})
