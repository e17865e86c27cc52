#include "data/reward/final_answer.h"

#include <ctype.h>
#include <string.h>

static const char mark[] = "####";

/* The line after the mark without surrounding blanks; NULL if there is no mark. */
static const char *marked_line(const char *text, size_t n, size_t *len) {
    const char *at = memmem(text, n, mark, sizeof mark - 1);
    if (!at)
        return NULL;
    const char *end = text + n, *s = at + sizeof mark - 1;
    const char *newline = memchr(s, '\n', (size_t)(end - s));
    if (newline)
        end = newline;
    while (s < end && isspace((unsigned char)*s))
        s++;
    while (s < end && isspace((unsigned char)end[-1]))
        end--;
    *len = (size_t)(end - s);
    return s;
}

/* Copies sign, digits and point of a number to out; false if it is not a number. */
static bool read_number(const char *s, size_t n, char *out, size_t *used) {
    size_t i = 0, digits = 0, dots = 0, k = 0;
    if (i < n && (s[i] == '-' || s[i] == '+')) {
        if (s[i++] == '-')
            out[k++] = '-';
    }
    if (i < n && s[i] == '$')
        i++;
    while (n > i && (s[n - 1] == '.' || s[n - 1] == '%'))
        n--;
    for (; i < n && k + 1 < AX_FINAL_ANSWER_MAX; i++) {
        if (s[i] == ',' && digits > 0 && dots == 0)
            continue;
        if (s[i] == '.' && dots++ > 0)
            return false;
        if (s[i] != '.' && !isdigit((unsigned char)s[i]))
            return false;
        if (s[i] == '.' && digits == 0)
            out[k++] = '0';
        digits += s[i] != '.';
        out[k++] = s[i];
    }
    *used = k;
    return digits > 0 && i == n;
}

/* "-007.50" → "-7.5"; "-0" → "0". */
static void normalize(char *s, size_t n) {
    size_t from = s[0] == '-', lead = from;
    if (memchr(s, '.', n)) {
        while (n > 0 && s[n - 1] == '0')
            n--;
        if (s[n - 1] == '.')
            n--;
    }
    while (lead + 1 < n && s[lead] == '0' && s[lead + 1] != '.')
        lead++;
    memmove(s + from, s + lead, n - lead);
    n -= lead - from;
    s[n] = '\0';
    if (strcmp(s, "-0") == 0 || strcmp(s, "-") == 0 || n == 0)
        memcpy(s, "0", 2);
}

bool ax_final_answer(const char *text, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    size_t len = 0, used;
    const char *s = marked_line(text, n, &len);
    if (!s || len == 0)
        return false;
    if (read_number(s, len, out, &used)) {
        normalize(out, used);
        return true;
    }
    if (len >= AX_FINAL_ANSWER_MAX)
        return false;
    memcpy(out, s, len);
    out[len] = '\0';
    return true;
}
