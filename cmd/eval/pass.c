/* Examples go through one generator in chunks; the samples of one are adjacent, so that they share
 * the keys and values of its prompt. */
#include "cmd/eval/pass.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/term.h"
#include "cmd/eval/eval.h"
#include "data/reward/pass_at_k.h"
#include "model/generate/generate.h"

/* Sequences passed to the generator per call: far more than its lanes. */
#define CHUNK 1024

/* ---- options ---- */

static enum ax_status read_list(struct ax_eval_pass_options *o) {
    const char *s = o->at_text;
    for (char *end;; s = end + 1) {
        errno = 0;
        const long k = strtol(s, &end, 10);
        if (end == s || *s == '+' || *s == '-' || *s == ' ' || (*end && *end != ',') || errno != 0)
            return ax_error(AX_ERR_CONFIG, "--pass-at: expected numbers like 1,4,8, got \"%s\"",
                            o->at_text);
        if (k < 1 || k > o->samples)
            return ax_error(
                AX_ERR_CONFIG,
                "--pass-at: %ld is not between 1 and the %lld answers per record (--samples)", k,
                (long long)o->samples);
        if (o->n_at == AX_EVAL_MAX_PASS)
            return ax_error(AX_ERR_CONFIG, "--pass-at: more than %d numbers", AX_EVAL_MAX_PASS);
        o->at[o->n_at++] = k;
        if (!*end)
            return AX_OK;
    }
}

enum ax_status ax_eval_pass_check(struct ax_eval_pass_options *o, bool solve) {
    const bool other =
        o->at_text || !isnan(o->sampling.temperature) || !isnan(o->sampling.top_p) || o->seed >= 0;
    if (o->samples == 0)
        return other
                   ? ax_error(AX_ERR_CONFIG,
                              "eval: --pass-at, --temperature, --top-p and --seed need --samples N")
                   : AX_OK;
    if (!solve)
        return ax_error(AX_ERR_CONFIG, "eval: --samples needs --task final-answer");
    if (isnan(o->sampling.temperature))
        o->sampling.temperature = 1;
    o->sampling.top_p = isnan(o->sampling.top_p) ? 1 : ax_given_top_p(o->sampling.top_p);
    if (o->sampling.temperature == 0)
        return ax_error(AX_ERR_CONFIG, "--temperature: at 0 all samples of a record equal its "
                                       "greedy answer; remove --samples "
                                       "or --best-of");
    o->sampling.seed = o->seed >= 0 ? (uint64_t)o->seed : 0;
    AX_TRY(ax_sampling_check(&o->sampling));
    if (o->at_text)
        return read_list(o);
    o->at[o->n_at++] = 1;
    if (o->samples > 1)
        o->at[o->n_at++] = o->samples;
    return AX_OK;
}

struct sampling {
    struct ax_eval *e;
    struct ax_eval_pass *result;
    struct ax_sequence *seqs;
    struct ax_eval_row **asked; /* the row of each sequence */
    int32_t *prompts;           /* [rows of a chunk][longest] */
    int32_t *tokens;            /* [sequences of a chunk][max_new] */
    int64_t longest;
    int64_t done;
};

static enum ax_status grade(void *ctx, struct ax_sequence *s) {
    struct sampling *g = ctx;
    struct ax_eval *e = g->e;
    struct ax_eval_answer *a = &g->asked[s - g->seqs]->answer;
    char got[AX_FINAL_ANSWER_MAX];
    struct ax_buf text = {0};
    AX_TRY(ax_tokenizer_decode(e->setup.tok.tokenizer, s->tokens, (size_t)s->n_new, true, &text));
    if (!text.data)
        AX_TRY(ax_buf_puts(&text, ""));
    if (!ax_final_answer(text.data, text.len, got))
        got[0] = '\0';
    const bool right = strcmp(got, a->want) == 0;
    if (a->samples) {
        struct ax_eval_sample *kept = &a->samples[(s - g->seqs) % e->pass_options.samples];
        *kept = (struct ax_eval_sample){.text = text.data, .len = text.len, .right = right};
        memcpy(kept->got, got, sizeof got);
    } else {
        ax_buf_free(&text);
    }
    a->correct += right;
    g->result->correct += right;
    g->result->cut += s->finish == AX_FINISH_LENGTH;
    g->result->generated += s->n_new;
    ax_term_progress("answers", ++g->done, e->n_answers * e->pass_options.samples);
    return AX_OK;
}

/* Adds record i as sequences. Its streams are i·samples …, independent of the other records. */
static void ask(struct sampling *g, size_t i, int64_t in_chunk) {
    struct ax_eval *e = g->e;
    struct ax_eval_row *row = &e->rows[i];
    const int64_t samples = e->pass_options.samples;
    int32_t *prompt = g->prompts + in_chunk * g->longest;
    ax_eval_copy_tokens(e, row, 0, row->answer.prompt, prompt);
    for (int64_t k = 0; k < samples; k++) {
        const int64_t at = in_chunk * samples + k;
        g->asked[at] = row;
        g->seqs[at] = (struct ax_sequence){.n_prompt = row->answer.prompt,
                                           .prompt = prompt,
                                           .stream = (uint64_t)i * (uint64_t)samples + (uint64_t)k,
                                           .tokens = g->tokens + at * e->max_new_tokens};
    }
}

