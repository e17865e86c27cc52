/* config.json → struct ax_arch: the part common to all families. */
#include "model/arch/arch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/hf/config.h"
#include "ckpt/hf/hf.h"
#include "model/arch/classifier.h"
#include "model/arch/family.h"
#include "model/arch/part.h"
#include "parallel/units/packed.h"

#define MAX_DIM        (1LL << 24) /* larger sizes mean a corrupted file */
#define MAX_HEAD_DIM   2048
#define MAX_PARAMETERS 1000000000000000LL
#define MAX_LAYERS     4096

static enum ax_status count_layers(struct ax_arch *a, struct ax_json c) {
    const struct ax_json n = ax_json_get(c, "num_hidden_layers");
    const struct ax_json list =
        a->family->layer_list ? ax_json_get(c, a->family->layer_list) : (struct ax_json){0};
    if (n.v || !list.v)
        return ax_json_i64(n, 1, MAX_LAYERS, &a->n_layers);
    a->n_layers = (int64_t)ax_json_size(list);
    if (a->n_layers >= 1 && a->n_layers <= MAX_LAYERS)
        return AX_OK;
    return ax_json_error(list, "%lld layers; expected 1 to %d", (long long)a->n_layers, MAX_LAYERS);
}

static enum ax_status sizes(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_i64(ax_json_get(c, "vocab_size"), 1, MAX_DIM, &a->vocab_size));
    AX_TRY(ax_json_i64(ax_json_get(c, "hidden_size"), 1, MAX_DIM, &a->hidden_size));
    if (!a->family->own_width)
        AX_TRY(ax_json_i64(ax_json_get(c, "intermediate_size"), 1, MAX_DIM, &a->intermediate_size));
    AX_TRY(count_layers(a, c));
    AX_TRY(ax_json_i64(ax_json_get(c, "num_attention_heads"), 1, 65536, &a->n_heads));
    struct ax_json kv = ax_json_get(c, "num_key_value_heads"), hd = ax_json_get(c, "head_dim");
    AX_TRY(ax_json_i64_or(kv, 1, 65536, a->n_heads, &a->n_kv_heads));
    const int64_t usual = a->family->head_dim ? a->family->head_dim : a->hidden_size / a->n_heads;
    AX_TRY(ax_json_i64_or(hd, 1, MAX_HEAD_DIM, usual, &a->head_dim));
    if (!hd.v && !a->family->head_dim && a->hidden_size % a->n_heads != 0)
        return ax_json_error(ax_json_get(c, "num_attention_heads"),
                             "%lld heads do not divide hidden_size %lld, and head_dim is missing",
                             (long long)a->n_heads, (long long)a->hidden_size);
    if (a->head_dim > MAX_HEAD_DIM)
        return ax_json_error(
            ax_json_get(c, "num_attention_heads"),
            "%lld heads of hidden_size %lld have %lld elements each; at most %d are supported",
            (long long)a->n_heads, (long long)a->hidden_size, (long long)a->head_dim, MAX_HEAD_DIM);
    if (a->n_heads % a->n_kv_heads != 0)
        return ax_json_error(kv, "%lld KV heads do not divide %lld attention heads",
                             (long long)a->n_kv_heads, (long long)a->n_heads);
    a->v_head_dim = a->head_dim;
    return ax_json_i64_or(ax_json_get(c, "max_position_embeddings"), 1, INT32_MAX, 2048,
                          &a->max_positions);
}

static enum ax_storage storage_of(const struct ax_compressed_format *f) {
    const bool gptq = f->form == AX_FORM_GPTQ && f->bits == 4 && f->symmetric && !f->ordered &&
                      f->block % AX_INT4_BLOCK == 0;
    return gptq                                                 ? AX_STORAGE_INT4
           : f->form == AX_FORM_BNB8                            ? AX_STORAGE_INT8
           : f->form == AX_FORM_BNB4 && f->kind == AX_QUANT_NF4 ? AX_STORAGE_NF4
                                                                : AX_STORAGE_PLAIN;
}

