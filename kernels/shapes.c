/* The shapes, op by op, in the order of kernels/ops.h. */
#include "kernels/shapes.h"

#define TA    AX_SHAPE_TRANS_A
#define TB    AX_SHAPE_TRANS_B
#define ACC   AX_SHAPE_ACCUMULATE
#define OUT32 AX_SHAPE_ACCUM_OUT
#define IN32  AX_SHAPE_ACCUM_IN

typedef const struct ax_shape shapes;
typedef const struct ax_shape_document documents;

static shapes shapes_fill[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

static shapes shapes_copy[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"to float32", .rows = 4, .cols = 33, .pad = 3, .to = "float32"},
    {"to bfloat16", .rows = 4, .cols = 65, .to = "bfloat16"},
    {"to float16", .rows = 4, .cols = 19, .to = "float16"},
    {"to float64", .rows = 2, .cols = 19, .to = "float64"},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

static shapes shapes_add[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"into sums", .rows = 3, .cols = 50, .flags = OUT32},
    {"from sums", .rows = 3, .cols = 50, .flags = IN32},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

static shapes shapes_gemm[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .flags = TB},
    {"y, one row", .rows = 1, .cols = 33, .inner = 17, .flags = TB},
    {"y, odd", .rows = 7, .cols = 13, .inner = 31, .flags = TB},
    {"y, tiles", .rows = 70, .cols = 96, .inner = 129, .flags = TB},
    {"y, strided, bias", .rows = 9, .cols = 40, .inner = 24, .pad = 8, .flags = TB | AX_SHAPE_BIAS},
    {"y, residual", .rows = 9, .cols = 40, .inner = 24, .flags = TB | AX_SHAPE_ADDEND},
    {"y, bias, residual", .rows = 5, .cols = 11, .inner = 70,
     .flags = TB | AX_SHAPE_BIAS | AX_SHAPE_ADDEND | OUT32},
    {"logits", .rows = 6, .cols = 101, .inner = 48, .flags = TB | OUT32},
    {"dx, odd", .rows = 7, .cols = 31, .inner = 13},
    {"dx, tiles", .rows = 33, .cols = 200, .inner = 72, .pad = 16},
    {"dx, adds", .rows = 7, .cols = 32, .inner = 16, .flags = ACC},
    {"dW, odd", .rows = 13, .cols = 31, .inner = 7, .flags = TA | ACC | OUT32},
    {"dW, one token", .rows = 24, .cols = 16, .inner = 1, .flags = TA | ACC | OUT32},
    {"dW, long", .rows = 48, .cols = 40, .inner = 300, .pad = 8, .flags = TA | ACC | OUT32},
    {"dW, first", .rows = 16, .cols = 24, .inner = 33, .flags = TA | OUT32},
    {"both transposed", .rows = 5, .cols = 9, .inner = 12, .flags = TA | TB},
    {"qkv", .big = true, .rows = 2048, .cols = 960, .inner = 576, .flags = TB},
    {"attention out", .big = true, .rows = 2048, .cols = 576, .inner = 576, .flags = TB},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072, .inner = 576, .flags = TB},
    {"down", .big = true, .rows = 2048, .cols = 576, .inner = 1536, .flags = TB},
    {"dx of gate_up", .big = true, .rows = 2048, .cols = 576, .inner = 3072},
    {"dW of gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 2048,
     .flags = TA | ACC | OUT32},
    {"head", .big = true, .rows = 256, .cols = 49152, .inner = 576, .flags = TB},
};

static shapes shapes_colsum[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37},
    {"tall, strided", .rows = 300, .cols = 9, .pad = 3},
    {"qkv", .big = true, .rows = 2048, .cols = 960},
};

static shapes shapes_embedding_forward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 11, .cols = 37, .inner = 13},
    {"shard", .rows = 40, .cols = 24, .inner = 10, .first = 7},
    {"strided", .rows = 5, .cols = 16, .inner = 9, .pad = 4},
    {"accum out", .rows = 6, .cols = 37, .inner = 9, .pad = 2, .flags = OUT32},
    {"vocabulary", .big = true, .rows = 2048, .cols = 576, .inner = 49152},
};

