/* Random models with the golden llama's tokenizer, a mixture of experts among them. Include after program_case.h and a header that has
 * `model` and the scratch folder. */
#ifndef AX_TESTS_CMD_EXPERTS_MODEL_H
#define AX_TESTS_CMD_EXPERTS_MODEL_H

#define EXPERTS                                                                                    \
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", "               \
    "\"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 48, "                        \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"head_dim\": 8, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "                   \
    "\"hidden_act\": \"silu\", \"num_experts\": 4, \"num_experts_per_tok\": 2, "                   \
    "\"moe_intermediate_size\": 24, \"norm_topk_prob\": true, \"initializer_range\": 0.2}"

static inline const char *make_random(const char *name, const char *config) {
    static const char *const parts[] = {"tokenizer.json", "tokenizer_config.json"};
    char from[1024], to[64], said[4096];
    put_text("config.json", config);
    if (run(said, sizeof said, "bench step --model '%s' --write-random '%s'", scratch,
            in_scratch(name)) != 0)
        fail_msg("%s", said);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(from, sizeof from, "%s/%s", model, parts[i]);
        snprintf(to, sizeof to, "%s/%s", name, parts[i]);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, in_scratch(to)), 0);
        free(real);
    }
    return in_scratch(name);
}

static inline const char *make_experts(void) {
    return make_random("experts", EXPERTS);
}

#endif