/* Quantized checkpoints, which are dequantized while they are read. */
static enum ax_status quantized(struct ax_arch *a, struct ax_json q) {
    const char *method;
    struct ax_compressed_formats formats;
    if (!q.v)
        return AX_OK;
    AX_TRY(ax_json_str_or(ax_json_get(q, "quant_method"), "", &method));
    snprintf(a->quant_method, sizeof a->quant_method, "%s", method);
    if (strcmp(method, "mxfp4") == 0) /* ckpt/hf/hf.h */
        return AX_OK;
    AX_TRY(ax_compressed_parse(q, &formats));
    a->quantizes_input = ax_compressed_inputs(q, &a->input);
    a->unfollowed = ax_compressed_unfollowed(q);
    const struct ax_compressed_format *format = &formats.of[0]; /* those that are kept are alone */
    if (format->form == AX_FORM_BNB4 || format->form == AX_FORM_BNB8)
        snprintf(a->quant_method, sizeof a->quant_method, "bitsandbytes");
    a->codes = storage_of(format);
    return AX_OK;
}

/* Rejects settings that change the result but that no layer here implements. */
static enum ax_status refuse_unknown_math(struct ax_arch *a, struct ax_json c) {
    double dropout;
    bool causal;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "is_causal"), true, &causal));
    if (!causal) {
        ax_json_error(ax_json_get(c, "is_causal"), "attention to later tokens is not implemented");
        return AX_ERR_UNSUPPORTED;
    }
    AX_TRY(ax_json_f64_or(ax_json_get(c, "attention_dropout"), 0, &dropout));
    if (dropout != 0 && !a->family->has_dropout) {
        ax_json_error(ax_json_get(c, "attention_dropout"),
                      "attention dropout %g is not implemented; set it to 0", dropout);
        return AX_ERR_UNSUPPORTED;
    }
    return quantized(a, ax_json_get(c, "quantization_config"));
}

static enum ax_status dtype(struct ax_arch *a, struct ax_json c) {
    struct ax_json v = ax_json_get(c, "dtype");
    if (!v.v)
        v = ax_json_get(c, "torch_dtype");
    const char *name;
    AX_TRY(ax_json_str_or(v, "float32", &name));
    if (ax_dtype_parse(name, &a->dtype) != AX_OK || !ax_dtype_info(a->dtype)->is_float)
        return ax_json_error(v, "\"%s\" is not a floating-point type", name);
    return AX_OK;
}

/* nn.Embedding counts a negative padding_idx from the end of the vocabulary; no token of a text is equal to
 * a negative one. */
static enum ax_status pad_token(struct ax_arch *a, struct ax_json c) {
    int64_t id;
    const struct ax_json v = ax_json_get(c, "pad_token_id");
    a->pad_token = a->score_pad = -1;
    if (!v.v)
        return AX_OK;
    AX_TRY(ax_json_i64(v, -a->vocab_size, INT32_MAX, &id));
    if (id >= a->vocab_size)
        return ax_json_error(v, "id %lld is outside the vocabulary of %lld", (long long)id,
                             (long long)a->vocab_size);
    a->pad_token = (int32_t)(id < 0 ? id + a->vocab_size : id);
    a->score_pad = (int32_t)(id < 0 ? -1 : id);
    return AX_OK;
}

static enum ax_status layers(struct ax_arch *a) {
    AX_TRY(ax_alloc(&a->layers, (size_t)a->n_layers, sizeof *a->layers));
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i] = (struct ax_layer_spec){
            .mixer = &ax_mixer_attention,
            .ffn = &ax_ffn_swiglu,
            .mixer_norms = {.in = "model.layers.%d.input_layernorm.weight"},
            .ffn_norms = {.in = "model.layers.%d.post_attention_layernorm.weight"}};
    return AX_OK;
}

/* Elements of what predicts and corrects a layer's streams (model/parts/altup.h). */
static struct ax_part_size altup_size(const struct ax_arch *a) {
    const int64_t n = a->streams.n, matrices = n * a->hidden_size + n * n * n + n * n;
    return n > 0 ? (struct ax_part_size){matrices, matrices, 2 * a->hidden_size}
                 : (struct ax_part_size){0};
}

