/* Small complete models as GGUF files, for the tests of convert: two layers of 64, four heads of
 * 16, a byte-level vocabulary of 320. Element (r, c) of the tensor with HF name N is
 * tiny_value(N, r, c), an integer that every tensor type holds exactly. */
#ifndef AX_TESTS_CMD_GGUF_TINY_H
#define AX_TESTS_CMD_GGUF_TINY_H

#include <stdio.h>

#include "base/hash/hash.h"
#include "data/text/tokenizer/byte_level.h"
#include "tests/ckpt/gguf_out.h"

enum { HIDDEN = 64, FFN = 96, HEADS = 4, KV_HEADS = 2, HEAD = 16, VOCAB = 320, LAYERS = 2 };
enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8, TYPE_BF16 = 30 };

struct tiny {
    const char *arch; /* llama, qwen2, qwen3 */
    bool untied;      /* with output.weight */
    bool permuted;    /* rows of q and k in rotary pairs, as llama files have them */
    bool qkv_bias, qk_norm;
    uint32_t matrix_type; /* of all matrices */
    uint32_t value_type;  /* of v and down alone, where mixed */
    bool mixed;
    const char *kind, *pre; /* tokenizer.ggml.model and .pre; NULL: gpt2 and smollm */
    const char *skip;       /* HF name of a tensor to leave out */
    const char *spoil;      /* HF name of a tensor whose element (0, 1) is `spoiled` */
    float spoiled;
};

static inline float tiny_value(const char *hf_name, int64_t r, int64_t c) {
    const int64_t at[] = {r, c};
    return (float)(int)(ax_hash64(at, sizeof at, ax_hash32(hf_name)) % 201) - 100;
}

static inline void tiny_put(struct ax_buf *b, uint32_t type, const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (type == TYPE_F32)
            put_f32(b, row[i]);
        else if (type == TYPE_F16)
            put_int(b, ax_f32_to_f16(row[i]), 2);
        else if (type == TYPE_BF16)
            put_int(b, ax_f32_to_bf16(row[i]), 2);
        else if (i % 32 == 0)
            put_int(b, ax_f32_to_f16(1), 2); /* Q8_0 with a scale of 1: the codes are the values */
        if (type == TYPE_Q8_0)
            put_int(b, (uint64_t)(int64_t)row[i], 1);
    }
}

/* The HF row that is stored in row g of the file: neighbors of a pair are half a head apart. */
static inline int64_t tiny_hf_row(bool permuted, int64_t g) {
    const int64_t head = g / HEAD, i = g % HEAD / 2, j = g % 2;
    return permuted ? head * HEAD + j * (HEAD / 2) + i : g;
}

static inline void tiny_tensor(struct gguf_out *o, const struct tiny *t, const char *name,
                               const char *hf_name, uint32_t type, int64_t rows, int64_t cols,
                               bool rotary) {
    struct ax_buf bytes = {0};
    float row[FFN];
    if (t->skip && strcmp(t->skip, hf_name) == 0)
        return;
    for (int64_t g = 0; g < rows; g++) {
        const int64_t r = tiny_hf_row(rotary && t->permuted, g);
        for (int64_t c = 0; c < (cols ? cols : 1); c++)
            row[c] = tiny_value(hf_name, r, c);
        if (r == 0 && t->spoil && strcmp(t->spoil, hf_name) == 0)
            row[1] = t->spoiled;
        tiny_put(&bytes, type, row, cols ? cols : 1);
    }
    const int64_t shape[] = {rows, cols};
    tensor(o, name, type, cols ? 2 : 1, shape, bytes.data, bytes.len);
    ax_buf_free(&bytes);
}

