#include "data/reward/extract.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text/json.h"

struct ax_reward_text ax_reward_strip(const char *s, size_t n) {
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    for (; n > 0 && isspace((unsigned char)*s); n--)
        s++;
    return (struct ax_reward_text){s, n};
}

enum ax_status ax_reward_column(const json_t *record, const char *name, struct ax_buf *out,
                                bool *found) {
    const json_t *v = json_object_get(record, name);
    char text[AX_REAL_TEXT];
    *found = v && !json_is_null(v) && !json_is_array(v) && !json_is_object(v);
    if (!*found)
        return AX_OK;
    if (json_is_string(v))
        return ax_buf_append(out, json_string_value(v), json_string_length(v));
    if (json_is_integer(v))
        return ax_buf_printf(out, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return ax_buf_puts(out, ax_real_repr(json_real_value(v), text));
    return ax_buf_puts(out, json_is_true(v) ? "true" : "false");
}

/* ---- answers ---- */

/* "####" and text[n]; false if that is longer than any answer. */
static bool read_as_answer(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    char marked[2 * AX_FINAL_ANSWER_MAX] = "####";
    if (n > sizeof marked - 4)
        return false;
    memcpy(marked + 4, s, n);
    return ax_final_answer(marked, n + 4, out);
}

bool ax_reward_reference(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    if (memmem(s, n, "####", 4))
        return ax_final_answer(s, n, out);
    const struct ax_reward_text t = ax_reward_strip(s, n);
    return !memchr(t.s, '\n', t.n) && read_as_answer(t.s, t.n, out);
}

bool ax_reward_is_number(const char *answer) {
    answer += *answer == '-';
    return isdigit((unsigned char)*answer) && answer[strspn(answer, "0123456789.")] == '\0';
}

static bool is_digit(const char *s, size_t n, size_t i) {
    return i < n && isdigit((unsigned char)s[i]);
}

/* The end of the number whose first digit, or point before a digit, is s[i]. */
static size_t end_of_number(const char *s, size_t n, size_t i) {
    const size_t start = i;
    while (is_digit(s, n, i))
        i++;
    if (i - start <= 3)
        while (i < n && s[i] == ',' && is_digit(s, n, i + 1) && is_digit(s, n, i + 2) &&
               is_digit(s, n, i + 3) && !is_digit(s, n, i + 4))
            i += 4;
    if (i < n && s[i] == '.' && is_digit(s, n, i + 1))
        for (i++; is_digit(s, n, i);)
            i++;
    return i;
}

/* A minus between two operands is not a sign. */
static bool is_sign(const char *s, size_t i) {
    const unsigned char before = i > 0 ? (unsigned char)s[i - 1] : ' ';
    return (s[i] == '-' || s[i] == '+') && !isalnum(before) && !strchr(")]}", before);
}

bool ax_reward_last_number(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    size_t start = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(s, n, i) && !(s[i] == '.' && is_digit(s, n, i + 1)))
            continue;
        start = i;
        i = end = end_of_number(s, n, i);
        i--;
    }
    if (end == 0)
        return false;
    const size_t sign = start > 0 && s[start - 1] == '$' ? start - 1 : start;
    if (sign > 0 && is_sign(s, sign - 1))
        start = sign - 1;
    return read_as_answer(s + start, end - start, out);
}

/* ---- parts of an answer ---- */

/* The language behind a fence is Python. */
static bool is_python(const char *line, size_t n) {
    static const char *const names[] = {"python", "python3", "py"};
    const struct ax_reward_text word = ax_reward_strip(line + 3, n - 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (word.n == strlen(names[i]) && strncasecmp(word.s, names[i], word.n) == 0)
            return true;
    return false;
}

struct ax_reward_text ax_reward_code_block(const char *s, size_t n) {
    struct ax_reward_text found = {s, n};
    bool inside = false, python = false;
    const char *from = s;
    for (size_t at = 0, len; at < n; at += len) {
        const char *newline = memchr(s + at, '\n', n - at);
        len = newline ? (size_t)(newline - (s + at)) + 1 : n - at;
        if (len < 3 || memcmp(s + at, "```", 3) != 0)
            continue;
        if (inside && python)
            found = (struct ax_reward_text){from, (size_t)(s + at - from)};
        python = is_python(s + at, len);
        inside = !inside;
        from = s + at + len;
    }
    if (inside && python)
        found = (struct ax_reward_text){from, (size_t)(s + n - from)};
    return found;
}

/* The first `what` in s[n] at or after `from`; n if there is none. */
static size_t find(const char *s, size_t n, size_t from, const char *what) {
    const char *at = memmem(s + from, n - from, what, strlen(what));
    return at ? (size_t)(at - s) : n;
}

bool ax_reward_is_think_format(const char *s, size_t n) {
    static const char begin[] = "<think>";
    const size_t from = sizeof begin - 1;
    return n >= from && memcmp(s, begin, from) == 0 && find(s, n, from, begin) == n &&
           find(s, n, from, "</think>") < n;
}

/* ---- a record without what is looked for ---- */

void ax_reward_tell(struct ax_reward_fn *f, const char *fmt, ...) {
    char text[512];
    va_list ap;
    if (f->told)
        return;
    f->told = true;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ax_log_warn("rewards: %s: %s: no reward (this is said only once)", f->name, text);
}
