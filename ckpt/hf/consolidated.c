#include "ckpt/hf/consolidated.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io_path.h"
#include "base/mem.h"
#include "ckpt/gguf/names.h"
#include "ckpt/hf/hf.h"

enum { MAX_FILES = 10000, MAX_NAME = 160, MAX_HEAD = 2048 };

/* '#' is a number, of a layer or expert. */
static const struct row {
    const char *own, *hf;
    bool rotary;
} names[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight", false},
    {"norm.weight", "model.norm.weight", false},
    {"output.weight", "lm_head.weight", false},
    {"layers.#.attention_norm.weight", "model.layers.#.input_layernorm.weight", false},
    {"layers.#.attention.wq.weight", "model.layers.#.self_attn.q_proj.weight", true},
    {"layers.#.attention.wk.weight", "model.layers.#.self_attn.k_proj.weight", true},
    {"layers.#.attention.wv.weight", "model.layers.#.self_attn.v_proj.weight", false},
    {"layers.#.attention.wo.weight", "model.layers.#.self_attn.o_proj.weight", false},
    {"layers.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight", false},
    {"layers.#.feed_forward.w1.weight", "model.layers.#.mlp.gate_proj.weight", false},
    {"layers.#.feed_forward.w2.weight", "model.layers.#.mlp.down_proj.weight", false},
    {"layers.#.feed_forward.w3.weight", "model.layers.#.mlp.up_proj.weight", false},
    {"layers.#.feed_forward.gate.weight", "model.layers.#.block_sparse_moe.gate.weight", false},
    {"layers.#.feed_forward.experts.#.w1.weight",
     "model.layers.#.block_sparse_moe.experts.#.w1.weight", false},
    {"layers.#.feed_forward.experts.#.w2.weight",
     "model.layers.#.block_sparse_moe.experts.#.w2.weight", false},
    {"layers.#.feed_forward.experts.#.w3.weight",
     "model.layers.#.block_sparse_moe.experts.#.w3.weight", false},
};
#define N_NAMES (sizeof names / sizeof *names)

/* ---- files ---- */

static int by_text(const void *x, const void *y) {
    return strcmp(*(char *const *)x, *(char *const *)y);
}

static enum ax_status list(DIR *d, const char *dir, char **found, int *n) {
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        if (strncmp(e->d_name, "consolidated", strlen("consolidated")) != 0 ||
            !ax_path_ends_in(e->d_name, ".safetensors"))
            continue;
        if (*n == MAX_FILES)
            return ax_error(AX_ERR_DATA, "%s: more than %d files of weights", dir, MAX_FILES);
        AX_TRY(ax_strdup(&found[*n], e->d_name));
        ++*n;
    }
    qsort(found, (size_t)*n, sizeof *found, by_text);
    return AX_OK;
}

enum ax_status ax_hf_consolidated_files(const char *dir, char ***out, int *n) {
    *out = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d)
        return AX_OK; /* whoever needs it says why not */
    enum ax_status st = ax_alloc(out, MAX_FILES, sizeof **out);
    if (st == AX_OK)
        st = list(d, dir, *out, n);
    closedir(d);
    return st;
}

enum ax_status ax_hf_consolidated_dtype(const char *dir, enum ax_dtype *dtype) {
    struct ax_safetensors file;
    char **found, *path = NULL;
    int n;
    enum ax_status st;
    AX_TRY_GOTO(ax_hf_consolidated_files(dir, &found, &n), st, done);
    if (n == 0)
        goto done;
    AX_TRY_GOTO(ax_path_join(&path, dir, found[0]), st, done);
    AX_TRY_GOTO(ax_safetensors_open(&file, path), st, done);
    if (file.n > 0)
        *dtype = file.entries[0].dtype;
    ax_safetensors_close(&file);
done:
    ax_free(path);
    for (int i = 0; i < n; i++)
        ax_free(found[i]);
    ax_free(found);
    return st;
}

/* ---- names ---- */

/* Writes `own` as `row` says; false: it is not of this row. */
static bool translate(const struct row *row, const char *own, char out[MAX_NAME]) {
    const char *numbers[2] = {NULL, NULL};
    int lens[2] = {0, 0}, n = 0, at = 0;
    const char *p = row->own;
    for (; *p; p++) {
        if (*p != '#') {
            if (*own++ != *p)
                return false;
            continue;
        }
        const char *end = own;
        while (isdigit((unsigned char)*end))
            end++;
        if (end == own || end - own > 9 || n == 2)
            return false;
        numbers[n] = own;
        lens[n++] = (int)(end - own);
        own = end;
    }
    if (*own)
        return false;
    int used = 0;
    for (p = row->hf; *p; p++) {
        if (*p == '#' && used < n) {
            at += snprintf(out + at, (size_t)(MAX_NAME - at), "%.*s", lens[used], numbers[used]);
            used++;
        } else {
            out[at++] = *p;
        }
    }
    out[at] = '\0';
    return true;
}

