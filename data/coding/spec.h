/* Specifications: chains of steps, and what they are in English, in Python and for given arguments.
 * Private to data/coding/. */
#ifndef AX_DATA_CODING_SPEC_H
#define AX_DATA_CODING_SPEC_H

#include "base/rng.h"
#include "data/coding/coding.h"
#include "data/coding/ops.h"

enum { AX_CODING_MAX_ARGS = 3, AX_CODING_MIN_TESTS = 6, AX_CODING_MAX_TESTS = 10 };

/* Random numbers one after the other. */
struct ax_coding_draw {
    struct ax_rng_key key;
    uint64_t next;
};
static inline int64_t ax_coding_below(struct ax_coding_draw *d, int64_t n) {
    return (int64_t)ax_rng_below(d->key, d->next++, (uint64_t)n);
}

/* The places of a step's numbers: its own two, its predicate's, its maps'. */
enum { AX_CODING_K, AX_CODING_L, AX_CODING_IS_K, AX_CODING_TO_K, AX_CODING_ELSE_K, AX_CODING_KS };

struct ax_coding_number {
    enum ax_coding_kind kind;
    int64_t value; /* added to that of the argument, if there is one */
    int arg;       /* 0: none */
};

struct ax_coding_step {
    const struct ax_coding_op *op;
    const struct ax_coding_predicate *is;
    const struct ax_coding_map *to, *otherwise;
    struct ax_coding_number k[AX_CODING_KS];
};

struct ax_coding_spec {
    enum ax_coding_type type; /* of the argument that the chain begins with; the others are INT */
    int n_args;
    int level; /* the number of steps */
    struct ax_coding_step step[AX_CODING_LEVELS];
};

/* A specification of the level that begins with the type. Not all make sense: see
 * ax_coding_draw_tests. */
void ax_coding_draw_spec(struct ax_coding_draw *d, enum ax_coding_type type, int level,
                         struct ax_coding_spec *out);

/* The result for args[n_args]. False where Python raises an exception, or a value is too large. */
bool ax_coding_compute(const struct ax_coding_spec *s, const struct ax_coding_value *args,
                       struct ax_coding_value *out);
bool ax_coding_same(const struct ax_coding_value *a, const struct ax_coding_value *b);

struct ax_coding_test {
    struct ax_coding_value args[AX_CODING_MAX_ARGS], result;
};
/* Tests whose arguments differ, out[AX_CODING_MAX_TESTS + 1]; the last of *n + 1 is the example. False
 * if none are found that tell the specification from others nearby: without one of its steps, with a
 * number that is one more or less, without one of two cases. */
bool ax_coding_draw_tests(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                          struct ax_coding_test *out, int *n);

/* A text of bounded size: what the tables make of any specification fits. */
struct ax_coding_text {
    char s[768];
    size_t n;
};
void ax_coding_put(struct ax_coding_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* As Python writes it. */
void ax_coding_put_value(struct ax_coding_text *t, const struct ax_coding_value *v);

struct ax_coding_names {
    const char *function, *args[AX_CODING_MAX_ARGS];
};
void ax_coding_draw_names(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                          struct ax_coding_names *out);
/* "def f(xs):\n    return sum(xs)\n" */
void ax_coding_put_solution(struct ax_coding_text *t, const struct ax_coding_spec *s,
                            const struct ax_coding_names *names);
/* "Write a Python function f(xs) that takes …"; an example if there is one. */
void ax_coding_put_question(struct ax_coding_text *t, struct ax_coding_draw *d,
                            const struct ax_coding_spec *s, const struct ax_coding_names *names,
                            const struct ax_coding_test *example);

struct ax_coding_task {
    struct ax_coding_spec spec;
    struct ax_coding_names names;
    struct ax_coding_text question, solution;
    int n_tests;
    struct ax_coding_test test[AX_CODING_MAX_TESTS + 1];
};

#endif
