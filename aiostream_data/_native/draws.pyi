from aiostream_data._native.draws_py import words_below as words_below
