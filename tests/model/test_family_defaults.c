/* config.json of families that add a little to another: with nothing but its sizes it is the model that transformers makes of
 * it, and settings that would change the result are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"
#include "model/arch/family.h"
#include "model/arch/part.h"

static enum ax_status parse(struct ax_arch *a, const char *text) {
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse_file(&doc, "config.json", text, strlen(text)), AX_OK);
    const enum ax_status st = ax_arch_parse_file(a, &doc, NULL);
    ax_json_free(&doc);
    return st;
}

/* A config with the sizes, and what else is said. */
static enum ax_status parse_sized(struct ax_arch *a, const char *type, const int sizes[6],
                                  const char *more) {
    char text[1024], width[64] = "";
    if (sizes[2] > 0)
        snprintf(width, sizeof width, "\"intermediate_size\": %d, ", sizes[2]);
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, %s"
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d"
             "%s}",
             type, sizes[0], sizes[1], width, sizes[3], sizes[4], sizes[5], more);
    return parse(a, text);
}

/* Parameters of the model that transformers 5.23 makes of its configuration with 3 layers and no other setting, but for
 * those named: sizes are tokens, hidden, intermediate, layers, heads, KV heads. */
static void parameters(void **state) {
    static const struct {
        const char *type;
        int sizes[6];
        int64_t parameters;
        const char *more;
    } cases[] = {
        {"afmoe", {200192, 2048, 6144, 3, 16, 16}, 2062838528, ""},
        {"arcee", {32000, 2560, 18432, 3, 32, 32}, 525616640, ""},
        {"cwm", {128256, 6144, 21504, 3, 48, 8}, 3029379072, ""},
        {"dots1", {152064, 4608, 10944, 3, 32, 32}, 9249063264, ""},
        {"exaone_moe", {102400, 4096, 16384, 3, 32, 32}, 2877846272, ""},
        {"flex_olmo", {100352, 4096, 11008, 3, 32, 32}, 3864141824, ""},
        {"gemma", {256000, 3072, 24576, 3, 16, 16}, 1616925696, ""},
        {"glm", {151552, 4096, 13696, 3, 32, 2}, 1853400576, ""},
        {"glm4_moe_lite", {154880, 2048, 10240, 3, 20, 20}, 1989691136, ""},
        {"granitemoe", {32000, 4096, 11008, 3, 32, 32}, 3709988864, ""},
        {"granitemoeshared", {32000, 4096, 11008, 3, 32, 32}, 3709988864, ""},
        {"helium", {48000, 2560, 7040, 3, 20, 20}, 486622720, ""},
        {"hunyuan_v1_moe",
         {290943, 4096, 11008, 3, 32, 32},
         4613804800,
         ", \"num_experts\": 4, \"moe_topk\": 2"},
        {"hyperclovax", {32000, 4096, 11008, 3, 32, 32}, 869322752, ""},
        {"internlm3", {128512, 4096, 10240, 3, 32, 2}, 1537241088, ""},
        {"iquestcoder", {76800, 5120, 27648, 3, 40, 8}, 2249231360, ""},
        {"mellum", {98304, 2304, 7168, 3, 32, 4}, 1706230272, ""},
        {"minicpm3", {73448, 2560, 6400, 3, 40, 40}, 376054272, ""},
        {"ministral", {32000, 4096, 14336, 3, 32, 8}, 916484096, ""},
        {"mistral4", {131072, 4096, 12288, 3, 32, 32}, 10898669312, ""},
        {"olmoe", {50304, 2048, 2048, 3, 16, 16}, 2672715776, ""},
        {"solar_open", {196608, 4096, 0, 3, 64, 8}, 7925690368, ""},
        {"vaultgemma", {256000, 2304, 9216, 3, 8, 4}, 823410432, ""},
        {"youtu", {128256, 2048, 6144, 3, 16, 16}, 421941248, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        if (parse_sized(&a, cases[i].type, cases[i].sizes, cases[i].more) != AX_OK)
            fail_msg("%s", ax_error_text());
        if (ax_arch_parameters(&a) != cases[i].parameters)
            fail_msg("%s: %lld", cases[i].type, (long long)ax_arch_parameters(&a));
        ax_arch_free(&a);
    }
}

static const int small[6] = {48, 16, 24, 4, 2, 2};

#define LAYERS(a, b, c, d)                                                                         \
    ", \"layer_types\": [\"" a "_attention\", \"" b "_attention\", \"" c "_attention\", \"" d      \
    "_attention\"]"

/* Windows and ropes of four layers: w for a window of 4, f for none, n for none and no rope, capitals with the rope of
 * layers with a window. */
static void windows(void **state) {
    static const char *const cases[][3] = {
        {"afmoe", "", "wwwn"},
        {"afmoe", ", \"global_attn_every_n_layers\": 2", "wnwn"},
        {"afmoe", LAYERS("full", "sliding", "sliding", "full"), "nwwn"},
        {"cwm", "", "fwww"},
        {"cwm", ", \"sliding_window\": null", "ffff"},
        {"cwm", ", \"sliding_window\": 0", "ffff"},
        {"dots1", ", \"max_window_layers\": 2", "ffww"},
        {"dots1", "", "ffff"},
        {"exaone_moe", "", "wwwn"},
        {"exaone_moe", ", \"sliding_window_pattern\": \"LG\"", "wnwn"},
        {"exaone_moe", ", \"sliding_window\": null, \"sliding_window_pattern\": 0", "ffff"},
        {"mellum", "", "ffff"},
        {"mellum", LAYERS("full", "sliding", "sliding", "full"), "fWWf"},
        {"ministral", "", "wwww"},
        {"ministral", LAYERS("full", "sliding", "sliding", "full"), "fwwf"},
        {"vaultgemma", "", "wfwf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        char more[400], got[5] = "";
        const bool named = strstr(cases[i][1], "\"sliding_window\"") != NULL;
        snprintf(more, sizeof more, "%s%s", cases[i][1], named ? "" : ", \"sliding_window\": 4");
        if (parse_sized(&a, cases[i][0], small, more) != AX_OK)
            fail_msg("%s", ax_error_text());
        for (int l = 0; l < 4; l++) {
            const struct ax_layer_spec *s = &a.layers[l];
            assert_true(s->window == 0 || s->window == 4);
            got[l] = s->rope == AX_ROPE_NONE    ? 'n'
                     : s->window == 0           ? 'f'
                     : s->rope == AX_ROPE_LOCAL ? 'W'
                                                : 'w';
        }
        assert_string_equal(got, cases[i][2]);
        ax_arch_free(&a);
    }
}

static void refused(void **state) {
    static const char *const cases[][3] = {
        {"afmoe", ", \"score_func\": \"softmax\"", "score_func: \"softmax\" is not"},
        {"afmoe", ", \"route_norm\": false", "route_norm: false is not implemented"},
        {"afmoe", ", \"route_scale\": 0", "route_scale: expected a positive number"},
        {"arcee", ", \"hidden_act\": \"silu\"", "hidden_act: \"silu\" is not implemented"},
        {"llama", ", \"hidden_act\": \"relu2\"", "\"relu2\" is not implemented"},
        {"llama", ", \"hidden_act\": \"gelu\"", "\"gelu\" is not implemented"},
        {"gemma", ", \"hidden_act\": \"relu2\"", "\"relu2\" is not implemented"},
        {"olmoe", ", \"clip_qkv\": 8.0", "clip_qkv: limits of q, k and v are not implemented"},
        {"iquestcoder", ", \"clip_qkv\": 8.0", "clip_qkv: limits of q, k and v"},
        {"iquestcoder", ", \"use_sliding_window\": true", "use_sliding_window: true is not"},
        {"internlm3", ", \"qkv_bias\": true", "biases of attention or of MLPs alone"},
        {"internlm3", ", \"mlp_bias\": true", "biases of attention or of MLPs alone"},
        {"minicpm3", ", \"scale_emb\": 0", "scale_emb: expected a positive number, got 0"},
        {"mistral4",
         ", \"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.25}",
         "partial_rotary_factor rotates 32 of 128 elements, qk_rope_head_dim 64"},
        {"helium", ", \"mlp_bias\": true", "mlp_bias: true is not implemented"},
        {"hunyuan_v1_moe", ", \"num_experts\": 4, \"moe_topk\": [2, 2, 1, 2]",
         "moe_topk[2]: 1 after 2 is not implemented"},
        {"hunyuan_v1_moe", ", \"num_experts\": 4, \"moe_topk\": [2, 2]",
         "moe_topk: expected one entry for each of 4 layers, got 2"},
        {"hunyuan_v1_moe", ", \"num_experts\": 4, \"moe_topk\": 5",
         "moe_topk: cannot route a token to 5 of 4 experts"},
        {"glm4_moe_lite", ", \"scoring_func\": \"softmax\"", "scoring_func: \"softmax\""},
        {"exaone_moe", ", \"output_router_logits\": true", "output_router_logits: true is not"},
        {"hunyuan_v1_moe", ", \"output_router_logits\": true", "output_router_logits: true is not"},
    };
    (void)state;
    struct ax_arch none;
    assert_int_equal(parse_sized(&none, "minicpm3", (const int[6]){48, 3, 24, 1, 4, 4}, ""),
                     AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "without v_head_dim, 3 elements do not give 4 heads"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        const enum ax_status st = parse_sized(&a, cases[i][0], small, cases[i][1]);
        if (st == AX_OK || !strstr(ax_error_text(), cases[i][2]))
            fail_msg("%s%s: %s", cases[i][0], cases[i][1], st ? ax_error_text() : "taken");
    }
}

static struct ax_arch parsed(const char *type, const char *more) {
    struct ax_arch a;
    if (parse_sized(&a, type, small, more) != AX_OK)
        fail_msg("%s", ax_error_text());
    return a;
}

/* Gemma's first configs say "gelu"; InternLM 3's own code has other names of biases. */
static void names(void **state) {
    (void)state;
    struct ax_arch a = parsed("gemma", ", \"hidden_act\": \"gelu\"");
    assert_int_equal(a.gating.gate, AX_GATE_GELU);
    ax_arch_free(&a);
    a = parsed("gemma", ", \"hidden_act\": \"silu\"");
    assert_int_equal(a.gating.gate, AX_GATE_SILU);
    ax_arch_free(&a);
    a = parsed("internlm3", ", \"qkv_bias\": true, \"bias\": true");
    assert_true(a.qkv_bias && a.o_bias && a.mlp_bias);
    ax_arch_free(&a);
    a = parsed("hunyuan_v1_moe", ", \"num_experts\": [4, 4, 4, 4], \"moe_topk\": 3");
    assert_int_equal(a.moe.n_experts, 4);
    assert_int_equal(a.moe.n_active, 3);
    ax_arch_free(&a);
    a = parsed("afmoe", ", \"mup_enabled\": true, \"num_shared_experts\": 0");
    assert_true(a.embedding_scale == 4 && a.layers[0].ffn == &ax_ffn_swiglu);
    assert_ptr_equal(a.layers[1].ffn, &ax_ffn_moe);
    ax_arch_free(&a);
    a = parsed("hyperclovax", ", \"logits_scaling\": 0.5, \"attention_multiplier\": null");
    assert_true(a.logit_scale == 0.5 && a.softmax_scale == 1 / sqrt(8));
    assert_string_equal(a.layers[3].ffn_norms.out, "model.layers.%d.post_norm2.weight");
    ax_arch_free(&a);
    a = parsed("hyperclovax", ", \"use_post_norm\": false, \"attention_multiplier\": 0.25");
    assert_true(a.logit_scale == 1 && a.softmax_scale == 0.25 && !a.layers[3].ffn_norms.out);
    ax_arch_free(&a);
    a = parsed("minicpm3", ", \"dim_model_base\": null, \"scale_depth\": 1, \"scale_emb\": 3");
    assert_true(a.logit_scale == 1 && a.residual_scale == 0.5 && a.embedding_scale == 3);
    ax_arch_free(&a);
    a = parsed("minicpm3", ", \"scale_depth\": null, \"scale_emb\": null");
    assert_true(a.logit_scale == 16 && a.residual_scale == 1 && a.embedding_scale == 1);
    ax_arch_free(&a);
    a = parsed("arcee", ", \"mlp_bias\": true, \"hidden_act\": \"relu2\"");
    assert_true(a.ungated && a.mlp_bias);
    ax_arch_free(&a);
}

/* The balancing loss's coefficient where a config asks for the loss and has none. */
static void balance(void **state) {
    static const struct {
        const char *type;
        double coef;
    } cases[] = {
        {"flex_olmo", 0.01}, {"granitemoe", 0.001}, {"granitemoeshared", 0.001},
        {"mellum", 0.001},   {"olmoe", 0.01},       {"qwen3_moe", 0.001},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a = parsed(cases[i].type, ", \"output_router_logits\": true");
        if (fabs(a.moe.balance_coef - cases[i].coef) > 1e-12)
            fail_msg("%s: %g", cases[i].type, a.moe.balance_coef);
        ax_arch_free(&a);
    }
}

/* GLM-4.1V's text model inside it: biases that its config does not ask for, and rope on whole heads unless it says so. */
static void glm4v(void **state) {
    (void)state;
    struct ax_arch a;
    static const char text[] =
        "{\"model_type\": \"glm4v\", \"vision_config\": {}, \"text_config\": {\"model_type\": "
        "\"glm4v_text\", \"vocab_size\": 48, \"hidden_size\": 16, \"intermediate_size\": 24, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1}}";
    if (parse(&a, text) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(a.qkv_bias && !a.o_bias && a.rope.interleaved && a.fused_gate_up);
    assert_int_equal(a.rope.dim, 8);
    assert_true(a.norm_eps == 1e-5);
    ax_arch_free(&a);
    assert_int_not_equal(
        parse(&a, "{\"model_type\": \"glm4v_moe\", \"vision_config\": {}, \"text_config\": "
                  "{\"vocab_size\": 48, \"hidden_size\": 16, \"intermediate_size\": 24, "
                  "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                  "\"output_router_logits\": true}}"),
        AX_OK);
    assert_non_null(strstr(ax_error_text(), "output_router_logits: true is not implemented"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters), cmocka_unit_test(windows), cmocka_unit_test(refused),
        cmocka_unit_test(names),      cmocka_unit_test(glm4v),   cmocka_unit_test(balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
