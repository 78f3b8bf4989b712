"""Check the schema of ``from_jsonl()``, and make its decoder."""

from __future__ import annotations

from typing import Any

from aiostream_data.formats.json_columns import JsonParser
from aiostream_data.formats.json_inference import JsonParserToInfer
from aiostream_data.formats.json_schema import checked_json_schema
from aiostream_data.formats.json_values import JsonValues

INFER = "infer"
"""The argument ``schema`` that infers the schema."""


def json_decoder(schema: Any) -> JsonParser | JsonParserToInfer | JsonValues:
    """Return the decoder of typed columns, or of plain values if ``schema`` is None.

    Raises:
        PlanError: The schema is invalid.
    """
    if schema is None:
        return JsonValues()
    is_name = isinstance(schema, str) and schema == INFER
    return JsonParserToInfer() if is_name else JsonParser(checked_json_schema(schema))


def shown_keys(schema: Any) -> tuple[str, ...]:
    """Return the keys of a schema, for descriptions of the plan."""
    return () if schema is None or isinstance(schema, str) else tuple(schema)
