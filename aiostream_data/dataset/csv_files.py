"""Check the arguments of ``from_csv()``, and make its format and its parser."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aiostream_data.arguments import flag, integer, several, shown
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_columns import CsvParser, CsvParserToInfer, FieldType, checked_schema
from aiostream_data.formats.csv_rules import CsvSyntax


@dataclass(frozen=True)
class CsvArguments:
    """Arguments of ``from_csv()`` that describe the files.

    Raises:
        PlanError: An argument is invalid.
    """

    schema: Any
    header: bool
    delimiter: str
    na_values: Any
    select: Any
    quote: str | None
    encoding: str | None
    max_line_nbytes: int

    @cached_property
    def types(self) -> dict[str, FieldType]:
        """The declared types by column; empty if they are inferred."""
        types = {} if self.schema is None else checked_schema(self.schema)
        if self.encoding is None and str in types.values():
            raise PlanError("a column of schema is str, but encoding=None reads bytes. Declare it as bytes.")
        return types

    @cached_property
    def syntax(self) -> CsvSyntax:
        return CsvSyntax(self.delimiter, self.quote)

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Names of the delivered columns, as far as the arguments contain them."""
        return tuple(self._selected() or self.types)

    def format(self) -> CsvFormat:
        return CsvFormat(
            syntax=self.syntax,
            header=flag("header", self.header),
            names=tuple(self.types) if self.header else (),
            encoding=self.encoding,
            max_line_nbytes=integer("max_line_nbytes", self.max_line_nbytes, 1),
        )

    def parser(self) -> CsvParser | CsvParserToInfer:
        unknown = CsvParserToInfer(self._selected(), self._missing(), self.syntax)
        return unknown.with_types(tuple(self.types), tuple(self.types.values())) if self.types else unknown

    def _selected(self) -> tuple[str, ...] | None:
        if self.select is None:
            return None
        names = several("select", self.select, "a list of column names")
        if not names or len(set(names)) < len(names):
            raise PlanError(f"select must contain at least one column, and each only once, got {shown(list(names))}")
        return names

    def _missing(self) -> tuple[str, ...]:
        texts = several("na_values", self.na_values, "a list of str")
        if not all(isinstance(text, str) for text in texts):
            raise ArgumentTypeError(f"na_values must be a list of str, got {shown(list(texts))}")
        return texts
