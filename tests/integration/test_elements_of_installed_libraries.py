"""What PyTorch, JAX, pandas and PyArrow really return, where they are installed: the table of docs/elements.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd

FOUR: Any = asd.Dataset.range(4)


def batch_of(function: Callable[[int], Any], how: str = "thread") -> Any:
    [batch] = FOUR.map(function, executor=how, concurrency=1).batch(4)
    return batch


def refusal_of(function: Callable[[int], Any]) -> str:
    with pytest.raises(asd.BatchShapeError) as caught:
        list(FOUR.map(function).batch(4))
    return str(caught.value)


def check(batch: Any, dtype: str, values: Any) -> None:
    assert (type(batch), batch.dtype.name) == (np.ndarray, dtype)
    assert batch.tolist() == values


def torch_row(x: int) -> Any:
    import torch

    return {"t": torch.full((2,), int(x), dtype=torch.float16), "l": [torch.tensor(int(x))]}


@pytest.mark.parametrize("how", ["thread", "process"])
def test_tensors_of_pytorch_stack(how: str) -> None:
    pytest.importorskip("torch")
    batch = batch_of(torch_row, how)
    check(batch["t"], "float16", [[n, n] for n in range(4)])
    check(batch["l"], "int64", [[n] for n in range(4)])
    [batch] = FOUR.map(torch_row).cache().shuffle(1, seed=1).batch(4).in_subprocess()
    check(batch["t"], "float16", [[n, n] for n in range(4)])


def test_more_tensors_of_pytorch_stack() -> None:
    torch = pytest.importorskip("torch")
    check(batch_of(lambda x: torch.tensor(int(x))), "int64", [0, 1, 2, 3])
    check(batch_of(lambda x: torch.tensor(bool(x % 2))), "bool", [False, True] * 2)
    check(batch_of(lambda x: torch.arange(4)[::2] + int(x)), "int64", [[n, n + 2] for n in range(4)])
    check(batch_of(lambda x: torch.zeros(1).expand(2)), "float32", [[0.0, 0.0]] * 4)
    check(batch_of(lambda x: torch.Size([int(x), 2])), "int64", [[n, 2] for n in range(4)])
    [batch] = FOUR.map(lambda x: torch.ones(int(x))).padded_batch(4)
    check(batch, "float32", [[1.0] * n + [0.0] * (3 - n) for n in range(4)])
    check(
        next(iter(asd.Dataset.from_tensor_slices(torch.arange(6).reshape(2, 3)).batch(2))),
        "int64",
        [[0, 1, 2], [3, 4, 5]],
    )


def test_tensors_that_would_lose_something_are_refused() -> None:
    torch = pytest.importorskip("torch")
    refused = {
        "torch.bfloat16. Use .float()": lambda x: torch.zeros(2, dtype=torch.bfloat16),
        "torch.float8_e4m3fn. Use .float()": lambda x: torch.zeros(2, dtype=torch.float8_e4m3fn),
        "requires a gradient, which would be lost. Use .detach()": lambda x: torch.zeros(2, requires_grad=True),
        "it requires a gradient": lambda x: torch.nn.Parameter(torch.zeros(2)),
        "Use Tensor.to_dense() first": lambda x: torch.eye(2).to_sparse(),
        "Use tensor.resolve_conj()": lambda x: torch.zeros(2, dtype=torch.complex64).conj(),
        "it is on meta": lambda x: torch.zeros(2, device="meta"),
        "torch.Tensor in range record 0 but numpy.ndarray in range record 1": lambda x: (
            np.zeros(2) if x else torch.zeros(2)
        ),
        "Make the shapes equal in map(), or use padded_batch()": lambda x: torch.zeros(int(x)),
    }
    for words, function in refused.items():
        assert words in refusal_of(function)


def test_a_cached_tensor_is_not_written_into() -> None:
    torch = pytest.importorskip("torch")
    cached = FOUR.map(lambda x: torch.full((2,), int(x))).cache()
    for _ in range(2):
        assert [tensor.add_(100).tolist() for tensor in cached] == [[n + 100] * 2 for n in range(4)]


def test_arrays_of_jax_stack() -> None:
    jnp = pytest.importorskip("jax.numpy")
    check(batch_of(lambda x: jnp.full((2,), int(x), jnp.int8)), "int8", [[n, n] for n in range(4)])
    check(batch_of(lambda x: jnp.asarray(int(x), jnp.float32)), "float32", [0, 1, 2, 3])
    check(batch_of(lambda x: jnp.zeros(1, jnp.bfloat16)), "bfloat16", [[0]] * 4)
    check(batch_of(lambda x: jnp.zeros(1, bool)), "bool", [[False]] * 4)


def test_keys_of_jax_are_refused() -> None:
    jax = pytest.importorskip("jax")
    assert "jax.Array in range record 0 cannot become a dense numpy.ndarray: TypeError" in refusal_of(
        lambda x: jax.random.key(0)
    )


def test_frames_and_series_are_refused_as_elements_and_taken_as_slices() -> None:
    pd = pytest.importorskip("pandas")
    assert "pandas.Series in range record 0" in refusal_of(lambda x: pd.Series([1, 2]))
    assert ".to_numpy()" in refusal_of(lambda x: pd.DataFrame({"a": [1, 2]}))
    [batch] = asd.Dataset.from_tensor_slices({"a": pd.Series([1, 2]), "s": pd.Series(["a", "b"])}).batch(2)
    assert (batch["a"].tolist(), batch["s"].tolist()) == ([1, 2], ["a", "b"])


def test_arrays_of_arrow_stack_where_nothing_is_null() -> None:
    pa = pytest.importorskip("pyarrow")
    check(batch_of(lambda x: pa.array([int(x), 2])), "int64", [[n, 2] for n in range(4)])
    assert "Use .as_py() in map()" in refusal_of(lambda x: pa.scalar(int(x)))
    assert "cannot become a dense numpy.ndarray" in refusal_of(lambda x: pa.array(["a"]))
    assert "pyarrow.lib.ChunkedArray in range record 0" in refusal_of(lambda x: pa.chunked_array([[1], [2]]))
