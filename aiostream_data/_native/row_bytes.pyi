from aiostream_data._native.row_bytes_py import BytesMemory as BytesMemory
from aiostream_data._native.row_bytes_py import BytesPool as BytesPool
from aiostream_data._native.row_bytes_py import byte_objects as byte_objects
from aiostream_data._native.row_bytes_py import byte_rows as byte_rows
from aiostream_data._native.row_bytes_py import byte_rows_many as byte_rows_many
from aiostream_data._native.row_bytes_py import first_invalid_utf8 as first_invalid_utf8
from aiostream_data._native.row_bytes_py import str_objects as str_objects
from aiostream_data._native.row_bytes_py import str_rows as str_rows
