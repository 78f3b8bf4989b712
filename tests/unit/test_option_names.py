"""Options, URLs and paths as other libraries write them: understood, or refused with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data.errors import NoMatchError, PlanError
from aiostream_data.option_names import check_options

SECRET = "do-not-tell"

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("s3", {"aws_access_key_id": SECRET}, r"'aws_access_key_id'.*Use key="),
    ("s3", {"AWS_SECRET_ACCESS_KEY": SECRET}, r"Use secret="),
    ("s3", {"aws_session_token": SECRET}, r"Use token="),
    ("s3", {"region": SECRET}, r"Use client_kwargs=\{'region_name'"),
    ("s3", {"endpoint": SECRET}, r"Use endpoint_url="),
    ("s3", {"endpoint_url": f"{SECRET}:9000"}, r"no scheme\. Prepend 'https://'"),
    ("s3", {"client_kwargs": {"endpoint_url": f"u:{SECRET}@host"}}, r"no scheme\. Prepend 'https://'"),
    ("s3", {"client_kwargs": SECRET}, r"client_kwargs.* must be a dict, got a str"),
    ("gs", {"credentials": SECRET}, r"Use token="),
    ("gs", {"project_id": SECRET}, r"Use project="),
    ("gs", {"endpoint_url": f"{SECRET}:4443"}, r"no scheme"),
    ("http", {"Authorization": SECRET}, r"Use headers="),
]


@pytest.mark.parametrize(("scheme", "options", "told"), REFUSED)
def test_an_option_of_another_library_is_refused_with_its_name_here(
    scheme: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(PlanError, match=told) as caught:
        check_options(scheme, options)
    assert SECRET not in str(caught.value)


def test_options_that_stores_know_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    check_options("s3", {"key": "a", "secret": "b", "client_kwargs": None, "endpoint_url": "HTTP://localhost:9000"})
    check_options("gs", {"token": "anon", "project": "p", "key": "of another store"})
    check_options("http", {"headers": {}, "auth": ("user", "password")})


def test_an_endpoint_of_the_environment_needs_a_scheme_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(PlanError, match="no scheme"):
        check_options("s3", {})


@pytest.mark.parametrize("url", ["s3:/bucket/key", "gs:bucket/key", f"https:/host/x?sig={SECRET}"])
def test_a_url_without_its_two_slashes_is_refused_with_them(url: str) -> None:
    with pytest.raises(PlanError, match=r"two slashes.*Write '[a-z0-9]+://[bh]") as caught:
        asd.Dataset.from_text(url)
    assert SECRET not in str(caught.value)
    with pytest.raises(PlanError, match="two slashes"):
        asd.TFRecordWriter(url)
    with pytest.raises(PlanError, match="two slashes"):
        list(asd.Dataset.from_text(asd.Dataset.from_tensor_slices([url])))


def test_a_tilde_is_the_home_folder_in_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with asd.TFRecordWriter("~/a.tfrecord") as writer:
        writer.write(b"record")
    assert asd.write_index("~/*.tfrecord", "~/index") == 1
    assert list(asd.Dataset.from_tfrecord(index="~/index")) == [b"record"]
    assert list(asd.Dataset.from_tfrecord("~/a.tfrecord").shuffle(spill="~/")) == [b"record"]
    failing = asd.Dataset.range(2).map(lambda number: 1 // number)
    assert len(list(failing.open(on_error="skip", dead_letters="~/log"))) == 1
    assert len(list(failing.replay("~/log").open(on_error="skip"))) == 0
    assert (tmp_path / "log").exists()


def test_a_name_with_brackets_is_told_how_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("line\n")
    with pytest.raises(NoMatchError, match=r"file with this exact name exists: .* as \S*/a\[\[\]1\]\.txt$"):
        list(asd.Dataset.from_text(tmp_path / "a[1].txt"))
    assert list(asd.Dataset.from_text(tmp_path / "a[[]1].txt")) == ["line"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoMatchError, match=r"folder \S*/gone does not exist$"):
        list(asd.Dataset.from_text(tmp_path / "gone" / "*.txt"))
