/* What must give the same bits, and does: recompute modes, thread counts, packing, and the plan.
 * Each row of docs/determinism.md names its test here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/parts/head.h"
#include "tests/tiny.h"
#include "tests/long.h"

static const int64_t lengths[] = {23, 1, 17, 40, 0};

static const struct {
    const char *type, *extra;
    bool tied;
} models[] = {
    {"llama", "", false},
    {"llama", ", \"attention_bias\": true, \"mlp_bias\": true", true},
    {"mistral", ", \"sliding_window\": 8", false},
    {"qwen2", "", true},
    {"qwen3", "", false},
    {"olmo2", "", false},
    {"granite",
     ", \"embedding_multiplier\": 5, \"attention_multiplier\": 0.4, \"residual_multiplier\": 0.6, "
     "\"logits_scaling\": 1.5",
     true},
    {"smollm3", ", \"no_rope_layers\": [1, 0, 1]", false},
    {"gemma2",
     ", \"sliding_window\": 8, \"attn_logit_softcapping\": 2.5, \"final_logit_softcapping\": 4, "
     "\"query_pre_attn_scalar\": 20",
     true},
    {"gemma3_text",
     ", \"sliding_window\": 8, \"sliding_window_pattern\": 2, \"query_pre_attn_scalar\": 20",
     false},
    {"phi3", ", \"partial_rotary_factor\": 0.5", false},
    {"glm4", ", \"attention_bias\": true", false},
    {"gpt_oss",
     ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 8, "
     "\"swiglu_limit\": 0.4",
     false},
    {"deepseek_v2",
     ", \"q_lora_rank\": null, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22",
     false},
    {"deepseek_v3",
     ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 4, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"topk_group\": 2, "
     "\"first_k_dense_replace\": 1",
     true},
    {"deepseek_v32",
     ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 4, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"topk_group\": 2, "
     "\"first_k_dense_replace\": 2, \"index_topk\": 5, \"index_n_heads\": 3, \"index_head_dim\": 9",
     true},
    {"glm_moe_dsa",
     ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"first_k_dense_replace\": 2, "
     "\"index_topk\": 6, \"index_n_heads\": 4, \"index_head_dim\": 8, "
     "\"index_topk_pattern\": \"FSF\"",
     false},
    {"lfm2", ", \"full_attn_idxs\": [1], \"block_multiple_of\": 16, \"conv_bias\": true", true},
    {"qwen3_next",
     ", \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": "
     "4, "
     "\"linear_key_head_dim\": 12, \"linear_value_head_dim\": 10, \"num_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, "
     "\"shared_expert_intermediate_size\": 30",
     false},
    {"granitemoehybrid",
     ", \"num_local_experts\": 0, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", "
     "\"mamba_n_groups\": 2, \"mamba_d_state\": 12, \"shared_intermediate_size\": 40, "
     "\"layer_types\": [\"mamba\", \"attention\", \"mamba\"]",
     true},
    {"llama4_text",
     ", \"intermediate_size_mlp\": 38, \"num_local_experts\": 4, \"attention_chunk_size\": 7, "
     "\"floor_scale\": 3, \"no_rope_layer_interval\": 3, \"interleave_moe_layer_step\": 2",
     false},
    {"mimo_v2_flash",
     ", \"v_head_dim\": 10, \"sliding_window_size\": 7, \"n_routed_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"partial_rotary_factor\": 0.5",
     false},
    {"nemotron_h",
     ", \"hybrid_override_pattern\": \"M*E\", \"mamba_num_heads\": 8, \"mamba_head_dim\": 10, "
     "\"n_groups\": 2, \"ssm_state_size\": 12, \"n_routed_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"moe_latent_size\": 14, "
     "\"moe_shared_expert_intermediate_size\": 30",
     false},
    {"falcon_h1",
     ", \"mamba_d_ssm\": 80, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", "
     "\"mamba_n_groups\": 2, \"mamba_d_state\": 12, \"attention_in_multiplier\": 0.9, "
     "\"attention_out_multiplier\": 1.2, \"ssm_in_multiplier\": 1.3, \"ssm_out_multiplier\": 0.8, "
     "\"mlp_multipliers\": [0.9, 0.7], \"ssm_multipliers\": [0.9, 1.1, 0.8, 1.2, 0.7]",
     true},
    {"gemma4_text",
     ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "
     "\"sliding_window\": 8, \"global_head_dim\": 20, \"num_kv_shared_layers\": 1, "
     "\"hidden_size_per_layer_input\": 6, \"vocab_size_per_layer_input\": 97, "
     "\"use_double_wide_mlp\": true",
     true},
    {"gemma4_text",
     ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"full_attention\"], "
     "\"sliding_window\": 8, \"global_head_dim\": 20, \"num_global_key_value_heads\": 1, "
     "\"attention_k_eq_v\": true, \"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true, "
     "\"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 22",
     false},
    {"gemma3n_text",
     ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "
     "\"sliding_window\": 8, \"num_kv_shared_layers\": 1, \"hidden_size_per_layer_input\": 6, "
     "\"vocab_size_per_layer_input\": 60, \"altup_num_inputs\": 3, \"laurel_rank\": 5, "
     "\"activation_sparsity_pattern\": [0.5, 0, 0.8]",
     true},
    {"qwen2_moe",
     ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
     "\"shared_expert_intermediate_size\": 30",
     false},
    {"kimi_linear",
     ", \"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": [1, 3], "
     "\"num_heads\": 3, \"head_dim\": 12}, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"num_experts\": 4, \"num_experts_per_token\": "
     "2, "
     "\"moe_intermediate_size\": 22",
     false},
};

static const struct {
    const char *backend;
    enum ax_dtype dtype;
} kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void same_bits(const struct tiny_run *a, const struct tiny_run *b, const char *what) {
    if (a->grads != b->grads || a->masters != b->masters || a->loss != b->loss)
        fail_msg("%s: grads %d masters %d loss %.17g %.17g", what, a->grads == b->grads,
                 a->masters == b->masters, a->loss, b->loss);
    assert_true(a->loss > 0 && isfinite(a->loss) && a->grad_norm > 0);
}

static void recompute_modes_are_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) {
        struct ax_arch arch;
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        for (size_t k = 0; k < COUNT(kinds); k++) {
            struct tiny_run runs[3];
            size_t total[3];
            for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
                struct tiny_run *r = &runs[mode];
                *r = (struct tiny_run){.arch = &arch, .lengths = lengths, .steps = 3, .seed = 7};
                r->o = tiny_options(kinds[k].dtype, (enum ax_recompute)mode, 2, lengths);
                must(tiny_run(r, kinds[k].backend, 2));
                total[mode] = r->plan.slot[0][AX_PHASE_TRAIN];
                same_bits(&runs[0], r, ax_recompute_name((enum ax_recompute)mode));
            }
            /* and each mode keeps less than the one before */
            assert_true(total[AX_RECOMPUTE_SELECTIVE] < total[AX_RECOMPUTE_OFF]);
            assert_true(total[AX_RECOMPUTE_ON] < total[AX_RECOMPUTE_SELECTIVE]);
        }
        ax_arch_free(&arch);
    }
}

