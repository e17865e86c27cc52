/* quantization_config of quantized folders (compressed.h), written and read. */
#include "ckpt/hf/compressed.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- quantization_config, written ---- */

/* num_bits, type … of a tensor. */
static json_t *args_of(const struct ax_number_format *f, bool dynamic) {
    const bool four =
        f->kind == AX_QUANT_INT4 || f->kind == AX_QUANT_INT4_FP8 || f->kind == AX_QUANT_NVFP4;
    const bool is_float = f->kind == AX_QUANT_FP8 || f->kind == AX_QUANT_NVFP4;
    const char *strategy = f->kind == AX_QUANT_NVFP4     ? "tensor_group"
                           : f->block > 0                ? "group"
                           : f->block == AX_BLOCK_TENSOR ? "tensor"
                           : dynamic                     ? "token"
                                                         : "channel";
    json_t *when =
        f->kind == AX_QUANT_NVFP4 && dynamic ? json_string("local") : json_boolean(dynamic);
    json_t *args =
        json_pack("{si ss sb ss so sI}", "num_bits", four ? 4 : 8, "type",
                  is_float ? "float" : "int", "symmetric", f->kind != AX_QUANT_INT8_ASYM,
                  "strategy", strategy, "dynamic", when, "group_size", (json_int_t)f->block);
    if (f->block <= 0)
        json_object_del(args, "group_size");
    return args;
}

/* The modules of a class; NULL: out of memory. */
static json_t *group_of(const struct ax_scheme *s, const char *target, bool with_inputs) {
    return json_pack("{s[s] ss so so sn}", "targets", target, "format", ax_file_form_name(s->form),
                     "weights", args_of(&s->weight, false), "input_activations",
                     with_inputs ? args_of(&s->input, true) : json_null(), "output_activations");
}

enum ax_status ax_compressed_config(const struct ax_scheme *s, json_t **out) {
    const char *format = ax_file_form_name(s->form);
    if (!format)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "scheme %s has no file form that other programs read. Nearest: %s.",
                        s->name, s->nearest);
    const char *const head = s->head ? NULL : "lm_head";
    json_t *linears = group_of(s, "Linear", s->quantizes_input),
           *groups = s->embedding ? json_pack("{so so}", "group_0", linears, "group_1",
                                              group_of(s, "Embedding", false))
                                  : json_pack("{so}", "group_0", linears);
    *out = json_pack("{ss ss ss s[s*] so}", "quant_method", "compressed-tensors", "format", format,
                     "quantization_status", "compressed", "ignore", head, "config_groups", groups);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

/* ---- quantization_config, read ---- */

static const struct {
    const char *format, *type, *strategy;
    int bits;
    enum ax_file_form form;
    enum ax_quant kind;
    int64_t block; /* > 0: group_size */
} known[] = {
    {"pack-quantized", "int", "group", 4, AX_FORM_PACKED, AX_QUANT_INT4, 1},
    {"pack-quantized", "int", "channel", 4, AX_FORM_PACKED, AX_QUANT_INT4, AX_BLOCK_ROW},
    {"pack-quantized", "int", "group", 8, AX_FORM_PACKED, AX_QUANT_INT8, 1},
    {"pack-quantized", "int", "channel", 8, AX_FORM_PACKED, AX_QUANT_INT8, AX_BLOCK_ROW},
    {"int-quantized", "int", "group", 4, AX_FORM_INT8, AX_QUANT_INT4, 1},
    {"int-quantized", "int", "channel", 4, AX_FORM_INT8, AX_QUANT_INT4, AX_BLOCK_ROW},
    {"int-quantized", "int", "group", 8, AX_FORM_INT8, AX_QUANT_INT8, 1},
    {"int-quantized", "int", "channel", 8, AX_FORM_INT8, AX_QUANT_INT8, AX_BLOCK_ROW},
    {"int-quantized", "int", "tensor", 8, AX_FORM_INT8, AX_QUANT_INT8, AX_BLOCK_TENSOR},
    {"float-quantized", "float", "channel", 8, AX_FORM_FLOAT, AX_QUANT_FP8, AX_BLOCK_ROW},
    {"float-quantized", "float", "tensor", 8, AX_FORM_FLOAT, AX_QUANT_FP8, AX_BLOCK_TENSOR},
    {"nvfp4-pack-quantized", "float", "tensor_group", 4, AX_FORM_NVFP4, AX_QUANT_NVFP4, 1},
    {"mxfp4-pack-quantized", "float", "group", 4, AX_FORM_NVFP4, AX_QUANT_MXFP4, 1},
    {"mxfp8-quantized", "float", "group", 8, AX_FORM_FLOAT, AX_QUANT_MXFP8, 1},
};