/* Elements of a layer's parameters. */
static struct ax_part_size layer_size(const struct ax_arch *a, int64_t layer) {
    const struct ax_layer_spec *spec = &a->layers[layer];
    const struct {
        const struct ax_part_type *type;
        const struct ax_norm_names *norms;
    } branches[] = {{spec->mixer, &spec->mixer_norms},
                    {spec->ffn, &spec->ffn_norms},
                    {spec->extra, &spec->extra_norms}};
    struct ax_part_size sum = altup_size(a);
    for (size_t i = 0; i < sizeof branches / sizeof *branches; i++) {
        const struct ax_norm_names *norms = branches[i].norms;
        if (!branches[i].type)
            continue;
        const struct ax_part_size part = branches[i].type->size(a, spec);
        sum.matrices += part.matrices;
        sum.active += part.active;
        sum.vectors += part.vectors + ((norms->in != NULL) + (norms->out != NULL)) * a->hidden_size;
    }
    if (spec->predicts) { /* eh_proj; enorm, hnorm, shared_head.norm */
        sum.matrices += 2 * a->hidden_size * a->hidden_size;
        sum.active += 2 * a->hidden_size * a->hidden_size;
        sum.vectors += 3 * a->hidden_size;
    }
    return sum;
}

/* Sizes that are valid individually may overflow together. */
static enum ax_status check_total(const struct ax_arch *a, struct ax_json c) {
    int64_t largest = 0;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_part_size size = layer_size(a, i);
        const int64_t n = size.matrices + size.vectors;
        largest = n > largest ? n : largest;
    }
    if (largest > MAX_PARAMETERS / a->n_layers)
        return ax_json_error(ax_json_get(c, "num_hidden_layers"),
                             "these sizes result in more than %lld parameters", MAX_PARAMETERS);
    return AX_OK;
}

/* False if the config says that no layer has rope, so that heads may be of any size. */
static bool rotates(struct ax_json c) {
    const json_t *positions = json_object_get(c.v, "position_embedding_type");
    const char *word = json_string_value(positions);
    return !positions || (word && strcmp(word, "nope") != 0);
}

/* Writes the family's usual rope_parameters into a config that has none, so that all who read them find them. */
static enum ax_status complete_rope(const struct ax_family *family, struct ax_json c) {
    struct ax_json rope;
    if (!family->rope.parameters)
        return AX_OK;
    AX_TRY(ax_rope_object(c, &rope));
    if (!rope.v && json_object_set_new((json_t *)(uintptr_t)c.v, "rope_parameters",
                                       json_loads(family->rope.parameters, 0, NULL)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for rope_parameters");
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const char *type;
    AX_TRY(ax_json_str(ax_json_get(c, "model_type"), &type));
    a->family = ax_family_find(type);
    if (!a->family) {
        char missing[400];
        const char *near = ax_family_nearest(type);
        ax_json_error(
            ax_json_get(c, "model_type"),
            "\"%.64s\" is not supported%s%s%s; `axtrain config models` lists those that are", type,
            near ? "; the nearest is " : "", near ? near : "",
            ax_family_missing(c, missing, sizeof missing));
        return AX_ERR_UNSUPPORTED;
    }
    AX_TRY(sizes(a, c));
    AX_TRY(refuse_unknown_math(a, c));
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-6));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), false, &a->tied));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "initializer_range"), 0.02, &a->init_range));
    AX_TRY(dtype(a, c));
    AX_TRY(pad_token(a, c));
    AX_TRY(complete_rope(a->family, c));
    const int64_t odd = rotates(c) ? 0 : a->head_dim % 2;
    if (!a->family->own_rope)
        AX_TRY(ax_rope_parse(&a->rope, c, a->family->rope, a->head_dim + odd, a->max_positions));
    a->softmax_scale = 1 / sqrt((double)a->head_dim);
    a->embedding_scale = a->residual_scale = a->middle_scale = a->logit_scale = a->value_scale = 1;
    a->mlp_scale[0] = a->mlp_scale[1] = 1;
    a->q_norm = "model.layers.%d.self_attn.q_norm.weight";
    a->k_norm = "model.layers.%d.self_attn.k_norm.weight";
    const char *act = json_string_value(json_object_get(c.v, "hidden_act"));
    if (!act || !a->family->own_act || strcmp(act, a->family->own_act) != 0)
        AX_TRY(ax_activation_parse(a, c, "hidden_act", "silu"));
    AX_TRY(layers(a));
    AX_TRY(a->family->parse(a, c));
    AX_TRY(ax_classifier_parse(a, c));
    if (a->classifier) { /* its scores are no logits of tokens */
        a->logit_scale = 1;
        a->logit_softcap = 0;
    }
    return check_total(a, c);
}

