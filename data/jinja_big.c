/* Schoolbook arithmetic for jinja_big.h: magnitudes first, then signs. */
#include "data/jinja_big.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* An operand: a view of a big int, or the two limbs of a small one. */
struct operand {
    bool negative;
    size_t n;
    const uint32_t *limb;
    uint32_t small[2];
};

static void load(struct operand *o, struct ax_jval v) {
    if (v.kind == AX_JBIG) {
        *o = (struct operand){.negative = v.big->negative, .n = v.big->n, .limb = v.big->limb};
        return;
    }
    int64_t i = ax_jval_int(v);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *o = (struct operand){.negative = i < 0, .small = {(uint32_t)m, (uint32_t)(m >> 32)}};
    o->n = o->small[1] != 0 ? 2 : o->small[0] != 0;
    o->limb = o->small;
}

static enum ax_status new_big(struct ax_jarena *a, size_t n, struct ax_jbig **out) {
    if (n > AX_JBIG_LIMBS) {
        return ax_error(AX_ERR_DATA, "an integer of more than %d bits", AX_JBIG_LIMBS * 32);
    }
    struct ax_jbig *b;
    AX_TRY(ax_jarena_alloc(a, &b, 1, sizeof *b + n * sizeof b->limb[0]));
    b->n = n;
    *out = b;
    return AX_OK;
}

/* Drops leading zeros and goes back to AX_JINT where it fits. */
static struct ax_jval normal(struct ax_jbig *b) {
    while (b->n > 0 && b->limb[b->n - 1] == 0) {
        b->n--;
    }
    if (b->n <= 2) {
        uint64_t m = (b->n > 0 ? b->limb[0] : 0) | (b->n > 1 ? (uint64_t)b->limb[1] << 32 : 0);
        if (m <= INT64_MAX) {
            return ax_jint(b->negative ? -(int64_t)m : (int64_t)m);
        }
        if (b->negative && m == (uint64_t)INT64_MAX + 1) {
            return ax_jint(INT64_MIN);
        }
    }
    return (struct ax_jval){.kind = AX_JBIG, .big = b};
}

static int compare_magnitudes(const struct operand *x, const struct operand *y) {
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    for (size_t i = x->n; i-- > 0;) {
        if (x->limb[i] != y->limb[i]) {
            return x->limb[i] < y->limb[i] ? -1 : 1;
        }
    }
    return 0;
}

