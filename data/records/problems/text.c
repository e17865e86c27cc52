#include "data/records/problems/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

void ax_problem_put(struct ax_problem_text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
    va_end(ap);
    AX_ASSERT(n >= 0 && (size_t)n < sizeof t->s - t->n);
    t->n += (size_t)n;
}

void ax_problem_fill(struct ax_problem_text *out, const char *pattern, size_t n,
                     const char *const *words, size_t n_words, const int64_t *values) {
    const char *end = pattern + n;
    for (const char *open; (open = memchr(pattern, '{', (size_t)(end - pattern))) != NULL;) {
        const size_t len = strcspn(open, "}") - 1;
        size_t i = 0;
        while (i < n_words && (strlen(words[i]) != len || memcmp(words[i], open + 1, len) != 0))
            i += 2;
        ax_problem_put(out, "%.*s", (int)(open - pattern), pattern);
        AX_ASSERT(i < n_words || (len == 1 && open[1] >= 'a' && open[1] <= 'z'));
        if (i < n_words)
            ax_problem_put(out, "%s", words[i + 1]);
        else
            ax_problem_put(out, "%lld", (long long)values[open[1] - 'a']);
        pattern = open + len + 2;
    }
    ax_problem_put(out, "%.*s", (int)(end - pattern), pattern);
}
