from aiostream_data._native.philox_py import PhiloxSeeker as PhiloxSeeker
