#include "optim/evaluate/tasks/python.h"

#include <math.h>
#include <string.h>

#include "data/text/jinja/unicode.h"
#include "base/text/json.h"

/* ---- texts ---- */

size_t ax_python_length(const char *s, size_t n) {
    return ax_python_count(s, n);
}

bool ax_python_space_first(const char *s, size_t n) {
    size_t at = 0;
    return n > 0 && ax_python_is_space(ax_python_next(s, &at));
}

bool ax_python_space_last(const char *s, size_t n) {
    return n > 0 && ax_python_is_space(ax_python_prev(s, &n));
}

size_t ax_python_rstrip(const char *s, size_t n) {
    while (ax_python_space_last(s, n))
        (void)ax_python_prev(s, &n);
    return n;
}

void ax_python_strip(const char **s, size_t *n) {
    *n = ax_python_rstrip(*s, *n);
    while (ax_python_space_first(*s, *n)) {
        size_t used = 0;
        (void)ax_python_next(*s, &used);
        *s += used;
        *n -= used;
    }
}

/* True if a letter is at s[at], which decides the form of a lowercase sigma before it. */
static bool cased_at(const struct ax_buf *s, size_t at) {
    return at < s->len && ax_python_is_cased(ax_python_next(s->data, &at));
}

enum ax_status ax_python_case(struct ax_buf *s, bool upper) {
    struct ax_buf out = {0};
    bool before = false;
    enum ax_status st = ax_buf_append(&out, "", 0);
    for (size_t at = 0; at < s->len && st == AX_OK;) {
        const uint32_t c = ax_python_next(s->data, &at);
        uint32_t to[2] = {c};
        size_t n = ax_python_map(upper ? AX_JCASE_UPPER : AX_JCASE_LOWER, c, to);
        if (n == 0) { /* a mapping to several letters, which is not supported */
            to[0] = c;
            n = 1;
        }
        if (!upper && c == 0x3a3 && before && !cased_at(s, at))
            to[0] = 0x3c2;
        before = ax_python_is_cased(c);
        for (size_t i = 0; i < n && st == AX_OK; i++) {
            char utf8[4];
            st = ax_buf_append(&out, utf8, ax_utf8_encode(to[i], utf8));
        }
    }
    if (st != AX_OK) {
        ax_buf_free(&out);
        return st;
    }
    ax_buf_free(s);
    *s = out;
    return AX_OK;
}

enum ax_status ax_python_sub(struct ax_buf *s, const struct ax_regex *re,
                             struct ax_regex_work *work) {
    struct ax_regex_iter it = ax_regex_search(re, work, s->data ? s->data : "", s->len);
    struct ax_buf out = {0};
    size_t at = 0, start, end;
    bool found;
    enum ax_status st = ax_buf_append(&out, "", 0);
    while (st == AX_OK && (st = ax_regex_next(&it, &found, &start, &end)) == AX_OK && found) {
        st = ax_buf_append(&out, it.s + at, start - at);
        at = end;
    }
    if (st == AX_OK)
        st = ax_buf_append(&out, it.s + at, it.len - at);
    if (st != AX_OK) {
        ax_buf_free(&out);
        return st;
    }
    ax_buf_free(s);
    *s = out;
    return AX_OK;
}

/* Deletes the characters for which `drop` is true. */
static void delete_if(struct ax_buf *s, bool (*drop)(uint32_t c)) {
    size_t to = 0;
    for (size_t at = 0; at < s->len;) {
        const size_t from = at;
        if (drop(ax_python_next(s->data, &at)))
            continue;
        memmove(s->data + to, s->data + from, at - from);
        to += at - from;
    }
    s->len = to;
    if (s->data)
        s->data[to] = '\0';
}

static bool is_ascii_punctuation(uint32_t c) {
    return c != 0 && c < 128 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)c);
}

static bool is_ascii_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

/* Unicode's category P: without the ASCII symbols that tokenizers also count as punctuation. */
static bool is_category_p(uint32_t c) {
    return ax_unicode_is_punct(c) && !(c < 128 && strchr("$+<=>^`|~", (int)c));
}