/* compressed-tensors calls both int-quantized and float-quantized so where nothing says that activations are quantized. */
static const char *usual_name(const char *format, const char *type) {
    if (strcmp(format, "naive-quantized") != 0)
        return format;
    return strcmp(type, "float") == 0 ? "float-quantized" : "int-quantized";
}

static enum ax_status refuse(struct ax_json v, const char *what, const char *supported) {
    ax_json_error(v, "%s. Supported: %s. Use the original weights", what, supported);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status unsupported(struct ax_json v, const char *what) {
    return refuse(v, what,
                  "compressed-tensors' pack-quantized (int4, int8), int-quantized, float-quantized "
                  "(fp8), nvfp4-pack-quantized, mxfp4-pack-quantized and mxfp8-quantized; fp8; "
                  "Model Optimizer's FP8 and NVFP4; GPTQ; AWQ; AutoRound; bitsandbytes");
}

/* Codes in bytes of their own have the same values with any number of bits, so more of them fit all. */
static bool add_format(struct ax_compressed_formats *all, const struct ax_compressed_format *f) {
    for (int i = 0; i < all->n; i++) {
        struct ax_compressed_format *g = &all->of[i];
        if (g->form != f->form || g->bits != f->bits || g->block != f->block ||
            g->rows != f->rows || g->offset != f->offset ||
            (g->kind != f->kind && f->form != AX_FORM_INT8))
            continue;
        if (g->kind != f->kind)
            g->kind = AX_QUANT_INT8;
        return true;
    }
    if (all->n < AX_COMPRESSED_FORMATS)
        all->of[all->n++] = *f;
    else
        return false;
    return true;
}

static const char gptq[] = "GPTQ of 4 or 8 bits, with checkpoint_format gptq or gptq_v2",
                  awq[] = "AWQ of 4 bits in the layout gemm, AutoAWQ's usual one";

/* A setting of some modules, else the folder's. */
static struct ax_json setting(struct ax_json own, struct ax_json config, const char *key) {
    const struct ax_json v = ax_json_get(own, key);
    return v.v ? v : ax_json_get(config, key);
}

static enum ax_status add_gptq(struct ax_json own, struct ax_json config, bool second,
                               struct ax_compressed_formats *out) {
    const struct ax_json size = setting(own, config, "group_size");
    int64_t bits, group;
    bool ordered, symmetric;
    AX_TRY(ax_json_i64(setting(own, config, "bits"), 1, 32, &bits));
    AX_TRY(ax_json_i64_or(size, -1, 1 << 20, 128, &group));
    AX_TRY(ax_json_bool_or(setting(own, config, "desc_act"), false, &ordered));
    AX_TRY(ax_json_bool_or(setting(own, config, "sym"), true, &symmetric));
    if (bits != 4 && bits != 8)
        return refuse(setting(own, config, "bits"), "this number of bits is not supported", gptq);
    if (group == 0)
        return ax_json_error(size, "expected a size, or -1 for one group of each row");
    const struct ax_compressed_format f = {.form = AX_FORM_GPTQ,
                                           .kind = bits == 4 ? AX_QUANT_INT4 : AX_QUANT_INT8,
                                           .bits = (int)bits,
                                           .block = group > 0 ? group : AX_BLOCK_ROW,
                                           .zero_offset = second ? 0 : 1,
                                           .ordered = ordered,
                                           .symmetric = symmetric};
    return add_format(out, &f) ? AX_OK : refuse(own, "this many formats are not supported", gptq);
}

/* `dynamic` has settings of modules by their names; "-:" begins those that are not quantized, whose tensors say so. */
static enum ax_status parse_gptq(struct ax_json config, struct ax_compressed_formats *out) {
    const struct ax_json dynamic = ax_json_get(config, "dynamic");
    const char *format, *rotation, *key;
    json_t *v;
    AX_TRY(ax_json_str_or(ax_json_get(config, "format"), "gptq", &format)); /* its newer name */
    AX_TRY(ax_json_str_or(ax_json_get(config, "checkpoint_format"), format, &format));
    AX_TRY(ax_json_str_or(ax_json_get(config, "rotation"), "", &rotation));
    const bool second = strcmp(format, "gptq_v2") == 0;
    if (!second && strcmp(format, "gptq") != 0)
        return refuse(config, "this checkpoint_format is not supported", gptq);
    if (*rotation)
        return refuse(ax_json_get(config, "rotation"), "rotations of activations are not supported",
                      gptq);
    AX_TRY(add_gptq(config, config, second, out));
    json_object_foreach((json_t *)dynamic.v, key, v) {
        if (strncmp(key, "-:", 2) != 0)
            AX_TRY(add_gptq(ax_json_get(dynamic, key), config, second, out));
    }
    return AX_OK;
}

/* In `dynamic`, as for GPTQ. */
static enum ax_status refuse_formats_of_modules(struct ax_json config) {
    const struct ax_json dynamic = ax_json_get(config, "dynamic");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)dynamic.v, key, v) {
        if (strncmp(key, "-:", 2) != 0 && json_object_size(v) > 0)
            return refuse(ax_json_get(dynamic, key),
                          "modules with formats of their own are not supported", awq);
    }
    return AX_OK;
}

