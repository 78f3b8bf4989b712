"""Translate errors of google-auth and its HTTP transport into the errors of this package."""

from __future__ import annotations

from typing import Final

from aiostream_data.errors import CredentialsError, StorageError, StoreUnreachableError
from aiostream_data.storage.translate import translate_error
from aiostream_data.storage.urls import safe_url

HOW_TO_SIGN_IN: Final = (
    "set GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default login', or pass a token"
)

_NOT_REFRESHED: Final = frozenset({"RefreshError", "NonRetryableError", "HttpError"})
"""Names of exceptions that google-auth and gcsfs raise if refreshing credentials fails."""


def translate_gcs_error(url: str, error: Exception) -> StorageError:
    """Translate an exception of google-auth, gcsfs or aiohttp, without importing these libraries."""
    where, names = safe_url(url), {kind.__name__ for kind in type(error).__mro__}
    if "TransportError" in names or any(kind.__module__.startswith("requests.") for kind in type(error).__mro__):
        told = f"cannot reach Google's token server ({type(error).__name__}); check the network and proxy settings"
        return StoreUnreachableError(where, told)
    if names & _NOT_REFRESHED:
        told = f"the Google credentials could not be refreshed, or have expired: {HOW_TO_SIGN_IN}"
        return CredentialsError(where, told)
    if "GoogleAuthError" in names:
        return CredentialsError(where, f"the Google credentials cannot be used: {HOW_TO_SIGN_IN}")
    return translate_error(url, error)
