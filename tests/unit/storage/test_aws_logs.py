"""What botocore logs is told without secrets, and otherwise as it was."""

from __future__ import annotations

import logging

import pytest

from aiostream_data.safe_url import safe_text
from aiostream_data.storage.aws_logs import redact_logs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x-amz-security-token:abc/d==\nhost:x", "x-amz-security-token:***\nhost:x"),
        ("{'X-Amz-Security-Token': 'abc', 'Range': 'r'}", "{'X-Amz-Security-Token': '***', 'Range': 'r'}"),
        ("{'X-Amz-Security-Token': b'abc'}", "{'X-Amz-Security-Token': b'***'}"),
        ("https://h/k?X-Amz-Signature=abc&x=1", "https://h/k?X-Amz-Signature=***&x=***"),
        (
            "SignedHeaders=host;x-amz-security-token, Signature=abc'",
            "SignedHeaders=host;x-amz-security-token, Signature=***'",
        ),
        ("Signature:\nabc", "Signature:\n***"),
        ("http://me:abc@proxy:3128/", "http://***@proxy:3128/"),
        ("https://bucket/key@2x.png", "https://bucket/key@2x.png"),
        ("b'<SignatureProvided>abc</SignatureProvided>'", "b'<SignatureProvided>***</SignatureProvided>'"),
        ("<Token-0>abc+/=</Token-0><RequestId>R</RequestId>", "<Token-0>***</Token-0><RequestId>R</RequestId>"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_secrets_are_left_out(text: str, told: str) -> None:
    assert safe_text(text) == told


def test_records_pass_with_what_they_may_tell(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    redact_logs()
    logger = logging.getLogger("botocore.endpoint")
    caplog.set_level(logging.DEBUG, "botocore.endpoint")
    try:
        raise OSError("http://me:hunter2@proxy:3128")
    except OSError:
        logger.debug("sending %s", {"X-Amz-Security-Token": "hunter2"}, exc_info=True)
    assert "sending {'X-Amz-Security-Token': '***'}" in caplog.text
    assert "OSError: http://***@proxy:3128" in caplog.text
    assert "hunter2" not in caplog.text
    assert len(logger.filters) == 1
