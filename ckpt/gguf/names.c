/* Names and shapes of a model's tensors, from the rows of its kind. */
#include "ckpt/gguf/rows.h"

#include <stdio.h>
#include <string.h>

static bool is_full(const struct ax_gguf_model *m, int64_t layer) {
    return m->kind->mixed && ax_gguf_is_full(m, layer);
}
/* The last layer of its kind with keys of its own. */
static int64_t lender_of(const struct ax_gguf_model *m, int64_t layer) {
    int64_t i = m->layers - m->mixed.borrow - 1;
    while (i > 0 && ax_gguf_slides(m, i) != ax_gguf_slides(m, layer))
        i--;
    return i;
}

/* A number of rows or columns in a layer, or, if layer is −1, in none. */
static int64_t size_of(const struct ax_gguf_model *m, enum size s, int64_t layer) {
    const bool full = is_full(m, layer);
    const int64_t head = full ? m->mixed.head_dim : m->head_dim,
                  kv = full                                          ? m->mixed.kv_heads
                       : m->kind->slides && ax_gguf_slides(m, layer) ? m->kv_sliding
                                                                     : m->kv_heads,
                  ffn = ax_gguf_borrows(m, layer) ? m->mixed.wide_ffn : m->ffn;
    const int64_t keys = 2 * m->delta.keys * m->delta.key_dim,
                  values = m->delta.values * m->delta.value_dim, bc = m->ssd.groups * m->ssd.state;
    const int64_t sizes[] = {[NONE] = 1,
                             [ONE] = 1,
                             [VOCAB] = m->vocab,
                             [HIDDEN] = m->hidden,
                             [FFN] = ffn,
                             [GATE_UP] = 2 * m->ffn,
                             [EXPERT_FFN] = m->expert_ffn,
                             [SHARED_FFN] = m->shared_ffn,
                             [Q] = m->heads * head,
                             [KV] = kv * head,
                             [KV_VALUES] = kv * m->value_dim,
                             [QKV] = (m->heads + 2 * m->kv_heads) * m->head_dim,
                             [VALUES] = m->heads * (full ? head : m->value_dim),
                             [HEAD] = head,
                             [EXPERTS] = m->experts,
                             [Q_RANK] = m->q_rank,
                             [KV_RANK] = m->kv_rank,
                             [LATENT] = m->kv_rank + m->rotated,
                             [KV_B] = m->heads * (m->nope + m->value_dim),
                             [HEADS] = m->heads,
                             [EXPERT_PAIR] = 2 * m->expert_ffn,
                             [TAPS] = m->taps,
                             [GATES_OF_CONV] = 3 * m->hidden,
                             [Q_GATED] = 2 * m->heads * m->head_dim,
                             [DELTA_VALUE] = m->delta.value_dim,
                             [DELTA_HEADS] = m->delta.values,
                             [DELTA_KEYS] = keys / 2,
                             [DELTA_VALUES] = values,
                             [DELTA_QKV] = keys + values,
                             [DELTA_QKVZ] = keys + 2 * values,
                             [DELTA_PAIRS] = 2 * m->delta.values,
                             [SHARED_PAIR] = 2 * m->shared_ffn,
                             [SSD_IN] = 2 * (m->ssd.width + bc) + m->ssd.heads,
                             [SSD_CONV] = m->ssd.width + 2 * bc,
                             [SSD_HEADS] = m->ssd.heads,
                             [SSD_WIDTH] = m->ssd.width,
                             [EXPERT_SIZE] = m->latent > 0 ? m->latent : m->hidden,
                             [LATENT_SIZE] = m->latent,
                             [INDEX_HEAD] = m->index.head_dim,
                             [INDEX_HEADS] = m->index.heads,
                             [INDEX_QUERIES] = m->index.heads * m->index.head_dim,
                             [INPUTS] = m->mixed.width,
                             [INPUT_TABLE] = m->mixed.table,
                             [INPUT_COLUMNS] = m->mixed.width * m->layers,
                             [STREAMS] = m->streams.n,
                             [STREAM_PAIRS] = m->streams.n * m->streams.n,
                             [LOW_RANK] = m->streams.rank};
    return sizes[s];
}