static shapes shapes_embedding_backward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"repeats", .rows = 50, .cols = 37, .inner = 4},
    {"shard", .rows = 40, .cols = 24, .inner = 10, .first = 7},
    {"strided", .rows = 5, .cols = 16, .inner = 9, .pad = 4},
    {"accum in", .rows = 6, .cols = 37, .inner = 4, .pad = 2, .flags = IN32},
    {"vocabulary", .big = true, .rows = 2048, .cols = 576, .inner = 49152},
};

static documents one_key[] = {{1, 1}};
static documents packed[] = {{5, 5}, {0, 0}, {1, 1}, {17, 17}, {0, 0}, {0, 0}};
static documents decoding[] = {{1, 9}, {1, 1}, {0, 6}, {1, 30}};
static documents prefix[] = {{3, 10}, {7, 7}};
static documents no_keys[] = {{4, 0}, {5, 2}, {3, 3}};
static documents tiles[] = {{150, 150}, {70, 70}};
static documents row_of_2048[] = {{2048, 2048}};
static documents cached_1024[] = {{1, 1024}};

#define DOCUMENTS(list) .documents = (list), .n_documents = (int)(sizeof(list) / sizeof((list)[0]))

static documents noised[] = {{5, 0}, {0, 0}, {1, 0}, {17, 0}, {0, 0}};

static shapes shapes_neftune[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .cols = 1},
    {"odd", DOCUMENTS(noised), .rows = 26, .cols = 37, .first = 3},
    {"strided", DOCUMENTS(noised), .rows = 23, .cols = 7, .pad = 5, .first = 1000003},
    {"part", DOCUMENTS(noised), .rows = 9, .cols = 19, .window = 3, .first = 5},
    {"beyond", DOCUMENTS(noised), .rows = 9, .cols = 19, .window = 20, .first = 5},
    {"hidden", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, .cols = 576},
};

static shapes shapes_rmsnorm_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE},
    {"strided", .rows = 4, .cols = 24, .pad = 8},
    {"heads", .rows = 5, .heads = 3, .head_dim = 16, .pad = 32},
    {"heads in place", .rows = 2, .heads = 2, .head_dim = 33, .flags = AX_SHAPE_IN_PLACE},
    {"accum in", .rows = 9, .cols = 85, .pad = 3, .flags = IN32},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = IN32},
};

static shapes shapes_rmsnorm_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE},
    {"adds, strided", .rows = 4, .cols = 24, .pad = 8, .flags = ACC},
    {"tall", .rows = 131, .cols = 20},
    {"heads", .rows = 5, .heads = 3, .head_dim = 16, .pad = 32},
    {"heads, adds", .rows = 3, .heads = 2, .head_dim = 33, .flags = ACC},
    {"frozen", .rows = 3, .cols = 37, .flags = AX_SHAPE_FROZEN},
    {"accum in, adds", .rows = 9, .cols = 85, .pad = 3, .flags = IN32 | ACC},
    {"all accum, in place", .rows = 9, .cols = 37, .flags = IN32 | AX_SHAPE_IN_PLACE},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = IN32 | ACC},
};

static shapes shapes_rope[] = {
    {"one", .rows = 1, .heads = 1, .head_dim = 2, .cols = 1, .inner = 4},
    {"odd half", .rows = 5, .heads = 3, .head_dim = 14, .cols = 7, .inner = 9},
    {"part of a head", .rows = 4, .heads = 2, .head_dim = 24, .cols = 8, .inner = 16},
    {"strided", .rows = 6, .heads = 2, .head_dim = 16, .cols = 8, .inner = 32, .pad = 64},
    {"inverse", .rows = 6, .heads = 2, .head_dim = 64, .cols = 32, .inner = 32,
     .flags = AX_SHAPE_INVERSE},
    {"queries", .big = true, .rows = 2048, .heads = 9, .head_dim = 64, .cols = 32, .inner = 2048,
     .pad = 384},
};

