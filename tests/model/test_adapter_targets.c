/* How a mixture's targets are written: by names that PEFT understands alike whether experts are modules or
 * parameters, and that give the model the same adapters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "ckpt/hf/config.h"
#include "model/adapter/targets.h"
#include "model/model.h"
#include "tests/golden_files.h"

#define MAX_TENSORS 256

static char *q_down[] = {"q_proj", "down_proj"}, *o_down[] = {"o_proj", "down_proj"};
static char *up[] = {"q_proj", "up_proj"}, *mlp[] = {"mlp.gate_proj", "shared_experts.up_proj"};
static char *experts[] = {"mlp.experts.down_proj"}, *not_down[] = {"down_proj", "o_proj"};
static int64_t one[] = {1};

struct a_case {
    const char *model;
    struct ax_peft_config c; /* r and alpha are 4 and 8 */
    const char *targets, *parameters;
};

/* Attention of deepseek_v3 and qwen2_moe; layer 0 of the former is dense, all of the latter have a shared
 * expert. */
#define MLA  "q_a_proj kv_a_proj_with_mqa q_b_proj kv_b_proj o_proj"
#define QKVO "q_proj k_proj v_proj o_proj"
static const struct a_case cases[] = {
    {"deepseek_v3",
     {.all_linear = true},
     MLA,
     "mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight "
     "mlp.shared_experts.gate_proj.weight mlp.shared_experts.up_proj.weight "
     "mlp.shared_experts.down_proj.weight"},
    {"qwen2_moe",
     {.all_linear = true},
     QKVO " shared_expert_gate",
     "mlp.shared_expert.gate_proj.weight mlp.shared_expert.up_proj.weight "
     "mlp.shared_expert.down_proj.weight"},
    {"qwen3_moe", {.all_linear = true}, QKVO, ""},
    {"mixtral", {.all_linear = true, .parameters = {1, experts}}, QKVO, "mlp.experts.down_proj"},
    {"qwen2_moe", {.targets = {2, q_down}}, "q_proj", "mlp.shared_expert.down_proj.weight"},
    {"qwen2_moe", {.targets = {2, up}}, "q_proj", "mlp.shared_expert.up_proj.weight"},
    {"deepseek_v3",
     {.targets = {2, mlp}},
     "",
     "mlp.gate_proj.weight mlp.shared_experts.up_proj.weight"},
    /* layers, exclusions and expressions that choose some of several: full names */
    {"deepseek_v3",
     {.targets = {2, o_down}, .n_layers = 1, .layers = one},
     "o_proj",
     "model.layers.1.mlp.shared_experts.down_proj.weight"},
    {"qwen2_moe",
     {.all_linear = true, .exclude = {2, not_down}},
     "q_proj k_proj v_proj shared_expert_gate",
     "mlp.shared_expert.gate_proj.weight mlp.shared_expert.up_proj.weight"},
    {"qwen3_moe",
     {.target_regex = "model\\.layers\\.1\\.self_attn\\.(q|o)_proj|.*k_proj|lm_head"},
     "lm_head k_proj model.layers.1.self_attn.q_proj model.layers.1.self_attn.o_proj",
     ""},
    {"qwen2_moe",
     {.target_regex = ".*layers\\.0\\..*(v|gate)_proj|.*embed_tokens"},
     "embed_tokens model.layers.0.self_attn.v_proj",
     "model.layers.0.mlp.shared_expert.gate_proj.weight"},
    /* other parts of the base could have the same endings */
    {"qwen2_moe",
     {.targets = {2, q_down}, .within = "model.language_"},
     "q_proj",
     "model.language_model.layers.0.mlp.shared_expert.down_proj.weight "
     "model.language_model.layers.1.mlp.shared_expert.down_proj.weight"},
    /* there is no DoRA of parameters */
    {"deepseek_v3",
     {.targets = {2, o_down}, .dora = true},
     "o_proj mlp.down_proj mlp.shared_experts.down_proj",
     ""},
    {"deepseek_v3",
     {.all_linear = true, .dora = true},
     MLA " mlp.gate_proj mlp.up_proj mlp.down_proj mlp.shared_experts.gate_proj "
         "mlp.shared_experts.up_proj mlp.shared_experts.down_proj",
     ""},
    {"gpt_oss", {.all_linear = true}, QKVO, ""},
};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The adapters that a config gives a model; with `settle`, its targets are named anew. */
struct looks {
    int n;
    char names[MAX_TENSORS][AX_NAME_MAX];
    int64_t shapes[MAX_TENSORS][2];
};