static bool wanted(const struct ax_gguf_model *m, enum when w, int64_t layer) {
    const bool its_turn = !m->kind->chunked || (layer + 1) % m->sparse_step == 0;
    const bool ffn = !m->kind->parts || ax_gguf_is_ffn(m, layer);
    const bool sparse = m->experts > 0 && layer >= m->dense_layers && its_turn && ffn;
    const bool lfm2 = m->kind->convolves && !m->kind->mamba && !m->kind->kda;
    const bool state = layer >= 0 && ax_gguf_has_state(m, layer);
    const bool all[] = {[ALWAYS] = true,
                        [UNTIED] = !m->tied,
                        [QKV_BIAS] = m->qkv_bias,
                        [O_BIAS] = m->o_bias,
                        [DENSE] = !sparse && ffn,
                        [MLP_BIAS] = m->mlp_bias && !sparse,
                        [QK_NORM] = m->qk_norm,
                        [SPARSE] = sparse,
                        [SHARED] = sparse && m->shared_ffn > 0,
                        [Q_LATENT] = m->q_rank > 0,
                        [Q_DIRECT] = m->q_rank == 0,
                        [ATTENDS] = !state && !(m->kind->parts && ax_gguf_is_ffn(m, layer)),
                        [HAS_STATE] = state,
                        [LAST_NORM] = !lfm2,
                        [LAST_NORM_LFM2] = lfm2,
                        [OWN_KEYS] = !ax_gguf_borrows(m, layer),
                        [OWN_VALUES] =
                            !ax_gguf_borrows(m, layer) && !(m->mixed.of_keys && is_full(m, layer)),
                        [HAS_INPUTS] = m->mixed.width > 0,
                        [SLIDES] = ax_gguf_slides(m, layer),
                        [NORMS_STATE] = m->ssd.norm,
                        [HAS_LATENT] = sparse && m->latent > 0,
                        [INDEXES] = !ax_gguf_shares_choice(m, layer),
                        [HAS_STREAMS] = m->streams.n > 0,
                        [COPIES_KEYS] = ax_gguf_borrows(m, layer)};
    return all[w];
}

static void set_shape(int *to_ndim, int64_t *to, int ndim, const int64_t *shape) {
    *to_ndim = ndim;
    memcpy(to, shape, (size_t)ndim * sizeof *shape);
}

/* A view with this shape in the file. */
static void set_view(struct ax_gguf_name *n, int64_t base, const int64_t steps[3], int ndim,
                     const int64_t *shape) {
    n->view = (struct ax_gguf_view){.is = true, .base = base};
    memcpy(n->view.step, steps, sizeof n->view.step);
    set_shape(&n->ndim, n->shape, ndim, shape);
}

#define LIST(...)                                                                                  \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
static void view_of_heads(const struct ax_gguf_model *m, bool keys, struct ax_gguf_name *n) {
    const int64_t nope = m->nope, v = m->value_dim, rank = m->kv_rank, head = (nope + v) * rank;
    if (keys)
        set_view(n, 0, LIST(head, 1, rank), 3, LIST(m->heads, rank, nope));
    else
        set_view(n, nope * rank, LIST(head, rank, 1), 3, LIST(m->heads, v, rank));
}

/* Of [experts][in][columns], `kept` columns: from, from + every, …. */
static void view_of_experts(const struct ax_gguf_model *m, int64_t from, int64_t every,
                            int64_t kept, struct ax_gguf_name *n) {
    const int64_t in = n->shape[0], columns = n->shape[1];
    set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(m->experts, in, columns));
    set_view(n, from, LIST(in * columns, every, columns), 3, LIST(m->experts, kept, in));
}

static struct ax_gguf_order tiles(const struct ax_gguf_model *m, int64_t head, int64_t from) {
    return (struct ax_gguf_order){.kind = m->delta.values > m->delta.keys ? AX_GGUF_TILED
                                                                          : AX_GGUF_STRAIGHT,
                                  .head = head,
                                  .from = from,
                                  .keys = m->delta.keys,
                                  .values = m->delta.values / m->delta.keys};
}

static struct ax_gguf_order groups(const struct ax_gguf_model *m, bool z) {
    return (struct ax_gguf_order){.kind = z ? AX_GGUF_Z : AX_GGUF_QKV,
                                  .head = m->delta.key_dim,
                                  .keys = m->delta.keys,
                                  .values = m->delta.values / m->delta.keys * m->delta.value_dim};
}

/* One half of a matrix's rows. */
static void view_of_rows(bool lower, struct ax_gguf_name *n) {
    const int64_t kept = n->shape[0] / 2, cols = n->shape[1];
    set_view(n, lower ? kept * cols : 0, LIST(0, cols, 1), 2, LIST(kept, cols));
}

