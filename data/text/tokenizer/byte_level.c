/* The byte alphabet: printable Latin-1 maps to itself, the 68 other bytes to U+0100 and up. */
#include "data/text/tokenizer/byte_level.h"

#include "base/text/unicode.h"

/* Bytes that map to themselves. */
static bool printable(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

/* The others in order: 0–32, 127–160, 173. */
size_t ax_byte_to_char(unsigned char byte, char out[2]) {
    uint32_t cp = byte;
    char buf[4];
    if (!printable(byte))
        cp = 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127U + 33 : 67);
    size_t n = ax_utf8_encode(cp, buf);
    out[0] = buf[0];
    out[1] = n > 1 ? buf[1] : '\0';
    return n;
}

/* The byte of a character, or -1. */
static int char_to_byte(uint32_t cp) {
    if (cp < 256)
        return printable(cp) ? (int)cp : -1;
    uint32_t i = cp - 256;
    return i <= 32 ? (int)i : i <= 66 ? (int)(i - 33 + 127) : i == 67 ? 173 : -1;
}

bool ax_bytes_from_chars(const char *s, size_t len, char *out, size_t *n) {
    *n = 0;
    if (ax_utf8_check(s, len) != len)
        return false;
    for (size_t i = 0, k; i < len; i += k) {
        int byte = char_to_byte(ax_utf8_decode((const unsigned char *)s + i, &k));
        if (byte < 0)
            return false;
        out[(*n)++] = (char)byte;
    }
    return true;
}