enum ax_status ax_arch_parse(struct ax_arch *arch, struct ax_json config) {
    *arch = (struct ax_arch){0};
    enum ax_status st = parse(arch, config);
    if (st != AX_OK)
        ax_arch_free(arch);
    return st;
}

bool ax_arch_path_is_config(const char *path) {
    return ax_path_ends_in(path, ".json");
}

enum ax_status ax_arch_parse_file(struct ax_arch *arch, struct ax_json_doc *doc, json_t *fields) {
    const struct ax_wrapper *wrapper;
    struct ax_json text;
    *arch = (struct ax_arch){0};
    AX_TRY(ax_wrapper_open(doc, &text, &wrapper));
    AX_TRY(ax_arch_override((json_t *)text.v, fields, doc->name));
    AX_TRY(ax_arch_parse(arch, text));
    arch->wrapper = wrapper;
    return AX_OK;
}

const char *ax_arch_type(const struct ax_arch *a, char *buf, size_t size) {
    snprintf(buf, size, "%s%s%s", a->family->model_type, a->wrapper ? " in " : "",
             a->wrapper ? a->wrapper->model_type : "");
    return buf;
}

enum ax_status ax_arch_load(struct ax_arch *arch, const char *path) {
    return ax_arch_load_with(arch, path, NULL);
}

static enum ax_status refuse_missing(const char *dir) {
    if (ax_peft_is_folder(dir))
        return ax_error(AX_ERR_CONFIG,
                        "%s: this folder contains an adapter, not a model: config.json is "
                        "missing. Give its base model here and this folder as the adapter.",
                        dir);
    char below[NAME_MAX + 1];
    AX_TRY(ax_hf_refuse_own_form(dir));
    AX_TRY(ax_dir_with(dir, "config.json", below));
    if (below[0])
        return ax_error(AX_ERR_IO, "%s: config.json is missing, but %s/%s has one: give that", dir,
                        dir, below);
    return ax_error(AX_ERR_IO, "%s/config.json: cannot open: %s", dir, strerror(ENOENT));
}

/* A tied model whose folder has a head of its own, as some merges leave it, has that head (transformers, too,
 * keeps it). */
static enum ax_status look_at_head(struct ax_arch *arch, const char *dir) {
    struct ax_hf hf;
    if (!arch->tied || arch->classifier)
        return AX_OK;
    enum ax_status st = ax_hf_open(&hf, dir);
    if (st != AX_OK && st != AX_ERR_NOMEM) { /* whoever needs the weights will say so */
        ax_error_clear();
        return AX_OK;
    }
    AX_TRY(st);
    st = ax_hf_unties(&hf, &arch->unties);
    ax_hf_close(&hf);
    arch->tied = !arch->unties;
    if (arch->unties)
        ax_log_info(
            "%s: lm_head.weight is kept, though tie_word_embeddings is true: it differs from "
            "the embedding",
            dir);
    return st;
}

enum ax_status ax_arch_load_with(struct ax_arch *arch, const char *path, json_t *fields) {
    *arch = (struct ax_arch){0};
    struct ax_json_doc doc = {0};
    enum ax_status st;
    if (ax_arch_path_is_config(path)) {
        AX_TRY_GOTO(ax_hf_config_read(&doc, path), st, done);
    } else {
        AX_TRY_GOTO(ax_folder_recover(path), st, done);
        AX_TRY_GOTO(ax_hf_config_load(&doc, path), st, done);
        AX_TRY_GOTO(doc.root ? AX_OK : refuse_missing(path), st, done);
    }
    AX_TRY_GOTO(ax_arch_parse_file(arch, &doc, fields), st, done);
    if (!ax_arch_path_is_config(path))
        AX_TRY_GOTO(look_at_head(arch, path), st, done);
done:
    ax_json_free(&doc);
    return st;
}

void ax_arch_free(struct ax_arch *arch) {
    ax_free(arch->layers);
    *arch = (struct ax_arch){0};
}

