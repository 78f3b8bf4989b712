"""Stable object names: URLs without credentials. Signing a URL again does not change the object's name.

Saved states, row origins and lists of blocked rows contain names instead of URLs. The name of an object has one of two
forms:

- If no remaining part can be secret, the name is the URL without user name, password, fragment and signature
  parameters.
- Otherwise, the name is the URL with secrets replaced, and a hash of the full URL:
  ``https://host/get?id=***#8f14e45fceea167a``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

from aiostream_data.safe_url import REDACTED, is_http, is_plain, links_of, parts_of, query_of, safe_url, without_tokens

HASH_NBYTES: Final = 8

_HASH: Final = re.compile(r"#[0-9a-f]{16}")

_SIGNING_WORDS: Final = """
    access_key access_token accesskey accesstoken api-key api_key apikey auth auth_token authorization authtoken
    awsaccesskeyid bearer client_secret code credential credentials expires googleaccessid hdnea hdnes hdntl hdnts
    hmac id_token jsessionid jwt key-pair-id nonce otp pass passphrase passwd password phpsessid pwd refresh_token
    sas sastoken secret secret_access_key secret_key secretkey session session_id sessionid sig sign signature
    ticket token
"""
_SIGNING: Final = frozenset(_SIGNING_WORDS.split())
"""Names of query parameters that contain credentials, in lower case. Values of credential parameters change each time a
URL is signed."""

_BESIDE_SIGNATURE_WORDS: Final = """
    exp expiry policy saoid scid sdd se si sid sip ske skoid sks skt sktid skv sp spr sr srt ss st suoid sv
"""
_BESIDE_SIGNATURE: Final = frozenset(_BESIDE_SIGNATURE_WORDS.split())
"""Names of query parameters that belong to a signature only if the URL also has a parameter from :data:`_SIGNING`."""

_PATH_PARAMETER: Final = re.compile(r";([^/;=]*)[^/;]*")
_SIGNING_PREFIXES: Final = ("x-amz-", "x-goog-", "x-oss-", "x-cos-", "q-sign-", "q-ak", "q-key-", "q-header-")
_SIGNING_WORD: Final = re.compile(r"signature|token|secret|password|credential")


def object_name(url: str) -> str:
    """Return the stable name for the URL of an object, or for a URL pattern. Idempotent."""
    if is_plain(url) or (REDACTED in url and _HASH.fullmatch(url[-1 - 2 * HASH_NBYTES :])):
        return url
    lasting = lasting_url(url)
    shown = safe_url(lasting)
    if shown == lasting:
        return lasting
    content = blake2b(lasting.encode("utf-8", "surrogatepass"), digest_size=HASH_NBYTES)
    return f"{shown}#{content.hexdigest()}"


def lasting_url(url: str) -> str:
    """Remove user name, password, fragment and signature from a URL.

    Values of other query parameters may still be secret.
    """
    if is_plain(url):
        return url
    return "".join(_lasting_link(part) if nth % 2 else part for nth, part in enumerate(links_of(url)))


def _lasting_link(link: str) -> str:
    scheme, user, host, tail = parts_of(link)
    if not scheme:
        return safe_url(link)
    path, query, fragment = query_of(scheme, tail)
    if is_http(scheme):
        path, fragment = without_tokens(path), ""
        path = _PATH_PARAMETER.sub(_lasting_parameter, path) if ";" in path else path
    kept = "&".join(_lasting_pairs(query.split("&"))) if query and is_http(scheme) else query
    shown = safe_url(f"{scheme}://{user}@{host}").partition("://")[2] if user is not None else host
    return (
        f"{scheme}://{shown.removeprefix('***@')}{path}{'?' if kept else ''}{kept}{'#' if fragment else ''}{fragment}"
    )


def _lasting_pairs(pairs: list[str]) -> list[str]:
    names = [pair.partition("=")[0] for pair in pairs]
    signs = [is_signing(name) for name in names]
    if any(signs):
        signs = [sign or unquote(name).lower() in _BESIDE_SIGNATURE for sign, name in zip(signs, names, strict=True)]
    return [pair for pair, sign in zip(pairs, signs, strict=True) if not sign]


def _lasting_parameter(found: re.Match[str]) -> str:
    return "" if is_signing(found[1]) else found[0]


@lru_cache(maxsize=4096)
def is_signing(name: str) -> bool:
    """Return True if a query parameter with this name contains credentials."""
    name = unquote(name).lower()
    return name in _SIGNING or name.startswith(_SIGNING_PREFIXES) or _SIGNING_WORD.search(name) is not None
