/* HighwayHash-64, as Riegeli files use it for the headers and the data of chunks.
 *
 * The state is four words of 64 bits in each of four variables. A packet of 32 bytes is multiplied into all of them,
 * and the bytes of neighbouring words change places. CPUs with AVX2 do each step for four words at once.
 *
 * highway_init() must run once before anything else. All lengths are trusted: callers check their bounds.
 */
#ifndef AIOSTREAM_DATA_HIGHWAY_H
#define AIOSTREAM_DATA_HIGHWAY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define HIGHWAY_ACCELERATED 1
static int highway_cpu_has_it(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}
#else
static int highway_cpu_has_it(void) { return 0; }
#endif

static int highway_wide = 0;

static void highway_init(void) { highway_wide = highway_cpu_has_it(); }

enum { HIGHWAY_PACKET = 32, HIGHWAY_ROUNDS = 4 };

typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
} highway_state;

static const uint64_t highway_mul0[4] = {
    0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL, 0x13198a2e03707344ULL, 0x243f6a8885a308d3ULL};
static const uint64_t highway_mul1[4] = {
    0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL, 0xbe5466cf34e90c6cULL, 0x452821e638d01377ULL};

static inline uint64_t highway_swap(uint64_t word) { return (word >> 32) | (word << 32); }

static inline void highway_begin(highway_state* s, const uint64_t* key) {
    for (int i = 0; i < 4; i++) {
        s->mul0[i] = highway_mul0[i];
        s->mul1[i] = highway_mul1[i];
        s->v0[i] = highway_mul0[i] ^ key[i];
        s->v1[i] = highway_mul1[i] ^ highway_swap(key[i]);
    }
}

/* Add the bytes of two words, in another order, to two words. */
static inline void highway_zip(const uint64_t* from, uint64_t* to) {
    const uint64_t a = from[0], b = from[1];
    to[0] += (((a & 0xff000000ULL) | (b & 0xff00000000ULL)) >> 24) |
             (((a & 0xff0000000000ULL) | (b & 0xff000000000000ULL)) >> 16) | (a & 0xff0000ULL) |
             ((a & 0xff00ULL) << 32) | ((b & 0xff00000000000000ULL) >> 8) | (a << 56);
    to[1] += (((b & 0xff000000ULL) | (a & 0xff00000000ULL)) >> 24) | (b & 0xff0000ULL) |
             ((b & 0xff0000000000ULL) >> 16) | ((b & 0xff00ULL) << 24) | ((a & 0xff000000000000ULL) >> 8) |
             ((b & 0xffULL) << 48) | (a & 0xff00000000000000ULL);
}

static inline void highway_add(highway_state* s, const uint64_t* words) {
    for (int i = 0; i < 4; i++) {
        s->v1[i] += s->mul0[i] + words[i];
        s->mul0[i] ^= (s->v1[i] & 0xffffffffULL) * (s->v0[i] >> 32);
        s->v0[i] += s->mul1[i];
        s->mul1[i] ^= (s->v0[i] & 0xffffffffULL) * (s->v1[i] >> 32);
    }
    highway_zip(s->v1, s->v0);
    highway_zip(s->v1 + 2, s->v0 + 2);
    highway_zip(s->v0, s->v1);
    highway_zip(s->v0 + 2, s->v1 + 2);
}

static inline uint64_t highway_word(const unsigned char* p) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | p[i];
    return word;
}

static inline void highway_packet(highway_state* s, const unsigned char* p) {
    const uint64_t words[4] = {highway_word(p), highway_word(p + 8), highway_word(p + 16), highway_word(p + 24)};
    highway_add(s, words);
}

static void highway_packets(highway_state* s, const unsigned char* p, size_t packets) {
    for (; packets; packets--, p += HIGHWAY_PACKET) highway_packet(s, p);
}

#ifdef HIGHWAY_ACCELERATED
__attribute__((target("avx2"))) static void highway_packets_wide(
    highway_state* s, const unsigned char* p, size_t packets) {
    __m256i v0 = _mm256_loadu_si256((const __m256i*)s->v0), v1 = _mm256_loadu_si256((const __m256i*)s->v1);
    __m256i mul0 = _mm256_loadu_si256((const __m256i*)s->mul0), mul1 = _mm256_loadu_si256((const __m256i*)s->mul1);
    const __m256i zip = _mm256_set_epi64x(
        0x070806090D0A040BLL, 0x000F010E05020C03LL, 0x070806090D0A040BLL, 0x000F010E05020C03LL);
    for (; packets; packets--, p += HIGHWAY_PACKET) {
        v1 = _mm256_add_epi64(v1, _mm256_add_epi64(mul0, _mm256_loadu_si256((const __m256i*)p)));
        mul0 = _mm256_xor_si256(mul0, _mm256_mul_epu32(v1, _mm256_srli_epi64(v0, 32)));
        v0 = _mm256_add_epi64(v0, mul1);
        mul1 = _mm256_xor_si256(mul1, _mm256_mul_epu32(v0, _mm256_srli_epi64(v1, 32)));
        v0 = _mm256_add_epi64(v0, _mm256_shuffle_epi8(v1, zip));
        v1 = _mm256_add_epi64(v1, _mm256_shuffle_epi8(v0, zip));
    }
    _mm256_storeu_si256((__m256i*)s->v0, v0);
    _mm256_storeu_si256((__m256i*)s->v1, v1);
    _mm256_storeu_si256((__m256i*)s->mul0, mul0);
    _mm256_storeu_si256((__m256i*)s->mul1, mul1);
}
#else
#define highway_packets_wide highway_packets
#endif

/* Add the last 1 to 31 bytes. */
static void highway_rest(highway_state* s, const unsigned char* p, size_t nbytes) {
    unsigned char packet[HIGHWAY_PACKET] = {0};
    const size_t odd = nbytes & 3, even = nbytes - odd;
    const unsigned char* rest = p + even;
    for (int i = 0; i < 4; i++) {
        const uint64_t low = s->v1[i] & 0xffffffffULL, high = s->v1[i] >> 32;
        s->v0[i] += ((uint64_t)nbytes << 32) + nbytes;
        s->v1[i] = (((low << nbytes) | (low >> (32 - nbytes))) & 0xffffffffULL) |
                   ((((high << nbytes) | (high >> (32 - nbytes))) & 0xffffffffULL) << 32);
    }
    memcpy(packet, p, even);
    if (nbytes & 16) {
        memcpy(packet + 28, p + nbytes - 4, 4);
    } else if (odd) {
        packet[16] = rest[0];
        packet[17] = rest[odd >> 1];
        packet[18] = rest[odd - 1];
    }
    highway_packet(s, packet);
}

static uint64_t highway_hash(const uint64_t* key, const unsigned char* p, size_t nbytes) {
    highway_state s;
    const size_t packets = nbytes / HIGHWAY_PACKET, rest = nbytes % HIGHWAY_PACKET;
    highway_begin(&s, key);
    if (highway_wide) {
        highway_packets_wide(&s, p, packets);
    } else {
        highway_packets(&s, p, packets);
    }
    if (rest) highway_rest(&s, p + packets * HIGHWAY_PACKET, rest);
    for (int round = 0; round < HIGHWAY_ROUNDS; round++) {
        const uint64_t words[4] = {
            highway_swap(s.v0[2]), highway_swap(s.v0[3]), highway_swap(s.v0[0]), highway_swap(s.v0[1])};
        highway_add(&s, words);
    }
    return s.v0[0] + s.v1[0] + s.mul0[0] + s.mul1[0];
}

#endif