static bool alike(const struct ax_layer_spec *a, const struct ax_layer_spec *b) {
    const struct ax_norm_names *x[] = {&a->mixer_norms, &a->ffn_norms, &a->extra_norms},
                               *y[] = {&b->mixer_norms, &b->ffn_norms, &b->extra_norms};
    bool same = a->mixer == b->mixer && a->ffn == b->ffn && a->window == b->window &&
                a->chunked == b->chunked && a->rope == b->rope &&
                a->own_queries == b->own_queries && a->sinks == b->sinks &&
                a->parallel == b->parallel && a->kv_heads == b->kv_heads &&
                a->head_dim == b->head_dim && a->width == b->width &&
                a->values_of_keys == b->values_of_keys && a->lends == b->lends &&
                a->borrows == b->borrows && a->source == b->source && a->extra == b->extra &&
                a->predicts == b->predicts && a->sparse == b->sparse && a->cut == b->cut;
    for (int i = 0; i < 3; i++) /* names are literals */
        same = same && x[i]->in == y[i]->in && x[i]->out == y[i]->out;
    return same;
}

enum ax_status ax_arch_kinds(const struct ax_arch *arch, bool each, struct ax_arch *kinds,
                             int *as) {
    *kinds = *arch;
    kinds->n_layers = 0;
    AX_TRY(ax_alloc(&kinds->layers, (size_t)arch->n_layers, sizeof *kinds->layers));
    for (int64_t i = 0; i < arch->n_layers; i++) {
        int64_t k = each ? i : 0;
        struct ax_layer_spec spec = arch->layers[i];
        if (spec.borrows)
            spec.source = as[spec.source];
        while (k < kinds->n_layers && !alike(&kinds->layers[k], &spec))
            k++;
        if (k == kinds->n_layers)
            kinds->layers[kinds->n_layers++] = spec;
        as[i] = (int)k;
    }
    return AX_OK;
}

enum ax_status ax_arch_check_predict(const struct ax_arch *a, const char *key) {
    const char *type = a->family->model_type;
    if (a->n_unused == 0 && !a->unused_prefix)
        return ax_error(AX_ERR_CONFIG,
                        "%s: this %s model has no layer for multi-token prediction "
                        "(num_nextn_predict_layers); remove it",
                        key, type);
    if (!a->family->predicts || a->wrapper)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: the layers for multi-token prediction of %s models are kept and "
                        "cannot be used; those of deepseek_v3 and glm4_moe can. Remove it",
                        key, type);
    if (a->n_unused > 1)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: num_nextn_predict_layers is %lld, and only one layer for multi-token "
                        "prediction can be used; remove it",
                        key, (long long)a->n_unused);
    return AX_OK;
}

/* The layer itself is as the last one. */
static void add_prediction(struct ax_arch *a) {
    struct ax_layer_spec *own = &a->layers[a->n_layers++];
    *own = own[-1];
    own->predicts = true;
    a->n_unused = 0;
}

enum ax_status ax_arch_predict(struct ax_arch *a, const char *key) {
    const size_t n = (size_t)a->n_layers;
    AX_TRY(ax_arch_check_predict(a, key));
    AX_TRY(ax_regrow(&a->layers, n, n + 1, sizeof *a->layers));
    add_prediction(a);
    return AX_OK;
}

enum ax_status ax_arch_with_prediction(const struct ax_arch *a, struct ax_arch *out) {
    const size_t n = (size_t)a->n_layers;
    struct ax_layer_spec *layers;
    AX_TRY(ax_alloc(&layers, n + 1, sizeof *layers));
    memcpy(layers, a->layers, n * sizeof *layers);
    *out = *a;
    out->layers = layers;
    add_prediction(out);
    return AX_OK;
}

const char *ax_arch_copy_name(const struct ax_arch *a, int i, char *buf, size_t size) {
    static const char *const names[AX_ARCH_COPIES] = {"embed_tokens", "shared_head.head"};
    snprintf(buf, size, "model.layers.%lld.%s.weight", (long long)a->n_layers - 1, names[i]);
    return buf;
}

