/* Resize 8-bit images as Pillow does: a triangle filter with antialiasing, in fixed-point numbers, rows before columns. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define RESAMPLE_AVX2 1
#include <immintrin.h>
#endif

enum { RESAMPLE_BITS = 22 }; /* bits after the point of a weight: a sum of weights times 255 fits into 32 bits */

/* Weights of the input pixels of one output row or column: weight k belongs to pixel start + k. */
typedef struct {
    int64_t size;     /* number of outputs */
    int64_t most;     /* number of weights of each output; unused ones are 0 */
    int64_t *start;
    int64_t *count;
    int32_t *weights;
} resample_axis;

static int64_t resample_most(float first, float last, int64_t size) {
    double scale = (double)(last - first) / (double)size;
    return (int64_t)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 1;
}

/* Compute the weights of one axis. `sums` has room for axis->most numbers. */
static void resample_weights(resample_axis *axis, int64_t in_size, float first, float last, double *sums) {
    double scale = (double)(last - first) / (double)axis->size;
    double reach = scale < 1.0 ? 1.0 : scale; /* distance in pixels at which the weight becomes 0 */
    for (int64_t i = 0; i < axis->size; i++) {
        double center = first + ((double)i + 0.5) * scale, total = 0.0;
        double begin = center - reach + 0.5, end = center + reach + 0.5;
        int64_t start = begin > 0.0 ? (int64_t)begin : 0;
        int64_t stop = end < (double)in_size ? (int64_t)end : in_size;
        if (start > in_size - 1) start = in_size - 1;
        int64_t count = stop - start;
        if (count < 0) count = 0;
        if (count > axis->most) count = axis->most;
        for (int64_t k = 0; k < count; k++) {
            double distance = fabs(((double)(k + start) - center + 0.5) * (1.0 / reach));
            sums[k] = distance < 1.0 ? 1.0 - distance : 0.0;
            total += sums[k];
        }
        int32_t *weights = axis->weights + i * axis->most;
        memset(weights, 0, (size_t)axis->most * sizeof(int32_t));
        for (int64_t k = 0; k < count; k++) {
            double share = total != 0.0 ? sums[k] / total : sums[k];
            weights[k] = (int32_t)(0.5 + share * (1 << RESAMPLE_BITS));
        }
        axis->start[i] = start;
        axis->count[i] = count;
    }
}

static inline uint8_t resample_pixel(int32_t sum) {
    int32_t value = sum >> RESAMPLE_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Resize one row of pixels with `channels` bytes. */
static void resample_row(uint8_t *out, const uint8_t *in, int channels, const resample_axis *axis) {
    for (int64_t i = 0; i < axis->size; i++) {
        const int32_t *weights = axis->weights + i * axis->most;
        for (int c = 0; c < channels; c++) {
            const uint8_t *from = in + axis->start[i] * channels + c;
            int32_t sum = 1 << (RESAMPLE_BITS - 1);
            for (int64_t k = 0; k < axis->count[i]; k++) sum += from[k * channels] * weights[k];
            out[i * channels + c] = resample_pixel(sum);
        }
    }
}

/* Sum bytes `begin` to `nbytes` of the input rows of one output row. */
static void resample_sum(uint8_t *out, const uint8_t *in, int64_t stride, int64_t begin, int64_t nbytes,
                         const int32_t *weights, int64_t count) {
    for (int64_t x = begin; x < nbytes; x++) {
        int32_t sum = 1 << (RESAMPLE_BITS - 1);
        for (int64_t k = 0; k < count; k++) sum += in[k * stride + x] * weights[k];
        out[x] = resample_pixel(sum);
    }
}

#ifdef RESAMPLE_AVX2

static inline uint32_t resample_load(const uint8_t *from) {
    uint32_t bytes;
    memcpy(&bytes, from, 4);
    return bytes;
}

/* Resize two rows of RGB pixels. Reads one byte behind the last pixel of each row, and writes one behind the result. */
__attribute__((target("avx2"))) static void resample_two_rows(
    uint8_t *out, int64_t out_stride, const uint8_t *in, int64_t stride, const resample_axis *axis) {
    for (int64_t i = 0; i < axis->size; i++) {
        const int32_t *weights = axis->weights + i * axis->most;
        const uint8_t *from = in + axis->start[i] * 3;
        __m256i sum = _mm256_set1_epi32(1 << (RESAMPLE_BITS - 1));
        for (int64_t k = 0; k < axis->count[i]; k++) {
            uint64_t pair = resample_load(from + 3 * k) | ((uint64_t)resample_load(from + stride + 3 * k) << 32);
            __m256i pixels = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)pair));
            sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(pixels, _mm256_set1_epi32(weights[k])));
        }
        sum = _mm256_srai_epi32(sum, RESAMPLE_BITS);
        sum = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), sum);
        uint32_t first = (uint32_t)_mm256_extract_epi32(sum, 0), second = (uint32_t)_mm256_extract_epi32(sum, 4);
        memcpy(out + 3 * i, &first, 4);
        memcpy(out + out_stride + 3 * i, &second, 4);
    }
}