static void look(const char *model, struct ax_peft_config *c, bool settle, struct looks *out) {
    char folder[64];
    struct ax_arch arch;
    struct ax_runtime rt;
    struct ax_model m;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    const struct ax_model_options mo = {.dtype = AX_F32, .max_positions = 1, .adapter = c};
    snprintf(folder, sizeof folder, "models/%s", model);
    must(ax_arch_load(&arch, golden_path(folder)));
    must(ax_runtime_open_planning(&rt, &ro));
    must(ax_model_create(&m, &arch, &rt, &mo));
    out->n = 0;
    for (int i = 0; i < m.n_params; i++)
        if (m.params[i].adapter) {
            assert_true(out->n < MAX_TENSORS);
            assert_true(
                m.params[i].decay); /* magnitudes as well, as transformers' trainer has it */
            snprintf(out->names[out->n], AX_NAME_MAX, "%s", m.params[i].name);
            memcpy(out->shapes[out->n++], m.params[i].shape, sizeof *out->shapes);
        }
    if (settle)
        must(ax_adapter_settle_targets(&m, c));
    ax_model_free(&m);
    ax_runtime_close(&rt);
    ax_arch_free(&arch);
}

/* A config of our own, as a copy that can be changed and freed. */
static void copy(struct ax_peft_config *out, const struct ax_peft_config *c) {
    struct ax_peft_config full = *c;
    full.r = 4;
    full.alpha = 8;
    full.within = NULL; /* else it excludes other parts */
    must(ax_peft_config_like(out, &full));
    out->within = c->within;
    out->dora = c->dora;
    out->dropout = c->dropout;
}

static void expect_names(const struct ax_peft_names *list, const char *expected) {
    char text[2048] = "";
    for (int i = 0; i < list->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "",
                 list->names[i]);
    assert_string_equal(text, expected);
}

static void expect_same(const struct looks *a, const struct looks *b) {
    assert_int_equal(a->n, b->n);
    assert_true(a->n > 0);
    for (int i = 0; i < a->n; i++) {
        assert_string_equal(a->names[i], b->names[i]);
        assert_memory_equal(a->shapes[i], b->shapes[i], sizeof *a->shapes);
    }
}

static struct looks before, after, again;

static void targets_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct a_case *k = &cases[i];
        struct ax_peft_config c;
        copy(&c, &k->c);
        look(k->model, &c, true, &before);
        expect_names(&c.targets, k->targets);
        expect_names(&c.parameters, k->parameters);
        assert_null(c.target_regex);
        assert_false(c.all_linear);
        look(k->model, &c, true, &after);
        expect_names(&c.targets, k->targets); /* they stay */
        expect_names(&c.parameters, k->parameters);
        look(k->model, &c, false, &again);
        expect_same(&before, &after);
        expect_same(&before, &again);
        ax_peft_config_free(&c);
    }
}

/* Models without experts keep what was written, as PEFT's own folders do. */
static void others_are_left_alone(void **state) {
    (void)state;
    struct ax_peft_config c;
    copy(&c, &(struct ax_peft_config){.target_regex = ".*layers\\.1.*down_proj"});
    look("llama", &c, true, &before);
    assert_string_equal(c.target_regex, ".*layers\\.1.*down_proj");
    assert_int_equal(c.targets.n + c.parameters.n, 0);
    ax_peft_config_free(&c);
    copy(&c, &(struct ax_peft_config){.all_linear = true});
    look("llama", &c, true, &before);
    assert_true(c.all_linear);
    ax_peft_config_free(&c);
}

