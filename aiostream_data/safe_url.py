"""Redact URLs for messages, logs, states and reports, based on an allow-list.

The scheme, host, path and *names* of query parameters stay visible. User names, passwords, query values and fragments
are replaced by ``***``. Harmless query values stay visible, e.g. numbers in ``part=`` and dates in ``X-Amz-Date=``. The
rule applies to every URL in a text, including chained URLs (``simplecache::https://...``) and URLs inside queries. In a
malformed URL, harmless text may also be replaced.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import unquote

REDACTED: Final = "***"
QUOTED_CHARACTERS: Final = 200

_SCHEME: Final = re.compile(r"(?:^|(?<=::)|(?<![A-Za-z0-9+.:-]))([A-Za-z][A-Za-z0-9+.-]*)://")
_PLAIN: Final = re.compile(r"(?:(?!https?:)[a-z][a-z0-9+.-]*://)?[^?@#;:\\]*|https?://[^?@#;:%=\\]*", re.IGNORECASE)
_MISTYPED: Final = re.compile(r"^(https?|s3a?|gs|gcs|ftp|abfss?|wasbs?):/?(?=[^/])", re.IGNORECASE)
"""Pattern of a remote URL with fewer than two slashes after its scheme."""

_RELATIVE: Final = re.compile(r"//(?:\*\*\*|[^/?#\\@]*:[^/?#\\]*)@")
"""Start of a URL with a (redacted) password but no scheme. Other texts that start with ``//`` are local paths."""

_AUTHORITY_END: Final = re.compile(r"[/?#\\]|$")
_HTTP: Final = frozenset({"http", "https", ""})
"""Schemes treated as HTTP, including the empty scheme."""