static void thread_counts_are_bitwise(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "qwen3", true, ""));
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct tiny_run one = {.arch = &arch, .lengths = lengths, .steps = 3, .seed = 3};
        one.o = tiny_options(kinds[k].dtype, AX_RECOMPUTE_OFF, 1, lengths);
        must(tiny_run(&one, kinds[k].backend, 1));
        for (int threads = 2; threads <= 5; threads++) {
            struct tiny_run more = one;
            must(tiny_run(&more, kinds[k].backend, threads));
            same_bits(&one, &more, "threads");
        }
    }
    ax_arch_free(&arch);
}

/* A run that allocates nothing in a step, and whose marks are the plan (tiny_run fails otherwise).
 */
static void steps_do_not_allocate(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct tiny_run r = {.arch = &arch, .lengths = lengths, .steps = 6, .seed = 3};
        r.o = tiny_options(kinds[k].dtype, AX_RECOMPUTE_SELECTIVE, 2, lengths);
        must(tiny_run(&r, kinds[k].backend, 2));
        assert_int_equal(r.allocations, 0);
    }
    ax_arch_free(&arch);
}

/* Hidden states and logits of each document alone, and packed with others. */
struct packing {
    const struct ax_arch *arch;
    enum ax_dtype dtype;
    int first, n; /* documents of `lengths` in this run */
    unsigned char logits[1 << 20];
    size_t bytes;
};

