from aiostream_data._native.unbox_py import unbox_floats as unbox_floats
from aiostream_data._native.unbox_py import unbox_ints as unbox_ints
