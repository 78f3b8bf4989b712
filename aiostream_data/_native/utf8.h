/* Strict validation of UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef AIOSTREAM_UTF8_H
#define AIOSTREAM_UTF8_H

#include <stdint.h>
#include <string.h>

enum { UTF8_ASCII_NBYTES = 32 }; /* bytes that are compared at once while a text is ASCII */

static int utf8_is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/* Return the size of the character at `text`, or 0 if it is invalid or longer than `nbytes`. */
static int64_t utf8_character(const unsigned char *text, int64_t nbytes) {
    unsigned char lead = text[0], low = 0x80, high = 0xBF; /* the range of the second byte */
    int64_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead < 0xC2 || lead > 0xF4 || nbytes < size) return 0;
    if (lead == 0xE0) low = 0xA0;  /* below: overlong */
    if (lead == 0xED) high = 0x9F; /* above: surrogates */
    if (lead == 0xF0) low = 0x90;  /* below: overlong */
    if (lead == 0xF4) high = 0x8F; /* above: beyond U+10FFFF */
    if (text[1] < low || text[1] > high) return 0;
    if (size > 2 && !utf8_is_continuation(text[2])) return 0;
    if (size > 3 && !utf8_is_continuation(text[3])) return 0;
    return size;
}

static int utf8_is_valid(const unsigned char *text, int64_t nbytes) {
    int64_t i = 0, size;
    uint64_t words[UTF8_ASCII_NBYTES / 8];
    while (i < nbytes) {
        if (text[i] >= 0x80) {
            size = utf8_character(text + i, nbytes - i);
            if (!size) return 0;
            i += size;
            continue;
        }
        for (; i + UTF8_ASCII_NBYTES <= nbytes; i += UTF8_ASCII_NBYTES) {
            memcpy(words, text + i, UTF8_ASCII_NBYTES);
            if ((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) break;
        }
        for (; i + 8 <= nbytes; i += 8) {
            memcpy(words, text + i, 8);
            if (words[0] & 0x8080808080808080u) break;
        }
        while (i < nbytes && text[i] < 0x80) i++;
    }
    return 1;
}

#endif