static const struct row *find(const char *own, char out[MAX_NAME]) {
    for (size_t i = 0; i < N_NAMES; i++)
        if (translate(&names[i], own, out))
            return &names[i];
    return NULL;
}

/* ---- rows ---- */

static enum ax_status read_rows(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_rotary_rows *s = ctx;
    const size_t size = ax_dtype_size(s->from->dtype);
    const int64_t cols = s->from->shape[1];
    const char *data = s->from->data;
    char *to = out;
    while (n > 0) {
        const int64_t col = first % cols, some = cols - col < n ? cols - col : n;
        const int64_t from = ax_gguf_rotary_row(s->head_dim, first / cols) * cols + col;
        memcpy(to, data + (size_t)from * size, (size_t)some * size);
        to += (size_t)some * size;
        first += some;
        n -= some;
    }
    return AX_OK;
}

static enum ax_status reorder(const struct ax_hf *hf, struct ax_st_entry *e,
                              struct ax_rotary_rows *rows, const struct ax_st_entry *from,
                              int64_t head_dim) {
    if (head_dim % 2 != 0 || e->ndim != 2 || e->shape[0] % head_dim != 0)
        return ax_error(AX_ERR_DATA, "%s: %s does not consist of heads of %lld rows", hf->dir,
                        from->name, (long long)head_dim);
    *rows = (struct ax_rotary_rows){from, head_dim};
    e->stored = e->data;
    e->stored_bytes = e->bytes;
    e->data = NULL;
    e->read = read_rows;
    e->ctx = rows;
    return AX_OK;
}

/* ---- all ---- */

static enum ax_status head_size(struct ax_json config, int64_t *out) {
    int64_t hidden, heads;
    AX_TRY(ax_json_i64(ax_json_get(config, "hidden_size"), 1, INT32_MAX, &hidden));
    AX_TRY(ax_json_i64(ax_json_get(config, "num_attention_heads"), 1, hidden, &heads));
    return ax_json_i64_or(ax_json_get(config, "head_dim"), 1, MAX_HEAD, hidden / heads, out);
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct ax_st_entry *)x)->name, ((const struct ax_st_entry *)y)->name);
}

static enum ax_status fill(const struct ax_hf *hf, int64_t head_dim, struct ax_hf_consolidated *c) {
    for (int n = ax_hf_count(hf); c->n < n; c->n++) {
        const struct ax_st_entry *from = ax_hf_at(hf, c->n);
        struct ax_st_entry *e = &c->entries[c->n];
        char name[MAX_NAME];
        const struct row *row = find(from->name, name);
        if (!row)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: %s is not a tensor of a text model in Mistral's own form that is "
                            "supported. Use the model's Hugging Face folder, if it has one.",
                            hf->dir, from->name);
        *e = *from;
        e->name = NULL;
        if (row->rotary)
            AX_TRY(reorder(hf, e, &c->rows[c->n], from, head_dim));
        AX_TRY(ax_strdup(&e->name, name));
    }
    qsort(c->entries, (size_t)c->n, sizeof *c->entries, by_name);
    for (int i = 1; i < c->n; i++)
        if (strcmp(c->entries[i].name, c->entries[i - 1].name) == 0)
            return ax_error(AX_ERR_DATA, "%s: two files have the tensor of %s", hf->dir,
                            c->entries[i].name);
    return AX_OK;
}

enum ax_status ax_hf_consolidated_open(struct ax_hf *hf, struct ax_json config) {
    const size_t n = (size_t)ax_hf_count(hf);
    struct ax_hf_consolidated *c = NULL;
    int64_t head_dim;
    bool own = false;
    enum ax_status st;
    for (size_t i = 0; i < n && !own; i++)
        own = strcmp(ax_hf_at(hf, (int)i)->name, names[0].own) == 0;
    if (!own)
        return AX_OK;
    AX_TRY(head_size(config, &head_dim));
    AX_TRY(ax_alloc(&c, 1, sizeof *c));
    AX_TRY_GOTO(ax_alloc(&c->entries, n, sizeof *c->entries), st, fail);
    AX_TRY_GOTO(ax_alloc(&c->rows, n, sizeof *c->rows), st, fail);
    AX_TRY_GOTO(fill(hf, head_dim, c), st, fail);
    hf->consolidated = c;
    hf->n_entries = c->n;
    hf->entries = c->entries;
    return AX_OK;
fail:
    ax_hf_consolidated_close(c);
    return st;
}

void ax_hf_consolidated_close(struct ax_hf_consolidated *c) {
    if (!c)
        return;
    for (int i = 0; c->entries && i < c->n; i++)
        ax_free(c->entries[i].name);
    ax_free(c->entries);
    ax_free(c->rows);
    ax_free(c);
}
