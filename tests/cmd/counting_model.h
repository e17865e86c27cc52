/* A model whose every number can be derived: after token t it gives the token next_token(t) the
 * probability 3/4, and shares the rest evenly. Include after cmocka.h.
 *
 * A token's embedding is one-hot, attention and MLP add nothing (their last matrices are 0), and row
 * next_token(t) of the head is ln(3 * 271) at column t, before the scale of the final norm. So a
 * token that follows as it should costs -ln 3/4 = 0.287682 nats, any other -ln 1/1084 = 6.988413.
 *
 * It counts: b follows a, a follows z, 1 follows 0. A reply (after "\n") is "#### 7", and then ends.
 * The tokenizer has one token per byte, "##" (256), "####" (257) and "#### " (258). */
#ifndef AX_TESTS_CMD_COUNTING_MODEL_H
#define AX_TESTS_CMD_COUNTING_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define VOCAB 272
#define HEADS 64 /* rows of q, columns of o: 4 heads of 16 */
#define KV    32
#define FFN   48

enum { MARK = 258, IM_START, IM_END, N_TOKENS };

static inline int next_token(int t) {
    if (t == '\n')
        return MARK;
    if (t == MARK)
        return '7';
    if (t == '7')
        return IM_END;
    if (t == 'z' || t == 'Z')
        return t - 25;
    if (t == '9')
        return '0';
    const bool counts = (t >= 'a' && t < 'z') || (t >= 'A' && t < 'Z') || (t >= '0' && t < '9');
    return counts ? t + 1 : t == IM_END ? '\n' : t;
}

static const char counting_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 272, "
    "\"hidden_size\": 272, \"intermediate_size\": 48, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"hidden_act\": "
    "\"silu\", \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, "
    "\"initializer_range\": 0.02, \"tie_word_embeddings\": false, \"torch_dtype\": \"float32\", "
    "\"eos_token_id\": 260, \"pad_token_id\": 260}\n";

static const char counting_tokenizer_config[] =
    "{\"eos_token\": \"<|im_end|>\", \"pad_token\": \"<|im_end|>\", \"chat_template\": "
    "\"{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}\"}\n";

/* ---- tokenizer.json ---- */

/* The character that byte-level tokenizers write for a byte. */
static inline void put_byte(struct ax_buf *b, unsigned byte) {
    unsigned c = 256;
    for (unsigned i = 0; i <= byte; i++) {
        const bool shown = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == byte)
            c = shown ? i : c;
        c += !shown && i < byte;
    }
    const char two[] = {(char)(0xC0U | c >> 6), (char)(0x80U | (c & 0x3FU)), '\0'};
    const char one[] = {'\\', (char)c, '\0'};
    const bool quoted = c == '"' || c == '\\';
    assert_int_equal(ax_buf_puts(b, c > 127 ? two : one + !quoted), AX_OK);
}

static inline void put_counting_tokenizer(struct ax_buf *b) {
    static const char *const added[] = {"<|im_start|>", "<|im_end|>"};
    assert_int_equal(ax_buf_puts(b, "{\"version\": \"1.0\", \"added_tokens\": ["), AX_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ax_buf_printf(b,
                                       "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": "
                                       "false, \"lstrip\": false, \"rstrip\": false, "
                                       "\"normalized\": false, \"special\": true}",
                                       i ? ", " : "", IM_START + i, added[i]),
                         AX_OK);
    assert_int_equal(
        ax_buf_puts(b, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                       "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "
                       "false}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, "
                       "\"model\": {\"type\": \"BPE\", \"vocab\": {"),
        AX_OK);
    for (unsigned i = 0; i < 256; i++) {
        assert_int_equal(ax_buf_puts(b, "\""), AX_OK);
        put_byte(b, i);
        assert_int_equal(ax_buf_printf(b, "\": %u, ", i), AX_OK);
    }
    assert_int_equal(ax_buf_puts(b, "\"##\": 256, \"####\": 257, \"####Ġ\": 258}, \"merges\": "
                                    "[\"# #\", \"## ##\", \"#### Ġ\"]}}\n"),
                     AX_OK);
}

/* ---- model.safetensors ---- */

