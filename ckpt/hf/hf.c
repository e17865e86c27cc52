/* Reads a model folder: its files, and which tensor is in which; matrices in MXFP4; the text model within
 * another; stacked experts; quantized folders; the embedding and the head. */
#include "ckpt/hf/hf.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/config.h"
#include "ckpt/hf/index.h"
#include "ckpt/hf/shards.h"

#define SINGLE    "model.safetensors"
#define INDEX     "model.safetensors.index.json"
#define MAX_INDEX (100u << 20)
#define HEAD      "lm_head.weight"
#define GROUP     32 /* elements of a block in MXFP4 */

/* ---- files ---- */

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

/* Opens the shards that an index names. */
static enum ax_status open_named(struct ax_hf *hf, const struct ax_hf_index *ix) {
    char *path;
    const enum ax_status st = open_files(hf, ix->shards, ix->n_shards);
    if (st != AX_ERR_IO)
        return st;
    AX_TRY(ax_path_join(&path, hf->dir, ix->shards[hf->n_files]));
    const bool exists = ax_path_exists(path);
    ax_free(path);
    return exists ? st
                  : ax_error(st, "%s; " INDEX " names this file: get the folder again",
                             ax_error_text());
}

static enum ax_status open_index(struct ax_hf *hf, const char *path) {
    struct ax_hf_index ix = {0};
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_INDEX, &text, &len));
    enum ax_status st;
    AX_TRY_GOTO(ax_hf_index_parse(&ix, path, text, len), st, done);
    AX_TRY_GOTO(open_named(hf, &ix), st, done);
    AX_TRY_GOTO(ax_hf_index_check(&ix, hf->files), st, done);
done:
    ax_hf_index_free(&ix);
    ax_free(text);
    return st;
}

/* Without an index. *found: there are shards. */
static enum ax_status open_shards(struct ax_hf *hf, bool *found) {
    struct ax_hf_shards s;
    AX_TRY(ax_hf_shards_list(&s, hf->dir));
    *found = s.n > 0;
    enum ax_status st = open_files(hf, (const char *const *)s.names, s.n);
    if (st == AX_OK)
        st = ax_hf_shards_check(&s, hf->dir, hf->files);
    ax_hf_shards_free(&s);
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
    bool found;
    AX_TRY(open_shards(hf, &found));
    return found ? AX_OK : refuse_missing(hf->dir);
}

/* ---- MXFP4 ---- */

static const char BLOCKS[] = "_blocks", SCALES[] = "_scales";

static bool ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* NAME + `end` for NAME_blocks or NAME_scales; *out is the caller's. */
static enum ax_status with_ending(const char *name, const char *end, char **out) {
    const size_t stem = strlen(name) - strlen(BLOCKS);
    AX_TRY(ax_alloc(out, stem + strlen(end) + 1, 1));
    memcpy(*out, name, stem);
    memcpy(*out + stem, end, strlen(end) + 1);
    return AX_OK;
}

static enum ax_status read_mxfp4(void *ctx, int64_t first, int64_t n, void *out) {
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const struct ax_mxfp4_source *s = ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i, column = at % s->out, k = at / s->out % s->in;
        const int64_t row = at / (s->in * s->out) * s->out + column;
        const int64_t block = (row * s->in + k) / GROUP;
        const unsigned byte = s->blocks[block * (GROUP / 2) + k % GROUP / 2];
        const unsigned code = k % 2 ? byte >> 4 : byte & 15;
        if (s->scales[block] == 255)
            return ax_error(AX_ERR_DATA, "%s: block %lld is not a number", s->name,
                            (long long)block);
        const float v = ldexpf(values[code & 7], s->scales[block] - 127);
        ax_store(AX_BF16, out, i, (double)(code & 8 ? -v : v));
    }
    return AX_OK;
}