/* Of the newer name of its layout, too; autoawq has it in capitals. */
static enum ax_status parse_awq(struct ax_json config, struct ax_compressed_formats *out) {
    int64_t bits, group;
    const char *format, *backend;
    AX_TRY(ax_json_i64(ax_json_get(config, "bits"), 1, 32, &bits));
    AX_TRY(ax_json_i64_or(ax_json_get(config, "group_size"), -1, 1 << 20, 128, &group));
    AX_TRY(ax_json_str_or(ax_json_get(config, "format"), "gemm", &format));
    AX_TRY(ax_json_str_or(ax_json_get(config, "version"), format, &format));
    AX_TRY(ax_json_str_or(ax_json_get(config, "backend"), "", &backend));
    if (bits != 4)
        return refuse(ax_json_get(config, "bits"), "this number of bits is not supported", awq);
    if (group == 0)
        return ax_json_error(ax_json_get(config, "group_size"),
                             "expected a size, or -1 for one group of each row");
    if (strcasecmp(format, "gemm") != 0)
        return refuse(ax_json_get(config, ax_json_get(config, "version").v ? "version" : "format"),
                      "this layout is not supported", awq);
    if (strcmp(backend, "llm-awq") == 0)
        return refuse(ax_json_get(config, "backend"), "its layout is not supported", awq);
    AX_TRY(refuse_formats_of_modules(config));
    out->of[out->n++] = (struct ax_compressed_format){.form = AX_FORM_AWQ,
                                                      .kind = AX_QUANT_INT4,
                                                      .bits = 4,
                                                      .block = group > 0 ? group : AX_BLOCK_ROW};
    return AX_OK;
}

/* e4m3 in blocks of [rows, columns]. */
static enum ax_status parse_blocks(struct ax_json size, struct ax_compressed_format *out) {
    if (ax_json_size(size) != 2)
        return ax_json_error(size, "expected [rows, columns]");
    *out = (struct ax_compressed_format){.form = AX_FORM_FLOAT,
                                         .kind = AX_QUANT_FP8,
                                         .bits = 8,
                                         .inverse = out->inverse,
                                         .divides = out->divides};
    AX_TRY(ax_json_i64(ax_json_at(size, 0), 1, 1 << 20, &out->rows));
    return ax_json_i64(ax_json_at(size, 1), 1, 1 << 20, &out->block);
}

