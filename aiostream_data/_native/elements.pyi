from aiostream_data._native.elements_py import dict_columns as dict_columns
from aiostream_data._native.elements_py import dicts_of as dicts_of
from aiostream_data._native.elements_py import pull_elements as pull_elements
from aiostream_data._native.elements_py import tuple_columns as tuple_columns
