from aiostream_data._native.hashing_py import hash_ids as hash_ids
from aiostream_data._native.hashing_py import hash_rows as hash_rows
from aiostream_data._native.hashing_py import hash_run as hash_run
