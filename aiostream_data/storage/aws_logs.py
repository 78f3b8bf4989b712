"""Keep secrets out of what botocore logs at DEBUG: requests as they are sent, URLs of proxies, and answers.

S3 repeats in an answer the signature that does not fit, and the token that has expired.
"""

from __future__ import annotations

import logging
import re
from typing import Final

_LOGGERS: Final = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
_SECRET: Final = re.compile(
    r"((?:x-amz-security-token|signature)['\"]?\s*[:=]\s*b?['\"]?|<(?:SignatureProvided|Token-\d+)>)[^\s'\",&}<]+"
    r"|(://)[^/\s@]+@",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text of botocore's without session tokens, signatures, and the passwords of proxies."""
    return _SECRET.sub(lambda found: f"{found[1]}***" if found[1] else f"{found[2]}***@", text)


class _Redaction(logging.Filter):
    """Lets every record pass, without what nobody may read in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_secrets(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = without_secrets(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None  # else it would be written out anew
        return True


_REDACTION: Final = _Redaction()


def redact_logs() -> None:
    """See to it that these loggers tell no secrets from now on. Idempotent; from any thread."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