static enum ax_status make_mxfp4(const struct ax_hf *hf, const struct ax_st_entry *blocks,
                                 struct ax_st_entry *e, struct ax_mxfp4_source *s) {
    char *scales_name = NULL;
    AX_TRY(with_ending(blocks->name, SCALES, &scales_name));
    const struct ax_st_entry *scales = ax_hf_find(hf, scales_name);
    ax_free(scales_name);
    bool fits = scales && scales->ndim == 3 && scales->dtype == AX_U8 && blocks->ndim == 4 &&
                blocks->shape[3] == GROUP / 2;
    for (int d = 0; d < 3 && fits; d++)
        fits = scales->shape[d] == blocks->shape[d];
    if (!fits)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is not the blocks of an MXFP4 tensor [experts, out, in/32, 16] "
                        "with scales",
                        hf->dir, blocks->name);
    *s = (struct ax_mxfp4_source){.name = blocks->name,
                                  .blocks = blocks->data,
                                  .scales = scales->data,
                                  .in = blocks->shape[2] * GROUP,
                                  .out = blocks->shape[1]};
    *e = (struct ax_st_entry){.file = blocks->file,
                              .dtype = AX_BF16,
                              .ndim = 3,
                              .shape = {blocks->shape[0], s->in, s->out},
                              .numel = 2 * blocks->numel,
                              .bytes = 4 * (size_t)blocks->numel,
                              .read = read_mxfp4,
                              .ctx = s,
                              .stored = blocks->data,
                              .stored_bytes = blocks->bytes};
    return with_ending(blocks->name, "", &e->name);
}

static bool is_blocks(const struct ax_st_entry *e) {
    return e->dtype == AX_U8 && ends_in(e->name, BLOCKS);
}

static enum ax_status fill_mxfp4(const struct ax_hf *hf, struct ax_hf_mxfp4 *m) {
    for (int i = 0; i < ax_hf_count(hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(hf, i);
        if (e->dtype == AX_U8 && ends_in(e->name, SCALES))
            continue;
        m->entries[m->n] = *e;
        if (is_blocks(e)) {
            m->entries[m->n].name = NULL;
            AX_TRY(make_mxfp4(hf, e, &m->entries[m->n], &m->sources[m->n]));
        }
        m->n++;
    }
    ax_st_sort(m->entries, m->n);
    return AX_OK;
}

static void close_mxfp4(struct ax_hf_mxfp4 *m) {
    if (!m)
        return;
    for (int i = 0; m->entries && i < m->n; i++)
        if (m->entries[i].read == read_mxfp4)
            ax_free(m->entries[i].name);
    ax_free(m->entries);
    ax_free(m->sources);
    ax_free(m);
}

/* Sets hf->mxfp4 and hf->entries if the folder has such matrices. AX_ERR_DATA: blocks without
 * scales, or of another shape. */
static enum ax_status open_mxfp4(struct ax_hf *hf) {
    const size_t n = (size_t)ax_hf_count(hf);
    struct ax_hf_mxfp4 *m = NULL;
    bool any = false;
    enum ax_status st;
    for (size_t i = 0; i < n && !any; i++)
        any = is_blocks(ax_hf_at(hf, (int)i));
    if (!any)
        return AX_OK;
    AX_TRY(ax_alloc(&m, 1, sizeof *m));
    AX_TRY_GOTO(ax_alloc(&m->entries, n, sizeof *m->entries), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->sources, n, sizeof *m->sources), st, fail);
    AX_TRY_GOTO(fill_mxfp4(hf, m), st, fail);
    hf->mxfp4 = m;
    hf->n_entries = m->n;
    hf->entries = m->entries;
    return AX_OK;
fail:
    close_mxfp4(m);
    return st;
}

/* ---- a text model within another ---- */

/* As transformers' files have been: most families'; Qwen3-VL's and those of bare models; Idefics3's;
 * Qwen2-VL's, whose tower is "visual.…". */
static const struct ax_wrapping wrappings[] = {
    {"language_model.", "language_model.", "model.language_"},
    {"model.language_", "", "model.language_"},
    {"model.text_", "", "model.text_"},
    {"", "", "model.language_"},
};
#define N_WRAPPINGS (sizeof wrappings / sizeof *wrappings)

