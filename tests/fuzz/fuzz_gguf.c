/* GGUF: any bytes give a file or an error; of a file, all that convert makes of it (values of keys,
 * config, tensors, tokenizer) is made or refused, a tokenizer.json that is written reads back, and
 * nothing stays allocated.
 *
 * Blind flips die at the magic or at the first length, so the mutator knows the structure: it finds
 * the fields of the input and changes one, or repeats, drops or swaps whole keys and tensors.
 * Inputs that are no GGUF file are replaced by a small model. */
#include <stdio.h>
#include <string.h>

#include "ckpt/gguf/model.h"
#include "data/text/gguf/json.h"
#include "tests/ckpt/gguf_out.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* --- the target --- */

static void read_keys(const struct ax_gguf *g) {
    for (size_t i = 0; i < g->n_keys; i++) {
        const struct ax_gguf_key *k = &g->keys[i];
        char name[128];
        int64_t integer;
        double number;
        bool flag;
        struct ax_gguf_text text, *texts;
        int32_t *ints;
        float *floats;
        size_t n;
        if (k->name.len >= sizeof name)
            continue;
        memcpy(name, k->name.s, k->name.len);
        name[k->name.len] = '\0';
        AX_ASSERT(ax_gguf_key(g, name) == k);
        (void)ax_gguf_i64(g, name, -5, 1000, &integer);
        (void)ax_gguf_f64_or(g, name, 0, &number);
        (void)ax_gguf_bool_or(g, name, true, &flag);
        (void)ax_gguf_string_or_null(g, name, &text);
        if (ax_gguf_strings(g, name, &texts, &n) == AX_OK)
            ax_free(texts);
        if (ax_gguf_i32s(g, name, &ints, &n) == AX_OK)
            ax_free(ints);
        if (ax_gguf_f32s(g, name, &floats, &n) == AX_OK)
            ax_free(floats);
    }
}

static void read_tensors(const struct ax_gguf *g, const uint8_t *data, size_t size) {
    float values[256];
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct ax_gguf_tensor *t = &g->tensors[i];
        if (!t->data)
            continue;
        AX_ASSERT(t->data >= data && t->bytes <= (size_t)(data + size - t->data));
        if (t->bytes > 0)
            t->type->dequantize(t->data, 1, values);
    }
}

static void read_model(const struct ax_gguf *g) {
    struct ax_gguf_model m;
    struct ax_gguf_weights w;
    json_t *config;
    if (ax_gguf_model_read(&m, g) != AX_OK)
        return;
    if (ax_gguf_model_config(&m, &config) == AX_OK)
        json_decref(config);
    if (ax_gguf_model_generation_config(&m, &config) == AX_OK)
        json_decref(config);
    if (ax_gguf_weights_create(&w, &m, ax_gguf_model_dtype(&m)) != AX_OK)
        return;
    for (int i = 0; i < w.n; i++) {
        const struct ax_st_output *o = &w.outputs[i];
        float values[8192];
        int64_t n = 1;
        for (int d = 0; d < o->ndim; d++)
            n *= o->shape[d];
        if (n <= 8192)
            (void)o->fill(o->ctx, 0, n, values);
    }
    ax_gguf_weights_free(&w);
}

static void read_tokenizer(const struct ax_gguf *g) {
    struct ax_tokenizer *t, *again;
    struct ax_buf text = {0};
    if (!ax_gguf_key(g, "tokenizer.ggml.tokens") || ax_tokenizer_load_gguf(&t, g) != AX_OK)
        return;
    if (ax_gguf_tokenizer_json(g, t, &text) == AX_OK) {
        const enum ax_status st = ax_tokenizer_parse(&again, "tokenizer.json", text.data, text.len);
        if (st != AX_OK)
            fprintf(stderr, "%s\n%s\n", ax_error_text(), text.data);
        AX_ASSERT(st == AX_OK);
        AX_ASSERT(ax_tokenizer_size(again) == ax_tokenizer_size(t));
        ax_tokenizer_free(again);
    }
    ax_buf_free(&text);
    ax_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_gguf g;
    if (ax_gguf_parse(&g, "f.gguf", data, size) == AX_OK) {
        read_keys(&g);
        read_tensors(&g, data, size);
        read_model(&g);
        read_tokenizer(&g);
        ax_gguf_close(&g);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "f.gguf: ", 8) == 0);
        AX_ASSERT(!g.path && !g.keys && !g.tensors);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

/* --- a small model to begin with --- */

