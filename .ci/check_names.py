"""Refuse public names without documentation: each needs a docstring, and a mention in README.md or on a page."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

ON_NO_PAGE: Final = {
    "FixedLenSequence": "its docstring describes it; no page covers sequence examples yet",
    "ShuffleQuality": "what `Dataset.shuffle_quality` returns, described there",
    "encode_sequence_example": "its docstring describes it; no page covers sequence examples yet",
}
"""Names that no page mentions, and why. Remove a name here when a page mentions it."""


def is_mentioned(name: str, text: str) -> bool:
    """True when the whole word occurs in the text."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def unmentioned(names: Iterable[str], text: str, listed: Iterable[str]) -> list[str]:
    """Return complaints about names that are neither in the text nor listed, and about listed names that are gone."""
    hidden = [name for name in names if name not in listed and not is_mentioned(name, text)]
    found = [f"{name}: neither README.md nor a page of docs/ mentions it" for name in hidden]
    return found + [f"{name}: listed in ON_NO_PAGE, but not public" for name in listed if name not in names]


def has_docstring(name: str, value: object, sources: str) -> bool:
    """True when a class, function or module has a docstring of its own, or a constant has one below its assignment."""
    if inspect.isclass(value):
        return bool(value.__dict__.get("__doc__"))
    if inspect.isroutine(value) or inspect.ismodule(value):
        return bool(value.__doc__)
    return re.search(rf'^{re.escape(name)}\b[^\n]*=[^\n]*\n"""', sources, re.MULTILINE) is not None


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import aiostream_data

    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    sources = "\n".join(path.read_text() for path in (ROOT / "aiostream_data").rglob("*.py"))
    names = aiostream_data.__all__
    found = [
        f"{name}: has no docstring" for name in names if not has_docstring(name, getattr(aiostream_data, name), sources)
    ]
    found += unmentioned(names, text, ON_NO_PAGE)
    if found:
        sys.exit("\n".join(found))
    print(f"{len(names)} public names, all of which have a docstring; {len(ON_NO_PAGE)} are on no page")


if __name__ == "__main__":
    main()