/* PEFT compares patterns with a parameter's name, where "down_proj" is not the last part. */
static void patterns_match_weights(void **state) {
    (void)state;
    struct ax_peft_pattern ranks[] = {{"layers.1.*down_proj", 2}, {"q_proj", 3}};
    struct ax_peft_pattern alphas[] = {{"down_proj|v_proj", 5}};
    struct ax_peft_config c;
    copy(&c,
         &(struct ax_peft_config){
             .all_linear = true, .n_ranks = 2, .ranks = ranks, .n_alphas = 1, .alphas = alphas});
    look("deepseek_v2", &c, true, &before);
    for (int times = 0; times < 2; times++) {
        assert_string_equal(c.ranks[0].pattern, "(?:layers.1.*down_proj)(?:\\.weight)?");
        assert_string_equal(c.ranks[1].pattern, "q_proj");
        assert_string_equal(c.alphas[0].pattern, "(?:down_proj|v_proj)(?:\\.weight)?");
        look("deepseek_v2", &c, true, &after);
        expect_same(&before, &after);
    }
    ax_peft_config_free(&c);
}

/* As many patterns as there may be, of ranks and of alphas: each is of its own list. */
static void many_patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        bool matches;
    } all[] = {
        {"down_proj", true},         {"q_proj", false},          {"layers.0.*gate_proj", true},
        {"layers.1.*up_proj", true}, {"k_proj", false},          {"v_proj", false},
        {"o_proj", false},           {"shared.*gate_proj", true}};
    enum { N = sizeof all / sizeof *all };
    struct ax_peft_pattern list[N];
    for (int i = 0; i < N; i++)
        list[i] = (struct ax_peft_pattern){(char *)(uintptr_t)all[i].pattern, 2 + i};
    for (int few = 0; few < 2; few++) {
        struct ax_peft_config c;
        copy(&c, &(struct ax_peft_config){.all_linear = true,
                                          .n_ranks = few ? 1 : N,
                                          .ranks = list,
                                          .n_alphas = few ? N : 1,
                                          .alphas = list});
        look("qwen2_moe", &c, true, &before);
        for (int i = 0; i < N; i++) {
            char want[64];
            snprintf(want, sizeof want, all[i].matches ? "(?:%s)(?:\\.weight)?" : "%s",
                     all[i].pattern);
            if (i < c.n_ranks)
                assert_string_equal(c.ranks[i].pattern, want);
            if (i < c.n_alphas)
                assert_string_equal(c.alphas[i].pattern, want);
        }
        ax_peft_config_free(&c);
    }
}

/* target_parameters of others: PEFT adapts those weights in all layers, excluded or not, and the patterns
 * that say ".weight" are theirs. */
static void weights_of_linears_are_read(void **state) {
    (void)state;
    static char *weight[] = {"self_attn.q_proj.weight"}, *q[] = {"q_proj"}, *v[] = {"v_proj"};
    struct ax_peft_pattern ranks[] = {{"q_proj.weight", 5}};
    struct ax_peft_config c = {.r = 4,
                               .alpha = 8,
                               .targets = {1, v},
                               .parameters = {1, weight},
                               .exclude = {1, q},
                               .n_layers = 1,
                               .layers = one,
                               .n_ranks = 1,
                               .ranks = ranks};
    json_t *json = NULL;
    look("llama", &c, false, &after);
    int found[2] = {0};
    for (int i = 0; i < after.n; i++)
        if (strstr(after.names[i], "lora_A")) {
            const bool is_q = strstr(after.names[i], "q_proj") != NULL;
            assert_int_equal(after.shapes[i][0], is_q ? 5 : 4);
            found[is_q]++;
        }
    assert_int_equal(found[0], 1);
    assert_true(found[1] > 1);
    c.dropout = 0.25; /* PEFT loads no such adapter with dropout */
    must(ax_peft_config_json(&c, &json));
    assert_true(json_real_value(json_object_get(json, "lora_dropout")) == 0);
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_named), cmocka_unit_test(others_are_left_alone),
        cmocka_unit_test(patterns_match_weights), cmocka_unit_test(many_patterns),
        cmocka_unit_test(weights_of_linears_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
