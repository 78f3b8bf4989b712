"""Options of stores are translated for deltalake, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiostream_data.dataset.delta_options import delta_options
from aiostream_data.errors import PlanError


@pytest.fixture(autouse=True)
def _no_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        (
            {"key": "k", "secret": "s", "token": "t"},
            {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"},
        ),
        ({"anon": True, "profile": "p"}, {"AWS_SKIP_SIGNATURE": "true", "AWS_PROFILE": "p"}),
        ({"anon": False, "key": None}, {}),
        ({"client_kwargs": {"region_name": "eu-west-1"}}, {"AWS_REGION": "eu-west-1"}),
        ({"endpoint_url": "https://host"}, {"AWS_ENDPOINT_URL": "https://host"}),
        ({"client_kwargs": {"endpoint_url": "http://host"}}, {"AWS_ENDPOINT_URL": "http://host", "allow_http": "true"}),
        ({"hedge": False, "max_connections": 3, "retry_total_s": 1.5}, {"retry_timeout": "1500ms"}),
        ({"gs://": {"token": "anon"}, "s3://": {"key": "k"}}, {"AWS_ACCESS_KEY_ID": "k"}),
    ],
)
def test_options_of_s3(given: dict[str, Any], expected: dict[str, str]) -> None:
    assert delta_options("s3", given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"token": "anon", "project": "p"}, {"google_skip_signature": "true"}),
        ({"token": "key.json"}, {"google_service_account_path": "key.json"}),
        (
            {"token": {"type": "service_account"}},
            {"google_service_account_key": json.dumps({"type": "service_account"})},
        ),
        ({"token": "google_default"}, {}),
        ({"endpoint_url": "http://host"}, {"google_base_url": "http://host", "allow_http": "true"}),
    ],
)
def test_options_of_google_cloud_storage(given: dict[str, Any], expected: dict[str, str]) -> None:
    assert delta_options("gs", given) == expected


@pytest.mark.parametrize(
    ("scheme", "given", "name"),
    [
        ("s3", {"requester_pays": True}, "requester_pays"),
        ("s3", {"client_kwargs": {"verify": False}}, "client_kwargs"),
        ("gs", {"token": object()}, "token"),
        ("gs", {"session_kwargs": {}}, "session_kwargs"),
    ],
)
def test_an_option_without_a_translation_is_refused(scheme: str, given: dict[str, Any], name: str) -> None:
    with pytest.raises(PlanError, match=rf"cannot pass storage_options\['{name}'\] to deltalake"):
        delta_options(scheme, given)


def test_stores_that_deltalake_does_not_read_are_refused() -> None:
    assert delta_options("file", {"key": "k"}) == {}
    with pytest.raises(PlanError, match=r"reads local folders, s3:// and gs://, got http://"):
        delta_options("http", {})