/* One half of the rows of each expert's matrix (halves = 2), or all of them (1). */
static void view_of_stack(const struct ax_gguf_model *m, int halves, bool lower,
                          struct ax_gguf_name *n) {
    const int64_t rows = n->shape[0], cols = n->shape[1], kept = rows / halves;
    set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(m->experts, rows, cols));
    set_view(n, lower ? kept * cols : 0, LIST(rows * cols, cols, 1), 3,
             LIST(m->experts, kept, cols));
}

/* Rows of z, x, B, C and the time steps. */
static void set_bands(const struct ax_gguf_model *m, struct ax_gguf_name *n) {
    const int64_t bc = m->ssd.groups * m->ssd.state;
    const int64_t rows[] = {m->ssd.width, m->ssd.width, bc, bc, m->ssd.heads};
    memcpy(n->bands.rows, rows, sizeof rows);
    memcpy(n->bands.factor, m->folded.mamba_in, sizeof m->folded.mamba_in);
}

/* Applies what is special about a tensor: the name has its shape in HF, and gets the file's. */
static void apply(const struct ax_gguf_model *m, enum how how, struct ax_gguf_name *n) {
    const int64_t rows = n->shape[0], cols = n->shape[1];
    const int64_t keys = 2 * m->delta.keys * m->delta.key_dim, value = m->delta.value_dim;
    switch (how) {
    case PLAIN:
    case NUMBERED:
    case OTHER_STREAMS:
    case UNSHIFTED:
        return;
    case OF_LENDER:
        n->copy = true;
        return;
    case LENGTHENED: /* in files; other kinds have all rows */
        if (!m->file && m->vocab > rows) {
            n->kept_rows = rows;
            n->shape[0] = m->vocab;
        }
        return;
    case ROTARY:
        if (m->kind->permuted)
            n->rows = (struct ax_gguf_order){.kind = AX_GGUF_PAIRS, .head = m->head_dim};
        return;
    case SCALED:
        if (m->query_scale > 0)
            n->factor = m->query_scale;
        return;
    case VECTOR_OF_ROW:
        set_shape(&n->ndim, n->shape, 1, LIST(cols));
        return;
    case TILED_TAPS:
        n->rows = tiles(m, value, keys);
        __attribute__((fallthrough));
    case TAPS_OF_CONV:
        set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(rows, 1, cols));
        return;
    case HEAD_KEYS:
    case HEAD_VALUES:
        view_of_heads(m, how == HEAD_KEYS, n);
        return;
    case BIAS_EVEN:
    case BIAS_ODD:
        set_view(n, how == BIAS_ODD, LIST(0, cols, 2), 2, LIST(rows, cols / 2));
        return;
    case EXPERT_EVEN:
    case EXPERT_ODD:
        view_of_experts(m, how == EXPERT_ODD, 2, cols / 2, n);
        return;
    case EXPERT_ALL:
        view_of_experts(m, 0, 1, cols, n);
        return;
    case EXPERT_FIRST:
    case EXPERT_LAST:
        view_of_experts(m, how == EXPERT_LAST ? cols / 2 : 0, 1, cols / 2, n);
        return;
    case TILED_HEADS:
        n->rows = tiles(m, value, 0);
        return;
    case TILED_VALUES:
        n->rows = tiles(m, value, keys);
        return;
    case TILED_COLUMNS:
        n->cols = tiles(m, value, 0);
        return;
    case TILED_RATES:
        n->rate = true;
        __attribute__((fallthrough));
    case TILED_GATES:
        n->rows = tiles(m, 1, 0);
        return;
    case RATES:
        n->rate = true;
        return;
    case COLUMN_OF_RATES:
        n->rate = true;
        __attribute__((fallthrough));
    case COLUMN:
        set_view(n, 0, LIST(0, 1, 1), 2, LIST(rows, 1));
        return;
    case LIFTED_RATES:
        n->rate = true;
        set_shape(&n->hf_ndim, n->hf_shape, 4, LIST(1, 1, rows, 1));
        set_view(n, 0, LIST(0, 1, 1), 2, LIST(rows, 1));
        return;
    case SPREAD_TAPS:
        set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(rows, 1, cols));
        set_view(n, 0, LIST(cols, cols, 1), 3, LIST(rows, 1, cols));
        return;
    case BY_GROUP:
        set_view(n, 0, LIST(0, rows / m->ssd.groups, 1), 2,
                 LIST(m->ssd.groups, rows / m->ssd.groups));
        return;
    case FIRST_ROWS:
    case LAST_ROWS:
        view_of_rows(how == LAST_ROWS, n);
        return;
    case STACK_FIRST:
    case STACK_LAST:
    case STACK:
        view_of_stack(m, how == STACK ? 1 : 2, how == STACK_LAST, n);
        return;
    case FOLDED_IN:
        n->factor = m->folded.in;
        return;
    case FOLDED_KEYS:
        n->factor = m->folded.keys;
        return;
    case FOLDED_OUT:
        n->factor = m->folded.out;
        return;
    case FOLDED_MAMBA_IN:
        set_bands(m, n);
        return;
    case FOLDED_MAMBA_OUT:
        n->factor = m->folded.mamba_out;
        return;
    case FOLDED_GATE:
        n->factor = m->folded.gate;
        return;
    case FOLDED_DOWN:
        n->factor = m->folded.down;
        return;
    case GROUPED_QKV:
    case GROUPED_Z:
        n->rows = groups(m, how == GROUPED_Z);
        n->shape[0] = how == GROUPED_Z ? size_of(m, DELTA_VALUES, -1) : size_of(m, DELTA_QKV, -1);
    }
}

