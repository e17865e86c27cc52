/* Built-in architectures as the config.json of a folder. */
#include "cmd/bench/shapes.h"

#include <string.h>

static const struct {
    const char *name, *config;
} shapes[] = {
    {"smollm2-135m",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "
     "\"attention_dropout\": "
     "0.0, \"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": "
     "576, "
     "\"initializer_range\": 0.041666666666666664, \"intermediate_size\": 1536, "
     "\"max_position_embeddings\": 8192, \"mlp_bias\": false, \"model_type\": \"llama\", "
     "\"num_attention_heads\": 9, \"num_hidden_layers\": 30, \"num_key_value_heads\": 3, "
     "\"pad_token_id\": 2, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"rope_theta\": "
     "100000, "
     "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", \"vocab_size\": 49152}"},
    {"llama-tiny",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_act\": \"silu\", \"hidden_size\": 64, "
     "\"initializer_range\": 0.02, \"intermediate_size\": 160, \"max_position_embeddings\": 2048, "
     "\"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
     "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
     "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\", \"vocab_size\": 512}"},
};

enum ax_status ax_builtin_config(const char *name, struct ax_json_doc *out) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(name, shapes[i].name) == 0)
            return ax_json_parse(out, name, shapes[i].config, strlen(shapes[i].config));
    return ax_error(AX_ERR_CONFIG, "--arch: \"%s\" is not one of smollm2-135m, llama-tiny", name);
}
