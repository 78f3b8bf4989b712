from aiostream_data._native.mixing_py import deal_rows as deal_rows
from aiostream_data._native.mixing_py import follow_choices as follow_choices