/* GPTQModel says how many scales there are, and that values are divided by them. */
static enum ax_status parse_scales(struct ax_json config, struct ax_compressed_format *out) {
    const char *method, *semantics;
    AX_TRY(ax_json_str_or(ax_json_get(config, "weight_scale_method"), "", &method));
    AX_TRY(ax_json_str_or(ax_json_get(config, "weight_scale_semantics"), "", &semantics));
    if (*semantics && strcmp(semantics, "inverse") != 0)
        return unsupported(ax_json_get(config, "weight_scale_semantics"),
                           "this meaning of scales is not supported");
    const bool by_row = strcmp(method, "row") == 0;
    out->divides = *semantics != '\0';
    if (by_row || strcmp(method, "tensor") == 0) {
        out->block = by_row ? AX_BLOCK_ROW : AX_BLOCK_TENSOR;
        out->rows = 0;
    }
    return AX_OK;
}

/* DeepSeek's, by blocks, and Mistral's, of one scale: its weight_block_size is null, and one that is missing 128 by
 * 128, as in transformers; and GPTQModel's. */
static enum ax_status parse_fp8(struct ax_json config, struct ax_compressed_formats *out) {
    const char *fmt;
    AX_TRY(ax_json_str_or(ax_json_get(config, "fmt"), "e4m3", &fmt));
    if (strcmp(fmt, "e4m3") != 0)
        return unsupported(ax_json_get(config, "fmt"), "this format of fp8 is not supported");
    const json_t *size = json_object_get(config.v, "weight_block_size");
    struct ax_compressed_format *f = &out->of[out->n++];
    *f = (struct ax_compressed_format){.form = AX_FORM_FLOAT,
                                       .kind = AX_QUANT_FP8,
                                       .bits = 8,
                                       .block = size ? AX_BLOCK_TENSOR : 128,
                                       .rows = size ? 0 : 128,
                                       .inverse = true};
    AX_TRY(parse_scales(config, f));
    return !size || json_is_null(size) ? AX_OK
                                       : parse_blocks(ax_json_get(config, "weight_block_size"), f);
}

/* A group's own format is that of its modules; where there is none, `format` is. */
static enum ax_status parse_group(struct ax_json group_of, const char *format,
                                  struct ax_compressed_format *out) {
    const struct ax_json w = ax_json_get(group_of, "weights");
    const char *type, *strategy;
    int64_t bits, group;
    bool symmetric;
    if (!w.v)
        return unsupported(group_of, "expected weights in each group of config_groups");
    AX_TRY(ax_json_str_or(ax_json_get(group_of, "format"), format, &format));
    AX_TRY(ax_json_i64(ax_json_get(w, "num_bits"), 1, 16, &bits));
    AX_TRY(ax_json_str_or(ax_json_get(w, "type"), "int", &type));
    AX_TRY(ax_json_bool_or(ax_json_get(w, "symmetric"), true, &symmetric));
    AX_TRY(ax_json_i64_or(ax_json_get(w, "group_size"), -1, 1 << 20, 0, &group));
    AX_TRY(ax_json_str_or(ax_json_get(w, "strategy"), group > 0 ? "group" : "channel", &strategy));
    format = usual_name(format, type);
    if (symmetric && bits == 8 && strcmp(format, "float-quantized") == 0 &&
        strcmp(type, "float") == 0 && strcmp(strategy, "block") == 0) {
        out->inverse = false;
        return parse_blocks(ax_json_get(w, "block_structure"), out);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].format, format) != 0 || strcmp(known[i].type, type) != 0 ||
            strcmp(known[i].strategy, strategy) != 0 || known[i].bits != bits ||
            (known[i].block > 0 && group < 1) ||
            (!symmetric && (strcmp(type, "int") != 0 || known[i].block == AX_BLOCK_TENSOR)))
            continue;
        *out =
            (struct ax_compressed_format){.form = known[i].form,
                                          .kind = known[i].kind,
                                          .bits = known[i].form == AX_FORM_INT8 ? 8 : known[i].bits,
                                          .block = known[i].block > 0 ? group : known[i].block,
                                          .offset = !symmetric};
        return AX_OK;
    }
    return unsupported(w, "this format of weights is not supported");
}

