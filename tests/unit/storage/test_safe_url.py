"""Remote URLs that were typed wrong are shown without secrets, too."""

from __future__ import annotations

import pytest

from aiostream_data.object_names import object_name
from aiostream_data.safe_url import safe_text, safe_url


@pytest.mark.parametrize(
    "url", ["https:/h/x?sig=S", "https:h/x?sig=S", "s3:/AK:S@b/x", "http:/u:S@h/x", "gs:b/x?token=S"]
)
def test_a_remote_url_without_its_slashes_shows_no_secret(url: str) -> None:
    assert "S" not in safe_url(url)
    assert safe_url(safe_url(url)) == safe_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("//u:S@h/x?a=S", "//***@h/x?a=***"),
        ("//u:S@h/x::s3://u:S@b/k", "//***@h/x::s3://***@b/k"),
        ("http://h\\@S@x/", "http://h\\***"),
        ("https://h/a\\S?b=S", "https://h/a\\***?b=***"),
        ("https://h/a%3Fb=S", "https://h/a%3F***"),
        ("https://h/a%3fb%3dS", "https://h/a%3f***"),
        ("https://h/a%253FS", "https://h/a%253F***"),
        ("https://h%3fsig=S", "https://h%3f***"),
        ("https://u:S@0#S@h/x", "https://***@h/x"),
    ],
)
def test_a_url_that_programs_read_in_different_ways_shows_no_secret(url: str, shown: str) -> None:
    assert safe_url(url) == safe_url(shown) == shown
    assert "S" not in object_name(url)
    assert object_name(object_name(url)) == object_name(url)
    text = safe_text(f"see {url} now")
    assert "S" not in text
    assert safe_text(text) == text


@pytest.mark.parametrize(
    "path",
    [
        "//srv@x/y",
        "//data/a:b@2",
        "/u:p@h/x",
        "C:\\data\\a@b",
        "a\\b%3Fc",
        "s3://b/a\\b",
        "s3://b/a%3Fb=c",
        "x //a:b@c",
    ],
)
def test_local_paths_and_keys_that_resemble_such_urls_are_shown_unchanged(path: str) -> None:
    assert safe_url(path) == object_name(path) == path
