/* Generation with latent attention keeps latents, and multiplies queries and sums with them: the
 * log-probs are those of a pass that makes every head's keys and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/transfer.h"
#include "model/generate/generate.h"
#include "model/arch/kv_row.h"
#include "model/parts/head.h"
#include "tests/tiny.h"

enum { N = 37, VOCAB = 97, RANK = 10, ROPE = 6 };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

#define SIZES                                                                                      \
    ", \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, \"qk_rope_head_dim\": 6, \"v_head_dim\": "   \
    "5, "                                                                                          \
    "\"n_routed_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "         \
    "\"first_k_dense_replace\": 1"
#define V3     SIZES ", \"q_lora_rank\": 9, \"n_group\": 4"
#define INDEX  ", \"index_topk\": 11, \"index_n_heads\": 3, \"index_head_dim\": 8"
#define SPARSE SIZES INDEX ", \"q_lora_rank\": 9, \"n_group\": 4"
#define V2                                                                                         \
    SIZES ", \"q_lora_rank\": null, \"attention_bias\": true, \"rope_scaling\": "                  \
          "{\"type\": \"yarn\", \"factor\": 4, \"mscale\": 0.7, \"mscale_all_dim\": 1.0, "         \
          "\"original_max_position_embeddings\": 16}"

struct latent_case {
    const char *name, *family, *extra;
    int adapted; /* modules with adapters */
    bool dora;
    enum ax_storage store;
    const char *scheme; /* trained for; NULL = none */
};

static const struct latent_case cases[] = {
    {.name = "V3", .family = "deepseek_v3", .extra = V3},
    {.name = "V2", .family = "deepseek_v2", .extra = V2},
    {.name = "V3.2", .family = "deepseek_v32", .extra = SPARSE},
    {.name = "GLM-5",
     .family = "glm_moe_dsa",
     .extra = SIZES INDEX ", \"q_lora_rank\": 9, \"index_topk_pattern\": \"FSF\""},
    {.name = "V3.2 with LoRA", .family = "deepseek_v32", .extra = SPARSE, .adapted = 4},
    {.name = "LoRA", .family = "deepseek_v3", .extra = V3, .adapted = 1},
    {.name = "LoRA everywhere", .family = "deepseek_v2", .extra = V2, .adapted = 4},
    {.name = "DoRA", .family = "deepseek_v3", .extra = V3, .adapted = 4, .dora = true},
    {.name = "packed",
     .family = "deepseek_v3",
     .extra = V3,
     .adapted = 1,
     .dora = true,
     .store = AX_STORAGE_INT8},
    {.name = "rounded", .family = "deepseek_v3", .extra = V3, .adapted = 1, .scheme = "int8-int8"},
};

struct probe {
    const struct latent_case *how;
    struct ax_arch arch;
    enum ax_dtype dtype;
    int pass_tokens;
    int32_t tokens[N];
    double full[N - 1], cached[N - 1]; /* log-probs of tokens 1 … N − 1 */
    uint64_t fallbacks;
    int64_t cache_bytes;
};

/* Of every token, given those before, in one pass without a cache. */
static enum ax_status full_pass(struct probe *o, struct ax_model *m) {
    struct ax_runtime *rt = m->rt;
    struct ax_slot slot;
    struct ax_batch batch;
    const struct ax_document doc = {.n = N, .tokens = o->tokens};
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    static double values[N][VOCAB];
    AX_TRY(ax_slot_create(&slot, m, &rt->arena.slots[0]));
    ax_batch_allocate(&batch, &rt->arena.persistent, N, 1, N, 1, 0);
    AX_TRY(ax_batch_fill(&batch, rt->q, VOCAB, 1, &doc));
    struct ax_pass pass = {.model = m,
                           .batch = &batch,
                           .slot = &slot,
                           .recompute = AX_RECOMPUTE_INFERENCE,
                           .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&pass));
    AX_TRY(ax_pass_forward_all(&pass));
    struct ax_tensor logits = ax_tensor_2d(m->accum, NULL, N, VOCAB);
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(&pass, 0, N, &logits));
    if (!ax_runtime_planning(rt))
        AX_TRY(ax_tensor_read(rt->q, &logits, AX_F64, values));
    ax_pass_end(&pass);
    ax_slot_free(&slot);
    ax_stack_release(&rt->arena.scratch, mark);
    for (int t = 0; t + 1 < N && !ax_runtime_planning(rt); t++) {
        double sum = 0;
        for (int i = 0; i < VOCAB; i++)
            sum += exp(values[t][i]);
        o->full[t] = values[t][o->tokens[t + 1]] - log(sum);
    }
    return AX_OK;
}

