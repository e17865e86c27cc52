/* A record of numbers that may differ in the fourth digit, as sets of kernels sum in another order: words, and numbers behind
 * a key. Include after cmocka.h. */
#ifndef AX_TESTS_NEAR_RECORD_H
#define AX_TESTS_NEAR_RECORD_H

#include <jansson.h>
#include <math.h>

#include "base/hash/hash.h"
#include "tests/record.h"

/* A text with @ in place of a folder, which differs from machine to machine. */
static inline void near_put_masked(struct ax_buf *out, const char *text, const char *folder) {
    for (const char *at; (at = strstr(text, folder)) != NULL; text = at + strlen(folder))
        assert_int_equal(ax_buf_printf(out, "%.*s@", (int)(at - text), text), AX_OK);
    assert_int_equal(ax_buf_puts(out, text), AX_OK);
}

/* One word: as in JSON, with _ for blanks; of a long text a digest. */
static inline void near_put_text(struct ax_buf *out, const char *key, const json_t *v) {
    if (json_string_length(v) > 300) {
        const uint32_t digest = (uint32_t)ax_hash64(json_string_value(v), json_string_length(v), 0);
        assert_int_equal(ax_buf_printf(out, " %s=%08x", key, digest), AX_OK);
        return;
    }
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    for (char *c = text; *c; c++)
        *c = (char)(*c == ' ' ? '_' : *c);
    assert_int_equal(ax_buf_printf(out, " %s=%s", key, text), AX_OK);
    ax_free(text);
}

/* Adds " key=value" for each value in v, by a path. `skips`: the keys that it leaves out; or NULL. */
static inline void near_put(struct ax_buf *out, const char *key, const json_t *v,
                            bool (*skips)(const char *key)) {
    const char *name;
    json_t *e;
    size_t i;
    char inner[200];
    if (skips && skips(key))
        return;
    if (json_is_number(v))
        assert_int_equal(ax_buf_printf(out, " %s=%.6g", key, json_number_value(v)), AX_OK);
    else if (json_is_string(v))
        near_put_text(out, key, v);
    else if (json_is_object(v))
        json_object_foreach((json_t *)(uintptr_t)v, name, e) {
            snprintf(inner, sizeof inner, "%s.%s", key, name);
            for (char *c = inner; *c; c++) /* a key is a part of a word */
                *c = (char)((unsigned char)*c <= ' ' || *c == '=' || *c == 0x7f ? '_' : *c);
            near_put(out, inner, e, skips);
        }
    else if (json_is_array(v))
        json_array_foreach(v, i, e) {
            snprintf(inner, sizeof inner, "%s.%zu", key, i);
            near_put(out, inner, e, skips);
        }
    else
        assert_int_equal(ax_buf_printf(out, " %s=%s", key,
                                       json_is_true(v)    ? "true"
                                       : json_is_false(v) ? "false"
                                                          : "null"),
                         AX_OK);
}

/* The next word of a line. */
static inline size_t near_word(const char **at) {
    *at += strspn(*at, " ");
    return strcspn(*at, " \n");
}

/* Words are equal, or of one key with numbers that are near each other. */
static inline bool near_same_word(const char *got, size_t n, const char *want, size_t m) {
    if (n == m && memcmp(got, want, n) == 0)
        return true;
    const char *x = memchr(got, '=', n), *y = memchr(want, '=', m);
    const size_t before = x ? (size_t)(x + 1 - got) : 0;
    char *end, *end_of_want;
    if ((y ? (size_t)(y + 1 - want) : 0) != before || memcmp(got, want, before) != 0)
        return false;
    const double a = strtod(got + before, &end), b = strtod(want + before, &end_of_want);
    const size_t left = (size_t)(got + n - end); /* punctuation */
    return end > got + before && left == (size_t)(want + m - end_of_want) &&
           memcmp(end, end_of_want, left) == 0 && fabs(a - b) <= 1e-3 * fabs(b) + 2e-5;
}

static inline bool near_same_line(const char *got, const char *want) {
    size_t n, m;
    do {
        n = near_word(&got);
        m = near_word(&want);
        if (!near_same_word(got, n, want, m))
            return false;
        got += n;
        want += m;
    } while (n > 0 && m > 0);
    return n == m;
}

static inline void near_compare(const char *path, struct ax_buf *now) {
    record_compare_by(near_same_line, path, now);
}

#endif