static enum ax_status add_magnitudes(struct ax_jarena *a, const struct operand *x,
                                     const struct operand *y, bool negative, struct ax_jval *out) {
    size_t n = (x->n > y->n ? x->n : y->n) + 1;
    struct ax_jbig *b;
    AX_TRY(new_big(a, n, &b));
    uint64_t carry = 0;
    for (size_t i = 0; i < n; i++) {
        carry += (uint64_t)(i < x->n ? x->limb[i] : 0) + (i < y->n ? y->limb[i] : 0);
        b->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    b->negative = negative;
    *out = normal(b);
    return AX_OK;
}

/* |x| - |y| where |x| ≥ |y|. */
static enum ax_status sub_magnitudes(struct ax_jarena *a, const struct operand *x,
                                     const struct operand *y, bool negative, struct ax_jval *out) {
    struct ax_jbig *b;
    AX_TRY(new_big(a, x->n, &b));
    int64_t borrow = 0;
    for (size_t i = 0; i < x->n; i++) {
        int64_t d = (int64_t)x->limb[i] - (i < y->n ? y->limb[i] : 0) + borrow;
        b->limb[i] = (uint32_t)d;
        borrow = d < 0 ? -1 : 0;
    }
    b->negative = negative;
    *out = normal(b);
    return AX_OK;
}

static enum ax_status add_signed(struct ax_jarena *a, const struct operand *x,
                                 const struct operand *y, struct ax_jval *out) {
    if (x->negative == y->negative) {
        return add_magnitudes(a, x, y, x->negative, out);
    }
    if (compare_magnitudes(x, y) >= 0) {
        return sub_magnitudes(a, x, y, x->negative, out);
    }
    return sub_magnitudes(a, y, x, y->negative, out);
}

enum ax_status ax_jbig_add(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    return add_signed(a, &ox, &oy, out);
}

enum ax_status ax_jbig_sub(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    oy.negative = !oy.negative;
    return add_signed(a, &ox, &oy, out);
}

enum ax_status ax_jbig_mul(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    struct ax_jbig *b;
    AX_TRY(new_big(a, ox.n + oy.n, &b));
    for (size_t i = 0; i < ox.n; i++) {
        uint64_t carry = 0;
        for (size_t k = 0; k < oy.n; k++) {
            carry += (uint64_t)ox.limb[i] * oy.limb[k] + b->limb[i + k];
            b->limb[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        b->limb[i + oy.n] = (uint32_t)carry;
    }
    b->negative = ox.negative != oy.negative;
    *out = normal(b);
    return AX_OK;
}

/* Bit by bit: r = 2r + bit, minus |y| where it fits. Slow and simple; big divisions are rare. */
static void divide_magnitudes(const struct operand *x, const struct operand *y, struct ax_jbig *q,
                              struct ax_jbig *r) {
    size_t n = y->n + 1;
    for (size_t bit = x->n * 32; bit-- > 0;) {
        uint32_t carry = x->limb[bit / 32] >> (bit % 32) & 1;
        for (size_t i = 0; i < n; i++) {
            uint32_t top = r->limb[i] >> 31;
            r->limb[i] = r->limb[i] << 1 | carry;
            carry = top;
        }
        bool fits = true;
        for (size_t i = n; i-- > 0;) {
            uint32_t d = i < y->n ? y->limb[i] : 0;
            if (r->limb[i] != d) {
                fits = r->limb[i] > d;
                break;
            }
        }
        if (fits) {
            int64_t borrow = 0;
            for (size_t i = 0; i < n; i++) {
                int64_t d = (int64_t)r->limb[i] - (i < y->n ? y->limb[i] : 0) + borrow;
                r->limb[i] = (uint32_t)d;
                borrow = d < 0 ? -1 : 0;
            }
            q->limb[bit / 32] |= 1U << (bit % 32);
        }
    }
}

enum ax_status ax_jbig_divmod(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                              struct ax_jval *q, struct ax_jval *r) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    AX_ASSERT(oy.n > 0);
    struct ax_jbig *bq, *br;
    AX_TRY(new_big(a, ox.n, &bq));
    AX_TRY(new_big(a, oy.n + 1, &br));
    divide_magnitudes(&ox, &oy, bq, br);
    bq->negative = ox.negative != oy.negative;
    br->negative = ox.negative;
    *q = normal(bq);
    *r = normal(br);
    bool zero = r->kind == AX_JINT && r->integer == 0;
    if (!zero && ox.negative != oy.negative) { /* towards minus infinity */
        AX_TRY(ax_jbig_sub(a, *q, ax_jint(1), q));
        AX_TRY(ax_jbig_add(a, *r, y, r));
    }
    return AX_OK;
}

int ax_jbig_compare(struct ax_jval x, struct ax_jval y) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    if (ox.negative != oy.negative) {
        return ox.negative ? -1 : 1;
    }
    int c = compare_magnitudes(&ox, &oy);
    return ox.negative ? -c : c;
}

double ax_jbig_to_double(struct ax_jval x) {
    struct operand o;
    load(&o, x);
    if (o.n <= 2) {
        uint64_t m = o.n == 0 ? 0 : o.limb[0] | (o.n > 1 ? (uint64_t)o.limb[1] << 32 : 0);
        return o.negative ? -(double)m : (double)m;
    }
    /* The top 64 bits, with a sticky bit for the rest, round to nearest even in one step. */
    size_t top = o.n - 1;
    int shift = __builtin_clz(o.limb[top]);
    uint64_t m = (uint64_t)o.limb[top] << 32 | o.limb[top - 1];
    uint32_t below = o.limb[top - 2];
    if (shift > 0) {
        m = m << shift | below >> (32 - shift);
        below <<= shift;
    }
    bool sticky = below != 0;
    for (size_t i = 0; i + 2 < top; i++) {
        sticky = sticky || o.limb[i] != 0;
    }
    double d = ldexp((double)(m | (uint64_t)sticky), (int)(top - 1) * 32 - shift);
    return o.negative ? -d : d;
}

/* Limbs of the integer part of a finite double; room for its 1024 bits. Returns how many. */
static size_t double_limbs(double d, uint32_t limbs[36]) {
    int exponent;
    memset(limbs, 0, 36 * sizeof limbs[0]);
    double m = frexp(trunc(fabs(d)), &exponent); /* |d| = m·2^exponent, 53 bits in m */
    if (exponent <= 53) {
        uint64_t whole = (uint64_t)trunc(fabs(d));
        limbs[0] = (uint32_t)whole;
        limbs[1] = (uint32_t)(whole >> 32);
        return 2;
    }
    size_t shift = (size_t)exponent - 53;
    unsigned __int128 wide = (unsigned __int128)(uint64_t)ldexp(m, 53) << (shift % 32);
    for (size_t i = 0; i < 3; i++) {
        limbs[shift / 32 + i] = (uint32_t)(wide >> (32 * i));
    }
    return shift / 32 + 3;
}

enum ax_status ax_jbig_from_double(struct ax_jarena *a, double d, struct ax_jval *out) {
    uint32_t limbs[36];
    size_t n = double_limbs(d, limbs);
    struct ax_jbig *b;
    AX_TRY(new_big(a, n, &b));
    memcpy(b->limb, limbs, n * sizeof limbs[0]);
    b->negative = d < 0;
    *out = normal(b);
    return AX_OK;
}

int ax_jbig_compare_double(struct ax_jval x, double d) {
    struct operand ox, od = {.negative = d < 0};
    uint32_t limbs[36];
    load(&ox, x);
    od.n = double_limbs(d, limbs);
    od.limb = limbs;
    while (od.n > 0 && limbs[od.n - 1] == 0) {
        od.n--;
    }
    bool negative = ox.negative && ox.n > 0;
    if (negative != od.negative) {
        return negative ? -1 : 1;
    }
    int c = compare_magnitudes(&ox, &od);
    if (c == 0) { /* the fraction decides */
        c = fabs(d) > trunc(fabs(d)) ? -1 : 0;
    }
    return negative ? -c : c;
}

static size_t bit_length(const struct operand *o) {
    return o->n == 0 ? 0 : 32 * o->n - (size_t)__builtin_clz(o->limb[o->n - 1]);
}

enum ax_status ax_jbig_divide(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                              double *out) {
    struct operand ox, oy;
    load(&ox, x);
    load(&oy, y);
    bool negative = ox.negative != oy.negative;
    ox.negative = oy.negative = false;
    /* A quotient of at least 66 bits and a sticky one: x is shifted left as far as that takes. */
    size_t bx = bit_length(&ox), by = bit_length(&oy);
    size_t shift = bx >= by + 66 ? 0 : by + 66 - bx;
    struct ax_jbig *top, *q, *r;
    AX_TRY(new_big(a, ox.n + shift / 32 + 1, &top));
    for (size_t i = 0; i < ox.n; i++) {
        uint64_t wide = (uint64_t)ox.limb[i] << (shift % 32);
        top->limb[i + shift / 32] |= (uint32_t)wide;
        top->limb[i + shift / 32 + 1] |= (uint32_t)(wide >> 32);
    }
    const struct operand shifted = {.n = top->n, .limb = top->limb};
    AX_TRY(new_big(a, top->n, &q));
    AX_TRY(new_big(a, oy.n + 1, &r));
    divide_magnitudes(&shifted, &oy, q, r);
    for (size_t i = 0; i < r->n; i++) {
        q->limb[0] |= r->limb[i] != 0;
    }
    *out = ldexp(ax_jbig_to_double(normal(q)), -(int)shift);
    *out = negative ? -*out : *out;
    return AX_OK;
}

static uint32_t digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return (uint32_t)(c - '0');
    }
    return (uint32_t)((c | 0x20) - 'a') + 10;
}

