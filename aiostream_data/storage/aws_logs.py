"""Redact secrets in the DEBUG logs of S3 and Google libraries. Requests, proxy URLs and responses can contain secrets.

For example, error responses of S3 quote invalid signatures and expired tokens.
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
    """Logging filter that redacts secrets in every log record and drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = safe_text(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = safe_text(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None  # else the handler would format the exception again
        return True


_REDACTION: Final = _Redaction()


def redact_logs() -> None:
    """Add the redaction filter to the loggers of the S3 and Google libraries. Idempotent and thread-safe."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
