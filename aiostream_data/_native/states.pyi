from aiostream_data._native.states_py import above_lowest as above_lowest
from aiostream_data._native.states_py import above_lowest_of_groups as above_lowest_of_groups
from aiostream_data._native.states_py import json_bytes as json_bytes
from aiostream_data._native.states_py import planes_of as planes_of