enum ax_status ax_jbig_parse(struct ax_jarena *a, const char *digits, size_t n, uint32_t base,
                             bool negative, struct ax_jval *out) {
    struct ax_jbig *b; /* five bits a digit hold every base up to 32, six any */
    AX_TRY(new_big(a, n / 5 + 2 < AX_JBIG_LIMBS ? n / 5 + 2 : AX_JBIG_LIMBS, &b));
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] == '_') {
            continue;
        }
        uint64_t carry = digit_value(digits[i]);
        for (size_t k = 0; k < used; k++) {
            carry += (uint64_t)b->limb[k] * base;
            b->limb[k] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry != 0) {
            if (used == b->n) {
                return ax_error(AX_ERR_DATA, "an integer of more than %d bits", AX_JBIG_LIMBS * 32);
            }
            b->limb[used++] = (uint32_t)carry;
        }
    }
    b->negative = negative;
    *out = normal(b);
    return AX_OK;
}

enum ax_status ax_jbig_text(struct ax_jarena *a, struct ax_jval x, uint32_t base,
                            struct ax_jstr **out) {
    struct operand o;
    load(&o, x);
    size_t cap = o.n * 32 + 2;
    char *text;
    uint32_t *left;
    AX_TRY(ax_jarena_alloc(a, &text, cap, 1));
    AX_TRY(ax_jarena_alloc(a, &left, o.n, sizeof *left));
    if (o.n > 0) {
        memcpy(left, o.limb, o.n * sizeof *left);
    }
    size_t at = cap, n = o.n;
    do {
        uint64_t rest = 0;
        for (size_t i = n; i-- > 0;) {
            rest = rest << 32 | left[i];
            left[i] = (uint32_t)(rest / base);
            rest %= base;
        }
        while (n > 0 && left[n - 1] == 0) {
            n--;
        }
        text[--at] = "0123456789abcdef"[rest];
    } while (n > 0);
    if (o.negative) {
        text[--at] = '-';
    }
    return ax_jstr_borrow(a, out, text + at, cap - at);
}