/* Rotations of activations (SpinQuant, QuIP), whose inverses are in the weights; those of weights are done. */
static enum ax_status refuse_rotations(struct ax_json config) {
    const struct ax_json groups =
        ax_json_get(ax_json_get(config, "transform_config"), "config_groups");
    const char *key, *location;
    json_t *group;
    json_object_foreach((json_t *)groups.v, key, group) {
        const struct ax_json list = ax_json_get(ax_json_get(groups, key), "apply");
        for (size_t i = 0; i < ax_json_size(list); i++) {
            const struct ax_json at = ax_json_get(ax_json_at(list, i), "location");
            AX_TRY(ax_json_str(at, &location));
            if (strcmp(location, "weight_input") != 0 && strcmp(location, "weight_output") != 0)
                return unsupported(at, "transforms of activations are not supported");
        }
    }
    return AX_OK;
}

static enum ax_status parse_groups(struct ax_json config, struct ax_compressed_formats *out) {
    AX_TRY(refuse_rotations(config));
    const struct ax_json groups = ax_json_get(config, "config_groups");
    const char *key, *format;
    json_t *v;
    AX_TRY(ax_json_str(ax_json_get(config, "format"), &format));
    json_object_foreach((json_t *)groups.v, key, v) {
        struct ax_compressed_format f = {0};
        AX_TRY(parse_group(ax_json_get(groups, key), format, &f));
        if (!add_format(out, &f))
            return unsupported(ax_json_get(groups, key), "this many formats are not supported");
    }
    return out->n > 0 ? AX_OK
                      : unsupported(config, "expected a group in config_groups, with weights");
}

/* ---- Model Optimizer ---- */

static const struct algorithm {
    const char *name;
    bool quantizes_input;
    struct ax_compressed_format format;
} algorithms[] = {
#define AS(FORM, KIND, BITS, BLOCK)                                                                \
    { .form = AX_FORM_##FORM, .kind = AX_QUANT_##KIND, .bits = (BITS), .block = (BLOCK) }
    {"FP8", true, AS(FLOAT, FP8, 8, AX_BLOCK_TENSOR)},
    {"FP8_PER_CHANNEL_PER_TOKEN", true, AS(FLOAT, FP8, 8, AX_BLOCK_ROW)},
    {"MXFP8", true, AS(FLOAT, MXFP8, 8, 32)},
    {"NVFP4", true, AS(MODELOPT4, NVFP4_ONE, 4, 16)},
    {"W4A16_NVFP4", false, AS(MODELOPT4, NVFP4_ONE, 4, 16)},
    {"W4A8_MXFP4_FP8", true, AS(MODELOPT4, MXFP4, 4, 32)},
#undef AS
};

static const char modelopt[] =
    "Model Optimizer's FP8, FP8_PER_CHANNEL_PER_TOKEN, MXFP8, NVFP4, W4A16_NVFP4 and "
    "W4A8_MXFP4_FP8, and MIXED_PRECISION of these";

static const struct algorithm *find_algorithm(const char *name) {
    for (size_t i = 0; name && i < sizeof algorithms / sizeof *algorithms; i++)
        if (strcasecmp(name, algorithms[i].name) == 0) /* some versions write small letters */
            return &algorithms[i];
    return NULL;
}

static enum ax_status add_algorithm(struct ax_json of, struct ax_compressed_formats *out) {
    const struct ax_json v = ax_json_get(of, "quant_algo");
    const char *name;
    AX_TRY(ax_json_str(v, &name));
    const struct algorithm *a = find_algorithm(name);
    if (!a)
        return refuse(v,
                      "this quant_algo (of config.json or hf_quant_config.json) is not supported",
                      modelopt);
    add_format(out, &a->format); /* algorithms are fewer than formats */
    return AX_OK;
}

/* hf_quant_config.json, and some folders' config.json, have the settings in `quantization`. */
static struct ax_json settings_of(struct ax_json config) {
    const struct ax_json inner = ax_json_get(config, "quantization");
    return inner.v ? inner : config;
}

static enum ax_status parse_modelopt(struct ax_json config, struct ax_compressed_formats *out) {
    config = settings_of(config);
    const struct ax_json layers = ax_json_get(config, "quantized_layers");
    const char *name, *key;
    json_t *v;
    AX_TRY(ax_json_str_or(ax_json_get(config, "quant_algo"), "", &name));
    if (strcasecmp(name, "MIXED_PRECISION") != 0 || ax_json_size(layers) == 0)
        return add_algorithm(config, out);
    json_object_foreach((json_t *)layers.v, key, v)
        AX_TRY(add_algorithm(ax_json_get(layers, key), out));
    return AX_OK;
}

/* ---- AutoRound ---- */

static const char auto_round[] =
    "AutoRound's integers of 4 or 8 bits as auto_round:auto_gptq, auto_round:gptqmodel or "
    "auto_round, and of 4 as auto_round:auto_awq";

/* A matrix's settings, of which `of` has those that differ from the folder's. */
static enum ax_status add_rounded(struct ax_json of, struct ax_json config,
                                  struct ax_compressed_formats *out) {
    static const struct {
        const char *packing;
        enum ax_file_form form;
        unsigned zero_offset;
    } packings[] = {{"auto_round:auto_gptq", AX_FORM_GPTQ, 1},
                    {"auto_round:gptqmodel", AX_FORM_GPTQ, 0},
                    {"auto_round", AX_FORM_GPTQ, 0},
                    {"auto_round:auto_awq", AX_FORM_AWQ, 0}};
    int64_t bits, group;
    const char *packing, *type;
    AX_TRY(ax_json_i64(setting(of, config, "bits"), 1, 32, &bits));
    AX_TRY(ax_json_i64_or(setting(of, config, "group_size"), -1, 1 << 20, 128, &group));
    AX_TRY(ax_json_str_or(setting(of, config, "data_type"), "int", &type));
    AX_TRY(ax_json_str_or(ax_json_get(config, "packing_format"), "", &packing));
    if (bits >= 16) /* not quantized */
        return AX_OK;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        const bool eight = packings[i].form == AX_FORM_GPTQ;
        if (strcmp(packing, packings[i].packing) != 0 || strcmp(type, "int") != 0 || group == 0 ||
            (bits != 4 && (bits != 8 || !eight)))
            continue;
        const struct ax_compressed_format f = {.form = packings[i].form,
                                               .kind = bits == 4 ? AX_QUANT_INT4 : AX_QUANT_INT8,
                                               .bits = (int)bits,
                                               .block = group > 0 ? group : AX_BLOCK_ROW,
                                               .zero_offset = packings[i].zero_offset};
        return add_format(out, &f) ? AX_OK
                                   : refuse(of, "this many formats are not supported", auto_round);
    }
    return refuse(of, "this format is not supported", auto_round);
}

