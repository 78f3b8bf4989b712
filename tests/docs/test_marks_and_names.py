"""What is read off a page is what stands there, and a name that is not there is found."""

from __future__ import annotations

import pytest
from page_files import matching
from page_names import unknown_names
from pages import blocks, programs

PAGE = """# Page

<!-- needs: torch, data/*.txt -->
```python
import torch
```

Words.

<!-- continues; raises: ValueError -->
```python
torch.fail()
```

<!-- prints -->
```text
ValueError: ...
```

```python
print(1)
```
"""


def test_a_program_is_its_blocks_with_their_marks_at_their_lines() -> None:
    first, second = programs("page.md", PAGE)
    assert first.source.splitlines()[4] == "import torch"
    assert first.source.splitlines()[11] == "torch.fail()"
    assert (first.modules, first.files) == (("torch",), ("data/*.txt",))
    assert (first.raises, first.prints) == ("ValueError", "ValueError: ...\n")
    assert (second.line, second.source.strip(), second.modules) == (21, "print(1)", ())


def test_a_program_of_another_library_prints_what_the_program_below_it_prints() -> None:
    pair = PAGE.replace("needs: torch,", "prints: below; needs: torch,").replace("continues; ", "")
    assert [program.prints for program in programs("page.md", pair)] == ["ValueError: ...\n"] * 2 + [None]


@pytest.mark.parametrize(
    ("text", "said"),
    [("```python\n", "does not end"), ("  ```python\n", "a fence is"), ("<!-- skip -->\n```python\n```\n", "skip")],
)
def test_what_would_be_overlooked_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(blocks(text))


def test_patterns_stand_for_folders_and_files() -> None:
    assert list(matching("a/*/x-*.jpg"))[3:5] == ["a/cat/x-00003.jpg", "a/dog/x-00000.jpg"]
    assert list(matching("labels.db")) == ["labels.db"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import aiostream_data as asd\nasd.Datasets", ["asd.Datasets"]),
        ("from aiostream_data import Datasets", ["aiostream_data.Datasets"]),
        ("import aiostream_data as asd\nasd.Dataset.range(3).mapp(len)", [".mapp()"]),
        ("import aiostream_data as asd\nasd.Dataset.range(3).map(len, workers=2)", ["(workers=)"]),
        ("def f(dataset):\n    dataset.open(limit=2)", ["dataset.open(limit=)"]),
        ("import aiostream_data as asd\nasd.ShardCache('x', size=2)", ["asd.ShardCache(size=)"]),
        ("import torch\ntorch.anything(x=3).batch(5, drop_remainder=True)", []),
        ("import torch\nx = torch.data.Dataset.all(5)\nx.map(len, workers=2).batch(5, last=True)", []),
    ],
)
def test_names_that_are_not_there_are_found(source: str, found: list[str]) -> None:
    unknown = unknown_names(source, "page")
    assert len(unknown) == len(found)
    assert [name for name, part in zip(unknown, found, strict=True) if part not in name] == []