#define SMOLLM2_HEADS .heads = 9, .kv_heads = 3, .head_dim = 64

static shapes shapes_attention_forward[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {"packed", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13},
    {"strided", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 2, .head_dim = 16,
     .pad = 32},
    {"window", DOCUMENTS(packed), .rows = 23, .heads = 3, .kv_heads = 1, .head_dim = 8,
     .window = 4},
    {"window of one", DOCUMENTS(prefix), .rows = 10, .heads = 1, .kv_heads = 1, .head_dim = 8,
     .window = 1},
    {"not causal", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 1, .head_dim = 24,
     .flags = AX_SHAPE_NOT_CAUSAL},
    {"soft cap", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 32,
     .softcap = 1.5},
    {"sink", DOCUMENTS(no_keys), .rows = 13, .heads = 4, .kv_heads = 2, .head_dim = 16,
     .flags = AX_SHAPE_SINK},
    {"no keys", DOCUMENTS(no_keys), .rows = 12, .heads = 2, .kv_heads = 1, .head_dim = 16},
    {"decoding", DOCUMENTS(decoding), .rows = 3, .heads = 6, .kv_heads = 2, .head_dim = 16},
    {"paged", DOCUMENTS(decoding), .rows = 3, .heads = 6, .kv_heads = 2, .head_dim = 16,
     .block_size = 4},
    {"paged, window", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 8,
     .block_size = 3, .window = 5},
    {"tiles", DOCUMENTS(tiles), .rows = 220, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {"tiles, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1, .head_dim = 40,
     .window = 70},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, SMOLLM2_HEADS, .pad = 384},
    {"one token", .big = true, DOCUMENTS(cached_1024), .rows = 1, SMOLLM2_HEADS},
};

static shapes shapes_attention_backward[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {"packed", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13},
    {"strided", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 2, .head_dim = 16,
     .pad = 32},
    {"window", DOCUMENTS(packed), .rows = 23, .heads = 3, .kv_heads = 1, .head_dim = 8,
     .window = 4},
    {"not causal", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 1, .head_dim = 24,
     .flags = AX_SHAPE_NOT_CAUSAL},
    {"soft cap", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 32,
     .softcap = 1.5},
    {"sink", DOCUMENTS(no_keys), .rows = 13, .heads = 4, .kv_heads = 2, .head_dim = 16,
     .flags = AX_SHAPE_SINK},
    {"no keys", DOCUMENTS(no_keys), .rows = 12, .heads = 2, .kv_heads = 1, .head_dim = 16},
    {"tiles", DOCUMENTS(tiles), .rows = 220, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {"tiles, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1, .head_dim = 40,
     .window = 70},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, SMOLLM2_HEADS, .pad = 384},
};

static shapes shapes_scatter_rows[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 20},
    {"strided", .rows = 5, .cols = 16, .inner = 30, .pad = 8},
    {"to three", .rows = 7, .cols = 37, .inner = 30, .choices = 3},
    {"keys", .big = true, .rows = 2048, .cols = 192, .inner = 4096},
};

static shapes shapes_swiglu_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 24, .pad = 8},
    {"feed-forward", .big = true, .rows = 2048, .cols = 1536},
};

static shapes shapes_swiglu_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 24, .pad = 8},
    {"in place", .rows = 4, .cols = 21, .flags = AX_SHAPE_IN_PLACE},
    {"feed-forward", .big = true, .rows = 2048, .cols = 1536},
};

#define NORM AX_SHAPE_RENORMALISE
#define PAD  AX_SHAPE_PADDING
#define BAL  AX_SHAPE_BALANCE

