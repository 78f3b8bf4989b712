"""CUDA source code and launch parameters of the kernel that casts images.

Each GPU thread casts **groups** of four neighboring pixels of one line. The four pixels are adjacent in the uint8 image
and in the result. Neighboring threads therefore access neighboring memory. If possible, a GPU thread reads whole words
and writes four numbers together. Writing four numbers together requires images with one or three channels, a result
width that is a multiple of four, and an aligned result. In all other cases, the kernel processes single pixels in a
loop.

The kernel's body is ``__host__ __device__`` and includes no header, so NVRTC compiles it without a CUDA toolkit. The
compiler nvcc and plain C++ compilers can also compile the source. For tests without a GPU, a C++ compiler builds the
kernels as host functions with the same names and arguments. C++ compilers need the option ``-ffp-contract=off``,
because the kernel rounds the product and the sum separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aiostream_data.device.batch_layout import Cast

KERNELS: Final = ("cast_f16_planar", "cast_f16_packed", "cast_f32_planar", "cast_f32_packed")
"""Names of the kernels, by dtype of the result and by channel layout: planar (NCHW) or packed (NHWC)."""

_THREADS: Final = 128
_GROUP: Final = 4
_MOST_BLOCKS: Final = 1024
_MOST_IMAGES_AT_ONCE: Final = 65_535
"""Maximum size of the second grid dimension in CUDA.

If a batch has more images, the kernel processes the other images in a loop.
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """Parameters of one launch of a CUDA kernel.

    Attributes:
        name: One of :data:`KERNELS`.
        grid, block: Number of blocks in each dimension of the grid, and number of threads per block.
        arguments: Kernel arguments in order; pointers as ``numpy.uint64``, others as ``numpy.int32``.
    """

    name: str
    grid: tuple[int, int]
    block: tuple[int]
    arguments: tuple[Any, ...]


