"""Translate errors of botocore and s3fs into the errors of this package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aiostream_data.errors import (
    AccessDeniedError,
    CredentialsError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnreachableError,
    WrongAnswerError,
)
from aiostream_data.storage.connecting import proxy_failure, redirect_failure, tls_failure
from aiostream_data.storage.retry_after import with_retry_after
from aiostream_data.storage.s3_listing import NotAListing
from aiostream_data.storage.translate import (
    NO_ANSWER,
    describe_connection_failure,
    shorten,
    translate_error,
    translate_status,
)
from aiostream_data.storage.urls import folder_hint, safe_url, shown_bucket

_HOW_TO_SIGN_IN = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, "
    "or pass storage_options={'anon': True} for a public bucket"
)
_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w{1,60})'")
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_WRONG_KEY = frozenset({"InvalidAccessKeyId", "InvalidToken", "InvalidClientTokenId", "UnrecognizedClientException"})
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})
_THROTTLED = frozenset({"SlowDown", "Throttling", "RequestLimitExceeded"})
_BUSY = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestLimitExceeded"}
)


class WrongRegion(StorageError):
    """Error for a request that was sent to a region other than the bucket's region.

    Attributes:
        region: Region of the bucket, or "" if the store does not report the region.
    """

    region = ""


def translate_s3_error(url: str, error: Exception) -> StorageError:
    """Translate an exception of aiobotocore, botocore or aiohttp, without importing these libraries."""
    answer = getattr(error, "response", None)
    if isinstance(answer, Mapping) and isinstance(answer.get("Error"), Mapping):
        return _translate_answer(url, answer)
    names = {kind.__name__ for kind in type(error).__mro__}
    where = safe_url(url)
    if (by_proxy := proxy_failure(url, error)) is not None:
        return by_proxy
    if (by_tls := tls_failure(url, error)) is not None:
        return by_tls
    if (by_redirect := redirect_failure(url, error)) is not None:
        return by_redirect
    if "PartialCredentialsError" in names:
        missing = getattr(error, "kwargs", {}).get("cred_var", "a part")
        return CredentialsError(
            where, f"the AWS credentials are incomplete: {missing} is missing; pass both key= and secret=, or neither"
        )
    if names & {"NoCredentialsError", "ProfileNotFound"}:
        return CredentialsError(where, f"no AWS credentials found: {_HOW_TO_SIGN_IN}")
    if names & {"CredentialRetrievalError", "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"}:
        return CredentialsError(
            where, f"the AWS credentials could not be refreshed, or have expired: {_HOW_TO_SIGN_IN}"
        )
    if names & {"ConnectTimeoutError", "ReadTimeoutError"}:
        return StoreTimeoutError(where, NO_ANSWER)
    if names & {
        "ConnectionError",
        "HTTPClientError",
        "IncompleteReadError",
        "ResponseStreamingError",
        "ResponseParserError",
    }:
        return StoreUnreachableError(where, describe_connection_failure(error))
    if names & {"ParamValidationError", "InvalidEndpointURL", "InvalidRegionError", "EndpointResolutionError"}:
        return StorageError(
            where, f"the URL or an option is invalid for S3 ({shorten(str(error))}); check the URL and storage_options"
        )
    if isinstance(error, TypeError) and (unknown := _UNKNOWN_OPTION.search(str(error))) is not None:
        return StorageError(
            where, f"unknown S3 option {unknown[1]!r} in storage_options; remove it or correct its name"
        )
    return translate_error(url, error)


def translate_listing_error(url: str, error: Exception) -> StorageError:
    """Translate an exception raised while a listing is requested or parsed.

    botocore's parser raises ValueError for invalid numbers and dates, and ResponseParserError for malformed XML.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, NotAListing):
        return WrongAnswerError(safe_url(url), str(error))
    if "ResponseParserError" in names:
        return WrongAnswerError(safe_url(url), "the answer is not a listing: its XML is damaged or truncated")
    if isinstance(error, ValueError) and "BotoCoreError" not in names and not hasattr(error, "response"):
        return WrongAnswerError(safe_url(url), f"the store's listing cannot be parsed ({shorten(str(error))})")
    return translate_s3_error(url, error)


