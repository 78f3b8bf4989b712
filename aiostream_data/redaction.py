"""Remove passwords, tokens and other secrets of the user from errors.

Strings in ``storage_options`` are secret unless they are known to be harmless. User names, passwords and query values
in URLs are secret. Every occurrence of a secret is removed from the messages of this package. If a library's error text
contains a secret or a URL with a query, a :class:`LibraryError` replaces the error in the chain of causes. The
replacement keeps the traceback and the rest of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from aiostream_data.errors import AiostreamError, LibraryError
from aiostream_data.object_names import is_signing
from aiostream_data.safe_url import REDACTED, is_harmless, links_of, parts_of, query_of, safe_text, safe_url

MIN_CHARACTERS: Final = 4
"""Minimum length of a secret in characters. Shorter strings are not removed, because ordinary words contain them."""

MIN_QUERY_CHARACTERS: Final = 8
"""Minimum length of a secret, in characters, if the name of its query parameter does not suggest a credential."""

_HARMLESS_OPTION: Final = re.compile(
    r"yes|no|on|off|true|false|auto|default|none|path|virtual|plain|library|s3|s3v4|all|bytes|readahead|read_only|read_write|full_control"
    r"|requester|adaptive|standard|legacy|[a-z]{2,12}(-[a-z]{2,12}){1,2}-?\d{1,2}"  # a region
)
"""Pattern of harmless option values, which error messages may show."""


def shown_option(value: object) -> str:
    """Describe an option value for an error message.

    Show numbers and harmless words. For other values, show the type.
    """
    is_word = isinstance(value, str) and _HARMLESS_OPTION.fullmatch(value) is not None
    if value is None or is_word or isinstance(value, (bool, int, float)):
        return repr(value)
    return f"a {type(value).__name__}"


class Secrets:
    """Secrets in the options and URLs of one call."""

    def __init__(self, options: Mapping[Any, Any], *urls: str) -> None:
        found = set(_option_secrets(options))
        for url in urls:
            found.update(_url_secrets(url))
        written = {form for secret in found for form in _forms(secret)}
        self._texts = sorted(written, key=len, reverse=True)

    def hidden_in(self, text: str) -> str:
        """Return ``text`` with every secret replaced by ``***``."""
        for secret in self._texts:
            text = text.replace(secret, REDACTED)
        return text

    def clean(self, error: BaseException) -> None:
        """Remove the secrets from the texts of an error and of its causes, in place."""
        self._clean(error, set())

    def _clean(self, error: BaseException, seen: set[int]) -> None:
        if id(error) in seen:
            return
        seen.add(id(error))
        if isinstance(error, AiostreamError):
            error.args = tuple(self._value(value) for value in error.args)
            for name, value in list(vars(error).items()):
                setattr(error, name, self._value(value))
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                self._clean(inner, seen)
        self._clean_causes(error, seen)

    def _clean_causes(self, error: BaseException, seen: set[int]) -> None:
        is_suppressed = error.__suppress_context__
        for name in ("__cause__", "__context__"):
            cause = getattr(error, name)
            if cause is not None:
                self._clean(cause, seen)
                setattr(error, name, self._quoted(cause))
        error.__suppress_context__ = is_suppressed  # setting __cause__ resets this flag

    def _quoted(self, error: BaseException) -> BaseException:
        if isinstance(error, AiostreamError) or not isinstance(error, Exception) or not self._shows(error):
            return error
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        quoted = LibraryError(f"{name}: {self._text(_text_of(error))}")
        quoted.__cause__, quoted.__context__ = error.__cause__, error.__context__
        quoted.__suppress_context__ = error.__suppress_context__
        return quoted.with_traceback(error.__traceback__)

    def _shows(self, error: Exception) -> bool:
        texts = [_text_of(error), _text_of(error, repr), *map(str, getattr(error, "__notes__", ()))]
        inner = error.exceptions if isinstance(error, ExceptionGroup) else ()
        return any(self._text(text) != text for text in texts) or any(map(self._shows, inner))

    def _text(self, text: str) -> str:
        return safe_text(self.hidden_in(text))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hidden_in(value)
        if type(value) in (list, tuple):
            return type(value)(map(self._value, value))
        return value


class hiding:
    """Context manager that removes the secrets of ``options`` and ``urls`` from errors raised in its block.

    ``hiding`` is a class, because every request creates an instance and a generator-based context manager is slower.
    """

    __slots__ = ("_options", "_urls")

    def __init__(self, options: Mapping[Any, Any], *urls: str) -> None:
        self._options = options
        self._urls = urls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            Secrets(self._options, *self._urls).clean(error)


def _text_of(error: Exception, how: Any = str) -> str:
    try:
        return str(how(error))
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"<the text of this {type(error).__name__} cannot be read>"


def _option_secrets(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _option_secrets(part)
    elif isinstance(value, str):
        is_plain_url = "://" in value and safe_url(value) == value
        if not is_plain_url and not _HARMLESS_OPTION.fullmatch(value):
            yield value
        yield from _url_secrets(value)
    elif isinstance(value, (bytes, bytearray)):
        yield from _option_secrets(value.decode("utf-8", "replace"))
    elif isinstance(value, (Sequence, AbstractSet)):
        for part in value:
            yield from _option_secrets(part)


def _url_secrets(url: str) -> Iterator[str]:
    for link in links_of(url)[1::2]:
        scheme, user, _, tail = parts_of(link)
        if user is not None and safe_url(link) != link:
            yield user
            yield from user.split(":", 1)
        _, query, fragment = query_of(scheme, tail)
        yield fragment
        for name, value in parse_qsl(query, keep_blank_values=True):
            if not is_harmless(name, value) and (is_signing(name) or len(value) >= MIN_QUERY_CHARACTERS):
                yield value
            if not value:
                yield name


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a secret can occur: URL-quoted, unquoted, and escaped as in JSON and ``repr``."""
    for text in {secret, unquote(secret)}:
        escaped = json.dumps(text)[1:-1], repr(text)[1:-1]
        for form in (text, quote(text, safe=""), quote(text), quote_plus(text), *escaped):
            if len(form) >= MIN_CHARACTERS:
                yield form
