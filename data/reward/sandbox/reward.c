#include "data/reward/sandbox/reward.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

/* ---- comparing what a program wrote with what was expected ---- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static struct ax_bytes trim_end(struct ax_bytes b) {
    while (b.n > 0 && (is_blank(b.data[b.n - 1]) || b.data[b.n - 1] == '\n'))
        b.n--;
    return b;
}

/* Takes what is before the next line end, without the blanks before that. */
static struct ax_bytes take_line(struct ax_bytes *b) {
    const char *end = memchr(b->data, '\n', b->n);
    const size_t n = end ? (size_t)(end - b->data) : b->n;
    const struct ax_bytes line = trim_end((struct ax_bytes){b->data, n});
    const size_t used = end ? n + 1 : n;
    b->data += used;
    b->n -= used;
    return line;
}

/* Takes the next word; empty at the end. */
static struct ax_bytes take_word(struct ax_bytes *line) {
    size_t at = 0, end;
    while (at < line->n && is_blank(line->data[at]))
        at++;
    for (end = at; end < line->n && !is_blank(line->data[end]);)
        end++;
    const struct ax_bytes word = {line->data + at, end - at};
    line->data += end;
    line->n -= end;
    return word;
}

static bool equal(struct ax_bytes a, struct ax_bytes b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

/* A decimal number, finite; no "inf", no hexadecimal. */
static bool number(struct ax_bytes word, double *x) {
    char text[64], *end;
    if (word.n == 0 || word.n >= sizeof text)
        return false;
    for (size_t i = 0; i < word.n; i++)
        if (!isdigit((unsigned char)word.data[i]) && !strchr("+-.eE", word.data[i]))
            return false;
    memcpy(text, word.data, word.n);
    text[word.n] = '\0';
    *x = strtod(text, &end);
    return *end == '\0' && isfinite(*x);
}

static bool near(struct ax_bytes a, struct ax_bytes b, double tolerance) {
    double x, y;
    if (equal(a, b))
        return true;
    return number(a, &x) && number(b, &y) && fabs(x - y) <= tolerance * fmax(1, fabs(y));
}

static bool same_line(struct ax_bytes a, struct ax_bytes b, double tolerance) {
    if (tolerance <= 0 || equal(a, b))
        return equal(a, b);
    while (a.n > 0 || b.n > 0)
        if (!near(take_word(&a), take_word(&b), tolerance))
            return false;
    return true;
}

bool ax_code_same_output(struct ax_bytes output, struct ax_bytes expected, double tolerance) {
    struct ax_bytes a = trim_end(output), b = trim_end(expected);
    while (a.n > 0 && b.n > 0)
        if (!same_line(take_line(&a), take_line(&b), tolerance))
            return false;
    return a.n == 0 && b.n == 0;
}

/* ---- the jobs of a batch ---- */

/* The jobs of all codes: those of code i are [first[i], first[i + 1]). */
struct batch {
    size_t *first;
    struct ax_sandbox_job *jobs;
    struct ax_sandbox_result *results;
    struct ax_bytes *parts; /* of all jobs */
    size_t n_jobs, n_parts;
    char **texts; /* of CALL and ASSERT: what says each test to harness.py */
    size_t n_texts;
};

static size_t jobs_of(const struct ax_code *c) {
    return c->mode == AX_CODE_STDIO ? c->n_tests : 1;
}

static void free_batch(struct batch *b) {
    for (size_t i = 0; b->results && i < b->n_jobs; i++)
        ax_sandbox_result_free(&b->results[i]);
    for (size_t i = 0; b->texts && i < b->n_texts; i++)
        ax_free(b->texts[i]);
    ax_free(b->first);
    ax_free(b->jobs);
    ax_free(b->results);
    ax_free(b->parts);
    ax_free(b->texts);
}

static enum ax_status allocate(struct batch *b, const struct ax_code *codes, size_t n) {
    size_t jobs = 0, parts = 0, texts = 0;
    for (size_t i = 0; i < n; i++) {
        AX_ASSERT(codes[i].n_tests < AX_SANDBOX_MAX_PARTS);
        jobs += jobs_of(&codes[i]);
        parts += 2 * jobs_of(&codes[i]) + codes[i].n_tests;
        texts += codes[i].n_tests;
    }
    AX_TRY(ax_alloc(&b->first, n + 1, sizeof *b->first));
    AX_TRY(ax_alloc(&b->jobs, jobs, sizeof *b->jobs));
    AX_TRY(ax_alloc(&b->results, jobs, sizeof *b->results));
    AX_TRY(ax_alloc(&b->parts, parts, sizeof *b->parts));
    return ax_alloc(&b->texts, texts, sizeof *b->texts);
}

/* What harness.py's CHECKS take: ["call", function, arguments, expected, tolerance], the two as texts of
 * JSON, or ["assert", Python, name of the function that it tests or null]. */
static enum ax_status write_test(char **text, size_t *n, const struct ax_code *c,
                                 const struct ax_code_test *t) {
    json_t *v = c->mode == AX_CODE_CALL
                    ? json_pack("[s,s,s%,s%,f]", "call", c->function, t->input.data, t->input.n,
                                t->expected.data, t->expected.n, c->tolerance)
                    : json_pack("[s,s%,s?]", "assert", t->input.data, t->input.n, c->function);
    if (!v)
        return ax_error(AX_ERR_DATA, "a test is not UTF-8 text, or there is no memory for it");
    const enum ax_status st = ax_json_dump(v, text, n);
    json_decref(v);
    return st;
}

static void add_job(struct batch *b, const struct ax_code *c, enum ax_sandbox_kind kind,
                    struct ax_bytes second) {
    b->jobs[b->n_jobs++] = (struct ax_sandbox_job){.kind = kind,
                                                   .parts = b->parts + b->n_parts,
                                                   .n_parts = kind == AX_SANDBOX_PROGRAM ? 2 : 1,
                                                   .limits = c->limits,
                                                   .seed = c->seed};
    b->parts[b->n_parts++] = c->source;
    if (kind == AX_SANDBOX_PROGRAM)
        b->parts[b->n_parts++] = second;
}

static enum ax_status add_check(struct batch *b, const struct ax_code *c) {
    add_job(b, c, AX_SANDBOX_CHECK, (struct ax_bytes){0});
    b->jobs[b->n_jobs - 1].n_parts = 1 + c->n_tests;
    for (size_t i = 0; i < c->n_tests; i++) {
        char **text = &b->texts[b->n_texts++];
        size_t len;
        AX_TRY(write_test(text, &len, c, &c->tests[i]));
        b->parts[b->n_parts++] = (struct ax_bytes){*text, len};
    }
    return AX_OK;
}

static enum ax_status add(struct batch *b, const struct ax_code *c) {
    if (c->mode == AX_CODE_CALL || c->mode == AX_CODE_ASSERT)
        return add_check(b, c);
    if (c->mode == AX_CODE_RUN)
        add_job(b, c, AX_SANDBOX_PROGRAM, (struct ax_bytes){"", 0});
    for (size_t i = 0; c->mode == AX_CODE_STDIO && i < c->n_tests; i++)
        add_job(b, c, AX_SANDBOX_PROGRAM, c->tests[i].input);
    return AX_OK;
}

/* ---- arithmetic ---- */

static bool is_clean(const struct ax_sandbox_result *r) {
    return r->verdict == AX_VERDICT_EXIT && r->exit_code == 0;
}

static size_t count_passed(const struct ax_code *c, const struct ax_sandbox_result *r, size_t i) {
    size_t passed = 0;
    if (c->mode == AX_CODE_CALL || c->mode == AX_CODE_ASSERT) {
        for (size_t k = 0; k < r->passed.len; k++)
            passed += r->passed.data[k] == 1;
        return passed;
    }
    if (!is_clean(r) || c->mode == AX_CODE_RUN)
        return is_clean(r);
    return ax_code_same_output((struct ax_bytes){r->out.data, r->out.len}, c->tests[i].expected,
                               c->tolerance);
}

static struct ax_code_score score(const struct ax_code *c, const struct ax_sandbox_result *r,
                                  size_t n) {
    struct ax_code_score s = {.tests = c->mode == AX_CODE_RUN ? 1 : c->n_tests};
    for (size_t i = 0; i < n; i++) {
        s.passed += count_passed(c, &r[i], i);
        if (s.verdict == AX_VERDICT_EXIT && s.exit_code == 0) {
            s.verdict = r[i].verdict;
            s.exit_code = r[i].exit_code;
        }
    }
    s.reward = s.tests > 0 ? (double)s.passed / (double)s.tests : 0;
    return s;
}

enum ax_status ax_code_rewards(struct ax_sandbox *s, const struct ax_code *codes, size_t n,
                               struct ax_code_score *scores) {
    struct batch b = {0};
    enum ax_status st = allocate(&b, codes, n);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        b.first[i] = b.n_jobs;
        st = add(&b, &codes[i]);
        b.first[i + 1] = b.n_jobs;
    }
    if (st == AX_OK)
        st = ax_sandbox_run(s, b.jobs, b.n_jobs, b.results);
    for (size_t i = 0; i < n && st == AX_OK; i++)
        scores[i] = score(&codes[i], b.results + b.first[i], b.first[i + 1] - b.first[i]);
    free_batch(&b);
    return st;
}
