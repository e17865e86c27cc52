/* Cases of attention: documents, block tables and heads. */
#include <math.h>

#include "kernels/cases_builder.h"

/* Running sums of the documents' lengths. */
static struct ax_tensor cumulative(struct ax_case_builder *b, bool keys) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor t = ax_case_out1(b, AX_I32, s->n_documents + 1);
    int32_t sum = 0;
    for (int i = 0; i <= s->n_documents && b->memory != NULL; i++) {
        ((int32_t *)t.data)[i] = sum;
        if (i < s->n_documents) {
            sum += keys ? s->documents[i].nk : s->documents[i].nq;
        }
    }
    return t;
}

/* Blocks are handed to documents in turn, back to front, so that none lies in order. Returns how
 * many there are; table may be NULL. */
static int64_t hand_out_blocks(const struct ax_shape *s, int32_t *table, int64_t columns,
                               int64_t total) {
    int64_t used = 0;
    for (int64_t column = 0; column < columns; column++) {
        for (int64_t d = 0; d < s->n_documents; d++) {
            if (column * s->block_size >= s->documents[d].nk) {
                continue;
            }
            used++;
            if (table != NULL) {
                table[d * columns + column] = (int32_t)(total - used);
            }
        }
    }
    return used;
}

static void build_attention(struct ax_case_builder *b, struct ax_attention *a) {
    const struct ax_shape *s = b->shape;
    int64_t key_rows = 0;
    for (int i = 0; i < s->n_documents; i++) {
        const struct ax_shape_document *d = &s->documents[i];
        a->max_q = d->nq > a->max_q ? d->nq : a->max_q;
        a->max_k = d->nk > a->max_k ? d->nk : a->max_k;
        key_rows += d->nk;
    }
    if (s->block_size > 0) {
        int64_t columns = (a->max_k + s->block_size - 1) / s->block_size;
        int64_t blocks = hand_out_blocks(s, NULL, columns, 0);
        a->block_table = ax_case_dense2(b, AX_I32, s->n_documents, columns);
        if (b->memory != NULL) {
            hand_out_blocks(s, a->block_table.data, columns, blocks);
        }
        a->block_size = s->block_size;
        key_rows = blocks * s->block_size;
    }
    a->q = ax_case_in3(b, s->rows, s->heads);
    a->k = ax_case_in3(b, key_rows + (s->block_size > 0 ? 0 : 2), s->kv_heads);
    a->v = ax_case_in3(b, a->k.shape[0], s->kv_heads);
    a->out = ax_case_out3(b, s->rows, s->heads);
    a->lse = ax_case_dense2(b, b->accum, s->rows, s->heads);
    a->cu_q = cumulative(b, false);
    a->cu_k = cumulative(b, true);
    if (ax_case_has(b, AX_SHAPE_SINK)) {
        a->sink = ax_case_in1(b, b->accum, s->heads);
    }
    a->window = s->window;
    a->scale = 3 / sqrt((double)s->head_dim); /* sharper than usual: probabilities far from even */
    a->softcap = s->softcap;
    a->causal = !ax_case_has(b, AX_SHAPE_NOT_CAUSAL);
}

void ax_case_build_attention_forward(struct ax_case_builder *b, struct ax_attention_forward *a) {
    build_attention(b, &a->a);
}

/* out and lse are left to ax_case_prepare. */
void ax_case_build_attention_backward(struct ax_case_builder *b, struct ax_attention_backward *a) {
    build_attention(b, &a->a);
    a->dout = ax_case_in3(b, a->a.q.shape[0], b->shape->heads);
    a->dq = ax_case_out3(b, a->a.q.shape[0], b->shape->heads);
    a->dk = ax_case_out3(b, a->a.k.shape[0], b->shape->kv_heads);
    a->dv = ax_case_out3(b, a->a.k.shape[0], b->shape->kv_heads);
    if (ax_case_has(b, AX_SHAPE_SINK)) {
        a->dsink = ax_case_in1(b, b->accum, b->shape->heads);
    }
}

void ax_case_build_neftune(struct ax_case_builder *b, struct ax_neftune *a) {
    a->x = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->cu = cumulative(b, false);
    a->alpha = 5;
    a->stream = 9;
    a->first = b->shape->window;
    a->first_token = b->shape->first;
    a->scalars = b->scalars;
}