static shapes shapes_router_forward[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 7, .groups = 5, .choices = 2, .flags = NORM},
    {"all", .rows = 6, .groups = 19, .choices = 19, .flags = NORM},
    {"ties", .rows = 40, .groups = 37, .choices = 3, .flags = AX_SHAPE_TIES},
    {"strided, padding", .rows = 9, .groups = 8, .choices = 2, .pad = 8, .first = 30,
     .flags = NORM | PAD},
    {"load", .rows = 150, .groups = 24, .choices = 4, .flags = BAL},
    {"load, padding", .rows = 33, .groups = 16, .choices = 2, .first = 5,
     .flags = NORM | BAL | PAD},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8, .flags = NORM | BAL},
};

static shapes shapes_router_balance[] = {
    {"one", .groups = 1, .choices = 1},
    {"odd", .groups = 37, .choices = 3},
    {"nobody", .groups = 8, .choices = 2, .flags = AX_SHAPE_SKIP},
};

static shapes shapes_router_backward[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 7, .groups = 5, .choices = 2, .flags = NORM},
    {"all", .rows = 6, .groups = 19, .choices = 19, .flags = NORM},
    {"slope", .rows = 5, .groups = 37, .choices = 3, .flags = BAL},
    {"strided, padding", .rows = 9, .groups = 16, .choices = 2, .pad = 8,
     .flags = NORM | BAL | PAD},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8, .flags = NORM | BAL},
};

static shapes shapes_group_rows[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 37, .groups = 5, .choices = 2},
    {"more groups than rows", .rows = 9, .groups = 40, .choices = 1},
    {"some in none", .rows = 30, .groups = 4, .choices = 3, .first = 6, .flags = PAD},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8},
};

static shapes shapes_combine_forward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .choices = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 20, .choices = 2, .flags = AX_SHAPE_ADDEND},
    {"strided, some none", .rows = 6, .cols = 24, .inner = 30, .choices = 4, .pad = 8,
     .flags = PAD | AX_SHAPE_ADDEND},
    {"sum", .rows = 5, .cols = 16, .inner = 15, .choices = 3, .flags = AX_SHAPE_UNWEIGHTED},
    {"gather", .rows = 5, .cols = 50, .inner = 9, .choices = 1, .flags = AX_SHAPE_UNWEIGHTED},
    {"accum out", .rows = 7, .cols = 37, .inner = 20, .choices = 2,
     .flags = OUT32 | AX_SHAPE_ADDEND},
    {"8 experts' rows", .big = true, .rows = 1024, .cols = 1024, .inner = 8192, .choices = 8,
     .flags = AX_SHAPE_ADDEND},
};

static shapes shapes_combine_backward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .choices = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 14, .choices = 2},
    {"strided, some none", .rows = 6, .cols = 24, .inner = 30, .choices = 4, .pad = 8,
     .flags = PAD},
    {"8 experts' rows", .big = true, .rows = 1024, .cols = 1024, .inner = 8192, .choices = 8},
};

static documents one_row[] = {{1, 0}};
static documents uneven[] = {{3, 0}, {0, 0}, {17, 0}, {1, 0}, {0, 0}};
static documents all_in_one[] = {{0, 0}, {33, 0}, {0, 0}};
static documents no_rows[] = {{0, 0}, {0, 0}};
static documents many[] = {{96, 0}, {160, 0}, {0, 0},   {64, 0}, {300, 0}, {20, 0},
                           {1, 0},  {127, 0}, {256, 0}, {0, 0},  {511, 0}, {513, 0}};

