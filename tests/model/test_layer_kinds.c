/* Which layers of a family have a window, no rope, another mixer or experts, where config.json says only how often: as
 * transformers' configurations and layers of 13 layers have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"
#include "model/arch/part.h"

enum { LAYERS = 13 };

#define SHAPE                                                                                      \
    ", \"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "                     \
    "\"num_hidden_layers\": 13, \"num_attention_heads\": 4, \"num_key_value_heads\": 4}"

static void parse(struct ax_arch *a, const char *type, const char *more) {
    char text[1024];
    struct ax_json_doc doc;
    snprintf(text, sizeof text, "{\"model_type\": \"%s\"%s" SHAPE, type, more);
    assert_int_equal(ax_json_parse(&doc, "config.json", text, strlen(text)), AX_OK);
    if (ax_arch_parse(a, ax_json_root(&doc)) != AX_OK)
        fail_msg("%s%s: %s", type, more, ax_error_text());
    ax_json_free(&doc);
}

/* s: a window; c: within chunks; n: all tokens, without rope; l: a linear mixer; f: all tokens. */
static char mixer_of(const struct ax_layer_spec *l) {
    if (l->mixer == &ax_mixer_delta)
        return 'l';
    return l->window > 0 ? 's' : l->chunked ? 'c' : l->rope == AX_ROPE_NONE ? 'n' : 'f';
}

static void check(const char *type, const char *more, const char *want,
                  char (*letter)(const struct ax_layer_spec *l)) {
    struct ax_arch a;
    char got[LAYERS + 1] = "";
    parse(&a, type, more);
    assert_int_equal(a.n_layers, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        got[i] = letter(&a.layers[i]);
    if (strcmp(got, want) != 0)
        fail_msg("%s%s: %s, expected %s", type, more, got, want);
    ax_arch_free(&a);
}

#define WINDOW ", \"sliding_window\": 8, \"use_sliding_window\": true, \"max_window_layers\": 5"

static void mixers(void **state) {
    (void)state;
    static const struct {
        const char *type, *more, *want;
    } all[] = {{"qwen3_next", "", "lllflllflllfl"},
               {"qwen3_next", ", \"full_attention_interval\": 3", "llfllfllfllfl"},
               {"qwen3_next", ", \"full_attention_interval\": 1", "fffffffffffff"},
               {"qwen3_5_text", "", "lllflllflllfl"},
               {"olmo_hybrid", "", "lllflllflllfl"},
               {"gemma2", "", "sfsfsfsfsfsfs"},
               {"gemma3_text", "", "sssssfsssssfs"},
               {"gemma4_text", "", "sssssfsssssff"},
               {"gpt_oss", "", "sfsfsfsfsfsfs"},
               {"cohere2", "", "sssnsssnsssns"},
               {"exaone4", "", "sssnsssnsssns"},
               {"olmo3", "", "sssfsssfsssfs"},
               {"mimo_v2_flash", ", \"swa_num_key_value_heads\": 4", "fssssfsssssfs"},
               {"smollm3", "", "fffnfffnfffnf"},
               {"smollm3", ", \"no_rope_layer_interval\": 5", "ffffnffffnfff"},
               {"llama4_text", "", "cccncccncccnc"},
               {"llama4_text", ", \"no_rope_layer_interval\": 3", "ccnccnccnccnc"},
               {"qwen2", WINDOW, "fffffssssssss"},
               {"qwen3", WINDOW, "fffffssssssss"},
               {"qwen2_moe", WINDOW, "sfsfsffffffff"},
               {"kimi_linear", "", "llllnlllnllln"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(all[i].type, all[i].more, all[i].want, mixer_of);
}

static char ffn_of(const struct ax_layer_spec *l) {
    return l->ffn == &ax_ffn_moe || l->ffn == &ax_ffn_moe_shared ? 'e' : '-';
}

static void experts(void **state) {
    (void)state;
    static const struct {
        const char *type, *more, *want;
    } all[] = {
        {"qwen2_moe", "", "eeeeeeeeeeeee"},
        {"qwen2_moe", ", \"decoder_sparse_step\": 3", "--e--e--e--e-"},
        {"qwen3_moe", ", \"decoder_sparse_step\": 3, \"mlp_only_layers\": [5, 12]",
         "--e-----e--e-"},
        {"qwen3_next", ", \"decoder_sparse_step\": 2", "-e-e-e-e-e-e-"},
        {"ernie4_5_moe", "", "-eeeeeeeeeeee"},
        {"ernie4_5_moe",
         ", \"moe_layer_interval\": 3, \"moe_layer_start_index\": 2, \"moe_layer_end_index\": 8",
         "--e--e--e----"},
        {"ernie4_5_moe", ", \"moe_layer_interval\": 3, \"moe_layer_start_index\": 3",
         "-----e--e--e-"},
        {"ernie4_5_moe", ", \"moe_layer_start_index\": 0, \"moe_layer_end_index\": 12",
         "eeeeeeeeeeeee"},
        {"ernie4_5_moe", ", \"moe_layer_start_index\": 0, \"moe_layer_end_index\": 13",
         "eeeeeeeeeeeee"},
        {"ernie4_5_moe", ", \"moe_layer_start_index\": 0, \"moe_layer_end_index\": 11",
         "eeeeeeeeeeee-"},
        {"ernie4_5_moe", ", \"moe_layer_start_index\": 0, \"moe_layer_end_index\": 0",
         "e------------"},
        {"llama4_text", "", "eeeeeeeeeeeee"},
        {"llama4_text", ", \"interleave_moe_layer_step\": 3", "--e--e--e--e-"},
        {"llama4_text", ", \"moe_layers\": [0, 12]", "e-----------e"},
        {"deepseek_v3", "", "---eeeeeeeeee"},
        {"deepseek_v3", ", \"first_k_dense_replace\": 1, \"moe_layer_freq\": 3", "---e--e--e--e"},
        {"deepseek_v3", ", \"first_k_dense_replace\": 0", "eeeeeeeeeeeee"},
        {"deepseek_v3", ", \"moe_layer_freq\": [0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]",
         "-e-ee-------e"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(all[i].type, all[i].more, all[i].want, ffn_of);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixers), cmocka_unit_test(experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
