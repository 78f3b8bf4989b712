"""Remote URLs that were typed wrong are shown without secrets, too."""

from __future__ import annotations

import pytest

from aiostream_data.safe_url import safe_url


@pytest.mark.parametrize(
    "url", ["https:/h/x?sig=S", "https:h/x?sig=S", "s3:/AK:S@b/x", "http:/u:S@h/x", "gs:b/x?token=S"]
)
def test_a_remote_url_without_its_slashes_shows_no_secret(url: str) -> None:
    assert "S" not in safe_url(url)
    assert safe_url(safe_url(url)) == safe_url(url)