static bool begins(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

/* The part of a name that follows the prefix of the text model; NULL: it is another's. */
static const char *text_name(const struct ax_wrapping *w, const char *name) {
    const char *body = name + strlen(w->body), *head = name + strlen(w->head);
    if (begins(name, w->body) && begins(body, "model."))
        return body;
    return begins(name, w->head) && begins(head, "lm_head.") ? head : NULL;
}

enum ax_status ax_wrapping_name(const struct ax_wrapping *w, const char *name, char **out) {
    return ax_sprintf(out, "%s%s", begins(name, "model.") ? w->body : w->head, name);
}

const char *ax_wrapping_strip(const char *name, const char **module) {
    *module = NULL;
    for (size_t i = 0; i + 1 < N_WRAPPINGS; i++) {
        const char *own = text_name(&wrappings[i], name);
        if (!own || own == name)
            continue;
        *module = wrappings[i].module;
        return own;
    }
    return name;
}

static const struct ax_wrapping *find_names(const struct ax_hf *hf) {
    for (size_t i = 0; i < N_WRAPPINGS; i++)
        for (int k = 0; k < ax_hf_count(hf); k++) {
            const char *name = ax_hf_at(hf, k)->name, *own = text_name(&wrappings[i], name);
            if (own && strcmp(own, AX_HF_EMBEDDING) == 0)
                return &wrappings[i];
        }
    return NULL;
}

static enum ax_status fill_wrapped(struct ax_hf_wrapped *w, const struct ax_hf *hf) {
    const size_t n = (size_t)ax_hf_count(hf);
    w->names = find_names(hf);
    if (!w->names)
        return ax_error(AX_ERR_DATA,
                        "%s: config.json is of a model that contains a text model, but the "
                        "weights have no tensor that ends in " AX_HF_EMBEDDING
                        " where one would be",
                        hf->dir);
    AX_TRY(ax_alloc(&w->text, n, sizeof *w->text));
    AX_TRY(ax_alloc(&w->others, n, sizeof *w->others));
    for (size_t i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(hf, (int)i);
        const char *own = text_name(w->names, e->name);
        if (!own) {
            w->others[w->n_others++] = *e;
            continue;
        }
        w->text[w->n_text] = *e;
        w->text[w->n_text++].name = (char *)(uintptr_t)own;
    }
    ax_st_sort(w->text, w->n_text);
    return AX_OK;
}

static void close_wrapped(struct ax_hf_wrapped *w) {
    if (!w)
        return;
    ax_free(w->text);
    ax_free(w->others);
    ax_free(w);
}

/* Replaces the entries of hf by the text model's. AX_ERR_DATA: it contains none. */
static enum ax_status open_wrapped(struct ax_hf *hf) {
    struct ax_hf_wrapped *w;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    const enum ax_status st = fill_wrapped(w, hf);
    if (st != AX_OK) {
        close_wrapped(w);
        return st;
    }
    hf->wrapped = w;
    hf->n_entries = w->n_text;
    hf->entries = w->text;
    return AX_OK;
}

/* ---- quantized folders ---- */

/* *out = all entries; free with ax_free. */
static enum ax_status list(const struct ax_hf *hf, const struct ax_st_entry ***out) {
    AX_TRY(ax_alloc(out, (size_t)ax_hf_count(hf), sizeof **out));
    for (int i = 0; i < ax_hf_count(hf); i++)
        (*out)[i] = ax_hf_at(hf, i);
    return AX_OK;
}

static enum ax_status open_compressed(struct ax_hf *hf, struct ax_json config, bool stacks) {
    struct ax_compressed_formats formats;
    const struct ax_st_entry **entries;
    AX_TRY(ax_compressed_parse(config, &formats));
    AX_TRY(list(hf, &entries));
    struct ax_compressed *c;
    enum ax_status st = ax_alloc(&c, 1, sizeof *c);
    if (st == AX_OK)
        st = ax_compressed_open(c, hf->dir, &formats, ax_hf_count(hf), entries);
    ax_free(entries);
    if (st != AX_OK) {
        ax_free(c);
        return st;
    }
    hf->compressed = c;
    hf->n_entries = c->n;
    hf->entries = c->entries;
    AX_TRY(ax_hf_joined_open(&hf->joined, hf->dir, stacks, c->n, c->entries));
    if (hf->joined.n > 0) {
        hf->n_entries = hf->joined.n;
        hf->entries = hf->joined.entries;
    }
    return AX_OK;
}
/* Saves have the other parts as they are, and may not be quantized themselves. */
static enum ax_status refuse_quantized_parts(const struct ax_hf *hf) {
    static const char *const ends[] = {".weight_packed", ".weight_scale",  ".weight_scale_inv",
                                       ".qweight",       ".weight.absmax", ".SCB"};
    for (int i = 0; hf->wrapped && i < hf->wrapped->n_others; i++) {
        const char *name = hf->wrapped->others[i].name;
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            const size_t n = strlen(name), m = strlen(ends[k]);
            if (n >= m && strcmp(name + n - m, ends[k]) == 0)
                return ax_error(AX_ERR_UNSUPPORTED,
                                "%s: %s is not of the text model, and is quantized. Use the "
                                "original weights, or a folder in which only the text model is "
                                "quantized.",
                                hf->dir, name);
        }
    }
    return AX_OK;
}

static enum ax_status open_experts(struct ax_hf *hf, bool of_forms) {
    const struct ax_st_entry **entries;
    const int n = ax_hf_count(hf);
    AX_TRY(list(hf, &entries));
    const enum ax_status st = of_forms ? ax_hf_experts_split(&hf->experts, n, entries)
                                       : ax_hf_experts_open(&hf->experts, n, entries);
    ax_free(entries);
    if (hf->experts.n > 0) {
        hf->n_entries = hf->experts.n;
        hf->entries = hf->experts.entries;
    }
    return st;
}