static void add_tensor(struct gguf_out *o, const char *name, uint32_t type, int64_t rows,
                       int64_t cols) {
    static const unsigned char bytes[512];
    const int64_t shape[] = {rows, cols};
    const struct ax_block_type *t = ax_block_type_find(type);
    const int64_t n = rows * (cols ? cols : 1);
    tensor(o, name, type, cols ? 2 : 1, shape, bytes, (size_t)(n / t->elements * t->bytes));
}

static void add_vocab(struct gguf_out *o, bool scores) {
    static const char *const tokens[] = {"<s>", "a", "b", "ab", "\xC4\xA0", "<0x41>"};
    key_text(o, "tokenizer.ggml.model", scores ? "llama" : "gpt2");
    key_text(o, "tokenizer.ggml.pre", "smollm");
    key_texts(o, "tokenizer.ggml.tokens", 6, tokens);
    key_array(o, "tokenizer.ggml.token_type", AX_GGUF_I32, 6);
    for (int i = 0; i < 6; i++)
        put_int(&o->keys, i == 0 ? 3 : i == 5 ? 6 : 1, 4);
    key_array(o, "tokenizer.ggml.scores", AX_GGUF_F32, 6);
    for (int i = 0; i < 6; i++)
        put_f32(&o->keys, (float)-i);
    key_texts(o, "tokenizer.ggml.merges", 1, (const char *const[]){"a b"});
    key_u32(o, "tokenizer.ggml.bos_token_id", 0);
    key_text(o, "tokenizer.chat_template", "x");
}

static void add_model(struct gguf_out *o, bool quantized) {
    const uint32_t type = quantized ? 2 : 0;
    const int64_t width = quantized ? 32 : 2;
    key_text(o, "general.architecture", "llama");
    key_u32(o, "llama.block_count", 1);
    key_u32(o, "llama.context_length", 8);
    key_u32(o, "llama.embedding_length", (uint32_t)width);
    key_u32(o, "llama.feed_forward_length", (uint32_t)width);
    key_u32(o, "llama.attention.head_count", 1);
    key_f32(o, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_tensor(o, "token_embd.weight", type, 6, width);
    add_tensor(o, "output_norm.weight", 0, width, 0);
    add_tensor(o, "blk.0.attn_norm.weight", 0, width, 0);
    add_tensor(o, "blk.0.ffn_norm.weight", 0, width, 0);
    if (quantized)
        return; /* the rest is missing: keeps the input small */
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.%s.weight", names[i]);
        add_tensor(o, name, type, width, width);
    }
    const float divisor = 1;
    tensor(o, "rope_freqs.weight", 0, 1, (const int64_t[]){1}, &divisor, sizeof divisor);
}

static void add_every_type(struct gguf_out *o) {
    for (uint32_t type = 0; type < AX_GGUF_TYPE_COUNT; type++) {
        char name[16];
        snprintf(name, sizeof name, "k%u", type);
        key_start(o, name, type);
        put_int(&o->keys, 0, type == AX_GGUF_ARRAY ? 12 : 8); /* wrong for the short types */
    }
}

static size_t sample(uint8_t *data, size_t max_size, unsigned seed) {
    struct gguf_out o = {0};
    if (seed % 8 == 0)
        add_every_type(&o);
    if (seed % 3 != 0)
        add_vocab(&o, seed % 2 == 0);
    if (seed % 5 != 0)
        add_model(&o, seed % 7 == 0);
    gguf_out_finish(&o);
    const size_t n = o.file.len < max_size ? o.file.len : max_size;
    memcpy(data, o.file.data, n);
    gguf_out_free(&o);
    return n;
}

/* --- the mutator --- */

enum { MAX_FIELDS = 2048, MAX_PIECES = 512 };

struct field {
    size_t at;
    int bytes; /* 4 or 8 */
};
struct piece {
    size_t begin, end;
    bool is_tensor;
};
struct layout {
    const uint8_t *data;
    size_t size, at;
    int n_fields, n_pieces;
    struct field fields[MAX_FIELDS];
    struct piece pieces[MAX_PIECES];
};

/* The number at the walk's place, noted as a field; false behind the end. */
static bool number(struct layout *l, int bytes, uint64_t *out) {
    if (l->size - l->at < (size_t)bytes)
        return false;
    if (l->n_fields < MAX_FIELDS)
        l->fields[l->n_fields++] = (struct field){l->at, bytes};
    *out = 0;
    memcpy(out, l->data + l->at, (size_t)bytes);
    l->at += (size_t)bytes;
    return true;
}

static bool skip_bytes(struct layout *l, uint64_t n) {
    if (n > l->size - l->at)
        return false;
    l->at += (size_t)n;
    return true;
}

