"""Check ``storage_options``: reject option names of other libraries, and endpoints without a URL scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiostream_data.arguments import shown
from aiostream_data.endpoints import endpoint_of
from aiostream_data.errors import ArgumentTypeError, PlanError

_REGION: Final = "client_kwargs={'region_name': ...}"
_BEARER: Final = "headers={'Authorization': 'Bearer ...'}"

_INSTEAD: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {
        **dict.fromkeys(("aws_access_key_id", "access_key_id", "access_key", "aws_access_key"), "key=..."),
        **dict.fromkeys(("aws_secret_access_key", "secret_access_key", "secret_key", "aws_secret_key"), "secret=..."),
        **dict.fromkeys(("aws_session_token", "session_token", "security_token"), "token=..."),
        **dict.fromkeys(("region", "region_name", "aws_region", "aws_default_region", "default_region"), _REGION),
        **dict.fromkeys(
            ("endpoint", "endpoint_override", "aws_endpoint_url", "aws_endpoint_url_s3"), "endpoint_url='https://...'"
        ),
        **dict.fromkeys(("anonymous", "no_sign_request", "skip_signature", "aws_skip_signature"), "anon=True"),
        **dict.fromkeys(("aws_profile", "profile_name"), "profile=..."),
        "requestpayer": "requester_pays=True",
    },
    "gs": {
        **dict.fromkeys(
            (
                "credentials",
                "credentials_file",
                "google_application_credentials",
                "google_service_account",
                "key_file",
                "keyfile",
                "service_account",
                "service_account_file",
                "service_account_json",
                "service_account_key",
            ),
            "token=..., the path of a key file, or credentials",
        ),
        **dict.fromkeys(("project_id", "google_cloud_project", "gcp_project"), "project=..."),
        "anonymous": "token='anon'",
        "endpoint": "endpoint_url='https://...'",
    },
    "http": {"authorization": _BEARER, "bearer_token": _BEARER},
}
"""Option names of other libraries in lower case, with the name to use instead. Keyed by store."""

_TABLES: Final = ("client_kwargs", "config_kwargs", "s3_additional_kwargs", "session_kwargs", "headers")


def check_options(scheme: str, options: Mapping[str, Any]) -> None:
    """Check the user's storage options for a URL scheme.

    Error messages contain no option values, because values may be secret.

    Args:
        scheme: "s3", "gs" or "http".

    Raises:
        PlanError: An option uses another library's name, must be a dict but is not, or is an endpoint without a scheme.
    """
    instead = _INSTEAD[scheme]
    for name in options:
        if name.lower() in instead:
            raise PlanError(
                f"storage_options[{shown(name)}] is not an option of {scheme}://. Use {instead[name.lower()]}"
            )
    for name in _TABLES:
        if not isinstance(options.get(name), Mapping | None):
            raise ArgumentTypeError(f"storage_options[{name!r}] must be a dict, got {_type_of(options[name])}")
    if scheme == "s3":
        _check_endpoint(endpoint_of(scheme, options))
    elif scheme == "gs":
        _check_endpoint(options.get("endpoint_url") or "")


def _check_endpoint(endpoint: Any) -> None:
    if not isinstance(endpoint, str):
        raise ArgumentTypeError(f"endpoint_url must be a URL, got {_type_of(endpoint)}")
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        raise PlanError("endpoint_url has no scheme. Prepend 'https://', or 'http://' without TLS")


def _type_of(value: object) -> str:
    return f"a {type(value).__name__}"