_PLAIN_PATHS: Final = frozenset({"file", "local", "memory"})
_CONTAINER_FIRST: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Azure URL schemes, whose URLs have ``container@account`` before the path."""

_CONTAINER: Final = re.compile(r"[a-z0-9$][a-z0-9-]{2,62}")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(?::\d*)?")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}")

_NUMBER: Final = re.compile(r"\d{1,20}")
_DATE: Final = re.compile(r"\d{4}-?\d\d-?\d\d(?:T\d\d:?\d\d:?\d\d(?:\.\d{1,6})?Z)?")
_HARMLESS_VALUES: Final = {
    **dict.fromkeys(
        ("part", "partnumber", "page", "offset", "limit", "start", "end", "generation", "x-amz-expires"), _NUMBER
    ),
    **dict.fromkeys(("x-goog-expires", "expires"), _NUMBER),
    **dict.fromkeys(("x-amz-date", "x-goog-date", "se", "st", "sv"), _DATE),
    "alt": re.compile("media|json"),
    "x-amz-algorithm": re.compile("AWS4-HMAC-SHA256"),
    "x-goog-algorithm": re.compile("GOOG4-RSA-SHA256"),
    "x-amz-signedheaders": re.compile("host"),
    "x-goog-signedheaders": re.compile("host"),
}
"""Pattern of the values that may be shown, for each query parameter. The names of parameters are in lower case."""

_IN_PATH: Final = re.compile(
    r"/(hdn[a-z]{2}|token|access_token|signature|sig|sas|hmac|jwt|password|pwd|secret|auth|session|ticket)"
    r"(=|%3d)[^/]+",
    re.IGNORECASE,
)
_ENCODED_URL: Final = re.compile(r"(?<=/)[^/]*%3a(?:/|%2f){2}.*", re.IGNORECASE | re.DOTALL)
_PATH_PARAMETERS: Final = re.compile(r";[^/]*")
_UNCLEAR: Final = re.compile(r"(\\|%(?:25)*3f).+", re.IGNORECASE | re.DOTALL)
"""Text after a backslash may be a password, and text after an encoded ``?`` may be a query. URL parsers disagree."""

# Patterns to find secrets inside longer texts. Every repetition is bounded, so the search takes linear time.
_URL_IN_TEXT: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}:(?:\\?/){2}"
    r"|(?<![\w/:\\@*])(?:\\?/){2}(?=(?:\*\*\*|[^\s/?#\\@\"'<>`]{0,256}:[^\s/?#\\\"'<>`]{0,1024})@))[^\s\"'<>`]*"
)
_PUNCTUATION: Final = "),.;:]}"
_WITHOUT_SCHEME: Final = re.compile(
    r"(?<![\w/@.-])[^\s:/@\"'<>(){}\[\]=,]{1,256}:(?![/:])[^\s@\"'<>]{1,1024}@(?=[\w.\[-])"
)
_NAMED_SECRET: Final = (
    r"(?P<name>(?:signature|(?<![a-z])sig(?![a-z])|token|secret|passw(?:or)?d|passphrase|(?<![a-z])pwd(?![a-z])"
    r"|authorization|credential|api[_-]?key|access[_-]?key|account[_-]?key|cookie|hmac|(?<![a-z])jwt(?![a-z])"
    r"|(?<![a-z])sas(?![a-z])|hdn(?:ts|ea|tl))[\w%.-]{0,60})"
    r"(?P<between>['\"]?\s*(?:=|:(?!/))\s*b?)"
    r"(?:(?:basic|bearer|digest|aws4-hmac-sha256|token)\s+)?"
    r"(?:(?P<quote>['\"])(?:(?!(?P=quote)).)*(?P=quote)?|[^\s'\",&}<>]+)"
)
_TAGGED_SECRET: Final = re.compile(
    r"(<[\w:.-]{0,60}(?:signature|token|secret|password|key)[\w:.-]{0,60}>)[^<]+", re.IGNORECASE
)


def safe_url(url: str | os.PathLike[str]) -> str:
    """Remove user names, passwords, query values and fragments from a URL, for messages and logs.

    Idempotent. Local paths and object keys stay unchanged.
    """
    text = os.fspath(url)
    if is_plain(text):
        return text
    return "".join(_safe_link(part) if nth % 2 else part for nth, part in enumerate(links_of(text)))


def is_mistyped(text: str) -> bool:
    """Return True for a remote URL with fewer than two slashes after its scheme."""
    return _MISTYPED.match(text) is not None


def is_plain(text: str) -> bool:
    """Return True if no part of a URL or path can be a secret. This check is fast, and most URLs pass it."""
    return _PLAIN.fullmatch(text) is not None


def safe_text(text: str) -> str:
    """Remove secrets in URLs and values such as ``token=...`` from text of other libraries or servers.

    Idempotent. URLs with escaped slashes, and ``user:password@host`` without a scheme, are also handled.
    """
    if ":" not in text and "=" not in text and ">" not in text:
        return text
    text = _URL_IN_TEXT.sub(_safe_url_in_text, text)
    text = _WITHOUT_SCHEME.sub(f"{REDACTED}@", text)
    text = _TAGGED_SECRET.sub(lambda found: found[1] + REDACTED, text)
    return _named_secret().sub(_without_value, text)


def safe_quotes(text: str) -> str:
    """Remove secrets in URLs from a message of this package, which may quote an argument of the user."""
    return _URL_IN_TEXT.sub(_safe_url_in_text, text) if "//" in text else text


def shorten(text: str) -> str:
    """Reduce text of other libraries or servers to one printable line of at most 200 characters, without secrets."""
    line = "".join(character if character.isprintable() else " " for character in text[: 10 * QUOTED_CHARACTERS])
    line = " ".join(safe_text(line).split())
    return line if len(line) <= QUOTED_CHARACTERS else line[: QUOTED_CHARACTERS - 3] + "..."


def links_of(url: str) -> list[str]:
    """Split a chained URL into its links (each begins with ``scheme://``) and the texts before and between the links.

    Entries with odd indices are links: ``a::http://x::s3://y`` is ``["a::", "http://x", "::", "s3://y", ""]``.
    Malformed URLs such as ``https:/host/x?token=...`` or ``//user:password@host/x`` also count as links.
    """
    url = _MISTYPED.sub(r"\1://", url)
    if _SCHEME.match(url) and url.count("://") == 1:  # fast path for a URL with a single link
        return ["", url, ""]
    parts: list[str] = []
    at = 0
    starts = [0] if _RELATIVE.match(url) else []
    for start in [*starts, *(found.start(1) for found in _SCHEME.finditer(url))]:
        between = "::" if parts and url[at:start].endswith("::") else ""
        parts += [url[at : start - len(between)], between] if parts else [url[:start]]
        at = start
    return [*parts, url[at:], ""] if parts else [url]


class UrlParts(NamedTuple):
    """Parts of a URL.

    ``scheme`` keeps its upper and lower case. ``user`` is None if the URL contains no user. ``tail`` is the text after
    the host.
    """

    scheme: str
    user: str | None
    host: str
    tail: str


def parts_of(link: str) -> UrlParts:
    """Split one link of a URL chain into its parts."""
    scheme, _, rest = ("", "//", link[2:]) if link.startswith("//") else link.partition("://")
    return UrlParts(scheme, *_split_authority(scheme.lower(), rest))


def query_of(scheme: str, tail: str) -> tuple[str, str, str]:
    """Split ``tail``, the text after the host of a URL, into path, query and fragment.

    In object keys, ``?`` is a wildcard and ``#`` an ordinary character, unless an ``=`` follows.
    """
    if is_http(scheme):
        tail, _, fragment = tail.partition("#")
        path, _, query = tail.partition("?")
        return path, query, fragment
    head, _, fragment = tail.partition("#")
    if "=" not in fragment and REDACTED not in fragment:
        head, fragment = tail, ""
    first = head.find("?")
    equals = head.find("=", first) if first >= 0 else -1
    at = head.rfind("?", 0, equals) if equals >= 0 else -1
    return (head, "", fragment) if at < 0 else (head[:at], head[at + 1 :], fragment)


def is_http(scheme: str) -> bool:
    return scheme.lower() in _HTTP


def without_tokens(path: str) -> str:
    """Remove segments that carry credentials, such as ``/hdnts=...``, from the path of an HTTP URL."""
    return _IN_PATH.sub("", path) if "=" in path or "%" in path else path


def is_harmless(name: str, value: str) -> bool:
    """Return True if the value of a query parameter may be shown."""
    harmless = _HARMLESS_VALUES.get(name.lower())
    return harmless is not None and harmless.fullmatch(value) is not None


def _safe_link(link: str) -> str:
    scheme, user, host, tail = parts_of(link)
    path, query, fragment = query_of(scheme, tail)
    if is_http(scheme):
        host = _UNCLEAR.sub(rf"\1{REDACTED}", host)
        path = _UNCLEAR.sub(rf"\1{REDACTED}", path)
        path = _PATH_PARAMETERS.sub(f";{REDACTED}", path)
        path = _ENCODED_URL.sub(REDACTED, _IN_PATH.sub(lambda found: f"/{found[1]}={REDACTED}", path))
    begin = f"{scheme}://" if scheme else "//"
    shown = host if user is None else f"{_safe_user(scheme, user)}@{host}"
    pairs = "&".join(map(_safe_pair, query.split("&")))
    return f"{begin}{shown}{path}{'?' if query else ''}{pairs}{f'#{REDACTED}' if fragment else ''}"


def _safe_user(scheme: str, user: str) -> str:
    return user if scheme.lower() in _CONTAINER_FIRST and _CONTAINER.fullmatch(user) else REDACTED


def _split_authority(kind: str, rest: str) -> tuple[str | None, str, str]:
    """Return the user, the redacted host, and the text after the host. If the text contains no user, the user is
    None."""
    found = _AUTHORITY_END.search(rest)
    end = found.start() if found else len(rest)
    authority, tail = rest[:end], rest[end:]
    user, at, host = authority.rpartition("@")
    if kind in _PLAIN_PATHS:
        return (user, host, tail) if ":" in user else (None, authority, tail)
    is_odd = not _HOST.fullmatch(host) or (":" in host and kind not in _HTTP)
    is_odd |= bool(at) and "@" in tail.partition("/")[0]
    if is_odd and "@" in tail:
        # The password contains a slash, a question mark or a hash. The text before the last @ belongs to the password.
        before, _, behind = rest.rpartition("@")
        return before, *_split_authority(kind, behind)[1:]
    if not _HOST.fullmatch(host):
        host = f"{host.partition(':')[0]}:{REDACTED}" if ":" in host else REDACTED
    return user if at else None, host, tail


def _safe_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals or not value.strip("="):
        return REDACTED if pair else ""
    name = unquote(name)
    if not _NAME.fullmatch(name):
        return REDACTED
    return f"{name}={value}" if is_harmless(name, value) else f"{name}={REDACTED}"


def _safe_url_in_text(found: re.Match[str]) -> str:
    url = found[0].replace("\\/", "/")
    end = len(url.rstrip(_PUNCTUATION))
    return safe_url(url[:end]) + url[end:]


@cache
def _named_secret() -> re.Pattern[str]:
    """On first use, compile the pattern that finds named secrets, such as ``token=...``.

    Compiling takes milliseconds, and most programs never print an error.
    """
    return re.compile(_NAMED_SECRET, re.IGNORECASE | re.DOTALL)


def _without_value(found: re.Match[str]) -> str:
    return f"{found['name']}{found['between']}{found['quote'] or ''}{REDACTED}{found['quote'] or ''}"
