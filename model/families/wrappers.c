/* Models that see images, with one of the families' text models in them. On text they compute what that
 * computes: attention between the parts of an image is the towers' own, and the three positions of
 * Qwen's rope are equal. Config keys and their defaults are transformers'. */
#include <string.h>

#include "ckpt/hf/config.h"
#include "ckpt/hf/hf.h"
#include "model/arch/family.h"

#define LANGUAGE "model.language_"

static const struct ax_wrapper wrappers[] = {
    {"exaone4_5", "Exaone4_5_ForConditionalGeneration", "exaone4", LANGUAGE},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", LANGUAGE},
    {"gemma3n", "Gemma3nForConditionalGeneration", "gemma3n_text", LANGUAGE},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", LANGUAGE},
    {"glm46v", "Glm46VForConditionalGeneration", "glm4v_text", LANGUAGE},
    {"glm4v", "Glm4vForConditionalGeneration", "glm4v_text", LANGUAGE},
    {"glm4v_moe", "Glm4vMoeForConditionalGeneration", "glm4v_moe_text", LANGUAGE},
    {"idefics3", "Idefics3ForConditionalGeneration", "llama", "model.text_"},
    {"internvl", "InternVLForConditionalGeneration", "qwen2", LANGUAGE},
    {"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2", LANGUAGE},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text", "language_model."},
    {"llava", "LlavaForConditionalGeneration", "llama", LANGUAGE},
    {"llava_next", "LlavaNextForConditionalGeneration", "llama", LANGUAGE},
    {"llava_onevision", "LlavaOnevisionForConditionalGeneration", "qwen2", LANGUAGE},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral", LANGUAGE},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", LANGUAGE},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", LANGUAGE},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", LANGUAGE},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", LANGUAGE},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", LANGUAGE},
    {"smolvlm", "SmolVLMForConditionalGeneration", "llama", "model.text_"},
    {"vipllava", "VipLlavaForConditionalGeneration", "llama", LANGUAGE},
};
#define N_WRAPPERS (sizeof wrappers / sizeof *wrappers)

/* What published files leave out, by the text model's model_type, and the family that it is. */
#define QWEN2_VL                                                                                   \
    "{\"model_type\": \"qwen2\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, "                    \
    "\"max_position_embeddings\": 32768, \"max_window_layers\": 80}"
static const struct {
    const char *text, *fields;
} texts[] = {
    {"glm4v_moe_text", "{\"model_type\": \"glm4_moe\", \"attention_bias\": true, "
                       "\"max_position_embeddings\": 65536}"},
    {"llama", "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
              "\"num_hidden_layers\": 32, \"num_attention_heads\": 32}"},
    {"mistral", "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "
                "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                "\"num_key_value_heads\": 8, \"max_position_embeddings\": 131072}"},
    {"gemma3_text", "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "
                    "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
                    "\"num_key_value_heads\": 4, \"max_position_embeddings\": 131072}"},
    {"qwen2_vl_text", QWEN2_VL},
    {"qwen2_5_vl_text", QWEN2_VL},
    {"qwen3_vl_text", "{\"model_type\": \"qwen3\", \"rope_theta\": 5e5, "
                      "\"max_position_embeddings\": 128000}"},
};

const struct ax_wrapper *ax_wrapper_at(size_t i) {
    return i < N_WRAPPERS ? &wrappers[i] : NULL;
}

static const struct ax_wrapper *find(const json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (size_t i = 0; type && i < N_WRAPPERS; i++)
        if (strcmp(wrappers[i].model_type, type) == 0)
            return &wrappers[i];
    return NULL;
}

static enum ax_status set(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

/* The text model is tied if either part says so; what neither says is its family's. */
static enum ax_status fill_tied(const json_t *root, json_t *text) {
    static const char key[] = "tie_word_embeddings";
    const json_t *whole = json_object_get(root, key), *own = json_object_get(text, key);
    if (json_is_true(whole) || (whole && !own))
        return set(text, key, json_boolean(json_is_true(whole)));
    return AX_OK;
}

/* How matrices are stored is said of the model, and true of its text. */
static enum ax_status fill_quantized(const json_t *root, json_t *text) {
    static const char key[] = "quantization_config";
    json_t *v = json_object_get(root, key);
    return v && root != text ? set(text, key, json_incref(v)) : AX_OK;
}

/* What the text model's config leaves out; `type` is its model_type. */
static enum ax_status fill(const json_t *root, json_t *text, const char *type) {
    static const char *const shared[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        json_t *v = json_object_get(root, shared[i]);
        if (v && !json_object_get(text, "dtype") && !json_object_get(text, "torch_dtype"))
            AX_TRY(set(text, shared[i], json_incref(v)));
    }
    AX_TRY(fill_tied(root, text));
    AX_TRY(fill_quantized(root, text));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].text, type) != 0)
            continue;
        json_t *fields = json_loads(texts[i].fields, 0, NULL), *named;
        bool ok = fields && json_object_update_missing(text, fields) == 0;
        if (ok && (named = json_object_get(fields, "model_type")) != NULL)
            ok = json_object_set(text, "model_type", named) == 0;
        json_decref(fields);
        return ok ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    }
    return AX_OK;
}

enum ax_status ax_wrapper_open(struct ax_json_doc *doc, struct ax_json *text,
                               const struct ax_wrapper **wrapper) {
    const struct ax_json root = ax_json_root(doc);
    const char *type;
    *text = root;
    *wrapper = find(doc->root);
    if (!*wrapper)
        return AX_OK;
    if (!ax_config_is_wrapper(doc->root))
        return ax_json_error(root,
                             "a %s without text_config, which would say what text model is in it",
                             (*wrapper)->model_type);
    json_t *own = ax_config_text(doc->root);
    *text = own == doc->root ? root : ax_json_get(root, "text_config");
    if (own == doc->root || !json_object_get(own, "model_type"))
        AX_TRY(set(own, "model_type", json_string((*wrapper)->text)));
    AX_TRY(ax_json_str(ax_json_get(*text, "model_type"), &type));
    return fill(doc->root, own, type);
}
