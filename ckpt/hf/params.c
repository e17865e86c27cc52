#include "ckpt/hf/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io_path.h"
#include "kernels/dtype.h"

#define CONTEXT 32768 /* if the file does not say; transformers' default */

enum kind { COUNT, REAL, FLAG, WINDOW, TYPE, IGNORED };

/* What a file may say beside `moe`; other keys must be null or false. */
static const struct key {
    const char *own, *hf;
    enum kind kind;
    bool required;
} keys[] = {
    {"dim", "hidden_size", COUNT, true},
    {"n_layers", "num_hidden_layers", COUNT, true},
    {"hidden_dim", "intermediate_size", COUNT, true},
    {"n_heads", "num_attention_heads", COUNT, true},
    {"n_kv_heads", "num_key_value_heads", COUNT, false},
    {"head_dim", "head_dim", COUNT, false},
    {"vocab_size", "vocab_size", COUNT, true},
    {"norm_eps", "rms_norm_eps", REAL, true},
    {"rope_theta", "rope_theta", REAL, false},
    {"max_seq_len", "max_position_embeddings", COUNT, false},
    {"max_position_embeddings", "max_position_embeddings", COUNT, false},
    {"tied_embeddings", "tie_word_embeddings", FLAG, false},
    {"sliding_window", "sliding_window", WINDOW, false},
    {"model_type", NULL, TYPE, false},
    {"max_batch_size", NULL, IGNORED, false},
};
static const struct key moe_keys[] = {
    {"num_experts", "num_local_experts", COUNT, true},
    {"num_experts_per_tok", "num_experts_per_tok", COUNT, true},
};
#define N_KEYS     (sizeof keys / sizeof *keys)
#define N_MOE_KEYS (sizeof moe_keys / sizeof *moe_keys)

bool ax_hf_params_is(const char *path) {
    size_t len;
    const char *name = ax_path_last(path, &len);
    return len == strlen(AX_HF_PARAMS) && memcmp(name, AX_HF_PARAMS, len) == 0;
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a configuration");
}

static enum ax_status put(json_t *config, const char *key, json_t *value) {
    return json_object_set_new(config, key, value) == 0 ? AX_OK : no_memory();
}

static enum ax_status refuse(struct ax_json v, const char *why) {
    ax_json_error(v, "%s in Mistral's own form. Use the model's Hugging Face folder, if it has one",
                  why);
    return AX_ERR_UNSUPPORTED;
}

/* A number of keys; some files have it as text. */
static enum ax_status window(struct ax_json v, int64_t *out) {
    if (json_is_array(v.v))
        return refuse(v, "windows that differ by layer are not supported");
    if (!json_is_string(v.v))
        return ax_json_i64(v, 1, INT32_MAX, out);
    char *end;
    errno = 0;
    *out = strtoll(json_string_value(v.v), &end, 10);
    if (errno != 0 || end == json_string_value(v.v) || *end || *out < 1 || *out > INT32_MAX)
        return ax_json_error(v, "expected a number of tokens, got \"%.20s\"",
                             json_string_value(v.v));
    return AX_OK;
}

static enum ax_status read_key(const struct key *k, struct ax_json v, json_t *config) {
    int64_t n;
    double x;
    bool yes;
    const char *type;
    if (!v.v && !k->required)
        return AX_OK;
    switch (k->kind) {
    case COUNT:
        AX_TRY(ax_json_i64(v, 1, INT32_MAX, &n));
        return put(config, k->hf, json_integer(n));
    case REAL:
        AX_TRY(ax_json_f64(v, &x));
        return put(config, k->hf, json_real(x));
    case FLAG:
        AX_TRY(ax_json_bool(v, &yes));
        return put(config, k->hf, json_boolean(yes));
    case WINDOW:
        AX_TRY(window(v, &n));
        return put(config, k->hf, json_integer(n));
    case TYPE:
        AX_TRY(ax_json_str(v, &type));
        return strcmp(type, "transformer") == 0
                   ? AX_OK
                   : refuse(v, "models other than transformers are not supported");
    case IGNORED:
        return AX_OK;
    }
    return AX_OK;
}

/* Every key of an object is read, or says nothing. */
static enum ax_status read_keys(struct ax_json from, const struct key *list, size_t n,
                                const char *beside, json_t *config) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)from.v, name, value) {
        bool known = beside && strcmp(name, beside) == 0;
        for (size_t i = 0; i < n && !known; i++)
            known = strcmp(name, list[i].own) == 0;
        if (!known && !json_is_null(value) && !json_is_false(value))
            return refuse(ax_json_get(from, name), "this is not supported");
    }
    for (size_t i = 0; i < n; i++)
        AX_TRY(read_key(&list[i], ax_json_get(from, list[i].own), config));
    return AX_OK;
}

static enum ax_status fill(struct ax_json params, enum ax_dtype dtype, json_t *config) {
    const struct ax_json moe = ax_json_get(params, "moe");
    AX_TRY(read_keys(params, keys, N_KEYS, "moe", config));
    if (moe.v && !json_is_object(moe.v))
        return ax_json_error(moe, "expected an object");
    if (moe.v)
        AX_TRY(read_keys(moe, moe_keys, N_MOE_KEYS, NULL, config));
    AX_TRY(put(config, "model_type", json_string(moe.v ? "mixtral" : "mistral")));
    AX_TRY(put(config, "architectures",
               json_pack("[s]", moe.v ? "MixtralForCausalLM" : "MistralForCausalLM")));
    return put(config, "torch_dtype", json_string(ax_dtype_info(dtype)->name));
}

enum ax_status ax_hf_params_config(struct ax_json params, enum ax_dtype dtype, json_t **out) {
    if (!json_is_object(params.v))
        return ax_json_error(params, "expected an object");
    json_t *config = json_pack("{sn sf sI si si}", "sliding_window", "rope_theta", 10000.0,
                               "max_position_embeddings", (json_int_t)CONTEXT, "bos_token_id", 1,
                               "eos_token_id", 2);
    const enum ax_status st = config ? fill(params, dtype, config) : no_memory();
    if (st == AX_OK)
        *out = config;
    else
        json_decref(config);
    return st;
}
