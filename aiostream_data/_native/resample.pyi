from aiostream_data._native.resample_py import resample as resample