static enum ax_status cached_passes(struct probe *o, struct ax_model *m) {
    const struct ax_generate_options go = {
        .n_seqs = 2, .max_prompt = N, .max_new = 1, .pass_tokens = o->pass_tokens, .scoring = true};
    struct ax_sequence s = {.n_prompt = N - 1,
                            .prompt = o->tokens,
                            .n_scored = N - 1,
                            .scored = o->tokens + 1,
                            .logprobs = o->cached};
    struct ax_generator g = {0};
    AX_TRY(ax_generator_create(&g, m, &go));
    const enum ax_status st = ax_generate(&g, 1, &s);
    o->cache_bytes = (int64_t)ax_tensor_bytes(&g.cache.k[0]);
    assert_ptr_equal((void *)g.cache.v[0].data, (void *)g.cache.k[0].data);
    ax_generator_free(&g);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    static char *modules[] = {"kv_b_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"};
    static char *plain[] = {"kv_b_proj", "q_proj", "kv_a_proj_with_mqa", "o_proj"};
    struct probe *o = ctx;
    struct ax_model m;
    struct ax_scheme scheme;
    const struct ax_peft_config adapter = {
        .r = 3,
        .alpha = 6,
        .dora = o->how->dora,
        .targets = {o->how->adapted, o->arch.mla.q_rank > 0 ? modules : plain}};
    struct ax_model_options mo = {.dtype = o->dtype,
                                  .max_positions = 64,
                                  .adapter = o->how->adapted ? &adapter : NULL,
                                  .base_store = o->how->store};
    if (o->how->scheme) {
        AX_TRY(ax_scheme_find("qat", o->how->scheme, &scheme));
        mo.qat = &scheme;
    }
    AX_TRY(ax_model_create(&m, &o->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 5);
    if (st == AX_OK)
        st = tiny_adapters(&m, 5);
    if (st == AX_OK)
        st = full_pass(o, &m);
    if (st == AX_OK)
        st = cached_passes(o, &m);
    o->fallbacks = rt->q->counters.fallbacks;
    ax_model_free(&m);
    return st;
}

static void latents_are_enough(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
        int threads;
        double tolerance;
    } ways[] = {{"ref", AX_F64, 1, 1e-11}, {"cpu", AX_F32, 2, 1e-5}, {"far", AX_F32, 1, 1e-5}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            static struct probe o[2];
            if (cases[k].scheme && ways[w].dtype != AX_F64)
                continue; /* what differs by a rounding may fall on another code */
            for (int cut = 0; cut < 2; cut++) {
                o[cut] = (struct probe){
                    .how = &cases[k], .dtype = ways[w].dtype, .pass_tokens = cut ? 5 : 0};
                must(tiny_arch(&o[cut].arch, cases[k].family, true, cases[k].extra));
                if (cases[k].scheme) { /* the first layer, which is dense: experts are refused */
                    o[cut].arch.n_layers = 1;
                    o[cut].arch.moe.n_experts = 0;
                }
                for (int i = 0; i < N; i++)
                    o[cut].tokens[i] =
                        (int32_t)ax_rng_below((struct ax_rng_key){31, 0, 0}, (uint64_t)i, VOCAB);
                const struct ax_runtime_options ro = {.backend = ways[w].backend,
                                                      .threads = ways[w].threads};
                must(ax_runtime_run(&ro, body, &o[cut], NULL));
                assert_int_equal(o[cut].fallbacks, 0);
                for (int t = 0; t + 1 < N; t++)
                    if (!(fabs(o[cut].full[t] - o[cut].cached[t]) <= ways[w].tolerance))
                        fail_msg("%s on %s: token %d: %.15g, with a cache %.15g", cases[k].name,
                                 ways[w].backend, t + 1, o[cut].full[t], o[cut].cached[t]);
                assert_int_equal(o[cut].cache_bytes, 2 * ax_kvcache_blocks(N + 1) * AX_KV_BLOCK *
                                                         (RANK + ROPE) *
                                                         (int64_t)ax_dtype_size(ways[w].dtype));
                ax_arch_free(&o[cut].arch);
            }
            assert_memory_equal(o[0].cached, o[1].cached, sizeof o->cached);
        }
}

/* Of a published model: 576 elements, on every rank of tp; what heads of their own would take. */
static void elements_of_a_token(void **state) {
    (void)state;
    static struct ax_layer_spec layers[61];
    for (int i = 0; i < 61; i++)
        layers[i].mixer = &ax_mixer_mla;
    struct ax_arch a = {.layers = layers,
                        .n_layers = 61,
                        .n_heads = 128,
                        .n_kv_heads = 128,
                        .head_dim = 192,
                        .v_head_dim = 128,
                        .mla = {.q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64}};
    assert_int_equal(ax_kv_token_bytes(&a, 1, AX_BF16), 61 * 576 * 2);
    assert_int_equal(ax_kv_token_bytes(&a, 8, AX_BF16), 61 * 576 * 2);
    a.index = (struct ax_index_config){.heads = 64, .head_dim = 128, .top = 2048};
    for (int i = 0; i < 61; i++)
        layers[i].mixer = i % 4 ? &ax_mixer_dsa_shared : &ax_mixer_dsa;
    assert_int_equal(ax_kv_token_bytes(&a, 8, AX_BF16), (61 * 576 + 16 * 128) * 2);
    a.mla = (struct ax_mla_config){0};
    a.index.head_dim = 0;
    assert_int_equal(ax_kv_token_bytes(&a, 1, AX_BF16), 61 * 128 * (192 + 128) * 2);
    assert_int_equal(ax_kv_token_bytes(&a, 8, AX_BF16), 61 * 16 * (192 + 128) * 2);
    assert_int_equal(ax_kv_token_bytes(&a, 256, AX_BF16), 61 * (192 + 128) * 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_are_enough),
        cmocka_unit_test(elements_of_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
