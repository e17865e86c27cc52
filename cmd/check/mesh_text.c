#include "cmd/check/mesh_text.h"

#include "base/mem.h"
#include "base/rng.h"

/* Which of a document's tokens are trained on: some, none, or none because it has no labels. */
enum labels { SOME, NONE, LEFT_OUT };

static enum labels labels_of(struct ax_rng_key key, int index, int doc) {
    static const enum labels kinds[] = {SOME, SOME, NONE, LEFT_OUT};
    return index == 1 ? NONE : kinds[ax_rng_below(key, 32 + (uint64_t)doc, 4)];
}

/* Random documents of a micro-batch, in one run of tokens. */
struct text {
    struct ax_document docs[AX_MESH_DOCS];
    int n;
    int64_t tokens;
    int32_t *ids; /* [2T] tokens, then labels */
    float *weight;
};

/* The lengths depend on the number of the micro-batch in the step, `index`. */
static void divide(struct text *t, const struct ax_mesh_check *c, struct ax_rng_key key) {
    const int64_t T = c->step.tokens;
    for (t->n = 0, t->tokens = 0; t->n < AX_MESH_DOCS && t->tokens < T - 1; t->n++) {
        const int64_t left = T - t->tokens;
        const int64_t most = c->longest > 0 ? c->longest : T / 3;
        int64_t len = 1 + (int64_t)ax_rng_below(key, (uint64_t)t->n, (uint64_t)most);
        len = len < left ? len : left;
        t->docs[t->n] = (struct ax_document){.n = len};
        t->tokens += len;
        if (c->step.pad > 0 && ax_rng_below(key, 48 + (uint64_t)t->n, 4) == 0) {
            t->n++;
            return;
        }
    }
}

/* Without labels of its own a document of a classifier would have tokens as labels: it gets some. */
static void write_text(struct text *t, int index, const struct ax_arch *arch, int64_t T,
                       struct ax_rng_key key) {
    const uint64_t vocab = (uint64_t)arch->vocab_size, labels = (uint64_t)ax_arch_head_rows(arch);
    int64_t at = 0;
    for (int d = 0; d < t->n; d++) {
        struct ax_document *doc = &t->docs[d];
        const enum labels kind = labels_of(key, index, d);
        doc->tokens = t->ids + at;
        doc->labels = kind == LEFT_OUT && !arch->classifier ? NULL : t->ids + T + at;
        doc->weight = t->weight + at;
        for (int64_t i = at; i < at + doc->n; i++) {
            const uint64_t k = 64 + 4 * (uint64_t)i;
            t->ids[i] = (int32_t)ax_rng_below(key, k, vocab);
            t->ids[T + i] = (int32_t)ax_rng_below(key, k + 1, labels);
            if (kind == NONE || ax_rng_below(key, k + 2, 2 + (uint64_t)index) == 0)
                t->ids[T + i] = -1;
            t->weight[i] = 0.5f + ax_rng_uniform(key, k + 3);
        }
        at += doc->n;
    }
}

static struct ax_rng_key key_of(int index, int step) {
    return (struct ax_rng_key){17, (uint32_t)step, (uint32_t)index};
}

enum ax_status ax_mesh_fill(struct ax_step *s, const struct ax_mesh_check *c, int m, int step) {
    const struct ax_arch *arch = &s->model.arch;
    const int64_t T = c->step.tokens;
    const int ranks = s->rt->mesh.size[AX_ROLE_BATCH];
    struct ax_batch *b = &s->batches[m];
    struct text text = {0};
    b->longest = 0;
    for (int rank = 0; rank < ranks; rank++) {
        divide(&text, c, key_of(m * ranks + rank, step));
        b->longest = text.tokens > b->longest ? text.tokens : b->longest;
    }
    const int index = m * ranks + s->rt->mesh.coord[AX_ROLE_BATCH];
    AX_TRY(ax_alloc(&text.ids, (size_t)(2 * T), sizeof *text.ids));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&text.weight, (size_t)T, sizeof *text.weight), st, no_weight);
    divide(&text, c, key_of(index, step));
    write_text(&text, index, arch, T, key_of(index, step));
    st = ax_batch_fill(b, s->rt->q, arch->vocab_size, text.n, text.docs);
    ax_free(text.weight);
no_weight:
    ax_free(text.ids);
    return st;
}
