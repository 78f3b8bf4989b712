"""Compression, and decoders of values: images and arrays. Users may pass the decoders to ``map()``."""

from aiostream_data.codecs.arrays import decode_npy
from aiostream_data.codecs.images import decode_image

__all__ = ["decode_image", "decode_npy"]
