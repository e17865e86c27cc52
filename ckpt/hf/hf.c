/* Reads a model folder: its shards, and which tensor is in which. */
#include "ckpt/hf/hf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/config.h"
#include "ckpt/hf/index.h"

#define SINGLE    "model.safetensors"
#define INDEX     "model.safetensors.index.json"
#define MAX_INDEX (100u << 20)

static enum ax_status open_single(struct ax_hf *hf, const char *path) {
    AX_TRY(ax_alloc(&hf->files, 1, sizeof *hf->files));
    AX_TRY(ax_safetensors_open(&hf->files[0], path));
    hf->n_files = 1;
    return AX_OK;
}

static enum ax_status open_files(struct ax_hf *hf, const char *const *names, int n) {
    AX_TRY(ax_alloc(&hf->files, (size_t)n, sizeof *hf->files));
    for (int i = 0; i < n; i++) {
        char *path;
        AX_TRY(ax_path_join(&path, hf->dir, names[i]));
        const enum ax_status st = ax_safetensors_open(&hf->files[i], path);
        ax_free(path);
        if (st != AX_OK)
            return st;
        hf->n_files++;
    }
    return AX_OK;
}

static enum ax_status open_index(struct ax_hf *hf, const char *path) {
    struct ax_hf_index ix = {0};
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_INDEX, &text, &len));
    enum ax_status st;
    AX_TRY_GOTO(ax_hf_index_parse(&ix, path, text, len), st, done);
    AX_TRY_GOTO(open_files(hf, ix.shards, ix.n_shards), st, done);
    AX_TRY_GOTO(ax_hf_index_check(&ix, hf->files), st, done);
done:
    ax_hf_index_free(&ix);
    ax_free(text);
    return st;
}

/* Opens the link's target, so that messages name the file itself. */
static enum ax_status open_gguf(struct ax_hf *hf, const char *path) {
    char real[PATH_MAX];
    AX_TRY(ax_alloc(&hf->gguf, 1, sizeof *hf->gguf));
    struct ax_hf_gguf *g = hf->gguf;
    AX_TRY(ax_gguf_open(&g->file, realpath(path, real) ? real : path));
    AX_TRY(ax_gguf_model_read(&g->model, &g->file));
    AX_TRY(ax_gguf_weights_create(&g->weights, &g->model, ax_gguf_model_dtype(&g->model)));
    AX_TRY(ax_gguf_weights_entries(&g->weights, &g->entries));
    hf->n_entries = g->weights.n;
    hf->entries = g->entries;
    return AX_OK;
}

static void close_gguf(struct ax_hf_gguf *g) {
    if (!g)
        return;
    ax_free(g->entries);
    ax_gguf_weights_free(&g->weights);
    ax_gguf_close(&g->file);
    ax_free(g);
}

static enum ax_status refuse_missing(const char *dir) {
    char *pickle = NULL;
    AX_TRY(ax_path_join(&pickle, dir, "pytorch_model.bin"));
    const bool has_pickle = ax_path_exists(pickle);
    ax_free(pickle);
    if (has_pickle)
        return ax_error(AX_ERR_DATA,
                        "%s: contains pytorch_model.bin, a format that can execute code and is not "
                        "supported. Convert it to safetensors (transformers: save_pretrained).",
                        dir);
    AX_TRY(ax_hf_refuse_own_form(dir));
    return ax_error(AX_ERR_DATA, "%s: no weights: found neither %s nor %s nor %s", dir, SINGLE,
                    INDEX, AX_HF_GGUF);
}

/* The first of a folder's forms that is there. */
static enum ax_status open_dir(struct ax_hf *hf) {
    static const struct {
        const char *name;
        enum ax_status (*open)(struct ax_hf *hf, const char *path);
    } forms[] = {
        {SINGLE, open_single},
        {INDEX, open_index},
        {AX_HF_GGUF, open_gguf},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char *path;
        AX_TRY(ax_path_join(&path, hf->dir, forms[i].name));
        const bool found = ax_path_exists(path);
        const enum ax_status st = found ? forms[i].open(hf, path) : AX_OK;
        ax_free(path);
        if (found)
            return st;
    }
    return refuse_missing(hf->dir);
}

/* ---- quantized folders ---- */

static enum ax_status open_compressed(struct ax_hf *hf, struct ax_json config) {
    struct ax_compressed_format format;
    const struct ax_st_entry **entries;
    const int n = ax_hf_count(hf);
    AX_TRY(ax_compressed_parse(config, &format));
    AX_TRY(ax_alloc(&entries, (size_t)n, sizeof *entries));
    for (int i = 0; i < n; i++)
        entries[i] = ax_hf_at(hf, i);
    struct ax_compressed *c;
    enum ax_status st = ax_alloc(&c, 1, sizeof *c);
    if (st == AX_OK)
        st = ax_compressed_open(c, hf->dir, &format, n, entries);
    ax_free(entries);
    if (st != AX_OK) {
        ax_free(c);
        return st;
    }
    hf->compressed = c;
    hf->n_entries = c->n;
    hf->entries = c->entries;
    return AX_OK;
}

/* Bits that nothing says the scale of are no weights. */
static enum ax_status refuse_bits(const struct ax_hf *hf) {
    for (int i = 0; i < ax_hf_count(hf); i++)
        if (ax_hf_at(hf, i)->e4m3)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: %s is stored in FP8, and config.json has no quantization_config "
                            "that says how. Use the original weights.",
                            hf->dir, ax_hf_at(hf, i)->name);
    return AX_OK;
}

/* Leaves *doc zeroed where there is none. */
static enum ax_status load_config(const char *dir, struct ax_json_doc *doc) {
    return ax_path_is_dir(dir) ? ax_hf_config_load(doc, dir) : AX_OK;
}