static bool string(struct layout *l) {
    uint64_t n;
    return number(l, 8, &n) && skip_bytes(l, n);
}

static bool value(struct layout *l, uint64_t type, int depth) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t inner, n;
    if (type >= sizeof sizes || depth > 3)
        return false;
    if (type == AX_GGUF_STRING)
        return string(l);
    if (type != AX_GGUF_ARRAY)
        return sizes[type] >= 4 ? number(l, sizes[type], &n) : skip_bytes(l, sizes[type]);
    if (!number(l, 4, &inner) || !number(l, 8, &n))
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (!value(l, inner, depth + 1))
            return false;
    return true;
}

static bool key(struct layout *l) {
    uint64_t type;
    return string(l) && number(l, 4, &type) && value(l, type, 0);
}

static bool info(struct layout *l) {
    uint64_t n_dims, v;
    if (!string(l) || !number(l, 4, &n_dims))
        return false;
    for (uint64_t d = 0; d < n_dims && d < 8; d++)
        if (!number(l, 8, &v))
            return false;
    return number(l, 4, &v) && number(l, 8, &v);
}

/* As far as the input can be followed. */
static void walk(struct layout *l) {
    uint64_t version, tensors, keys;
    l->at = 4;
    if (!number(l, 4, &version) || !number(l, 8, &tensors) || !number(l, 8, &keys))
        return;
    for (uint64_t i = 0; i < keys + tensors && l->n_pieces < MAX_PIECES; i++) {
        const size_t begin = l->at;
        const bool is_tensor = i >= keys;
        if (!(is_tensor ? info(l) : key(l)))
            return;
        l->pieces[l->n_pieces++] = (struct piece){begin, l->at, is_tensor};
    }
}

static void change_field(uint8_t *data, const struct field *f, unsigned r) {
    static const uint64_t values[] = {
        0,  1,   2,          3,        7,          8,          9,          30,
        32, 255, UINT32_MAX, 1u << 31, 1ULL << 32, 1ULL << 61, 1ULL << 63, UINT64_MAX};
    uint64_t v = 0;
    memcpy(&v, data + f->at, (size_t)f->bytes);
    switch (r % 4) {
    case 0:
        v++;
        break;
    case 1:
        v--;
        break;
    case 2:
        v ^= 1ULL << r / 4 % (8 * (unsigned)f->bytes);
        break;
    default:
        v = values[r / 4 % (sizeof values / sizeof *values)];
    }
    memcpy(data + f->at, &v, (size_t)f->bytes);
}

/* Adds to the count of keys (at byte 16) or tensors (at byte 8). */
static void count(uint8_t *data, bool is_tensor, uint64_t by) {
    uint64_t v;
    memcpy(&v, data + (is_tensor ? 8 : 16), 8);
    v += by;
    memcpy(data + (is_tensor ? 8 : 16), &v, 8);
}

static size_t repeat_piece(uint8_t *data, size_t size, size_t max_size, const struct piece *p) {
    const size_t n = p->end - p->begin;
    if (size + n > max_size)
        return size;
    memmove(data + p->end + n, data + p->end, size - p->end);
    memcpy(data + p->end, data + p->begin, n);
    count(data, p->is_tensor, 1);
    return size + n;
}

static size_t drop_piece(uint8_t *data, size_t size, const struct piece *p) {
    memmove(data + p->begin, data + p->end, size - p->end);
    count(data, p->is_tensor, UINT64_MAX);
    return size - (p->end - p->begin);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static struct layout l;
    if (size < 24 || memcmp(data, "GGUF", 4) != 0)
        return sample(data, max_size, seed);
    l = (struct layout){.data = data, .size = size};
    walk(&l);
    const unsigned r = seed / 8;
    switch (seed % 8) {
    case 0:
        return LLVMFuzzerMutate(data, size, max_size);
    case 1:
        return l.n_pieces ? drop_piece(data, size, &l.pieces[r % (unsigned)l.n_pieces]) : size;
    case 2:
        return l.n_pieces ? repeat_piece(data, size, max_size, &l.pieces[r % (unsigned)l.n_pieces])
                          : size;
    case 3: /* the bytes of one key or tensor info, at the same length */
        if (l.n_pieces) {
            const struct piece *p = &l.pieces[r % (unsigned)l.n_pieces];
            LLVMFuzzerMutate(data + p->begin, p->end - p->begin, p->end - p->begin);
        }
        return size;
    default:
        if (l.n_fields)
            change_field(data, &l.fields[r % (unsigned)l.n_fields],
                         r / (unsigned)l.n_fields + seed);
        return size;
    }
}