def response_status(error: Exception) -> int:
    """Return the HTTP status in a botocore ClientError, or 0."""
    answer = getattr(error, "response", None)
    return _status(answer) if isinstance(answer, Mapping) else 0


def request_id_of(error: Exception) -> str:
    """Return the request id in a botocore ClientError, or ""."""
    answer = getattr(error, "response", None)
    return str(_metadata(answer).get("RequestId", "")) if isinstance(answer, Mapping) else ""


def _status(answer: Mapping[str, Any]) -> int:
    status = _metadata(answer).get("HTTPStatusCode", 0)
    return status if isinstance(status, int) else 0


def _metadata(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = answer.get("ResponseMetadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _translate_answer(url: str, answer: Mapping[str, Any]) -> StorageError:
    code = str(answer["Error"].get("Code", ""))
    code = "" if code.isdecimal() else code  # botocore uses the status as code if the answer has no body
    metadata = _metadata(answer)
    error = translate_s3_answer(url, _status(answer), code, str(metadata.get("RequestId", "")))
    headers = metadata.get("HTTPHeaders")
    return with_retry_after(error, headers) if isinstance(headers, Mapping) else error


def translate_s3_answer(url: str, status: int, code: str, request_id: str, region: str = "") -> StorageError:
    """Return the error to raise for an error response of S3.

    Args:
        code: S3 error code in the body, or "".
        request_id: Request id assigned by the store, or "".
        region: Region of the bucket reported by the store, or "".
    """
    where, bucket = safe_url(url), shown_bucket(url)
    parts = (shorten(code), f"HTTP {status}", f"request id {shorten(request_id)}" if request_id else "")
    told = ", ".join(filter(None, parts))
    make: Callable[[str, str], StorageError]
    if code == "NoSuchBucket":
        missing = ObjectNotFoundError(where, f"bucket {bucket!r} does not exist ({told})")
        missing.is_bucket = True
        return missing
    if code == "NoSuchKey" or status == 404:
        make, reason = ObjectNotFoundError, f"bucket {bucket!r} has no such object ({told}){folder_hint(url)}"
    elif code in _EXPIRED:
        expired = CredentialsError(where, f"the AWS credentials have expired ({told}); renew them")
        expired.is_expired = True
        return expired
    elif code in _WRONG_KEY:
        make, reason = CredentialsError, f"the access key does not exist ({told}); {_HOW_TO_SIGN_IN}"
    elif code == "SignatureDoesNotMatch":
        make, reason = AccessDeniedError, f"the secret key does not match the access key ({told}); check both keys"
    elif code == "RequestTimeTooSkewed":
        make, reason = AccessDeniedError, f"this machine's clock is wrong ({told}); set the clock"
    elif code in _ELSEWHERE or status == 301:
        named = f"region {region!r}" if region else "another region, or behind another endpoint"
        how = "pass the region as client_kwargs={'region_name': ...}, or the endpoint as endpoint_url"
        wrong = WrongRegion(where, f"the bucket is in {named} ({told}); {how}")
        wrong.region = region
        return wrong
    elif code == "PreconditionFailed":
        make, reason = ObjectChangedError, f"the object was replaced while it was being read ({told})"
    elif code == "InvalidRange":
        make, reason = ShortReadError, f"the object ends before the requested bytes ({told})"
    elif code in _BUSY:
        busy = StoreBusyError(where, f"the store cannot serve the request now ({told})")
        busy.is_throttled = code in _THROTTLED or status in (429, 503)
        return busy
    else:
        return translate_status(url, status, detail=code, request_id=request_id)
    return make(where, reason)