static enum ax_status answer_all(struct sampling *g, struct ax_generator *d, int64_t rows) {
    struct ax_eval *e = g->e;
    int64_t n = 0;
    for (size_t i = 0; i < e->n_rows; i++) {
        if (!e->rows[i].answer.want[0])
            continue;
        ask(g, i, n++);
        if (n < rows)
            continue;
        AX_TRY(ax_generate(d, n * e->pass_options.samples, g->seqs));
        n = 0;
    }
    return ax_generate(d, n * e->pass_options.samples, g->seqs);
}

static enum ax_status generate(struct sampling *g, struct ax_model *m, int64_t rows) {
    struct ax_eval *e = g->e;
    const int64_t n = rows * e->pass_options.samples;
    const struct ax_generate_options o = {.n_seqs = (int)(n < e->batch ? n : e->batch),
                                          .max_prompt = g->longest,
                                          .max_new = e->max_new_tokens,
                                          .n_stop = e->stop.n,
                                          .stop = e->stop.ids,
                                          .sampling = e->pass_options.sampling,
                                          .done = grade,
                                          .ctx = g};
    struct ax_generator d;
    AX_TRY(ax_generator_create(&d, m, &o));
    const enum ax_status st = answer_all(g, &d, rows);
    ax_generator_free(&d);
    return st;
}

static void sum_up(const struct ax_eval *e, struct ax_eval_pass *p) {
    const struct ax_eval_pass_options *o = &e->pass_options;
    for (size_t i = 0; i < e->n_rows; i++)
        for (int k = 0; k < o->n_at && e->rows[i].answer.want[0]; k++)
            p->at[k] += ax_pass_at_k(o->samples, e->rows[i].answer.correct, o->at[k]) /
                        (double)e->n_answers;
}

enum ax_status ax_eval_pass_run(struct ax_eval *e, struct ax_eval_pass *p, struct ax_model *m) {
    const int64_t samples = e->pass_options.samples;
    const int64_t most = samples < CHUNK ? CHUNK / samples : 1;
    const int64_t rows = e->n_answers < most ? e->n_answers : most;
    const size_t n = (size_t)(rows * samples), max_new = (size_t)e->max_new_tokens;
    struct sampling g = {.e = e, .result = p, .longest = ax_eval_positions(e) - e->max_new_tokens};
    const double start = ax_clock_now();
    enum ax_status st;
    *p = (struct ax_eval_pass){0};
    for (size_t i = 0; i < e->n_rows; i++)
        e->rows[i].answer.correct = 0;
    AX_TRY_GOTO(ax_alloc(&g.seqs, n, sizeof *g.seqs), st, done);
    AX_TRY_GOTO(ax_alloc(&g.asked, n, sizeof(struct ax_eval_row *)), st, done);
    AX_TRY_GOTO(ax_alloc(&g.prompts, (size_t)rows * (size_t)g.longest, sizeof *g.prompts), st,
                done);
    AX_TRY_GOTO(ax_alloc(&g.tokens, n * max_new, sizeof *g.tokens), st, done);
    st = generate(&g, m, rows);
    if (st == AX_OK && !ax_runtime_planning(m->rt))
        sum_up(e, p);
done:
    p->seconds = ax_clock_now() - start;
    ax_free(g.seqs);
    ax_free(g.asked);
    ax_free(g.prompts);
    ax_free(g.tokens);
    return st;
}

/* ---- what comes out ---- */

json_t *ax_eval_pass_json(const struct ax_eval *e, const struct ax_eval_pass *p) {
    const struct ax_eval_pass_options *o = &e->pass_options;
    json_t *at = json_object();
    char k[24];
    for (int i = 0; i < o->n_at; i++) {
        (void)snprintf(k, sizeof k, "%lld", (long long)o->at[i]);
        json_object_set_new(at, k, ax_json_number(p->at[i]));
    }
    return json_pack("{so sI sI sI sI sI sf sf sI sf sI}", "pass_at", at, "asked",
                     (json_int_t)e->n_answers, "samples", (json_int_t)o->samples, "correct",
                     (json_int_t)p->correct, "cut", (json_int_t)p->cut, "seed",
                     (json_int_t)o->sampling.seed, "temperature", o->sampling.temperature, "top_p",
                     o->sampling.top_p, "generated_tokens", (json_int_t)p->generated,
                     "generated_tokens_per_second",
                     p->seconds > 0 ? (double)p->generated / p->seconds : 0, "max_new_tokens",
                     (json_int_t)e->max_new_tokens);
}

enum ax_status ax_eval_pass_put(const struct ax_eval *e, const struct ax_eval_pass *p,
                                struct ax_buf *out) {
    const struct ax_eval_pass_options *o = &e->pass_options;
    for (int i = 0; i < o->n_at; i++)
        AX_TRY(ax_buf_printf(out, "pass@%-6lld %.1f %%\n", (long long)o->at[i], 100 * p->at[i]));
    return ax_buf_printf(out, "%lld records, %lld answers each, temperature %g, seed %lld\n",
                         (long long)e->n_answers, (long long)o->samples, o->sampling.temperature,
                         (long long)o->sampling.seed);
}

enum ax_status ax_eval_pass_put_short(const struct ax_eval *e, const struct ax_eval_pass *p,
                                      struct ax_buf *out) {
    const struct ax_eval_pass_options *o = &e->pass_options;
    for (int i = 0; i < o->n_at; i++)
        AX_TRY(ax_buf_printf(out, "%spass@%lld %.1f %%", i > 0 ? ", " : "  ", (long long)o->at[i],
                             100 * p->at[i]));
    return AX_OK;
}
