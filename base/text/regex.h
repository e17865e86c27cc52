/* Regular expressions of tokenizer files, run by PCRE2 (JIT) with their meaning in the HF
 * tokenizers library: Oniguruma's Ruby syntax and Unicode 16 classes. Also those of Python's re,
 * for rewards and names of parameters (regex_python.c).
 *
 * An expression is constant and may be shared; each thread matches with its own ax_regex_work. */
#ifndef AX_BASE_TEXT_REGEX_H
#define AX_BASE_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"

struct ax_regex;

/* `literal`: the pattern is a nonempty string to find. AX_ERR_DATA with the offset on bad
 * syntax. */
enum ax_status ax_regex_compile(struct ax_regex **out, const char *pattern, size_t len,
                                bool literal);
/* The same for an expression of Python's re. */
enum ax_status ax_regex_compile_python(struct ax_regex **out, const char *pattern, size_t len);
void ax_regex_free(struct ax_regex *re);
/* The original pattern, and whether it is a string to find. */
const char *ax_regex_source(const struct ax_regex *re, size_t *len, bool *literal);

struct ax_regex_work {
    void *match_data, *match_context, *jit_stack; /* PCRE2's; NULL until first use */
};
void ax_regex_work_free(struct ax_regex_work *w);

/* The matches in s (valid UTF-8), from left to right. */
struct ax_regex_iter {
    const struct ax_regex *re;
    struct ax_regex_work *work;
    const char *s;
    size_t len;
    size_t at;       /* the next search starts here */
    size_t last_end; /* end of the last match; SIZE_MAX before the first */
    bool last_empty;
};
struct ax_regex_iter ax_regex_search(const struct ax_regex *re, struct ax_regex_work *work,
                                     const char *s, size_t len);
/* *found = false at the end. A match may be empty, but not directly after the previous one; in
 * Python, only not directly after another empty one. AX_ERR_DATA if the expression needs too many
 * steps for this text. */
enum ax_status ax_regex_next(struct ax_regex_iter *it, bool *found, size_t *start, size_t *end);

/* Appends PCRE2's spelling of an Oniguruma pattern to out. */
enum ax_status ax_regex_rewrite(struct ax_buf *out, const char *pattern, size_t len);
/* The same for a pattern of Python's re. */
enum ax_status ax_regex_rewrite_python(struct ax_buf *out, const char *pattern, size_t len);

#endif