/* As resample_sum() from byte 0 on. Return the number of bytes that were summed. */
__attribute__((target("avx2"))) static int64_t resample_sum_wide(
    uint8_t *out, const uint8_t *in, int64_t stride, int64_t nbytes, const int32_t *weights, int64_t count) {
    int64_t x = 0;
    for (; x + 16 <= nbytes; x += 16) {
        __m256i low = _mm256_set1_epi32(1 << (RESAMPLE_BITS - 1)), high = low;
        for (int64_t k = 0; k < count; k++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(in + k * stride + x));
            __m256i weight = _mm256_set1_epi32(weights[k]);
            low = _mm256_add_epi32(low, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weight));
            bytes = _mm_srli_si128(bytes, 8);
            high = _mm256_add_epi32(high, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weight));
        }
        __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, RESAMPLE_BITS), _mm256_srai_epi32(high, RESAMPLE_BITS));
        words = _mm256_permute4x64_epi64(words, 0xD8);
        __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(out + x), packed);
    }
    return x;
}

static int resample_is_wide(void) { return __builtin_cpu_supports("avx2"); }

#else

static int resample_is_wide(void) { return 0; }

#endif

/* Resize `rows` rows. The result has rows of `out_stride` bytes, at least 4 more than their pixels take. */
static void resample_rows(uint8_t *out, int64_t out_stride, const uint8_t *in, int64_t stride, int64_t rows,
                          int channels, const resample_axis *axis) {
    int64_t row = 0;
#ifdef RESAMPLE_AVX2
    if (channels == 3 && resample_is_wide()) { /* not the last row, which may end at the end of the memory */
        for (; row + 2 < rows; row += 2) {
            resample_two_rows(out + row * out_stride, out_stride, in + row * stride, stride, axis);
        }
    }
#endif
    for (; row < rows; row++) resample_row(out + row * out_stride, in + row * stride, channels, axis);
}

/* Make rows of `nbytes` bytes from rows of `stride` bytes. `in` is row number `first` of the image. */
static void resample_columns(uint8_t *out, int64_t nbytes, const uint8_t *in, int64_t stride, int64_t first,
                             const resample_axis *axis) {
    for (int64_t i = 0; i < axis->size; i++) {
        const uint8_t *from = in + (axis->start[i] - first) * stride;
        const int32_t *weights = axis->weights + i * axis->most;
        int64_t done = 0;
#ifdef RESAMPLE_AVX2
        if (resample_is_wide()) {
            done = resample_sum_wide(out + i * nbytes, from, stride, nbytes, weights, axis->count[i]);
        }
#endif
        resample_sum(out + i * nbytes, from, stride, done, nbytes, weights, axis->count[i]);
    }
}