static enum ax_status parse_auto_round(struct ax_json config, struct ax_compressed_formats *out) {
    const struct ax_json others = ax_json_get(config, "extra_config");
    const char *key;
    json_t *v;
    AX_TRY(add_rounded(config, config, out));
    json_object_foreach((json_t *)others.v, key, v)
        AX_TRY(add_rounded(ax_json_get(others, key), config, out));
    return out->n > 0 ? AX_OK : refuse(config, "expected bits below 16", auto_round);
}

/* ---- bitsandbytes ---- */

static const char bnb[] = "bitsandbytes", four_bits[] = "load_in_4bit",
                  eight_bits[] = "load_in_8bit";

/* Matrices say the rest themselves, and those that are not quantized are numbers. */
static enum ax_status parse_bnb(struct ax_json config, struct ax_compressed_formats *out) {
    bool four, eight;
    const char *type;
    AX_TRY(ax_json_bool_or(ax_json_get(config, four_bits), false, &four));
    AX_TRY(ax_json_bool_or(ax_json_get(config, eight_bits), false, &eight));
    AX_TRY(ax_json_str_or(ax_json_get(config, "bnb_4bit_quant_type"), "fp4", &type));
    if (four == eight)
        return ax_json_error(config, "expected one of load_in_4bit and load_in_8bit to be true");
    out->of[out->n++] =
        (struct ax_compressed_format){.form = four ? AX_FORM_BNB4 : AX_FORM_BNB8,
                                      .kind = eight                      ? AX_QUANT_INT8
                                              : strcmp(type, "nf4") == 0 ? AX_QUANT_NF4
                                                                         : AX_QUANT_COUNT,
                                      .bits = four ? 4 : 8};
    return AX_OK;
}

/* ---- all ---- */

/* As transformers does, which once wrote no quant_method here. */
static bool is_bnb(struct ax_json config) {
    return json_is_true(json_object_get(config.v, four_bits)) ||
           json_is_true(json_object_get(config.v, eight_bits));
}

