/* A corpus as a source. */
#include "base/hash/hash.h"
#include "data/records/pipeline/loader.h"

/* order[k] = the first reference of the k-th group of the epoch. */
static enum ax_status order_for(struct ax_corpus_source *s, int64_t epoch) {
    uint32_t *firsts;
    uint32_t *order;
    if (s->order && (!s->shuffle || s->order_epoch == epoch))
        return AX_OK;
    ax_free(s->order);
    s->order = NULL;
    AX_TRY(ax_corpus_groups(s->corpus, 0, &firsts, &s->n_groups));
    s->order_epoch = epoch;
    if (!s->shuffle) {
        s->order = firsts;
        return AX_OK;
    }
    const struct ax_shuffle_key key = {s->seed, (uint32_t)epoch, "data.epoch"};
    const enum ax_status st = ax_shuffled(&order, s->n_groups, key);
    for (size_t k = 0; st == AX_OK && k < s->n_groups; k++)
        order[k] = firsts[order[k]];
    s->order = st == AX_OK ? order : NULL;
    ax_free(firsts);
    return st;
}

static enum ax_status chunk(void *ctx, int64_t epoch, int64_t index, struct ax_source_place place,
                            struct ax_corpus *out, struct ax_source_place *next) {
    struct ax_corpus_source *s = ctx;
    const struct ax_corpus *c = s->corpus;
    *next = place;
    AX_TRY(order_for(s, epoch));
    out->sets = c->sets;
    const size_t n = s->n_groups, per_chunk = (size_t)s->chunk;
    if ((size_t)index > n / per_chunk)
        return AX_OK;
    const size_t from = (size_t)index * per_chunk;
    const size_t to = n - from < per_chunk ? n : from + per_chunk;
    for (size_t k = from; k < to; k++) {
        const size_t end = ax_corpus_group_end(c, s->order[k]);
        for (size_t i = s->order[k]; i < end; i++)
            AX_TRY(ax_corpus_add(out, c->refs[i]));
    }
    return AX_OK;
}

void ax_corpus_source_init(struct ax_corpus_source *s, const struct ax_corpus *corpus,
                           struct ax_example_source *out) {
    s->corpus = corpus;
    s->order = NULL;
    uint64_t hash = ax_hash64(&s->seed, sizeof s->seed, s->shuffle);
    for (size_t i = 0; i < corpus->n; i++) {
        const struct ax_example_ref *r = &corpus->refs[i];
        const uint64_t v[] = {corpus->sets[r->set].list[r->index].hash,
                              r->n | (uint64_t)r->joined << 32};
        hash = ax_hash64(v, sizeof v, hash);
    }
    *out = (struct ax_example_source){
        .ctx = s, .chunk = chunk, .fingerprint = hash, .countable = true};
}

void ax_corpus_source_free(struct ax_corpus_source *s) {
    ax_free(s->order);
    s->order = NULL;
}
