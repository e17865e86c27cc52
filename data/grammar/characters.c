/* UTF-8 without surrogates, and escapes: those of surrogates only in pairs. */
#include "data/grammar/nodes.h"

enum {
    BETWEEN,
    ESCAPE, /* after a backslash */
    HEX_1,  /* the digits of \uXXXX: which one comes next */
    HEX_2,
    HEX_3,
    HEX_4,
    HEX_2_OF_D, /* after \uD: a surrogate, perhaps */
    HIGH_3,     /* of \uD8XX to \uDBXX, behind which a low one must come */
    HIGH_4,
    LOW_BACKSLASH,
    LOW_U,
    LOW_1,
    LOW_2,
    LOW_3,
    LOW_4,
    MORE_1, /* bytes that are left of a character */
    MORE_2,
    MORE_3,
    AFTER_E0, /* with a first one that has other limits */
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
};

static const struct {
    unsigned char from, to;
    signed char next;
} leads[] = {{0x20, 0x7F, BETWEEN},  {0xC2, 0xDF, MORE_1},   {0xE0, 0xE0, AFTER_E0},
             {0xE1, 0xEC, MORE_2},   {0xED, 0xED, AFTER_ED}, {0xEE, 0xEF, MORE_2},
             {0xF0, 0xF0, AFTER_F0}, {0xF1, 0xF3, MORE_3},   {0xF4, 0xF4, AFTER_F4}};

static const struct {
    unsigned char from, to;
    signed char next;
} rest[] = {[MORE_1] = {0x80, 0xBF, BETWEEN},  [MORE_2] = {0x80, 0xBF, MORE_1},
            [MORE_3] = {0x80, 0xBF, MORE_2},   [AFTER_E0] = {0xA0, 0xBF, MORE_1},
            [AFTER_ED] = {0x80, 0x9F, MORE_1}, [AFTER_F0] = {0x90, 0xBF, MORE_2},
            [AFTER_F4] = {0x80, 0x8F, MORE_2}};

static bool is_hex(unsigned char b) {
    return (b >= '0' && b <= '9') || (b >= 'a' && b <= 'f') || (b >= 'A' && b <= 'F');
}

static int first_of(unsigned char b, bool escapes) {
    if (b == '"' || (b == '\\' && !escapes))
        return -1;
    if (b == '\\')
        return ESCAPE;
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        if (b >= leads[i].from && b <= leads[i].to)
            return leads[i].next;
    return -1;
}

static int hex_step(int state, unsigned char b) {
    static const signed char next[] = {
        [HEX_1] = HEX_2,   [HEX_2] = HEX_3,          [HEX_3] = HEX_4, [HEX_4] = BETWEEN,
        [HIGH_3] = HIGH_4, [HIGH_4] = LOW_BACKSLASH, [LOW_3] = LOW_4, [LOW_4] = BETWEEN};
    const bool is_d = b == 'd' || b == 'D';
    if (!is_hex(b))
        return -1;
    switch (state) {
    case HEX_1:
        return is_d ? HEX_2_OF_D : HEX_2;
    case HEX_2_OF_D:
        return b <= '7' ? HEX_3 : (b | 0x20) <= 'b' ? HIGH_3 : -1;
    case LOW_1:
        return is_d ? LOW_2 : -1;
    case LOW_2:
        return (b | 0x20) >= 'c' ? LOW_3 : -1;
    default:
        return next[state];
    }
}

int ax_character_step(int state, unsigned char byte, bool escapes) {
    switch (state) {
    case BETWEEN:
        return first_of(byte, escapes);
    case ESCAPE:
        return byte == 'u' ? HEX_1 : byte && strchr("\"\\/bfnrt", byte) ? BETWEEN : -1;
    case LOW_BACKSLASH:
        return byte == '\\' ? LOW_U : -1;
    case LOW_U:
        return byte == 'u' ? LOW_1 : -1;
    default:
        break;
    }
    if (state < MORE_1)
        return hex_step(state, byte);
    return byte >= rest[state].from && byte <= rest[state].to ? rest[state].next : -1;
}
