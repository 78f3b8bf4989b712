"""Keep secrets out of the logs of S3 and Google libraries at DEBUG: requests as sent, URLs of proxies, and answers.

S3 repeats in an answer the signature that does not fit, and the token that has expired.
"""

from __future__ import annotations

import logging
from typing import Final

from aiostream_data.safe_url import safe_text

_LOGGERS: Final = (
    *("botocore.auth", "botocore.endpoint", "botocore.httpsession", "botocore.parsers", "botocore.retryhandler"),
    *("fsspec", "gcsfs", "gcsfs.credentials", "s3fs"),
)


class _Redaction(logging.Filter):
    """Lets every record pass, without what nobody may read in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = safe_text(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = safe_text(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None  # else it would be written out anew
        return True


_REDACTION: Final = _Redaction()


def redact_logs() -> None:
    """Redact secrets in these loggers from now on. Idempotent; safe from any thread."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