def launch_of(cast: Cast, target: int, slot: int) -> Launch | None:
    """Return the kernel launch parameters of a cast, or None if the result has no pixels.

    Args:
        target, slot: Addresses of the consumer's memory block and of the slot.
    """
    rows, height, width, channels = cast.images.shape
    lines, columns = cast.size
    if 0 in cast.target.shape:
        return None
    behind = cast.images.offset + cast.images.nbytes
    assert behind <= cast.factors.offset, "the kernel reads up to a word behind the images, which must be in the slot"
    kind = "f16" if cast.target.dtype == np.float16 else "f32"
    groups = lines * -(-columns // _GROUP)
    addresses = (
        slot + cast.images.offset,
        slot + cast.factors.offset,
        slot + cast.places.offset,
        target + cast.target.offset,
    )
    return Launch(
        name=f"cast_{kind}_{'planar' if cast.planar else 'packed'}",
        grid=(min(-(-groups // _THREADS), _MOST_BLOCKS), min(rows, _MOST_IMAGES_AT_ONCE)),
        block=(_THREADS,),
        arguments=(
            *map(np.uint64, addresses),
            *map(np.int32, (rows, height, width, channels, lines, columns)),
        ),
    )


def compile_kernels(cupy: Any) -> dict[str, Any]:
    """Compile the kernels for the current device and return a dict of kernels by name.

    Compilation takes seconds unless CuPy has cached the kernels.

    Args:
        cupy: The module ``cupy``, which only :mod:`.cuda` imports.

    Raises:
        RuntimeError, OSError, cupy.cuda.compiler.CompileException: CuPy's compiler is missing or failed.
    """
    module = cupy.RawModule(code=SOURCE)
    return {name: module.get_function(name) for name in KERNELS}


SOURCE: Final = r"""
#if defined(__CUDACC__)
#define BODY __host__ __device__ static inline
#else
#define BODY static inline
#endif

typedef unsigned char Byte;
typedef unsigned short Half;  // the bits of a float16
typedef unsigned int Word;
typedef unsigned long long Index;

const int GROUP = 4;  // pixels that a thread makes at a time

// Four numbers that are written at once.
template <typename Out> struct alignas(GROUP * sizeof(Out)) Four { Out at[GROUP]; };

BODY Half half_bits(float value) {
#if defined(__CUDA_ARCH__)
    Half bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    // To the nearest, ties to even, in integers: for compilers that know no float16.
    union { float value; Word bits; } whole = {value};
    Word sign = whole.bits >> 16 & 0x8000u, size = whole.bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return Half(sign | 0x7E00u);
    if (size >= 0x477FF000u) return Half(sign | 0x7C00u);  // would be rounded to beyond 65504
    if (size < 0x33000001u) return Half(sign);
    int exponent = int(size >> 23) - 127;
    Word mantissa = (size & 0x7FFFFFu) | 0x800000u;
    int dropped = exponent >= -14 ? 13 : -1 - exponent;  // bits: more of them the further below the smallest normal
    Word kept = mantissa >> dropped, rest = mantissa & ((1u << dropped) - 1u), tie = 1u << (dropped - 1);
    if (rest > tie || (rest == tie && (kept & 1u))) kept += 1;
    // A carry out of the mantissa goes into the exponent, which is right.
    return Half(sign | (exponent >= -14 ? kept + (Word(exponent + 14) << 10) : kept));
#endif
}

BODY float normalised(Byte pixel, float gain, float bias) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(__fmul_rn(float(pixel), gain), bias);
#else
    float product = float(pixel) * gain;
    return product + bias;
#endif
}

BODY void store(float* out, float value) { *out = value; }
BODY void store(Half* out, float value) { *out = half_bits(value); }

// What one group works on.
template <typename Out> struct Line {
    const Byte* pixels;  // the wanted part of the source line
    const float* gain;
    const float* bias;
    Out* out;      // first number of the group's first pixel
    Index plane;   // numbers from one channel to the next, where each stands apart
    int channels;
    int columns;   // pixels of the line
    int column;    // of the group's first pixel, in the result
    bool mirrored;
};

template <bool PLANAR, typename Out>
BODY void cast_one_by_one(const Line<Out>& line, int count) {
    for (int i = 0; i < count; ++i) {
        int column = line.column + i;
        const Byte* pixel = line.pixels + Index(line.mirrored ? line.columns - 1 - column : column) * line.channels;
        for (int c = 0; c < line.channels; ++c)
            store(PLANAR ? line.out + c * line.plane + i : line.out + Index(i) * line.channels + c,
                  normalised(pixel[c], line.gain[c], line.bias[c]));
    }
}

// Reads the bytes of four pixels by words, wherever they begin: up to seven bytes around them are read, too.
template <int CHANNELS>
BODY void read_four(Byte (&bytes)[GROUP * CHANNELS], const Byte* from) {
    int shift = int((Index)from % sizeof(Word));
    const Word* words = (const Word*)(from - shift);
    Index window = words[0];
    for (int w = 0; w < CHANNELS; ++w) {
        window |= Index(words[w + 1]) << 32;
        Word word = Word(window >> 8 * shift);
        for (int b = 0; b < 4; ++b) bytes[4 * w + b] = Byte(word >> 8 * b);
        window >>= 32;
    }
}

template <bool PLANAR, int CHANNELS, typename Out>
BODY void cast_four(const Line<Out>& line) {
    int column = line.mirrored ? line.columns - GROUP - line.column : line.column;
    Byte bytes[GROUP * CHANNELS];
    read_four<CHANNELS>(bytes, line.pixels + Index(column) * CHANNELS);
    for (int quad = 0; quad < CHANNELS; ++quad) {
        Four<Out> four;
        for (int i = 0; i < GROUP; ++i) {
            int pixel = PLANAR ? i : (GROUP * quad + i) / CHANNELS;
            int c = PLANAR ? quad : (GROUP * quad + i) % CHANNELS;
            // Both are read, and one is taken: registers cannot be indexed by what is known only while running.
            Byte mirrored = bytes[(GROUP - 1 - pixel) * CHANNELS + c], upright = bytes[pixel * CHANNELS + c];
            store(&four.at[i], normalised(line.mirrored ? mirrored : upright, line.gain[c], line.bias[c]));
        }
        *(Four<Out>*)(line.out + (PLANAR ? quad * line.plane : Index(GROUP * quad))) = four;
    }
}

template <bool PLANAR, typename Out>
BODY void cast_group(const Byte* images, const float* factors, const int* places, Out* out,
                     int height, int width, int channels, int lines, int columns, int image, int group) {
    int groups = (columns + GROUP - 1) / GROUP, number = group / groups, column = (group - number * groups) * GROUP;
    const int* place = places + 3 * Index(image);
    Index plane = Index(lines) * columns, made = Index(image) * channels * plane;
    Index before = Index(number) * columns + column;  // pixels of the image that come before the group
    Line<Out> line = {
        images + ((Index(image) * height + place[0] + number) * width + place[1]) * channels,
        factors, factors + channels,
        out + made + (PLANAR ? before : before * channels),
        plane, channels, columns, column, place[2] != 0,
    };
    int count = columns - column < GROUP ? columns - column : GROUP;
    bool wide = columns % GROUP == 0 && (Index)line.out % sizeof(Four<Out>) == 0;
    if (wide && channels == 3) cast_four<PLANAR, 3>(line);
    else if (wide && channels == 1) cast_four<PLANAR, 1>(line);
    else cast_one_by_one<PLANAR>(line, count);
}

#if defined(__CUDACC__)
#define KERNEL __global__ void
#define FIRST_IMAGE int(blockIdx.y)
#define NEXT_IMAGE int(gridDim.y)
#define FIRST_GROUP int(blockIdx.x * blockDim.x + threadIdx.x)
#define NEXT_GROUP int(gridDim.x * blockDim.x)
#else
#define KERNEL void
#define FIRST_IMAGE 0
#define NEXT_IMAGE 1
#define FIRST_GROUP 0
#define NEXT_GROUP 1
#endif

#define MAKE_KERNEL(NAME, PLANAR, OUT)                                                                        \
    extern "C" KERNEL NAME(const Byte* images, const float* factors, const int* places, OUT* out, int count,  \
                           int height, int width, int channels, int lines, int columns) {                     \
        int groups = (columns + GROUP - 1) / GROUP * lines;                                                   \
        for (int image = FIRST_IMAGE; image < count; image += NEXT_IMAGE)                                     \
            for (int group = FIRST_GROUP; group < groups; group += NEXT_GROUP)                                \
                cast_group<PLANAR>(images, factors, places, out, height, width, channels, lines, columns,     \
                                   image, group);                                                             \
    }

MAKE_KERNEL(cast_f16_planar, true, Half)
MAKE_KERNEL(cast_f16_packed, false, Half)
MAKE_KERNEL(cast_f32_planar, true, float)
MAKE_KERNEL(cast_f32_packed, false, float)
"""
"""Source code of the kernels :data:`KERNELS`: CUDA C++ that is also valid C++14."""