static int32_t document_token(int doc, int64_t i) {
    return (int32_t)((doc * 31 + i * 7 + i * i) % 97);
}

static enum ax_status pack_body(struct ax_runtime *rt, void *ctx) {
    struct packing *p = ctx;
    struct ax_model m;
    struct ax_slot slot;
    struct ax_batch batch;
    int32_t tokens[256];
    struct ax_document docs[8];
    int64_t total = 0, longest = 0;
    for (int d = 0; d < p->n; d++) {
        docs[d] = (struct ax_document){.n = lengths[p->first + d], .tokens = tokens + total};
        for (int64_t i = 0; i < docs[d].n; i++)
            tokens[total + i] = document_token(p->first + d, i);
        total += docs[d].n;
        longest = docs[d].n > longest ? docs[d].n : longest;
    }
    const struct ax_model_options mo = {.dtype = p->dtype, .max_positions = 64};
    AX_TRY(ax_model_create(&m, p->arch, rt, &mo));
    AX_TRY(ax_model_init_random(&m, 5));
    AX_TRY(ax_slot_create(&slot, &m, &rt->arena.slots[0]));
    ax_batch_allocate(&batch, &rt->arena.persistent, total, p->n, longest, 1, 0);
    ax_batch_cut(&batch, &rt->arena.persistent, p->arch->chunk);
    AX_TRY(ax_batch_fill(&batch, rt->q, p->arch->vocab_size, p->n, docs));
    struct ax_pass pass = {.model = &m,
                           .batch = &batch,
                           .slot = &slot,
                           .recompute = AX_RECOMPUTE_INFERENCE,
                           .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&pass));
    AX_TRY(ax_pass_forward_all(&pass));
    struct ax_tensor logits = ax_tensor_2d(m.accum, NULL, total, p->arch->vocab_size);
    p->bytes = ax_tensor_bytes(&logits);
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", p->bytes);
    AX_TRY(ax_pass_logits(&pass, 0, total, &logits));
    if (!ax_runtime_planning(rt))
        memcpy(p->logits, logits.data, p->bytes);
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(&pass);
    ax_slot_free(&slot);
    ax_model_free(&m);
    return AX_OK;
}

static void expect_packed_as_alone(const struct ax_arch *arch) {
    static struct packing together, alone;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        const struct ax_runtime_options ro = {.backend = kinds[k].backend, .threads = 2};
        together = (struct packing){.arch = arch, .dtype = kinds[k].dtype, .n = 4};
        must(ax_runtime_run(&ro, pack_body, &together, NULL));
        size_t at = 0;
        for (int d = 0; d < 4; d++) {
            alone = (struct packing){.arch = arch, .dtype = kinds[k].dtype, .first = d, .n = 1};
            must(ax_runtime_run(&ro, pack_body, &alone, NULL));
            if (memcmp(together.logits + at, alone.logits, alone.bytes) != 0)
                fail_msg("%s: document %d differs when packed (%s %s)", arch->family->model_type, d,
                         kinds[k].backend, ax_dtype_info(kinds[k].dtype)->name);
            at += alone.bytes;
        }
        assert_int_equal(at, together.bytes);
    }
}

/* Documents that choose among their keys, and, alone, one that has no more of them than it may choose: it sees
 * all in either, but in a pass of its own there is no choice. */
static void packed_equals_alone(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "mistral", false, ", \"sliding_window\": 8"));
    expect_packed_as_alone(&arch);
    ax_arch_free(&arch);
    for (size_t i = 0; i < COUNT(models); i++) {
        if (!strstr(models[i].extra, "index_topk"))
            continue;
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        arch.index.top = 17; /* of lengths, one is less and one equal */
        expect_packed_as_alone(&arch);
        ax_arch_free(&arch);
    }
}