/* Of what the files have: the text model's part, and numbers for what is not stored as such. */
static enum ax_status open_stored(struct ax_hf *hf) {
    struct ax_json_doc doc = {0};
    struct ax_json q = {0};
    enum ax_status st;
    AX_TRY_GOTO(load_config(hf->dir, &doc), st, done);
    if (doc.root)
        q = ax_json_get(ax_json_root(&doc), "quantization_config");
    if (ax_config_is_wrapper(doc.root))
        AX_TRY_GOTO(ax_hf_wrapped_open(hf), st, done);
    AX_TRY_GOTO(ax_hf_mxfp4_open(hf), st, done);
    if (hf->mxfp4 || !ax_path_is_dir(hf->dir))
        goto done;
    AX_TRY_GOTO(q.v ? open_compressed(hf, q) : AX_OK, st, done);
    AX_TRY_GOTO(refuse_bits(hf), st, done);
done:
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_hf_is_wrapper(const char *dir, bool *yes) {
    struct ax_json_doc doc = {0};
    const enum ax_status st = load_config(dir, &doc);
    *yes = ax_config_is_wrapper(doc.root);
    ax_json_free(&doc);
    return st;
}

/* ---- the embedding and the head ---- */

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD      "lm_head.weight"

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct ax_st_entry *)x)->name, ((const struct ax_st_entry *)y)->name);
}

static enum ax_status name_embedding(struct ax_hf *hf) {
    static char name[] = EMBEDDING;
    const struct ax_st_entry *head = ax_hf_find(hf, HEAD);
    const int n = ax_hf_count(hf);
    if (!head || ax_hf_find(hf, EMBEDDING))
        return AX_OK;
    AX_TRY(ax_alloc(&hf->renamed, (size_t)n, sizeof *hf->renamed));
    for (int i = 0; i < n; i++) {
        hf->renamed[i] = *ax_hf_at(hf, i);
        if (ax_hf_at(hf, i) == head)
            hf->renamed[i].name = name;
    }
    qsort(hf->renamed, (size_t)n, sizeof *hf->renamed, by_name);
    hf->entries = hf->renamed;
    hf->n_entries = n;
    return AX_OK;
}

enum ax_status ax_hf_unties(const struct ax_hf *hf, bool *yes) {
    enum { PIECE = 1 << 14 };
    const struct ax_st_entry *a = ax_hf_find(hf, EMBEDDING), *b = ax_hf_find(hf, HEAD);
    float *values;
    enum ax_status st = AX_OK;
    *yes = a && b && a->numel != b->numel;
    if (!a || !b || *yes)
        return AX_OK;
    if (a->dtype == b->dtype && a->data && b->data) {
        *yes = memcmp(a->data, b->data, a->bytes) != 0;
        return AX_OK;
    }
    AX_TRY(ax_alloc(&values, 2 * PIECE, sizeof *values));
    for (int64_t i = 0, n; st == AX_OK && !*yes && i < a->numel; i += n) {
        n = a->numel - i < PIECE ? a->numel - i : PIECE;
        st = ax_st_read(a, i, n, AX_F32, values);
        if (st == AX_OK)
            st = ax_st_read(b, i, n, AX_F32, values + PIECE);
        *yes = st == AX_OK && memcmp(values, values + PIECE, (size_t)n * sizeof *values) != 0;
    }
    ax_free(values);
    return st;
}

enum ax_status ax_hf_open(struct ax_hf *hf, const char *dir) {
    *hf = (struct ax_hf){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_strdup(&hf->dir, dir), st, fail);
    AX_TRY_GOTO(ax_folder_recover(dir), st, fail);
    if (ax_path_is_dir(dir))
        AX_TRY_GOTO(open_dir(hf), st, fail);
    else
        AX_TRY_GOTO(open_single(hf, dir), st, fail);
    AX_TRY_GOTO(open_stored(hf), st, fail);
    AX_TRY_GOTO(name_embedding(hf), st, fail);
    return AX_OK;
fail:
    ax_hf_close(hf);
    return st;
}

void ax_hf_close(struct ax_hf *hf) {
    for (int i = 0; i < hf->n_files; i++)
        ax_safetensors_close(&hf->files[i]);
    close_gguf(hf->gguf);
    ax_hf_mxfp4_close(hf->mxfp4);
    ax_hf_wrapped_close(hf->wrapped);
    if (hf->compressed)
        ax_compressed_close(hf->compressed);
    ax_free(hf->compressed);
    ax_free(hf->renamed);
    ax_free(hf->files);
    ax_free(hf->dir);
    *hf = (struct ax_hf){0};
}

static const struct ax_st_entry *find_exact(const struct ax_hf *hf, const char *name) {
    if (hf->entries)
        return ax_st_find(hf->entries, hf->n_entries, name);
    for (int i = 0; i < hf->n_files; i++) {
        const struct ax_st_entry *e = ax_safetensors_find(&hf->files[i], name);
        if (e)
            return e;
    }
    return NULL;
}

const struct ax_st_entry *ax_hf_find(const struct ax_hf *hf, const char *name) {
    const struct ax_st_entry *e = find_exact(hf, name);
    if (!e && strncmp(name, "model.", 6) == 0)
        e = find_exact(hf, name + 6);
    return e;
}

int ax_hf_count(const struct ax_hf *hf) {
    int n = hf->n_entries;
    for (int i = 0; !hf->entries && i < hf->n_files; i++)
        n += hf->files[i].n;
    return n;
}

const struct ax_st_entry *ax_hf_at(const struct ax_hf *hf, int i) {
    int file = 0;
    if (hf->entries)
        return &hf->entries[i];
    while (i >= hf->files[file].n)
        i -= hf->files[file++].n;
    return &hf->files[file].entries[i];
}
