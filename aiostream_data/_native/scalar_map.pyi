from aiostream_data._native.scalar_map_py import map_scalars as map_scalars
