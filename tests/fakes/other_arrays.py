"""Stand-ins for arrays of other libraries: the classes by which they are recognised, over NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ON_HOST, ON_CUDA = (1, 0), (2, 0)


class Tensor:
    """As ``torch.Tensor``: attributes, and the errors of ``numpy()``."""

    def __init__(self, values: Any, dtype: Any = None, *, device: str = "cpu", requires_grad: bool = False) -> None:
        self.content: np.ndarray[Any, Any] = np.array(values, dtype)
        self.device, self.requires_grad = device, requires_grad

    @property
    def dtype(self) -> str:
        return f"torch.{self.content.dtype}"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.content.shape)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def numpy(self) -> np.ndarray[Any, Any]:
        assert self.device == "cpu", "asked for numbers that are elsewhere"
        assert not self.requires_grad, "asked for numbers that would lose their gradient"
        return self.content

    def clone(self) -> Tensor:
        return Tensor(self.content)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise AssertionError("__array__ of a tensor was called")

    def __dlpack__(self, **how: Any) -> Any:
        raise AssertionError("__dlpack__ of a tensor was called")

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_HOST

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor, (self.content,)

    def __len__(self) -> int:
        return len(self.content)

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.content[key])


Tensor.__module__ = "torch"


def tensor(values: Any, dtype: Any = None) -> Tensor:
    """Return a tensor; a function, as pickles name those by their module, where PyTorch may be missing."""
    return Tensor(values, dtype)


def references(*values: Any) -> np.ndarray[Any, Any]:
    """Return an array of references, which asks none of the values what it is."""
    return np.fromiter(values, np.dtype(object), len(values))


class Half(Tensor):
    """A tensor of bfloat16, which NumPy lacks."""

    dtype = "torch.bfloat16"

    def numpy(self) -> np.ndarray[Any, Any]:
        raise TypeError("Got unsupported ScalarType BFloat16")


class Sparse(Tensor):
    """A tensor that is not dense."""

    def numpy(self) -> np.ndarray[Any, Any]:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


@dataclass(frozen=True)
class JaxDevice:
    """As ``jax.Device``."""

    platform: str

    def __str__(self) -> str:
        return f"{self.platform}:0"


class ArrayImpl:
    """As ``jax.Array``."""

    def __init__(self, values: Any, dtype: Any = None, *, platform: str = "cpu") -> None:
        self.content: np.ndarray[Any, Any] = np.array(values, dtype)
        self.content.flags.writeable = False
        self.platform = platform

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def devices(self) -> set[JaxDevice]:
        return {JaxDevice(self.platform)}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        assert self.platform == "cpu", "a device was asked for a copy"
        return self.content


ArrayImpl.__module__ = "jaxlib._jax"


class CupyArray:
    """As ``cupy.ndarray``: on a GPU, where it stays."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self.content: np.ndarray[Any, Any] = np.array(values, dtype)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def __dlpack__(self, **how: Any) -> Any:
        raise AssertionError("numbers on a device were exported")

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_CUDA

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


CupyArray.__module__, CupyArray.__name__, CupyArray.__qualname__ = "cupy", "ndarray", "ndarray"


class Exporting:
    """An array in host memory, of no library that is known by name."""

    def __init__(self, values: Any, dtype: Any = None, *, device: tuple[int, int] = ON_HOST) -> None:
        self.content: np.ndarray[Any, Any] = np.array(values, dtype)
        self.device = device

    def __dlpack__(self, **how: Any) -> Any:
        return self.content.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __reduce__(self) -> tuple[Any, ...]:
        return Exporting, (self.content, None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise AssertionError("__array__ was called, and DLPack says the same for less")


class Asking:
    """An object that turns into an array when it is asked; nobody knows at what price."""

    def __init__(self, content: Any = 0) -> None:
        self.content, self.asked = content, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self.asked += 1
        return np.array(self.content)


class Interfaced:
    """An object that is an array by an attribute of its own, as some of NumPy's helpers are."""

    def __init__(self) -> None:
        self.__array_interface__ = np.zeros(2).__array_interface__


class WithUnit(np.ndarray[Any, Any]):
    """An array that gives its own meaning to functions of NumPy, as those with units do."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError("a function of NumPy was called on it")


class Labelled:
    """As ``pandas.Series``."""

    def __init__(self, values: Any) -> None:
        self.content = np.array(values)

    def __len__(self) -> int:
        return len(self.content)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.content


Labelled.__module__, Labelled.__name__, Labelled.__qualname__ = "pandas", "Series", "Series"


class Scalar:
    """As ``pyarrow.Scalar``."""


Scalar.__module__ = "pyarrow.lib"


class Int64Scalar(Scalar):
    """One number of Arrow."""

    def __init__(self, value: int) -> None:
        self.value = value


Int64Scalar.__module__ = "pyarrow.lib"
