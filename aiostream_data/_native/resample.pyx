# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Resize images without the GIL; ``resample_py`` is the pure-Python twin."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

import numpy as np

from aiostream_data._native.resample_py import check_image

cdef extern from "resample.h":
    ctypedef struct resample_axis:
        int64_t size
        int64_t most
        int64_t *start
        int64_t *count
        int32_t *weights

    int64_t resample_most(float first, float last, int64_t size) nogil
    void resample_weights(resample_axis *axis, int64_t in_size, float first, float last, double *sums) nogil
    void resample_rows(
        uint8_t *out, int64_t out_stride, const uint8_t *pixels, int64_t stride, int64_t rows, int channels,
        const resample_axis *axis
    ) nogil
    void resample_columns(
        uint8_t *out, int64_t nbytes, const uint8_t *pixels, int64_t stride, int64_t first, const resample_axis *axis
    ) nogil

cdef enum:
    SPARE_NBYTES = 4


cdef class Axis:
    """Weights of one axis."""

    cdef resample_axis axis

    def __cinit__(self, int64_t in_size, float first, float last, int64_t size):
        cdef resample_axis *axis = &self.axis
        cdef double *sums = NULL
        axis.size, axis.most = size, resample_most(first, last, size)
        axis.start = axis.count = NULL
        axis.weights = NULL
        try:
            axis.start = <int64_t *>malloc(size * sizeof(int64_t))
            axis.count = <int64_t *>malloc(size * sizeof(int64_t))
            axis.weights = <int32_t *>malloc(size * axis.most * sizeof(int32_t))
            sums = <double *>malloc(axis.most * sizeof(double))
            if axis.start == NULL or axis.count == NULL or axis.weights == NULL or sums == NULL:
                raise MemoryError
            resample_weights(axis, in_size, first, last, sums)
        finally:
            free(sums)

    def __dealloc__(self):
        free(self.axis.start)
        free(self.axis.count)
        free(self.axis.weights)


def resample(pixels not None, box, Py_ssize_t height, Py_ssize_t width):
    """Resize a part of an image; see the pure-Python twin."""
    check_image(pixels, box, height, width)
    cdef int64_t channels = pixels.shape[2]
    if pixels.strides[1:] != (channels, 1) or pixels.strides[0] < channels * pixels.shape[1]:
        pixels = np.ascontiguousarray(pixels)
    cdef float left = box[0], top = box[1], right = box[2], bottom = box[3]
    cdef Axis across = Axis(pixels.shape[1], left, right, width)
    cdef Axis down = Axis(pixels.shape[0], top, bottom, height)
    cdef int64_t first = down.axis.start[0]
    cdef int64_t rows = down.axis.start[height - 1] + down.axis.count[height - 1] - first
    cdef int64_t nbytes = width * channels, stride = pixels.strides[0]
    resized = np.empty((height, width, channels), np.uint8)
    narrow = np.empty((max(rows, 1), nbytes + SPARE_NBYTES), np.uint8)
    cdef const uint8_t[:, :, :] source = pixels
    cdef uint8_t[:, :, ::1] result = resized
    cdef uint8_t[:, ::1] between = narrow
    with nogil:
        resample_rows(
            &between[0, 0], nbytes + SPARE_NBYTES, &source[first, 0, 0], stride, rows, <int>channels, &across.axis
        )
        resample_columns(&result[0, 0, 0], nbytes, &between[0, 0], nbytes + SPARE_NBYTES, first, &down.axis)
    return resized
