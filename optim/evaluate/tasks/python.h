/* What lm-evaluation-harness's numbers depend on in Python: text functions and random numbers. */
#ifndef AX_OPTIM_EVALUATE_TASKS_PYTHON_H
#define AX_OPTIM_EVALUATE_TASKS_PYTHON_H

#include <jansson.h>

#include "base/mem.h"
#include "base/text/regex.h"

/* ---- texts (UTF-8) ---- */

size_t ax_python_length(const char *s, size_t n);            /* len(s) */
void ax_python_strip(const char **s, size_t *n);             /* s.strip() */
size_t ax_python_rstrip(const char *s, size_t n);            /* len in bytes of s.rstrip() */
bool ax_python_space_first(const char *s, size_t n);         /* s[0].isspace() */
bool ax_python_space_last(const char *s, size_t n);          /* s[-1].isspace() */
enum ax_status ax_python_case(struct ax_buf *s, bool upper); /* s = s.lower() or upper() */
enum ax_status ax_python_sub(struct ax_buf *s, const struct ax_regex *re,
                             struct ax_regex_work *work); /* s = re.sub("", s) */
/* Deletes string.punctuation, the ASCII digits, or every character of Unicode's category P. */
void ax_python_delete_punctuation(struct ax_buf *s);
void ax_python_delete_digits(struct ax_buf *s);
void ax_python_delete_unicode_punctuation(struct ax_buf *s);
/* len(re.split(r"\s+", s)) */
size_t ax_python_words(const char *s, size_t n);
/* Appends str(v) of a JSON value. */
enum ax_status ax_python_str(struct ax_buf *out, const json_t *v);

/* ---- random.Random(seed) ---- */

struct ax_python_random {
    uint32_t state[624];
    int at;
};
void ax_python_seed(struct ax_python_random *r, uint32_t seed);
uint32_t ax_python_randbelow(struct ax_python_random *r, uint32_t n); /* n ≥ 1 */
double ax_python_uniform(struct ax_python_random *r);                 /* random() */
/* sample(range(n), k) to out[k], k ≤ n. */
enum ax_status ax_python_sample(struct ax_python_random *r, uint32_t n, uint32_t k, uint32_t *out);

#endif