/* Documents in one micro-batch or spread over two: the same sums in another order. */
static void accumulation_equals_one_batch(void **state) {
    (void)state;
    static const int64_t half[] = {23, 17, 0}, whole[] = {23, 17, 23, 17, 0};
    static const double tolerance[] = {1e-12, 1e-5};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    for (int k = 0; k < 2; k++) {
        struct tiny_run two = {.arch = &arch, .lengths = half, .steps = 1, .want_grads = true};
        struct tiny_run one = {.arch = &arch, .lengths = whole, .steps = 1, .want_grads = true};
        two.o = tiny_options(kinds[k].dtype, AX_RECOMPUTE_OFF, 2, half);
        one.o = tiny_options(kinds[k].dtype, AX_RECOMPUTE_OFF, 1, whole);
        must(tiny_run(&two, kinds[k].backend, 2));
        must(tiny_run(&one, kinds[k].backend, 2));
        assert_true(fabs(one.loss - two.loss) <= tolerance[k] * one.loss);
        double diff = 0, norm = 0;
        for (int64_t i = 0; i < one.n_grads; i++) {
            diff += pow(one.grad_values[i] - two.grad_values[i], 2);
            norm += pow(one.grad_values[i], 2);
        }
        assert_true(norm > 0);
        if (sqrt(diff / norm) > tolerance[k])
            fail_msg("gradients differ by %g", sqrt(diff / norm));
        ax_free(one.grad_values);
        ax_free(two.grad_values);
    }
    ax_arch_free(&arch);
}

/* Parameters of one linear lie apart where only some of them train. */
struct partly {
    struct ax_arch arch;
    const struct ax_peft_names *unfrozen;
    const char *names[4]; /* of parameters that train in any case; NULL ends them */
    double loss;
    double *grads;
    int64_t n;
};

static enum ax_status train_partly(struct ax_runtime *rt, void *ctx) {
    struct partly *p = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, lengths);
    o.model.unfrozen = p->unfrozen;
    AX_TRY(ax_step_create(&s, rt, &p->arch, &o));
    must(ax_model_init_random(&s.model, 3));
    for (int i = 0; i < s.model.n_params && !ax_runtime_planning(rt); i++) {
        const struct ax_param *b = &s.model.params[i]; /* biases begin as 0 and would not show */
        const struct ax_tensor w = ax_model_value(&s.model, b);
        for (int64_t k = 0; strstr(b->name, ".bias") && k < ax_param_numel(b); k++)
            ((double *)w.data)[k] = 0.01 * (double)(k % 7) + 0.05 * i;
    }
    must(tiny_fill(&s, lengths, 3));
    must(ax_step_gradients(&s, &r));
    p->loss = r.loss;
    must(ax_alloc(&p->grads, (size_t)ax_model_parameters(&s.model), sizeof *p->grads));
    p->n = 0;
    for (int i = 0; i < s.model.n_params && !ax_runtime_planning(rt); i++)
        for (int k = 0; p->names[k]; k++) {
            const struct ax_tensor g = ax_model_grad(&s.model, &s.model.params[i]);
            if (!strstr(s.model.params[i].name, p->names[k]))
                continue;
            memcpy(p->grads + p->n, g.data, ax_tensor_bytes(&g));
            p->n += ax_tensor_numel(&g);
        }
    if (ax_runtime_planning(rt))
        ax_free(p->grads);
    ax_step_free(&s);
    return AX_OK;
}

static void frozen_neighbors_change_nothing(void **state) {
    (void)state;
    static char *weights[] = {"model.embed_tokens.weight",
                              "model.layers.[0-9]+.self_attn.v_proj.weight",
                              "model.layers.[0-9]+.mlp.gate_proj.weight"};
    static char *biases[] = {"model.embed_tokens.weight",
                             "model.layers.[0-9]+.self_attn.k_proj.bias",
                             "model.layers.[0-9]+.mlp.up_proj.bias"};
    static const struct {
        struct ax_peft_names unfrozen;
        const char *names[4];
    } cases[] = {{{3, weights}, {"embed_tokens", "v_proj.weight", "gate_proj.weight"}},
                 {{3, biases}, {"embed_tokens", "k_proj.bias", "up_proj.bias"}}};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    for (int i = 0; i < 2; i++) {
        struct partly all = {0};
        must(tiny_arch(&all.arch, "llama", false, models[1].extra));
        memcpy(all.names, cases[i].names, sizeof all.names);
        struct partly some = all;
        some.unfrozen = &cases[i].unfrozen;
        must(ax_runtime_run(&ro, train_partly, &all, NULL));
        must(ax_runtime_run(&ro, train_partly, &some, NULL));
        assert_true(fabs(all.loss - some.loss) <= 1e-12 * all.loss);
        assert_true(all.n == some.n && all.n > 0);
        double diff = 0, norm = 0;
        for (int64_t k = 0; k < all.n; k++) {
            diff += pow(all.grads[k] - some.grads[k], 2);
            norm += pow(all.grads[k], 2);
        }
        if (!(sqrt(diff / norm) <= 1e-12))
            fail_msg("case %d: gradients differ by %g", i, sqrt(diff / norm));
        ax_free(all.grads);
        ax_free(some.grads);
        ax_arch_free(&all.arch);
    }
}

