/* Options and output of `--samples N`. */
#include "cmd/eval/pass.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cmd/eval/eval.h"

/* ---- options ---- */

static enum ax_status read_list(struct ax_sampled_options *o, const char *text) {
    const char *s = text;
    for (char *end;; s = end + 1) {
        errno = 0;
        const long k = strtol(s, &end, 10);
        if (end == s || *s == '+' || *s == '-' || *s == ' ' || (*end && *end != ',') || errno != 0)
            return ax_error(AX_ERR_CONFIG, "--pass-at: expected numbers like 1,4,8, got \"%s\"",
                            text);
        if (k < 1 || k > o->samples)
            return ax_error(
                AX_ERR_CONFIG,
                "--pass-at: %ld is not between 1 and the %lld answers per record (--samples)", k,
                (long long)o->samples);
        if (o->n_at == AX_SAMPLED_MAX_AT)
            return ax_error(AX_ERR_CONFIG, "--pass-at: more than %d numbers", AX_SAMPLED_MAX_AT);
        o->at[o->n_at++] = k;
        if (!*end)
            return AX_OK;
    }
}

enum ax_status ax_eval_pass_check(struct ax_eval *e) {
    struct ax_sampled_options *o = &e->pass_options;
    const bool other =
        e->pass_at || !isnan(o->sampling.temperature) || !isnan(o->sampling.top_p) || e->seed >= 0;
    if (o->samples == 0)
        return other
                   ? ax_error(AX_ERR_CONFIG,
                              "eval: --pass-at, --temperature, --top-p and --seed need --samples N")
                   : AX_OK;
    if (!e->solve)
        return ax_error(AX_ERR_CONFIG, "eval: --samples needs --task final-answer");
    if (isnan(o->sampling.temperature))
        o->sampling.temperature = 1;
    o->sampling.top_p = isnan(o->sampling.top_p) ? 1 : ax_given_top_p(o->sampling.top_p);
    if (o->sampling.temperature == 0)
        return ax_error(AX_ERR_CONFIG, "--temperature: at 0 all samples of a record equal its "
                                       "greedy answer; remove --samples "
                                       "or --best-of");
    o->sampling.seed = e->seed >= 0 ? (uint64_t)e->seed : 0;
    AX_TRY(ax_sampling_check(&o->sampling));
    if (e->pass_at)
        return read_list(o, e->pass_at);
    o->at[o->n_at++] = 1;
    if (o->samples > 1)
        o->at[o->n_at++] = o->samples;
    return AX_OK;
}

/* ---- what comes out ---- */

json_t *ax_eval_pass_json(const struct ax_eval *e, const struct ax_sampled *p) {
    const struct ax_sampled_options *o = &e->pass_options;
    json_t *at = json_object();
    char k[24];
    for (int i = 0; i < o->n_at; i++) {
        (void)snprintf(k, sizeof k, "%lld", (long long)o->at[i]);
        json_object_set_new(at, k, ax_json_number(p->at[i]));
    }
    return json_pack("{so sI sI sI sI sI sf sf sI sf sI}", "pass_at", at, "asked",
                     (json_int_t)e->q.asked, "samples", (json_int_t)o->samples, "correct",
                     (json_int_t)p->correct, "cut", (json_int_t)p->cut, "seed",
                     (json_int_t)o->sampling.seed, "temperature", o->sampling.temperature, "top_p",
                     o->sampling.top_p, "generated_tokens", (json_int_t)p->generated,
                     "generated_tokens_per_second",
                     p->seconds > 0 ? (double)p->generated / p->seconds : 0, "max_new_tokens",
                     (json_int_t)e->q.max_new_tokens);
}

enum ax_status ax_eval_pass_put(const struct ax_eval *e, const struct ax_sampled *p,
                                struct ax_buf *out) {
    const struct ax_sampled_options *o = &e->pass_options;
    for (int i = 0; i < o->n_at; i++)
        AX_TRY(ax_buf_printf(out, "pass@%-6lld %.1f %%\n", (long long)o->at[i], 100 * p->at[i]));
    return ax_buf_printf(out, "%lld records, %lld answers each, temperature %g, seed %lld\n",
                         (long long)e->q.asked, (long long)o->samples, o->sampling.temperature,
                         (long long)o->sampling.seed);
}

enum ax_status ax_eval_pass_put_short(const struct ax_eval *e, const struct ax_sampled *p,
                                      struct ax_buf *out) {
    const struct ax_sampled_options *o = &e->pass_options;
    for (int i = 0; i < o->n_at; i++)
        AX_TRY(ax_buf_printf(out, "%spass@%lld %.1f %%", i > 0 ? ", " : "  ", (long long)o->at[i],
                             100 * p->at[i]));
    return AX_OK;
}