void ax_python_delete_punctuation(struct ax_buf *s) {
    delete_if(s, is_ascii_punctuation);
}

void ax_python_delete_digits(struct ax_buf *s) {
    delete_if(s, is_ascii_digit);
}

void ax_python_delete_unicode_punctuation(struct ax_buf *s) {
    delete_if(s, is_category_p);
}

size_t ax_python_words(const char *s, size_t n) {
    size_t words = 1;
    bool inside = false;
    for (size_t at = 0; at < n;) {
        const bool space = ax_python_is_space(ax_python_next(s, &at));
        words += space && !inside;
        inside = space;
    }
    return words;
}

enum ax_status ax_python_str(struct ax_buf *out, const json_t *v) {
    char text[AX_REAL_TEXT];
    switch (json_typeof(v)) {
    case JSON_STRING:
        return ax_buf_append(out, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return ax_buf_printf(out, "%lld", (long long)json_integer_value(v));
    case JSON_REAL:
        return ax_buf_puts(out, ax_real_repr(json_real_value(v), text));
    case JSON_TRUE:
    case JSON_FALSE:
        return ax_buf_puts(out, json_is_true(v) ? "True" : "False");
    case JSON_NULL:
        return ax_buf_puts(out, "None");
    default:
        return ax_error(AX_ERR_DATA, "expected text, got a list or an object");
    }
}

/* ---- the Mersenne Twister, as CPython seeds and reads it (Matsumoto, Nishimura 1998) ---- */

#define N 624
#define M 397

void ax_python_seed(struct ax_python_random *r, uint32_t seed) {
    uint32_t *s = r->state;
    s[0] = 19650218U;
    for (uint32_t i = 1; i < N; i++)
        s[i] = 1812433253U * (s[i - 1] ^ s[i - 1] >> 30) + i;
    /* init_by_array with `seed` as its only key */
    uint32_t i = 1;
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525U) + seed;
        if (++i >= N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941U) - i;
        if (++i >= N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000U;
    r->at = N;
}

static void refill(struct ax_python_random *r) {
    uint32_t *s = r->state;
    for (int k = 0; k < N; k++) {
        const uint32_t y = (s[k] & 0x80000000U) | (s[(k + 1) % N] & 0x7fffffffU);
        s[k] = s[(k + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfU : 0);
    }
    r->at = 0;
}

static uint32_t next32(struct ax_python_random *r) {
    if (r->at == N)
        refill(r);
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680U;
    y ^= y << 15 & 0xefc60000U;
    return y ^ y >> 18;
}

double ax_python_uniform(struct ax_python_random *r) {
    const uint32_t a = next32(r) >> 5, b = next32(r) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint32_t ax_python_randbelow(struct ax_python_random *r, uint32_t n) {
    int bits = 0;
    while (bits < 32 && n >> bits != 0)
        bits++;
    uint32_t v;
    do
        v = next32(r) >> (32 - bits);
    while (v >= n);
    return v;
}

static bool is_in(const uint32_t *list, uint32_t n, uint32_t v) {
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    return false;
}

/* If the population is small relative to the sample, CPython draws from a shrinking pool, else it
 * repeats draws of an element that it already has. */
enum ax_status ax_python_sample(struct ax_python_random *r, uint32_t n, uint32_t k, uint32_t *out) {
    double set_size = 21;
    if (k > 5)
        set_size += pow(4, ceil(log(k * 3.0) / log(4)));
    if (n > set_size) {
        for (uint32_t i = 0; i < k; i++)
            do
                out[i] = ax_python_randbelow(r, n);
            while (is_in(out, i, out[i]));
        return AX_OK;
    }
    uint32_t *pool;
    AX_TRY(ax_alloc(&pool, n, sizeof *pool));
    for (uint32_t i = 0; i < n; i++)
        pool[i] = i;
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t j = ax_python_randbelow(r, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    ax_free(pool);
    return AX_OK;
}
