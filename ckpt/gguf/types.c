/* The names of --quant, and each tensor's type. */
#include "ckpt/gguf/types.h"

#include <stddef.h>
#include <strings.h>

enum {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ4_NL = 20,
    BF16 = 30
};

static const struct ax_gguf_quant quants[] = {
    {"f32", 0, F32},      {"f16", 1, F16},      {"bf16", 32, BF16}, {"q8_0", 7, Q8_0},
    {"q4_0", 2, Q4_0},    {"q4_1", 3, Q4_1},    {"q5_0", 8, Q5_0},  {"q3_k_m", 12, Q3_K},
    {"q4_k_m", 15, Q4_K}, {"q5_k_m", 17, Q5_K}, {"q6_k", 18, Q6_K},
};

const struct ax_gguf_quant *ax_gguf_quant_find(const char *name) {
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++)
        if (strcasecmp(quants[i].name, name) == 0)
            return &quants[i];
    return NULL;
}

/* The layers whose v and down projections get more bits. */
static bool more_bits(int64_t layer, int64_t layers) {
    const int64_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

/* In models with 80 layers (70B), v has an eighth of q's rows, so that more bits for it cost
 * little. */
static uint32_t of_values(uint32_t type, const struct ax_gguf_place *p) {
    if (p->experts == 8)
        return Q8_0;
    if (type == Q3_K)
        type = p->layer < 2 ? Q5_K : Q4_K;
    else if ((type == Q4_K || type == Q5_K) && more_bits(p->layer, p->layers))
        type = Q6_K;
    return p->layers == 80 && type == Q4_K ? Q5_K : type;
}

static uint32_t of_down(uint32_t type, const struct ax_gguf_place *p) {
    if (type == Q3_K)
        return p->layer < p->layers / 16 ? Q5_K : Q4_K;
    return (type == Q4_K || type == Q5_K) && more_bits(p->layer, p->layers) ? Q6_K : type;
}

static uint32_t of_attention(uint32_t type, const struct ax_gguf_place *p) {
    if (p->experts == 8)
        return type == Q3_K || type == Q4_K ? Q5_K : type;
    return type == Q3_K ? Q4_K : type;
}

static uint32_t wanted(const struct ax_gguf_quant *q, const struct ax_gguf_place *p) {
    switch (p->part) {
    case AX_GGUF_HEAD:
        return q->type == Q8_0 ? Q8_0 : Q6_K;
    case AX_GGUF_EMBEDDING:
        return p->tied && q->type != Q8_0 ? Q6_K : q->type;
    case AX_GGUF_KEYS: /* small compared with eight experts */
        return p->experts == 8 ? Q8_0 : q->type;
    case AX_GGUF_VALUES:
        return of_values(q->type, p);
    case AX_GGUF_ATTENTION:
        return of_attention(q->type, p);
    case AX_GGUF_DOWN:
        return of_down(q->type, p);
    default:
        return q->type;
    }
}

/* The type itself, or one whose blocks divide the rows. */
static uint32_t fitting(uint32_t type, int64_t cols) {
    static const uint32_t smaller[][2] = {{Q3_K, IQ4_NL}, {Q4_K, Q5_0}, {Q5_K, Q5_1}, {Q6_K, Q8_0}};
    if (cols % ax_block_type_find(type)->elements == 0)
        return type;
    for (size_t i = 0; cols % 32 == 0 && i < sizeof smaller / sizeof *smaller; i++)
        if (smaller[i][0] == type)
            return smaller[i][1];
    return F16;
}

const struct ax_block_type *ax_gguf_pick_type(const struct ax_gguf_quant *q,
                                              const struct ax_gguf_place *p) {
    const bool plain = ax_block_type_find(q->type)->elements == 1;
    if (p->part == AX_GGUF_VECTOR || p->part == AX_GGUF_ROUTER)
        return ax_block_type_find(F32);
    return ax_block_type_find(plain ? q->type : fitting(wanted(q, p), p->cols));
}