/* Bits that nothing says the scale of are no weights. */
static enum ax_status refuse_bits(const struct ax_hf *hf) {
    for (int i = 0; i < ax_hf_count(hf); i++)
        if (ax_hf_at(hf, i)->e4m3 || ax_hf_at(hf, i)->e8m0)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: %s is stored in FP8, and config.json has no quantization_config "
                            "that says how. Use the original weights.",
                            hf->dir, ax_hf_at(hf, i)->name);
    return AX_OK;
}

/* compression_config: what llm-compressor wrote before 2025, which transformers does not read either. */
static enum ax_status refuse_old_key(struct ax_json v) {
    if (!v.v)
        return AX_OK;
    ax_json_error(v, "the old name of quantization_config; rename it in config.json");
    return AX_ERR_UNSUPPORTED;
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
    if (!q.v && doc.root)
        AX_TRY_GOTO(refuse_old_key(ax_json_get(ax_json_root(&doc), "compression_config")), st,
                    done);
    if (ax_config_is_wrapper(doc.root))
        AX_TRY_GOTO(open_wrapped(hf), st, done);
    AX_TRY_GOTO(q.v ? refuse_quantized_parts(hf) : AX_OK, st, done);
    const bool stacks = ax_hf_keeps_stacks(doc.root);
    AX_TRY_GOTO(stacks ? AX_OK : open_experts(hf, false), st, done);
    AX_TRY_GOTO(open_mxfp4(hf), st, done);
    if (hf->mxfp4 || !ax_path_is_dir(hf->dir))
        goto done;
    AX_TRY_GOTO(q.v ? open_compressed(hf, q, stacks) : AX_OK, st, done);
    AX_TRY_GOTO(refuse_bits(hf), st, done);
done:
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_hf_split_experts(struct ax_hf *hf) {
    return hf->experts.n > 0 ? AX_OK : open_experts(hf, true);
}

enum ax_status ax_hf_is_wrapper(const char *dir, bool *yes) {
    struct ax_json_doc doc = {0};
    const enum ax_status st = load_config(dir, &doc);
    *yes = ax_config_is_wrapper(doc.root);
    ax_json_free(&doc);
    return st;
}

/* ---- the embedding and the head ---- */

const char *const ax_hf_embeddings[] = {"model.embed_tokens", "backbone.embeddings", NULL};

const char *ax_hf_after_word(const char *name) {
    static const char word[] = "backbone.";
    return begins(name, word) ? name + strlen(word) : NULL;
}

const struct ax_st_entry *ax_hf_find_embedding(const struct ax_hf *hf) {
    const struct ax_st_entry *found = NULL;
    for (int i = 0; ax_hf_embeddings[i] && !found; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.weight", ax_hf_embeddings[i]);
        found = ax_hf_find(hf, name);
    }
    return found;
}

static enum ax_status open_renamed(struct ax_hf *hf) {
    const bool lacks = ax_hf_find(hf, HEAD) && !ax_hf_find_embedding(hf);
    const struct ax_st_entry **entries;
    AX_TRY(list(hf, &entries));
    const enum ax_status st =
        ax_hf_renamed_open(&hf->renamed, ax_hf_count(hf), entries, lacks ? HEAD : NULL);
    ax_free(entries);
    if (hf->renamed.n > 0) {
        hf->n_entries = hf->renamed.n;
        hf->entries = hf->renamed.entries;
    }
    return st;
}

enum ax_status ax_hf_unties(const struct ax_hf *hf, bool *yes) {
    enum { PIECE = 1 << 14 };
    const struct ax_st_entry *a = ax_hf_find_embedding(hf), *b = ax_hf_find(hf, HEAD);
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
    AX_TRY_GOTO(open_renamed(hf), st, fail);
    return AX_OK;
fail:
    ax_hf_close(hf);
    return st;
}

void ax_hf_close(struct ax_hf *hf) {
    for (int i = 0; i < hf->n_files; i++)
        ax_safetensors_close(&hf->files[i]);
    close_gguf(hf->gguf);
    close_mxfp4(hf->mxfp4);
    ax_hf_experts_close(&hf->experts);
    close_wrapped(hf->wrapped);
    ax_hf_joined_close(&hf->joined);
    if (hf->compressed)
        ax_compressed_close(hf->compressed);
    ax_free(hf->compressed);
    ax_hf_renamed_close(&hf->renamed);
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