static shapes shapes_grouped_gemm[] = {
    {"one", DOCUMENTS(one_row), .rows = 1, .cols = 1, .inner = 1, .flags = TB},
    {"y", DOCUMENTS(uneven), .rows = 21, .cols = 13, .inner = 31, .flags = TB},
    {"y, apart", DOCUMENTS(uneven), .rows = 40, .cols = 24, .inner = 16, .pad = 8,
     .flags = TB | PAD},
    {"y, one expert", DOCUMENTS(all_in_one), .rows = 33, .cols = 50, .inner = 24, .flags = TB},
    {"y, nothing", DOCUMENTS(no_rows), .rows = 8, .cols = 16, .inner = 16, .flags = TB | PAD},
    {"dx", DOCUMENTS(uneven), .rows = 21, .cols = 31, .inner = 13},
    {"dx, apart", DOCUMENTS(uneven), .rows = 25, .cols = 16, .inner = 40, .pad = 8, .flags = PAD},
    {"dW", DOCUMENTS(uneven), .rows = 21, .cols = 31, .inner = 13, .flags = TA},
    {"dW, apart", DOCUMENTS(all_in_one), .rows = 40, .cols = 16, .inner = 24, .pad = 8,
     .flags = TA},
    {"gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1536, .inner = 1024,
     .flags = TB},
    {"dx of gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1024, .inner = 1536},
    {"dW of gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1024, .inner = 1536,
     .flags = TA},
};

static shapes shapes_softmax_stats[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"sums", .rows = 4, .cols = 130, .flags = IN32},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
};

static shapes shapes_softmax_merge[] = {
    {"one", .rows = 1, .shards = 1},
    {"odd", .rows = 7, .shards = 3},
    {"mean", .rows = 5, .shards = 2, .flags = AX_SHAPE_SMOOTHING},
    {"head chunk", .big = true, .rows = 2048, .shards = 1},
};

static shapes shapes_softmax_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"all gradients", .rows = 5, .cols = 37, .flags = AX_SHAPE_ALL_GRADS},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE | AX_SHAPE_SMOOTHING},
    {"sums to real", .rows = 4, .cols = 130, .flags = IN32},
    {"real to sums", .rows = 4, .cols = 50, .flags = OUT32},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16,
     .flags = AX_SHAPE_ALL_GRADS | AX_SHAPE_SMOOTHING},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .flags = AX_SHAPE_IN_PLACE},
};

static shapes shapes_nll_loss[] = {
    {"one", .rows = 1},
    {"odd", .rows = 37},
    {"smoothing", .rows = 20, .flags = AX_SHAPE_SMOOTHING},
    {"z-loss", .rows = 20, .flags = AX_SHAPE_Z_LOSS},
    {"both", .rows = 20, .flags = AX_SHAPE_SMOOTHING | AX_SHAPE_Z_LOSS},
    {"row", .big = true, .rows = 2048},
};

static shapes shapes_argmax[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 9, .cols = 37},
    {"ties", .rows = 40, .cols = 300},
    {"sums, strided", .rows = 5, .cols = 130, .pad = 6, .flags = IN32},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
};

static shapes shapes_sumsq[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003},
    {"blocks", .cols = 70001},
    {"gate_up", .big = true, .cols = 3072 * 576},
};

static shapes shapes_clip[] = {
    {"clipped", .cols = 1},
    {"nothing trained", .cols = 1, .flags = AX_SHAPE_SKIP},
};

#define COPY  AX_SHAPE_COPY
#define BF16S AX_SHAPE_BF16_STATE

static shapes shapes_adamw[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003},
    {"first step", .cols = 37, .flags = AX_SHAPE_FIRST_STEP | COPY},
    {"copy", .cols = 70, .flags = COPY},
    {"skipped", .cols = 70, .flags = COPY | AX_SHAPE_SKIP},
    {"bf16 moments", .cols = 1003, .first = 5, .flags = BF16S | COPY},
    {"bf16 moments, nearest", .cols = 70, .flags = BF16S | AX_SHAPE_NEAREST},
    {"remainder", .cols = 1003, .flags = AX_SHAPE_REMAINDER},
    {"bf16 master", .cols = 40001, .first = 3, .flags = AX_SHAPE_STOCHASTIC},
    {"all bf16", .cols = 1003, .first = 2, .flags = AX_SHAPE_STOCHASTIC | BF16S},
    {"all bf16, slice", .cols = 1003, .first = 2, .inner = 37,
     .flags = AX_SHAPE_STOCHASTIC | BF16S},
    {"gate_up", .big = true, .cols = 3072 * 576, .flags = COPY},
    {"gate_up, bf16 moments", .big = true, .cols = 3072 * 576, .flags = COPY | BF16S},
    {"gate_up, remainder", .big = true, .cols = 3072 * 576, .flags = AX_SHAPE_REMAINDER},
    {"gate_up, bf16 master", .big = true, .cols = 3072 * 576, .flags = AX_SHAPE_STOCHASTIC | BF16S},
};