static inline void tiny_layer(struct gguf_out *o, const struct tiny *t, int layer) {
    static const struct {
        const char *name, *hf;
        int64_t rows, cols;
        bool rotary, bias, qk_norm;
    } rows[] = {
        {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, false, false, false},
        {"attn_norm.weight", "input_layernorm.weight", HIDDEN, 0, false, false, false},
        {"attn_q.weight", "self_attn.q_proj.weight", HEADS * HEAD, HIDDEN, true, false, false},
        {"attn_k.weight", "self_attn.k_proj.weight", KV_HEADS * HEAD, HIDDEN, true, false, false},
        {"attn_v.weight", "self_attn.v_proj.weight", KV_HEADS * HEAD, HIDDEN, false, false, false},
        {"attn_q.bias", "self_attn.q_proj.bias", HEADS * HEAD, 0, true, true, false},
        {"attn_k.bias", "self_attn.k_proj.bias", KV_HEADS * HEAD, 0, true, true, false},
        {"attn_v.bias", "self_attn.v_proj.bias", KV_HEADS * HEAD, 0, false, true, false},
        {"attn_q_norm.weight", "self_attn.q_norm.weight", HEAD, 0, false, false, true},
        {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, 0, false, false, true},
        {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, HEADS * HEAD, false, false,
         false},
        {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, 0, false, false, false},
        {"ffn_gate.weight", "mlp.gate_proj.weight", FFN, HIDDEN, false, false, false},
        {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, false, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[96], hf[96];
        if ((rows[i].bias && !t->qkv_bias) || (rows[i].qk_norm && !t->qk_norm))
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", layer, rows[i].name);
        snprintf(hf, sizeof hf, "model.layers.%d.%s", layer, rows[i].hf);
        const bool other = t->mixed && (strstr(name, "attn_v.") || strstr(name, "ffn_down."));
        const uint32_t type = rows[i].cols == 0 ? (uint32_t)TYPE_F32
                              : other           ? t->value_type
                                                : t->matrix_type;
        tiny_tensor(o, t, name, hf, type, rows[i].rows, rows[i].cols, rows[i].rotary);
    }
}

/* The last layer first: the order in the file means nothing. */
static inline void tiny_tensors(struct gguf_out *o, const struct tiny *t) {
    tiny_tensor(o, t, "output_norm.weight", "model.norm.weight", TYPE_F32, HIDDEN, 0, false);
    for (int layer = LAYERS - 1; layer >= 0; layer--)
        tiny_layer(o, t, layer);
    tiny_tensor(o, t, "token_embd.weight", "model.embed_tokens.weight", t->matrix_type, VOCAB,
                HIDDEN, false);
    if (t->untied)
        tiny_tensor(o, t, "output.weight", "lm_head.weight", t->matrix_type, VOCAB, HIDDEN, false);
}

static inline const char *tiny_key(const struct tiny *t, const char *suffix) {
    static char keys[8][96];
    static unsigned turn;
    char *key = keys[turn++ % 8];
    snprintf(key, sizeof keys[0], "%s.%s", t->arch, suffix);
    return key;
}

static inline void tiny_sizes(struct gguf_out *o, const struct tiny *t) {
    key_text(o, "general.architecture", t->arch);
    key_u32(o, tiny_key(t, "block_count"), LAYERS);
    key_u32(o, tiny_key(t, "context_length"), 2048);
    key_u32(o, tiny_key(t, "embedding_length"), HIDDEN);
    key_u32(o, tiny_key(t, "feed_forward_length"), FFN);
    key_u32(o, tiny_key(t, "attention.head_count"), HEADS);
    key_u32(o, tiny_key(t, "attention.head_count_kv"), KV_HEADS);
    key_f32(o, tiny_key(t, "attention.layer_norm_rms_epsilon"), 1e-5f);
}

/* 0–2 control tokens, 3 a user-defined one, then the 256 bytes, then merges of letters, and the
 * rest unused. Kinds llama and gemma4: bytes are <0xHH>, followed by letters and what the merges make of them.
 */
static inline void tiny_tokens(struct gguf_out *o, bool bytes_spelled) {
    static const char *const special[] = {"<|end|>", "<s>", "<pad>", "<tool>"};
    static const char *const gpt2[] = {"th", "the", "\xC4\xA0the", "in", "\xC4\xA0t"};
    static const char *const llama[] = {
        "\xE2\x96\x81",    "t", "h", "e", "i", "n", "\xE2\x96\x81t", "th", "the",
        "\xE2\x96\x81the", "in"};
    char text[32];
    int n = 4;
    for (int i = 0; i < 4; i++)
        put_str(&o->keys, special[i]);
    for (int b = 0; b < 256; b++, n++) {
        if (bytes_spelled) {
            snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
            put_str(&o->keys, text);
        } else {
            put_text_n(&o->keys, text, ax_byte_to_char((unsigned char)b, text));
        }
    }
    for (size_t i = 0; i < (bytes_spelled ? 11 : 5); i++, n++)
        put_str(&o->keys, bytes_spelled ? llama[i] : gpt2[i]);
    for (; n < VOCAB; n++) {
        snprintf(text, sizeof text, "[unused%d]", n);
        put_str(&o->keys, text);
    }
}

static inline void tiny_vocab(struct gguf_out *o, const struct tiny *t) {
    const bool scores = t->kind && strcmp(t->kind, "llama") == 0;
    const bool merged_pieces = t->kind && strcmp(t->kind, "gemma4") == 0;
    key_text(o, "tokenizer.ggml.model", t->kind ? t->kind : "gpt2");
    key_array(o, "tokenizer.ggml.tokens", AX_GGUF_STRING, VOCAB);
    tiny_tokens(o, scores || merged_pieces);
    key_array(o, "tokenizer.ggml.token_type", AX_GGUF_I32, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        put_int(&o->keys,
                i < 3 || i == 300                      ? 3
                : i == 3                               ? 4
                : (scores || merged_pieces) && i < 260 ? 6
                : i < 271                              ? 1
                                                       : 5,
                4);
    if (scores) {
        key_array(o, "tokenizer.ggml.scores", AX_GGUF_F32, VOCAB);
        for (int i = 0; i < VOCAB; i++)
            put_f32(&o->keys, i < 260 ? 0 : (float)-i);
    } else if (merged_pieces) { /* none leads to ▁t, as scores would */
        key_text(o, "tokenizer.ggml.pre", "gemma4");
        key_texts(o, "tokenizer.ggml.merges", 4,
                  (const char *const[]){"t h", "th e", "\xE2\x96\x81 the", "i n"});
    } else {
        key_text(o, "tokenizer.ggml.pre", t->pre ? t->pre : "smollm");
        key_texts(o, "tokenizer.ggml.merges", 5,
                  (const char *const[]){"t h", "th e", "\xC4\xA0 the", "i n", "\xC4\xA0 t"});
    }
    key_u32(o, "tokenizer.ggml.eos_token_id", 0);
    key_u32(o, "tokenizer.ggml.bos_token_id", 1);
}

#endif
