from aiostream_data._native.arrow_c_py import ImportedArray as ImportedArray
from aiostream_data._native.arrow_c_py import ImportedStream as ImportedStream
from aiostream_data._native.arrow_c_py import export_array as export_array
from aiostream_data._native.arrow_c_py import export_schema as export_schema
from aiostream_data._native.arrow_c_py import export_stream as export_stream
from aiostream_data._native.arrow_c_py import import_array as import_array
from aiostream_data._native.arrow_c_py import import_schema as import_schema
