/* CRC-32C (Castagnoli), as TFRecord uses it: hardware instructions where the CPU has them, else slicing-by-8.
 *
 * How the fast path works: a CRC instruction takes 8 bytes, has a latency of three cycles and can be issued every
 * cycle. So three neighbouring lanes are summed at once, and joined at their end. The CRC of "A then B" is the CRC
 * of A carried over len(B) zero bytes, xor the CRC of B; carrying over a fixed number of zero bytes is linear over
 * GF(2), hence four 256-entry tables per lane length. Long lanes serve images, short ones small records. Lanes of
 * 1,024 bytes are no faster for bytes in the cache, and take three times as long for others: the CPU does not fetch
 * three streams ahead.
 *
 * crc32c_init() must run once before anything else. All lengths are trusted: callers check their bounds.
 */
#ifndef AIOSTREAM_DATA_CRC32C_H
#define AIOSTREAM_DATA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define CRC32C_ACCELERATED 1
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_WORD(state, word) _mm_crc32_u64(state, word)
#define CRC32C_BYTE(state, byte) _mm_crc32_u8((uint32_t)(state), byte)
static int crc32c_cpu_has_it(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !defined(__AARCH64EB__)
#include <arm_acle.h>
#define CRC32C_ACCELERATED 1
#define CRC32C_TARGET
#define CRC32C_WORD(state, word) __crc32cd((uint32_t)(state), word)
#define CRC32C_BYTE(state, byte) __crc32cb((uint32_t)(state), byte)
static int crc32c_cpu_has_it(void) { return 1; }
#else
static int crc32c_cpu_has_it(void) { return 0; }
#endif

enum { CRC32C_LONG_LANE = 256, CRC32C_SHORT_LANE = 64 };

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_over_long[4][256];
static uint32_t crc32c_over_short[4][256];
static int crc32c_use_hardware = 0;

/* Fill `over` so that carrying a state over `zeros` zero bytes is four look-ups. */
static void crc32c_fill_carry(uint32_t over[4][256], int zeros) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t state = (uint32_t)1 << bit;
        for (int i = 0; i < zeros; i++) state = (state >> 8) ^ crc32c_table[0][state & 0xff];
        uint32_t *column = over[bit / 8];
        uint32_t low = (uint32_t)1 << (bit % 8);
        for (uint32_t rest = 0; rest < low; rest++) column[low | rest] = column[rest] ^ state;
    }
}

static void crc32c_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) state = (state >> 1) ^ (0x82f63b78u & (0u - (state & 1)));
        crc32c_table[0][byte] = state;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t state = crc32c_table[k - 1][byte];
            crc32c_table[k][byte] = (state >> 8) ^ crc32c_table[0][state & 0xff];
        }
    crc32c_fill_carry(crc32c_over_long, CRC32C_LONG_LANE);
    crc32c_fill_carry(crc32c_over_short, CRC32C_SHORT_LANE);
    crc32c_use_hardware = crc32c_cpu_has_it();
}

static uint32_t crc32c_little32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t crc32c_little64(const unsigned char *p) {
    return (uint64_t)crc32c_little32(p) | (uint64_t)crc32c_little32(p + 4) << 32;
}

static uint32_t crc32c_by_table(uint32_t state, const unsigned char *p, size_t nbytes) {
    for (; nbytes >= 8; p += 8, nbytes -= 8) {
        uint32_t low = state ^ crc32c_little32(p), high = crc32c_little32(p + 4);
        state = crc32c_table[7][low & 0xff] ^ crc32c_table[6][low >> 8 & 0xff] ^
                crc32c_table[5][low >> 16 & 0xff] ^ crc32c_table[4][low >> 24] ^
                crc32c_table[3][high & 0xff] ^ crc32c_table[2][high >> 8 & 0xff] ^
                crc32c_table[1][high >> 16 & 0xff] ^ crc32c_table[0][high >> 24];
    }
    for (; nbytes; p++, nbytes--) state = (state >> 8) ^ crc32c_table[0][(state ^ *p) & 0xff];
    return state;
}

#ifdef CRC32C_ACCELERATED
static inline uint32_t crc32c_carry(uint32_t over[4][256], uint32_t state) {
    return over[0][state & 0xff] ^ over[1][state >> 8 & 0xff] ^ over[2][state >> 16 & 0xff] ^ over[3][state >> 24];
}

CRC32C_TARGET static inline uint64_t crc32c_three_lanes(uint64_t state, const unsigned char *p, size_t lane,
                                                        uint32_t over[4][256]) {
    uint64_t second = 0, third = 0, a, b, c;
    for (size_t i = 0; i < lane; i += 8) {
        memcpy(&a, p + i, 8);
        memcpy(&b, p + lane + i, 8);
        memcpy(&c, p + 2 * lane + i, 8);
        state = CRC32C_WORD(state, a);
        second = CRC32C_WORD(second, b);
        third = CRC32C_WORD(third, c);
    }
    state = crc32c_carry(over, (uint32_t)state) ^ second;
    return crc32c_carry(over, (uint32_t)state) ^ third;
}

CRC32C_TARGET static uint32_t crc32c_by_hardware(uint32_t start, const unsigned char *p, size_t nbytes) {
    uint64_t state = start, word;
    for (; nbytes >= 3 * CRC32C_LONG_LANE; p += 3 * CRC32C_LONG_LANE, nbytes -= 3 * CRC32C_LONG_LANE)
        state = crc32c_three_lanes(state, p, CRC32C_LONG_LANE, crc32c_over_long);
    for (; nbytes >= 3 * CRC32C_SHORT_LANE; p += 3 * CRC32C_SHORT_LANE, nbytes -= 3 * CRC32C_SHORT_LANE)
        state = crc32c_three_lanes(state, p, CRC32C_SHORT_LANE, crc32c_over_short);
    for (; nbytes >= 8; p += 8, nbytes -= 8) {
        memcpy(&word, p, 8);
        state = CRC32C_WORD(state, word);
    }
    for (; nbytes; p++, nbytes--) state = CRC32C_BYTE(state, *p);
    return (uint32_t)state;
}
#endif

/* Continue the checksum `value` (0 at the start) over nbytes at p. */
static uint32_t crc32c_extend(uint32_t value, const unsigned char *p, size_t nbytes) {
#ifdef CRC32C_ACCELERATED
    if (crc32c_use_hardware) return ~crc32c_by_hardware(~value, p, nbytes);
#endif
    return ~crc32c_by_table(~value, p, nbytes);
}

/* TFRecord stores checksums rotated and shifted, since a checksum over data with checksums in it is a weak one. */
static uint32_t crc32c_mask(uint32_t value) { return (value >> 15 | value << 17) + 0xa282ead8u; }

static uint32_t crc32c_masked(const unsigned char *p, size_t nbytes) {
    return crc32c_mask(crc32c_extend(0, p, nbytes));
}

#endif
