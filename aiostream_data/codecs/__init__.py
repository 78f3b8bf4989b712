"""Compression, and decoders of values such as images and sound. Users may pass the decoders to ``map()``."""

from aiostream_data.codecs.arrays import decode_npy
from aiostream_data.codecs.audio import Audio, decode_audio
from aiostream_data.codecs.images import decode_image
from aiostream_data.codecs.random_crops import decode_random_crop
from aiostream_data.codecs.video import Video, decode_video

__all__ = ["Audio", "Video", "decode_audio", "decode_image", "decode_npy", "decode_random_crop", "decode_video"]