static const struct {
    const char *name;
    int rows, columns; /* a vector: columns 0 */
} counting_tensors[] = {
    {"lm_head.weight", VOCAB, VOCAB},
    {"model.embed_tokens.weight", VOCAB, VOCAB},
    {"model.layers.0.input_layernorm.weight", VOCAB, 0},
    {"model.layers.0.mlp.down_proj.weight", VOCAB, FFN},
    {"model.layers.0.mlp.gate_proj.weight", FFN, VOCAB},
    {"model.layers.0.mlp.up_proj.weight", FFN, VOCAB},
    {"model.layers.0.post_attention_layernorm.weight", VOCAB, 0},
    {"model.layers.0.self_attn.k_proj.weight", KV, VOCAB},
    {"model.layers.0.self_attn.o_proj.weight", VOCAB, HEADS},
    {"model.layers.0.self_attn.q_proj.weight", HEADS, VOCAB},
    {"model.layers.0.self_attn.v_proj.weight", KV, VOCAB},
    {"model.norm.weight", VOCAB, 0},
};
#define N_TENSORS (sizeof counting_tensors / sizeof *counting_tensors)

static inline float counting_value(const char *name, int row, int column, int columns) {
    if (strcmp(name, "lm_head.weight") == 0)
        return row == next_token(column) ? (float)(log(3 * (VOCAB - 1)) / sqrt(VOCAB)) : 0;
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        return row == column ? (float)sqrt(VOCAB) : 0;
    if (columns == 0)
        return 1;
    const bool adds = strstr(name, "down_proj") != NULL || strstr(name, "o_proj") != NULL;
    return adds ? 0 : (float)((row * 7 + column * 3) % 11 - 5) / 64;
}

static inline void put_counting_weights(struct ax_buf *b) {
    struct ax_buf header = {0};
    size_t at = 0;
    assert_int_equal(ax_buf_puts(&header, "{"), AX_OK);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const int rows = counting_tensors[i].rows, columns = counting_tensors[i].columns;
        const size_t bytes = 4U * (size_t)rows * (size_t)(columns ? columns : 1);
        char second[16] = "";
        if (columns)
            snprintf(second, sizeof second, ",%d", columns);
        assert_int_equal(ax_buf_printf(&header,
                                       "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d%s],"
                                       "\"data_offsets\":[%zu,%zu]}",
                                       i ? "," : "", counting_tensors[i].name, rows, second, at,
                                       at + bytes),
                         AX_OK);
        at += bytes;
    }
    assert_int_equal(ax_buf_puts(&header, "}"), AX_OK);
    while (header.len % 8 != 0)
        assert_int_equal(ax_buf_puts(&header, " "), AX_OK);
    const uint64_t len = header.len; /* the program, too, runs on little-endian machines only */
    assert_int_equal(ax_buf_append(b, &len, sizeof len), AX_OK);
    assert_int_equal(ax_buf_append(b, header.data, header.len), AX_OK);
    ax_buf_free(&header);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const int columns = counting_tensors[i].columns;
        for (int r = 0; r < counting_tensors[i].rows; r++) {
            for (int c = 0; c < (columns ? columns : 1); c++) {
                const float v = counting_value(counting_tensors[i].name, r, c, columns);
                assert_int_equal(ax_buf_append(b, &v, sizeof v), AX_OK);
            }
        }
    }
}

/* DIR becomes a model folder. */
static inline void put_counting_model(const char *dir) {
    struct ax_buf tokenizer = {0}, weights = {0};
    char path[300];
    put_counting_tokenizer(&tokenizer);
    put_counting_weights(&weights);
    const struct {
        const char *name, *data;
        size_t len;
    } files[] = {
        {"config.json", counting_config, strlen(counting_config)},
        {"tokenizer_config.json", counting_tokenizer_config, strlen(counting_tokenizer_config)},
        {"tokenizer.json", tokenizer.data, tokenizer.len},
        {"model.safetensors", weights.data, weights.len},
    };
    assert_int_equal(ax_mkdir(dir), AX_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        assert_int_equal(ax_write_file_atomic(path, files[i].data, files[i].len), AX_OK);
    }
    ax_buf_free(&tokenizer);
    ax_buf_free(&weights);
}

#endif