static enum ax_status visit_row(const struct ax_gguf_model *m, const struct row *row, int64_t layer,
                                ax_gguf_visit visit, void *ctx) {
    const int ndim = row->cols == NONE ? 1 : 2;
    const int64_t rows = size_of(m, row->rows, layer), cols = size_of(m, row->cols, layer);
    const bool norm = row->part == VECTOR && (row->how == PLAIN || row->how == SCALED);
    struct ax_gguf_name n = {.part = row->part,
                             .ndim = ndim,
                             .shape = {rows, cols},
                             .hf_ndim = ndim,
                             .hf_shape = {rows, cols},
                             .experts = row->how == NUMBERED        ? m->experts
                                        : row->how == OTHER_STREAMS ? m->streams.n - 1
                                                                    : 0,
                             .layer = layer,
                             .shift = m->kind->shifted && norm ? 1 : 0,
                             .factor = !m->kind->beside                 ? 1
                                       : row->part == AX_GGUF_EMBEDDING ? m->folded.embedding
                                       : row->part == AX_GGUF_HEAD      ? m->folded.head
                                                                        : 1};
    if (!wanted(m, row->when, layer))
        return AX_OK;
    apply(m, row->how, &n);
    char usual[96];
    if (layer < 0) {
        snprintf(n.gguf, sizeof n.gguf, "%s", row->gguf);
        snprintf(usual, sizeof usual, "%s", row->hf);
    } else {
        snprintf(n.gguf, sizeof n.gguf, "blk.%lld.%s", (long long)layer, row->gguf);
        snprintf(usual, sizeof usual, "model.layers.%lld.%s",
                 (long long)(row->how == OF_LENDER ? lender_of(m, layer) : layer), row->hf);
    }
    ax_gguf_own_name(m->kind, usual, n.hf);
    return visit(ctx, &n);
}

/* The head is the embedding's copy, for readers that do not know of tied heads. */
static enum ax_status visit_copy(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx) {
    struct row head = ax_gguf_last_rows[0];
    for (const struct row *row = ax_gguf_last_rows; row->gguf; row++)
        head = row->part == AX_GGUF_HEAD ? *row : head;
    head.hf = ax_gguf_first_rows[0].hf;
    head.when = ALWAYS;
    return m->tied && m->kind->copies_head ? visit_row(m, &head, -1, visit, ctx) : AX_OK;
}

enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx) {
    const struct row *const *groups = ax_gguf_layer_rows(m->kind);
    for (const struct row *row = ax_gguf_first_rows; row->gguf; row++)
        AX_TRY(visit_row(m, row, -1, visit, ctx));
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (int g = 0; groups[g]; g++)
            for (const struct row *row = groups[g]; row->gguf; row++)
                AX_TRY(visit_row(m, row, layer, visit, ctx));
    for (const struct row *row = ax_gguf_last_rows; row->gguf; row++)
        AX_TRY(visit_row(m, row, -1, visit, ctx));
    return visit_copy(m, visit, ctx);
}

const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]) {
    const char *at = strstr(name->hf, "%d");
    if (name->experts == 0 || !at)
        snprintf(buf, 112, "%s", name->hf);
    else
        snprintf(buf, 112, "%.*s%lld%s", (int)(at - name->hf), name->hf, (long long)e, at + 2);
    return buf;
}