/* first: what the first block is short of. */
static shapes shapes_adamw_8bit[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003, .flags = COPY},
    {"short first block", .cols = 700, .first = 56},
    {"within a block", .cols = 7, .first = 56},
    {"first step", .cols = 256, .flags = AX_SHAPE_FIRST_STEP | COPY},
    {"skipped", .cols = 70, .flags = COPY | AX_SHAPE_SKIP},
    {"remainder", .cols = 1003, .flags = AX_SHAPE_REMAINDER},
    {"bf16 master", .cols = 40001, .first = 3, .flags = AX_SHAPE_STOCHASTIC},
    {"gate_up", .big = true, .cols = 3072 * 576, .flags = COPY},
};

static shapes shapes_sgd[] = {
    {"plain", .cols = 1003},
    {"momentum", .cols = 37, .momentum = 0.9, .flags = COPY},
    {"first step", .cols = 37, .momentum = 0.9, .flags = AX_SHAPE_FIRST_STEP},
    {"nesterov", .cols = 70, .momentum = 0.9, .flags = AX_SHAPE_NESTEROV | COPY},
    {"skipped", .cols = 70, .momentum = 0.9, .flags = COPY | AX_SHAPE_SKIP},
    {"remainder", .cols = 1003, .momentum = 0.9, .flags = AX_SHAPE_REMAINDER},
    {"bf16 master", .cols = 1003, .first = 1, .flags = AX_SHAPE_STOCHASTIC},
    {"gate_up", .big = true, .cols = 3072 * 576, .momentum = 0.9, .flags = COPY},
};

static shapes shapes_lion[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003, .flags = COPY},
    {"skipped", .cols = 70, .flags = COPY | AX_SHAPE_SKIP},
    {"bf16 moment", .cols = 1003, .first = 5, .flags = BF16S},
    {"remainder", .cols = 40001, .flags = AX_SHAPE_REMAINDER | BF16S},
    {"bf16 master", .cols = 1003, .first = 3, .flags = AX_SHAPE_STOCHASTIC},
    {"gate_up", .big = true, .cols = 3072 * 576, .flags = COPY},
};

static shapes shapes_adafactor[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, .flags = COPY},
    {"tall", .rows = 1100, .cols = 35},
    {"wide", .rows = 3, .cols = 1300, .flags = AX_SHAPE_SCALE},
    {"torch", .rows = 20, .cols = 70, .flags = AX_SHAPE_TORCH | COPY},
    {"vector", .cols = 1003, .flags = AX_SHAPE_VECTOR | COPY},
    {"torch, vector", .cols = 40, .flags = AX_SHAPE_VECTOR | AX_SHAPE_TORCH},
    {"first step", .rows = 9, .cols = 33, .flags = AX_SHAPE_FIRST_STEP},
    {"skipped", .rows = 9, .cols = 33, .flags = COPY | AX_SHAPE_SKIP},
    {"remainder", .rows = 9, .cols = 33, .flags = AX_SHAPE_REMAINDER | AX_SHAPE_SCALE},
    {"bf16 master", .rows = 9, .cols = 600, .first = 5,
     .flags = AX_SHAPE_STOCHASTIC | AX_SHAPE_TORCH},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .flags = COPY},
};

static shapes shapes_muon_momentum[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, .flags = AX_SHAPE_NESTEROV},
    {"pieces", .rows = 300, .cols = 131},
    {"skipped", .rows = 9, .cols = 33, .flags = AX_SHAPE_SKIP},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .flags = AX_SHAPE_NESTEROV},
};