/* NEFTune: drawn once per pass, so recompute, threads and a second run do not show; other in the
 * next step, and gone in inference (evaluation runs without a backward). */
static void noise_is_drawn_once(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    struct tiny_run runs[5];
    for (int i = 0; i < 5; i++) { /* recompute off, on; two threads; another seed; no noise */
        runs[i] = (struct tiny_run){.arch = &arch, .lengths = lengths, .steps = 3, .seed = 7};
        runs[i].o = tiny_options(AX_BF16, i == 1 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_OFF, 2, lengths);
        runs[i].o.neftune_alpha = i == 4 ? 0 : 5;
        runs[i].o.seed = i == 3 ? 2 : 1;
        must(tiny_run(&runs[i], "cpu", i == 2 ? 2 : 1));
    }
    same_bits(&runs[0], &runs[1], "recompute");
    same_bits(&runs[0], &runs[2], "threads");
    assert_true(runs[0].loss != runs[3].loss && runs[0].loss != runs[4].loss);
    ax_arch_free(&arch);
}

/* NEFTune: Gemma's factor leaves the noise as it is, others multiply it, too. 16 changes no bit of a mantissa. */
static void noise_has_no_factor_of_gemma(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    arch.embedding_scale = 16;
    struct ax_arch gemma = arch;
    gemma.embedding_scale_rounded = true;
    struct tiny_run scaled = {.arch = &arch, .lengths = lengths, .steps = 3, .seed = 7};
    scaled.o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    scaled.o.neftune_alpha = 5;
    struct tiny_run plain = scaled;
    plain.arch = &gemma;
    plain.o.neftune_alpha = 16 * scaled.o.neftune_alpha;
    must(tiny_run(&scaled, "cpu", 1));
    must(tiny_run(&plain, "cpu", 1));
    same_bits(&scaled, &plain, "noise");
    ax_arch_free(&arch);
}

/* Training on memory that the host cannot touch, in an order that only the queue gives: see
 * tests/doubles/far.c. */
static void far_memory_is_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) {
        struct ax_arch arch;
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        for (size_t k = 0; k < COUNT(kinds); k++) {
            struct tiny_run host = {.arch = &arch, .lengths = lengths, .steps = 3, .seed = 7};
            host.o = tiny_options(kinds[k].dtype, AX_RECOMPUTE_SELECTIVE, 2, lengths);
            struct tiny_run far = host;
            must(tiny_run(&host, kinds[k].backend, 2));
            must(tiny_run(&far, "far", 2));
            same_bits(&host, &far, models[i].type);
        }
        ax_arch_free(&arch);
    }
}

/* Longer than the tables are for: they are filled again, and the passes before still see theirs. */
static void far_tables_follow_the_longest_sequence(void **state) {
    (void)state;
    static const int64_t longer[] = {70, 3, 0};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false,
                   ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}"));
    struct tiny_run host = {.arch = &arch, .lengths = longer, .steps = 2, .seed = 7};
    host.o = tiny_options(AX_F32, AX_RECOMPUTE_ON, 1, longer);
    struct tiny_run far = host;
    must(tiny_run(&host, "cpu", 2));
    must(tiny_run(&far, "far", 2));
    same_bits(&host, &far, "dynamic rope");
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(recompute_modes_are_bitwise)),
        cmocka_unit_test(thread_counts_are_bitwise),
        cmocka_unit_test(steps_do_not_allocate),
        cmocka_unit_test(packed_equals_alone),
        cmocka_unit_test(accumulation_equals_one_batch),
        cmocka_unit_test(frozen_neighbors_change_nothing),
        cmocka_unit_test(noise_is_drawn_once),
        cmocka_unit_test(noise_has_no_factor_of_gemma),
        LONG_TEST(cmocka_unit_test(far_memory_is_bitwise)),
        cmocka_unit_test(far_tables_follow_the_longest_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