enum ax_status ax_compressed_parse(struct ax_json config, struct ax_compressed_formats *out) {
    static const struct {
        const char *method;
        enum ax_status (*parse)(struct ax_json config, struct ax_compressed_formats *out);
    } methods[] = {{"compressed-tensors", parse_groups},
                   {"fp8", parse_fp8},
                   {"modelopt", parse_modelopt},
                   {"gptq", parse_gptq},
                   {"awq", parse_awq},
                   {"auto-round", parse_auto_round},
                   {"intel/auto-round", parse_auto_round},
                   {bnb, parse_bnb}};
    const char *method;
    char what[96];
    AX_TRY(ax_json_str_or(ax_json_get(config, "quant_method"), "", &method));
    if (is_bnb(config))
        method = bnb;
    out->n = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(method, methods[i].method) == 0)
            return methods[i].parse(config, out);
    snprintf(what, sizeof what, "quantized checkpoints%s%.40s%s are not supported",
             *method ? " (" : "", method, *method ? ")" : "");
    return unsupported(config, what);
}

static bool is_of_embeddings(const json_t *group) {
    const json_t *targets = json_object_get(group, "targets");
    const char *first = json_string_value(json_array_get(targets, 0));
    return json_array_size(targets) == 1 && first && strcmp(first, "Embedding") == 0;
}

static bool parse_inputs(const json_t *group, struct ax_number_format *out) {
    static const struct {
        const char *type;
        bool symmetric;
        enum ax_quant kind;
    } kinds[] = {{"int", false, AX_QUANT_INT8_ASYM},
                 {"int", true, AX_QUANT_INT8},
                 {"float", true, AX_QUANT_FP8}};
    const json_t *x = json_object_get(group, "input_activations");
    const char *strategy = json_string_value(json_object_get(x, "strategy"));
    const char *type = json_string_value(json_object_get(x, "type"));
    const json_t *symmetric = json_object_get(x, "symmetric");
    if (!strategy || strcmp(strategy, "token") != 0 ||
        json_integer_value(json_object_get(x, "num_bits")) != 8 ||
        !json_is_true(json_object_get(x, "dynamic")))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type ? type : "int", kinds[i].type) != 0 ||
            (!symmetric || json_is_true(symmetric)) != kinds[i].symmetric)
            continue;
        *out = (struct ax_number_format){kinds[i].kind, AX_BLOCK_ROW};
        return true;
    }
    return false;
}

bool ax_compressed_inputs(struct ax_json config, struct ax_number_format *out) {
    struct ax_number_format f;
    const char *key;
    json_t *group;
    int n = 0;
    json_object_foreach((json_t *)ax_json_get(config, "config_groups").v, key, group) {
        if (is_of_embeddings(group))
            continue;
        if (!parse_inputs(group, &f) || (n > 0 && f.kind != out->kind))
            return false;
        *out = f;
        n++;
    }
    return n > 0;
}

const char *ax_compressed_unfollowed(struct ax_json config) {
    struct ax_number_format followed;
    const char *key;
    json_t *group;
    if (json_is_true(json_object_get(config.v, eight_bits)))
        return eight_bits;
    json_object_foreach((json_t *)ax_json_get(config, "config_groups").v, key, group) {
        if (json_is_object(json_object_get(group, "input_activations")) &&
            !ax_compressed_inputs(config, &followed))
            return "input_activations";
        if (json_is_object(json_object_get(group, "output_activations")))
            return "output_activations";
    }
    const json_t *own = settings_of(config).v, *algorithm = json_object_get(own, "quant_algo"),
                 *cache = json_object_get(own, "kv_cache_scheme"),
                 *algorithm_of_cache = json_object_get(own, "kv_cache_quant_algo");
    const struct algorithm *a = find_algorithm(json_string_value(algorithm));
    const json_int_t act_bits = json_integer_value(json_object_get(config.v, "act_bits"));
    if (algorithm && (!a || a->quantizes_input))
        return "quant_algo";
    if (act_bits > 0 && act_bits < 16)
        return "act_bits";
    if (json_is_string(algorithm_of_cache))
        return "kv_cache_quant_algo";
    return json_is_object(cache) || json_is_string(cache) ? "kv_cache_scheme" : NULL;
}
