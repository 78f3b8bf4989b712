"""Rewrite statements of tf.data as statements of this package, by tables of names and arguments.

A name of TensorFlow without a rule makes a statement untranslatable. :mod:`.docstrings` skips such statements.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import NamedTuple

NAMES: Mapping[str, str] = {
    "tf.constant": "constant",
    "tf.data.INFINITE_CARDINALITY": "asd.INFINITE",
    "tf.data.UNKNOWN_CARDINALITY": "asd.UNKNOWN",
    "tf.data.experimental.INFINITE_CARDINALITY": "asd.INFINITE",
    "tf.data.experimental.UNKNOWN_CARDINALITY": "asd.UNKNOWN",
    "tf.data.AUTOTUNE": "asd.AUTO",
    "tf.data.Dataset": "Dataset",
    "tf.data.Dataset.zip": "zipped",
    "tf.data.FixedLengthRecordDataset": "Dataset.from_fixed_length",
    "tf.data.Options": "Options",
    "tf.data.TFRecordDataset": "records",
    "tf.data.TextLineDataset": "lines",
    "tf.data.experimental.Counter": "counter",
    "tf.data.experimental.assert_cardinality": "asserting_cardinality",
    "tf.data.experimental.bucket_by_sequence_length": "bucketing",
    "tf.data.experimental.cardinality": "Dataset.cardinality",
    "tf.data.experimental.dense_to_ragged_batch": "ragged_batching",
    "tf.data.experimental.from_list": "from_list",
    "tf.data.experimental.get_structure": "structure_of",
    "tf.debugging.check_numerics": "check_numerics",
    "tf.fill": "np.full",
    "tf.float32": "np.float32",
    "tf.int32": "np.int32",
    "tf.int64": "np.int64",
    "tf.io.FixedLenFeature": "fixed",
    "tf.io.parse_single_example": "parse_example",
    "tf.math.equal": "np.equal",
    "tf.nest.map_structure": "map_structure",
    "tf.numpy_function": "called",
    "tf.py_function": "called",
    "tf.ragged.constant": "ragged",
    "tf.RaggedTensorSpec": "type_of_spec",
    "tf.Tensor": "bytes",
    "tf.TensorSpec": "type_of_spec",
    "tf.range": "np.arange",
    "tf.shape": "np.shape",
    "tf.string": "bytes",
}
"""What stands for a name of TensorFlow: an expression over the names of :mod:`.translated_names`."""

ONLY_THERE = {"tf.io.TFRecordWriter"}
"""Names in statements that write a file, which both libraries then read: these statements run in TensorFlow only."""

RANDOM = {"random", "rejection_resample", "shuffle"}
"""Methods whose elements depend on random numbers, so that they are not compared."""

NUMBERS = {"from_tensor_slices", "from_tensors"}
"""Constructors of tensors: Python numbers get the dtypes of TensorFlow."""


FUNCTIONS: Mapping[str, str] = {
    "from_generator": "typed_generator",
    "get_next": "next",
    "item": "item",
    "options": "options_of",
    "with_options": "with_options",
}
"""Functions of :mod:`.translated_names` that stand for methods: their first argument is the object."""


class Call(NamedTuple):
    """Rule for the calls of a method.

    Attributes:
        keywords: Name of each keyword here; None to leave it out.
        order: New order of the positional arguments.
        added: Keywords to add, with the expression of each value.
        refused: Keywords without an equivalent.
    """

    keywords: Mapping[str, str | None] = {}
    order: tuple[int, ...] = ()
    added: Mapping[str, str] = {}
    refused: Collection[str] = ()


CALLS: Mapping[str, Call] = {
    "Counter": Call(refused=("dtype",)),
    "bucket_by_sequence_length": Call(keywords={"element_length_func": "element_length"}),
    "FixedLengthRecordDataset": Call(
        keywords={
            "filenames": "files",
            "record_bytes": "record_nbytes",
            "header_bytes": "header_nbytes",
            "footer_bytes": "footer_nbytes",
        }
    ),
    "group_by_window": Call(keywords={"key_func": "key", "reduce_func": "reduce"}),
    "interleave": Call(keywords={"num_parallel_calls": None, "deterministic": None}),
    "map": Call(keywords={"num_parallel_calls": None, "deterministic": None}),
    "range": Call(keywords={"output_type": "dtype"}),
    "reduce": Call(order=(1, 0)),
    "rejection_resample": Call(keywords={"class_func": "class_fn", "target_dist": "target", "initial_dist": "initial"}),
    "scan": Call(keywords={"initial_state": "initial", "scan_func": "function"}),
    "window": Call(added={"as_datasets": "True"}),
}


class UntranslatableError(Exception):
    """A statement uses a name that has no rule."""


class _Translation(ast.NodeTransformer):
    def __init__(self, not_offered: Mapping[str, str]) -> None:
        self._not_offered = not_offered
        self._in_lambda = False

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._in_lambda, outside = True, self._in_lambda
        made = self.generic_visit(node)
        self._in_lambda = outside
        return made

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(_rule(dotted), mode="eval").body if (dotted := dotted_name(node)) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        dotted = dotted_name(node)
        if not dotted or (dotted not in NAMES and dotted.startswith("tf.data.Dataset.")):
            if node.attr in self._not_offered:
                raise UntranslatableError(self._not_offered[node.attr])
            return self.generic_visit(node)
        return ast.parse(_rule(dotted), mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Attribute):
            return self.generic_visit(node)
        name = node.func.attr
        if name in ("as_numpy_iterator", "numpy"):  # elements are NumPy values
            value: ast.AST = self.visit(node.func.value)
            return value
        if name in FUNCTIONS:
            made = self.generic_visit(node)
            assert isinstance(made, ast.Call)
            assert isinstance(made.func, ast.Attribute)
            return ast.Call(ast.Name(FUNCTIONS[name], ast.Load()), [made.func.value, *made.args], made.keywords)
        rule = CALLS.get(name, Call())
        for keyword in node.keywords:
            if keyword.arg in rule.refused:
                raise UntranslatableError(f"{dotted_name(node.func)}({keyword.arg}=)")
        made = self.generic_visit(node)
        assert isinstance(made, ast.Call)
        if rule.order:
            made.args = [made.args[place] for place in rule.order]
        left_out = [name for name, own in rule.keywords.items() if own is None]
        made.keywords = [keyword for keyword in made.keywords if keyword.arg not in left_out]
        for keyword in made.keywords:
            keyword.arg = rule.keywords.get(keyword.arg or "", keyword.arg)
        made.keywords += [ast.keyword(arg, ast.parse(value, mode="eval").body) for arg, value in rule.added.items()]
        if name in NUMBERS and not self._in_lambda:  # whose arguments are elements
            made.args = [ast.Call(ast.Name("tensors", ast.Load()), made.args, [])]
        return made


def dotted_name(node: ast.expr) -> str:
    """Return the full name of TensorFlow that an expression is, or ""."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ("tf", "Dataset", "dtypes"):
        return ""
    root = {"Dataset": "tf.data.Dataset", "dtypes": "tf"}.get(node.id, node.id)
    return ".".join([root, *reversed(names)])


def _rule(dotted: str) -> str:
    if dotted not in NAMES:
        raise UntranslatableError(dotted)
    return NAMES[dotted]


def names_of_tensorflow(statement: ast.stmt) -> set[str]:
    """Return all names of TensorFlow in a statement."""
    return {name for node in ast.walk(statement) if isinstance(node, ast.expr) and (name := dotted_name(node))}


def translated(statement: ast.stmt, not_offered: Mapping[str, str]) -> ast.stmt:
    """Return the statement of this package.

    Args:
        not_offered: Methods of TensorFlow's objects that have no rule, with their full names.

    Raises:
        UntranslatableError: A name of TensorFlow has no rule; the message is the name.
    """
    made = _Translation(not_offered).visit(ast.parse(ast.unparse(statement)).body[0])
    assert isinstance(made, ast.stmt)
    return ast.fix_missing_locations(made)
