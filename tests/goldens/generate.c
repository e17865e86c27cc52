/* Compares greedy decoding with a KV cache with generate.json. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "tests/goldens/model.h"
#include "model/generate/generate.h"

#define MAX_CASES         16
#define LOGPROB_TOLERANCE 1e-4

struct generation {
    const struct ax_golden_case *c;
    int n; /* cases; the last may be the stop case */
    struct ax_sequence seqs[MAX_CASES];
    struct ax_json expect[MAX_CASES];
    int64_t longest_prompt, longest_answer;
    int stop_case; /* index, −1 = none */
    int32_t stop;
};

static enum ax_status read_ids(struct ax_json list, int32_t **ids, int64_t *n) {
    *n = (int64_t)ax_json_size(list);
    AX_TRY(ax_alloc(ids, (size_t)*n, sizeof **ids));
    for (int64_t i = 0; i < *n; i++) {
        int64_t id;
        AX_TRY(ax_json_i64(ax_json_at(list, (size_t)i), 0, INT32_MAX, &id));
        (*ids)[i] = (int32_t)id;
    }
    return AX_OK;
}

static enum ax_status add_case(struct generation *g, struct ax_json v) {
    if (g->n == MAX_CASES)
        return ax_json_error(v, "more than %d cases", MAX_CASES);
    struct ax_sequence *s = &g->seqs[g->n];
    g->expect[g->n++] = v;
    int32_t *ids = NULL;
    const enum ax_status st = read_ids(ax_json_get(v, "prompt"), &ids, &s->n_prompt);
    s->prompt = ids;
    AX_TRY(st);
    const int64_t answer = (int64_t)ax_json_size(ax_json_get(v, "tokens"));
    g->longest_prompt = s->n_prompt > g->longest_prompt ? s->n_prompt : g->longest_prompt;
    g->longest_answer = answer > g->longest_answer ? answer : g->longest_answer;
    return AX_OK;
}

static enum ax_status read_cases(struct generation *g, struct ax_json root) {
    const struct ax_json cases = ax_json_get(root, "cases"), stop = ax_json_get(root, "stop_case");
    g->stop_case = -1;
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY(add_case(g, ax_json_at(cases, i)));
    if (stop.v) {
        int64_t id;
        g->stop_case = g->n;
        AX_TRY(add_case(g, stop));
        AX_TRY(ax_json_i64(ax_json_get(stop, "eos_token_id"), 0, INT32_MAX, &id));
        g->stop = (int32_t)id;
    }
    for (int i = 0; i < g->n; i++) {
        const size_t n = (size_t)g->longest_answer;
        AX_TRY(ax_alloc(&g->seqs[i].tokens, n, sizeof *g->seqs[i].tokens));
        AX_TRY(ax_alloc(&g->seqs[i].logprobs, n, sizeof *g->seqs[i].logprobs));
    }
    return AX_OK;
}

static enum ax_status compare(struct generation *g, int i) {
    const struct ax_sequence *s = &g->seqs[i];
    const struct ax_json tokens = ax_json_get(g->expect[i], "tokens");
    const struct ax_json logprobs = ax_json_get(g->expect[i], "logprobs");
    char where[32];
    snprintf(where, sizeof where, i == g->stop_case ? "stop case" : "case %d", i);
    double wrong = fabs((double)s->n_new - (double)ax_json_size(tokens)), off = 0;
    for (int64_t k = 0; k < s->n_new && k < (int64_t)ax_json_size(tokens); k++) {
        int64_t id;
        AX_TRY(ax_json_i64(ax_json_at(tokens, (size_t)k), 0, INT32_MAX, &id));
        wrong += id != s->tokens[k];
        if (!logprobs.v)
            continue;
        double want;
        AX_TRY(ax_json_f64(ax_json_at(logprobs, (size_t)k), &want));
        off = ax_golden_worse(off, fabs(s->logprobs[k] - want));
    }
    ax_golden_note(g->c->report, "greedy tokens that differ", wrong, 0, where);
    if (logprobs.v)
        ax_golden_note(g->c->report, "greedy log-probs", off, LOGPROB_TOLERANCE, where);
    return AX_OK;
}

/* Decodes all cases in a batch, then each alone; the stop case separately, with its stop token. */
static enum ax_status decode_all(struct generation *g, struct ax_generator *d, bool planning) {
    const int plain = g->stop_case >= 0 ? g->stop_case : g->n;
    AX_TRY(ax_generate(d, plain, g->seqs));
    for (int i = 0; i < plain && !planning; i++)
        AX_TRY(compare(g, i));
    for (int i = 0; i < g->n; i++) {
        d->o.n_stop = i == g->stop_case;
        AX_TRY(ax_generate(d, 1, &g->seqs[i]));
        if (!planning)
            AX_TRY(compare(g, i));
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct generation *g = ctx;
    struct ax_model m;
    struct ax_generator d = {0};
    const struct ax_generate_options o = {.max_prompt = g->longest_prompt,
                                          .max_new = g->longest_answer,
                                          .n_seqs = g->n,
                                          .stop = &g->stop};
    const struct ax_model_options mo = {.dtype = g->c->dtype,
                                        .max_positions = o.max_prompt + o.max_new};
    AX_TRY(ax_model_create(&m, &g->c->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &g->c->hf), st, done);
    AX_TRY_GOTO(ax_generator_create(&d, &m, &o), st, done);
    AX_TRY_GOTO(decode_all(g, &d, ax_runtime_planning(rt)), st, done);
done:
    ax_generator_free(&d);
    ax_model_free(&m);
    return st;
}

enum ax_status ax_golden_generate(const struct ax_golden_case *c) {
    char *path = NULL;
    AX_TRY(ax_golden_file(c, "generate.json", &path));
    if (!path)
        return AX_OK;
    struct generation g = {.c = c};
    struct ax_json_doc doc = {0};
    const struct ax_runtime_options ro = {.backend = c->o->backend, .threads = c->o->threads};
    enum ax_status st;
    AX_TRY_GOTO(ax_json_load(&doc, path, 16u << 20), st, done);
    AX_TRY_GOTO(read_cases(&g, ax_json_root(&doc)), st, done);
    AX_TRY_GOTO(ax_runtime_run(&ro, body, &g, NULL), st, done);
done:
    for (int i = 0; i < g.n; i++) {
        ax_free((void *)(uintptr_t)g.seqs[i].prompt);
        ax_free(g.seqs[i].tokens);
        ax_free(g.seqs[i].logprobs);
    }
    ax_json_free(&doc);
    ax_free(path);
    return st;
}
