/* Names of tensors in Mistral's own form, for tests that make such folders of Hugging Face's. */
#ifndef AX_TESTS_OWN_NAMES_H
#define AX_TESTS_OWN_NAMES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* "self_attn.q_proj" → "attention.wq". */
static const char *const own_parts[][2] = {
    {"model.embed_tokens.", "tok_embeddings."},
    {"model.norm.", "norm."},
    {"lm_head.", "output."},
    {"model.layers.", "layers."},
    {"input_layernorm", "attention_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attention.wq"},
    {"self_attn.k_proj", "attention.wk"},
    {"self_attn.v_proj", "attention.wv"},
    {"self_attn.o_proj", "attention.wo"},
    {"mlp.gate_proj", "feed_forward.w1"},
    {"mlp.down_proj", "feed_forward.w2"},
    {"mlp.up_proj", "feed_forward.w3"},
    {"block_sparse_moe", "feed_forward"},
};

/* `hf` as Mistral's own files call it. */
static inline void own_name(const char *hf, char out[160]) {
    snprintf(out, 160, "%s", hf);
    for (size_t i = 0; i < sizeof own_parts / sizeof *own_parts; i++) {
        char *at = strstr(out, own_parts[i][0]), rest[160];
        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(own_parts[i][0]));
        snprintf(at, (size_t)(160 - (at - out)), "%s%s", own_parts[i][1], rest);
    }
}

#endif
