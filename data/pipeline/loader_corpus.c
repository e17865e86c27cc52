/* The source of a corpus. */
#include "base/hash.h"
#include "data/pipeline/loader.h"
#include "data/rows/shuffle.h"

static enum ax_status order_for(struct ax_corpus_source *s, int64_t epoch) {
    if (s->order && s->order_epoch == epoch)
        return AX_OK;
    uint32_t *order;
    AX_TRY(ax_shuffled(&order, s->corpus->n,
                       (struct ax_shuffle_key){s->seed, (uint32_t)epoch, "data.epoch"}));
    ax_free(s->order);
    s->order = order;
    s->order_epoch = epoch;
    return AX_OK;
}

static enum ax_status chunk(void *ctx, int64_t epoch, int64_t index, struct ax_source_place place,
                            struct ax_corpus *out, struct ax_source_place *next) {
    struct ax_corpus_source *s = ctx;
    const struct ax_corpus *c = s->corpus;
    *next = place;
    if (s->shuffle)
        AX_TRY(order_for(s, epoch));
    out->sets = c->sets;
    const size_t per_chunk = (size_t)s->chunk;
    if ((size_t)index > c->n / per_chunk)
        return AX_OK;
    const size_t from = (size_t)index * per_chunk;
    const size_t to = c->n - from < per_chunk ? c->n : from + per_chunk;
    for (size_t i = from; i < to; i++)
        AX_TRY(ax_corpus_add(out, c->refs[s->shuffle ? s->order[i] : i]));
    return AX_OK;
}

void ax_corpus_source_init(struct ax_corpus_source *s, const struct ax_corpus *corpus,
                           struct ax_example_source *out) {
    s->corpus = corpus;
    s->order = NULL;
    uint64_t hash = ax_hash64(&s->seed, sizeof s->seed, s->shuffle);
    for (size_t i = 0; i < corpus->n; i++) {
        const struct ax_example_ref *d = &corpus->refs[i];
        const uint64_t v[] = {corpus->sets[d->set].list[d->index].hash, d->n};
        hash = ax_hash64(v, sizeof v, hash);
    }
    *out = (struct ax_example_source){
        .ctx = s, .chunk = chunk, .fingerprint = hash, .countable = true};
}

void ax_corpus_source_free(struct ax_corpus_source *s) {
    ax_free(s->order);
    s->order = NULL;
}
