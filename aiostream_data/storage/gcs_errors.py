"""Turn errors of google-auth, and of what it asks for tokens with, into the errors of this package."""

from __future__ import annotations

from typing import Final

from aiostream_data.errors import CredentialsError, StorageError, StoreUnreachableError
from aiostream_data.storage.translate import translate_error
from aiostream_data.storage.urls import safe_url

HOW_TO_SIGN_IN: Final = (
    "set GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default login', or pass a token"
)

_NOT_REFRESHED: Final = frozenset({"RefreshError", "NonRetryableError", "HttpError"})
"""Of google-auth, and what gcsfs makes of it; gcsfs is asked for nothing else that raises the others."""


def translate_gcs_error(url: str, error: Exception) -> StorageError:
    """Translate what is raised while credentials are asked for, and what aiohttp raises. Loads neither."""
    where, names = safe_url(url), {kind.__name__ for kind in type(error).__mro__}
    if "TransportError" in names or any(kind.__module__.startswith("requests.") for kind in type(error).__mro__):
        return StoreUnreachableError(where, f"Google could not be asked for a token ({type(error).__name__})")
    if names & _NOT_REFRESHED:
        told = f"the Google credentials could not be refreshed, or have expired: {HOW_TO_SIGN_IN}"
        return CredentialsError(where, told)
    if "GoogleAuthError" in names:
        return CredentialsError(where, f"the Google credentials cannot be used: {HOW_TO_SIGN_IN}")
    return translate_error(url, error)