struct ax_hf_unused ax_arch_unused(const struct ax_arch *a) {
    const int n = (int)a->n_layers;
    int borrowing = n;
    while (borrowing > 0 && a->layers[borrowing - 1].borrows)
        borrowing--;
    return (struct ax_hf_unused){n, n + (int)a->n_unused, a->unused_prefix,
                                 borrowing < n ? borrowing : 0};
}

bool ax_arch_keeps_dtype(const struct ax_arch *a, const char *name) {
    const struct ax_hf_unused unused = ax_arch_unused(a);
    const char *bias = a->moe.n_experts > 0 ? a->moe.names->bias : NULL;
    const char *end = bias ? strstr(bias, "%d") + strlen("%d") : name;
    const size_t n = strlen(name), m = strlen(end);
    return ax_hf_is_unused(&unused, name) || (bias && n >= m && strcmp(name + n - m, end) == 0);
}

bool ax_arch_grows_inputs(const struct ax_arch *a, int64_t size) {
    const struct ax_per_layer_config *p = &a->per_layer;
    return p->width > 0 && !p->shares_first && size > p->rows;
}

void ax_arch_grow(struct ax_arch *a, int64_t size) {
    if (ax_arch_grows_inputs(a, size)) {
        a->per_layer.stored = a->per_layer.rows;
        a->per_layer.rows = size;
    }
    a->vocab_stored = a->vocab_size;
    a->vocab_size = size;
}

static bool put_size(json_t *fields, const char *key, int64_t stored, int64_t size) {
    return stored == 0 || json_object_set_new(fields, key, json_integer((json_int_t)size)) == 0;
}

enum ax_status ax_arch_grown_fields(const struct ax_arch *a, json_t *fields) {
    const struct ax_per_layer_config *p = &a->per_layer;
    if (put_size(fields, "vocab_size", a->vocab_stored, a->vocab_size) &&
        put_size(fields, "vocab_size_per_layer_input", p->stored, p->rows))
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

int64_t ax_arch_head_rows(const struct ax_arch *a) {
    return a->classifier ? a->n_labels : a->vocab_size;
}

/* Elements of the matrices with which streams begin, or end. */
static int64_t stream_matrices(const struct ax_arch *a) {
    return a->streams.n > 0 ? (a->streams.n - 1) * a->hidden_size * a->hidden_size : 0;
}
/* Of the matrices that rows of the embedding pass through. */
static int64_t first_matrices(const struct ax_arch *a) {
    return a->hidden_size * a->per_layer.columns + stream_matrices(a);
}

int64_t ax_arch_parameters(const struct ax_arch *a) {
    int64_t n = a->hidden_size;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_part_size size = layer_size(a, i);
        n += size.matrices + size.vectors;
    }
    n += (a->vocab_size + (a->tied ? 0 : ax_arch_head_rows(a))) * a->hidden_size;
    n += a->per_layer.rows * a->per_layer.columns + a->per_layer.width;
    n += first_matrices(a) + stream_matrices(a);
    return n + (a->classifier && a->classifier->biased ? a->n_labels : 0);
}

double ax_arch_unit_flops(const struct ax_arch *a, int64_t unit, int64_t seq) {
    if (unit == 0) /* look-ups, and the projections to per-layer inputs and streams */
        return 2 * (double)(a->hidden_size + a->per_layer.columns + first_matrices(a));
    if (unit > a->n_layers) /* once more for the token after the next one */
        return 2 * (double)(ax_arch_head_rows(a) * a->hidden_size * (ax_arch_predicts(a) ? 2 : 1) +
                            stream_matrices(a));
    const struct ax_part_type *mixer = a->layers[unit - 1].mixer;
    return 2 * (double)layer_size(a, unit - 1).active +
           (mixer->mixing ? mixer->mixing(a, &a->layers[unit - 1], seq) : 0) +
           (mixer->choosing ? mixer->choosing(a, seq) : 0);
}

double ax_arch_flops_per_token(const struct ax_arch *a, int64_t seq) {
    double forward = 2 * (double)first_matrices(a), once = 0;
    for (int64_t unit = 1; unit < a->n_layers + 2; unit++)
        forward += ax_arch_unit_flops(a, unit, seq);
    for (int64_t i = 0; i < a->n_layers; i++)
        once += a->layers[i].mixer->choosing ? a->layers[i].mixer->choosing(a, seq) : 0;
    return 3 * forward - 2 * once;
}
