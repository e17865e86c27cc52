/* What the expressions of unfrozen_parameters select in a model of 21 layers: what axolotl selects
 * (a lone dot is a dot, one before + any character), and what Python's re means beyond that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "model/model.h"

#define Q ".self_attn.q_proj.weight"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

#define SIZES                                                                                      \
    "\"vocab_size\": 16, \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": "    \
    "21, "                                                                                         \
    "\"num_attention_heads\": 2, \"max_position_embeddings\": 16"

static void make_arch(struct ax_arch *arch, const char *text) {
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "config.json", text, strlen(text)));
    must(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
}

/* The layers whose q_proj the expression selects, as bits. */
struct probe {
    struct ax_arch arch;
    const char *pattern;
    uint32_t layers;
};

static enum ax_status select_layers(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_model m;
    char *names[] = {(char *)(uintptr_t)p->pattern};
    const struct ax_peft_names unfrozen = {.n = 1, .names = names};
    const struct ax_model_options o = {
        .dtype = AX_F32, .max_positions = 16, .train = true, .unfrozen = &unfrozen};
    AX_TRY(ax_model_create(&m, &p->arch, rt, &o));
    p->layers = 0;
    for (int i = 0; i < m.n_params; i++) {
        int layer, n = 0;
        if (m.params[i].trainable &&
            sscanf(m.params[i].name, "model.layers.%d" Q "%n", &layer, &n) == 1 && n > 0)
            p->layers |= 1u << layer;
    }
    ax_model_free(&m);
    return AX_OK;
}

static enum ax_status run(struct probe *p) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    return ax_runtime_run(&ro, select_layers, p, NULL);
}

#define ONE  (1u << 1)
#define TENS 0xffc00u /* 10–19 */
#define ALL  0x1fffffu

static void expressions_select(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        uint32_t layers;
    } cases[] = {
        {"model.layers.1.", ONE},
        {"model.layers.1.+", ONE | TENS},
        {"model.layers.1+.", ONE | 1u << 11},
        {"model.layers.1.*", ONE | TENS},
        {"model.layers.1\\.", ONE},
        {"model\\.layers\\.1\\.+", ONE},
        {"model.layers.1.?" Q, ONE | TENS},
        {"model.layers.1.{1}" Q, TENS},
        {".+q_proj", ALL},
        {".*q_proj", ALL},
        {"q_proj|.*5" Q, 1u << 5 | 1u << 15},
        {"model.layers.1[0-9].", TENS},
        {"model.layers.(3|17).self", 1u << 3 | 1u << 17},
        {"model.layers.[^1.]" Q, ALL & ~(ONE | TENS | 1u << 20)},
        {"^model.layers.\\d" Q "$", 0x3ffu},
        {"model.layers.(?P<n>1)\\1.self", 1u << 11},
    };
    struct probe p = {0};
    make_arch(&p.arch, "{\"model_type\": \"llama\", " SIZES "}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p.pattern = cases[i].pattern;
        must(run(&p));
        if (p.layers != cases[i].layers)
            fail_msg("%s: layers %x, not %x", p.pattern, p.layers, cases[i].layers);
    }
    ax_arch_free(&p.arch);
}

static void expressions_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *said;
    } cases[] = {
        {"q_proj", "matches no parameter of this llama model"},
        {"model.embed_tokens.weight$[:7]", "[:7] at its end are rows of a matrix"},
        {"model.layers.[12]", "[12] at its end are rows of a matrix"},
        {"model.layers.(1", "unfrozen_parameters: \"model.layers.(1\": bad regular expression"},
        {"model.layers.\\p{Nd}", "Python knows no escape \\p"},
    };
    struct probe p = {0};
    make_arch(&p.arch, "{\"model_type\": \"llama\", " SIZES "}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p.pattern = cases[i].pattern;
        assert_int_equal(run(&p),
                         strstr(cases[i].said, "rows") ? AX_ERR_UNSUPPORTED : AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), cases[i].said))
            fail_msg("%s: %s", p.pattern, ax_error_text());
    }
    ax_arch_free(&p.arch);
}

/* A layer's experts in one tensor train beside another layer's that are frozen. */
static void stacked_experts_are_one(void **state) {
    (void)state;
    static const char *const patterns[] = {"model.layers.1.", "model.layers.20."};
    struct probe p = {0};
    make_arch(&p.arch, "{\"model_type\": \"gpt_oss\", \"num_key_value_heads\": 2, \"head_dim\": 4, "
                       "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, " SIZES "}");
    for (int i = 0; i < 2; i++) {
        p.pattern = patterns[i];
        must(run(&p));
        assert_int_equal(p.layers, i == 0 ? ONE : 1u << 20);
    }
    ax_arch_free(&p.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_select),
        cmocka_unit_test(expressions_are_refused),
        cmocka_unit_test(stacked_experts_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