static shapes shapes_muon_apply[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, .flags = COPY},
    {"pieces", .rows = 300, .cols = 131, .flags = COPY},
    {"skipped", .rows = 9, .cols = 33, .flags = COPY | AX_SHAPE_SKIP},
    {"remainder", .rows = 9, .cols = 33, .flags = AX_SHAPE_REMAINDER},
    {"bf16 master", .rows = 40, .cols = 1000, .first = 5, .flags = AX_SHAPE_STOCHASTIC},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .flags = COPY},
};

#define PACKED_SHAPES                                                                              \
    {"nf4, one", .rows = 1, .cols = 1, .inner = 64}, {"nf4", .rows = 6, .cols = 128, .inner = 64}, \
        {"nf4, odd rows", .rows = 5, .cols = 37, .inner = 64},                                     \
        {"nf4, short blocks", .rows = 5, .cols = 48, .inner = 3},                                  \
        {"int8", .rows = 5, .cols = 70, .inner = 70, .quant = AX_QUANT_INT8},                      \
        {"int8, blocks", .rows = 5, .cols = 70, .inner = 14, .quant = AX_QUANT_INT8},              \
        {"fp8", .rows = 5, .cols = 130, .inner = 130, .quant = AX_QUANT_FP8},                      \
        {"map8", .rows = 3, .cols = 200, .inner = 256, .quant = AX_QUANT_MAP8},                    \
        {"nf4, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 64}, {                   \
        "int8, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 576,                     \
                         .quant = AX_QUANT_INT8                                                    \
    }

static shapes shapes_quantize[] = {PACKED_SHAPES};
static shapes shapes_dequantize[] = {PACKED_SHAPES};

static shapes shapes_dropout[] = {
    {"one", .rows = 1, .cols = 1, .dropout = 0.5},
    {"odd", .rows = 5, .cols = 37, .dropout = 0.1},
    {"off", .rows = 3, .cols = 20},
    {"in place", .rows = 4, .cols = 66, .dropout = 0.3, .flags = AX_SHAPE_IN_PLACE},
    {"adds, shard, strided", .rows = 6, .cols = 21, .pad = 5, .first = 3, .dropout = 0.5,
     .flags = ACC},
    {"some rows", .rows = 7, .cols = 30, .inner = 50, .first = 2, .dropout = 0.4},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .dropout = 0.05},
};

static shapes shapes_colscale[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37, .flags = AX_SHAPE_BIAS},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE | AX_SHAPE_ADDEND},
    {"bias only", .rows = 3, .cols = 20, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND | AX_SHAPE_SKIP},
    {"strided", .rows = 3, .cols = 24, .pad = 8, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND},
    {"all accum but bias", .rows = 5, .cols = 37,
     .flags = OUT32 | AX_SHAPE_BIAS | AX_SHAPE_ADDEND | AX_SHAPE_IN_PLACE},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072},
};

static shapes shapes_coldot[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37},
    {"tall, strided", .rows = 300, .cols = 9, .pad = 3},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072},
};

static shapes shapes_dora_norm[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 5, .cols = 37, .inner = 3},
    {"strided", .rows = 4, .cols = 80, .inner = 16, .pad = 8},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 16},
};

static shapes shapes_dora_scale[] = {
    {"one", .cols = 1},
    {"odd", .cols = 37},
    {"gate_up", .big = true, .cols = 3072},
};

/* An op without shapes does not compile: its list is named here. */
static const struct {
    const struct ax_shape *list;
    int n;
} OPS[AX_OP_COUNT] = {
#define ROW(op) [AX_OP_##op] = {shapes_##op, (int)(sizeof(shapes_##op) / sizeof(shapes_##op[0]))},
    AX_OP_LIST(ROW)
#undef ROW
};

const struct ax_shape *ax_op_shapes(enum ax_op op, int *n) {
    AX_ASSERT(op < AX_OP_COUNT);
    *n = OPS[op].n;
    return OPS[op].list;
}
