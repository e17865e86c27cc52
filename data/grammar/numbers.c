/* Numbers: JSON's, of a bounded length; with limits, those of up to AX_DECIMALS decimals between them. A prefix of
 * one is kept only if it can be continued to a number within the limits: of a sign, an integer part v and j more
 * digits, those from v·10^j to v·10^j + 10^j − 1, with any decimals. */
#include "data/grammar/nodes.h"

#define MOST_DIGITS 15 /* of an integer, or behind a point; two of an exponent */

enum { START, MINUS, ZERO, WHOLE, POINT, DECIMALS, EXPONENT, SIGNED_EXPONENT, EXPONENT_DIGITS };

/* Magnitudes with the frame's sign; empty if lo > hi. */
struct span {
    uint64_t lo, hi;
};

static uint64_t scale_of(const struct ax_node *node, int decimals) {
    uint64_t scale = 1;
    for (int i = decimals; i < AX_DECIMALS && !node->integer; i++)
        scale *= 10;
    return scale;
}

static struct span span_of(const struct ax_node *node, bool negative) {
    const int64_t lo = negative ? -node->most : node->least,
                  hi = negative ? -node->least : node->most, floor = negative ? 1 : 0;
    if (hi < floor)
        return (struct span){1, 0};
    return (struct span){(uint64_t)(lo > floor ? lo : floor), (uint64_t)hi};
}

/* Can digits follow so that the number is within the limits? */
static bool leads_to_one(const struct ax_node *node, const struct ax_grammar_frame *f) {
    const struct span s = span_of(node, f->flag);
    const bool decimals = f->phase == DECIMALS;
    uint64_t width = scale_of(node, decimals ? f->n : 0), low = (uint64_t)f->value * width;
    if (s.lo > s.hi)
        return false;
    for (; low <= s.hi; low *= 10, width *= 10) {
        if (low + width - 1 >= s.lo)
            return true;
        if (decimals || f->phase != WHOLE)
            return false;
    }
    return false;
}

bool ax_number_may_end(const struct ax_node *node, const struct ax_grammar_frame *f) {
    const bool decimals = f->phase == DECIMALS;
    if (f->phase != ZERO && f->phase != WHOLE && !decimals && f->phase != EXPONENT_DIGITS)
        return false;
    if (!node->limited)
        return true;
    const struct span s = span_of(node, f->flag);
    const uint64_t value = (uint64_t)f->value * scale_of(node, decimals ? f->n : 0);
    return value >= s.lo && value <= s.hi;
}

static bool digit_step(const struct ax_node *node, struct ax_grammar_frame *f, int digit) {
    const int most = f->phase == EXPONENT_DIGITS             ? 2
                     : f->phase == DECIMALS && node->limited ? AX_DECIMALS
                                                             : MOST_DIGITS;
    if (f->phase == START || f->phase == MINUS) {
        if (digit == 0 && f->phase == MINUS && node->integer)
            return false;
        f->phase = digit == 0 ? ZERO : WHOLE;
        f->n = 0;
    } else if (f->phase == ZERO || (f->phase != POINT && f->n >= most)) {
        if (f->phase != EXPONENT && f->phase != SIGNED_EXPONENT)
            return false;
    }
    if (f->phase == POINT || f->phase == EXPONENT || f->phase == SIGNED_EXPONENT) {
        f->phase = f->phase == POINT ? DECIMALS : EXPONENT_DIGITS;
        f->n = 0;
    }
    f->n++;
    if (!node->limited)
        return true;
    f->value = f->value * 10 + digit;
    return leads_to_one(node, f);
}

bool ax_number_step(const struct ax_node *node, struct ax_grammar_frame *f, unsigned char byte) {
    const bool whole = f->phase == ZERO || f->phase == WHOLE;
    if (byte >= '0' && byte <= '9')
        return digit_step(node, f, byte - '0');
    if (byte == '-' && f->phase == START) {
        f->flag = 1;
        f->phase = MINUS;
        return !node->limited || span_of(node, true).lo <= span_of(node, true).hi;
    }
    if (node->integer)
        return false;
    if (byte == '.' && whole) {
        f->n = 0;
        f->phase = DECIMALS; /* of which there are none yet: any may follow */
        const bool leads = !node->limited || leads_to_one(node, f);
        f->phase = POINT;
        return leads;
    }
    if (node->limited)
        return false;
    if ((byte == 'e' || byte == 'E') && (whole || f->phase == DECIMALS)) {
        f->phase = EXPONENT;
        return true;
    }
    if ((byte == '+' || byte == '-') && f->phase == EXPONENT) {
        f->phase = SIGNED_EXPONENT;
        return true;
    }
    return false;
}

bool ax_number_goes_on(const struct ax_node *node, const struct ax_grammar_frame *f) {
    for (const char *byte = "0123456789.eE+-"; *byte; byte++) {
        struct ax_grammar_frame next = *f;
        if (ax_number_step(node, &next, (unsigned char)*byte))
            return true;
    }
    return false;
}
