#include "cmd/train/samples.h"

#include <string.h>

/* ---- prompts ---- */

static const uint32_t *words_of(const struct ax_corpus *c, const struct ax_example_ref *r) {
    return ax_examples_words(&c->sets[r->set], r->index);
}

/* The length of the prompt: all tokens before the first trained one. For rows trained from their
 * first token, and if the key is set, it is a fraction of the row instead. */
static int64_t prompt_length(const struct ax_config *cfg, double ratio, const struct ax_corpus *c,
                             const struct ax_example_ref *r) {
    const struct ax_stored *x = &c->sets[r->set].list[r->index];
    const uint32_t *words = words_of(c, r);
    size_t t = 0;
    while (t < r->n && ax_word_label(x, words, t) == AX_NO_LABEL)
        t++;
    int64_t n = (int64_t)t;
    if (t <= 1 || t == r->n || ax_config_holds(cfg, "set(generation_prompt_ratio)"))
        n = (int64_t)(ratio * r->n);
    return n < 1 ? 1 : n < r->n ? n : r->n;
}

/* Takes the first example of each of the first groups, so only one of a pair. */
static enum ax_status read_prompts(struct ax_setup_samples *s, const struct ax_config *cfg,
                                   double ratio, const struct ax_corpus *c, int most) {
    int64_t total = 0, at = 0;
    AX_TRY(ax_alloc(&s->prompts, (size_t)most, sizeof *s->prompts));
    for (size_t i = 0, n = 0; i < c->n && n < (size_t)most; i = ax_corpus_group_end(c, i), n++)
        total += prompt_length(cfg, ratio, c, &c->refs[i]);
    AX_TRY(ax_alloc(&s->ids, (size_t)total, sizeof *s->ids));
    for (size_t i = 0; i < c->n && s->o.n < most; i = ax_corpus_group_end(c, i)) {
        const int64_t n = prompt_length(cfg, ratio, c, &c->refs[i]);
        const uint32_t *words = words_of(c, &c->refs[i]);
        s->prompts[s->o.n++] = (struct ax_sample_prompt){n, s->ids + at};
        for (int64_t t = 0; t < n; t++)
            s->ids[at++] = ax_word_token(words, (size_t)t);
        s->o.max_prompt = n > s->o.max_prompt ? n : s->o.max_prompt;
    }
    s->o.prompts = s->prompts;
    return AX_OK;
}

static enum ax_status text(void *ctx, const int32_t *ids, int64_t n, struct ax_buf *out) {
    return ax_tokenizer_decode(ctx, ids, (size_t)n, true, out);
}

/* ---- keys ---- */

/* A number instead of true is the number of samples, as in older files. */
static int64_t how_many(const struct ax_config *cfg, const struct ax_sample_keys *k) {
    if (!k->samples || !ax_config_holds(cfg, "generate_samples"))
        return 0;
    return k->samples->kind == AX_YAML_INT && ax_config_holds(cfg, "!set(num_generation_samples)")
               ? k->samples->integer
               : k->n;
}

enum ax_status ax_setup_samples_read(struct ax_setup_samples *s, const struct ax_config *cfg,
                                     const struct ax_setup_data *d, const char *base) {
    struct ax_sample_keys k = {0};
    AX_FILL(cfg, "", struct ax_sample_keys, &k);
    const int64_t n = how_many(cfg, &k);
    if (n <= 0)
        return AX_OK;
    if (n > AX_MAX_SAMPLES)
        return ax_config_error(cfg, "num_generation_samples", "at most %d can be shown",
                               AX_MAX_SAMPLES);
    s->o.sampling.top_p = 1;
    AX_FILL(cfg, "", struct ax_samples, &s->o);
    s->o.sampling.top_p = ax_given_top_p(s->o.sampling.top_p);
    if (d->eval.n > 0) {
        AX_TRY(read_prompts(s, cfg, k.prompt_ratio, &d->eval, (int)n));
    } else if (!d->eval_loader) { /* the data was not counted */
        s->o.n = (int)n;
        s->o.max_prompt = d->eval_sequence_tokens;
    }
    if (base)
        AX_TRY(ax_setup_stops(&s->stop, base, d));
    s->o.n_stop = s->stop.n;
    s->o.stop = s->stop.ids;
    s->o.text = text;
    s->o.ctx = d->tok.tokenizer;
    return AX_OK;
}

void ax_setup_samples_free(struct ax_setup_samples *s) {
    ax_free(s->prompts);
    ax_free(s->ids);
    *s = (struct ax_setup_samples){0};
}
