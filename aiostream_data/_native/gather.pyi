from aiostream_data._native.gather_py import compact as compact
from aiostream_data._native.gather_py import compact_many as compact_many
from aiostream_data._native.gather_py import exchange_rows as exchange_rows
from aiostream_data._native.gather_py import exchange_spans as exchange_spans
from aiostream_data._native.gather_py import take_rows as take_rows
from aiostream_data._native.gather_py import take_rows_many as take_rows_many
