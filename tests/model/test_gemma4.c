/* Gemma 4's configs: layers that differ, mistakes, which keys cross the stages of a pipeline, and the sizes of the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"
#include "model/arch/kv_row.h"
#include "model/layer.h"
#include "model/core/lent.h"

static enum ax_status parse(struct ax_arch *a, const char *text) {
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse(&doc, "config.json", text, strlen(text)), AX_OK);
    const enum ax_status st = ax_arch_parse(a, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

#define SMALL                                                                                      \
    "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "                       \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4"
#define SMALL_KINDS                                                                                \
    "{\"model_type\": \"gemma4_text\", " SMALL                                                     \
    ", \"head_dim\": 8, \"global_head_dim\": 12, \"layer_types\": [\"sliding_attention\", "        \
    "\"full_attention\", \"sliding_attention\", \"sliding_attention\"]"

static void mistakes_are_named_with_their_key(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        enum ax_status st;
    } bad[] = {
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"attention_bias\": true}",
         "attention_bias: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"use_bidirectional_attention\": \"all\"}",
         "use_bidirectional_attention: \"all\" is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"num_kv_shared_layers\": 4}",
         "num_kv_shared_layers: expected an integer of at most 3, got 4", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"num_kv_shared_layers\": 1}",
         "num_kv_shared_layers: layer 3 has no earlier layer of its kind with keys", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"vocab_size_per_layer_input\": 511}",
         "vocab_size_per_layer_input: 511 rows are fewer than the 512 of vocab_size", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"enable_moe_block\": true}",
         "num_experts: missing; expected an integer", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"enable_moe_block\": true, "
         "\"num_experts\": 2, \"top_k_experts\": 3, \"moe_intermediate_size\": 8}",
         "top_k_experts: cannot route a token to 3 of 2 experts", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"attention_k_eq_v\": true, "
         "\"num_global_key_value_heads\": 3}",
         "num_global_key_value_heads: 3 KV heads of layer 3 do not divide 4", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL ", \"per_layer_config\": {\"4\": {}}}",
         "per_layer_config: expected an object for each layer from 0 to 3, got \"4\"", AX_ERR_DATA},
        {"{\"model_type\": \"gemma4_text\", " SMALL
         ", \"per_layer_config\": {\"1\": {\"window\": 2}}}",
         "per_layer_config.1.window: is not implemented for single layers", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma4_text\", " SMALL
         ", \"per_layer_config\": {\"1\": {\"head_dim\": 32}}}",
         "per_layer_config: heads of 32 in layer 1, of 256 in another of its kind",
         AX_ERR_UNSUPPORTED},
    };
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_arch a;
        const enum ax_status st = parse(&a, bad[i].text);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says))
            fail_msg("%s\nexpected \"%s\", got (%d) \"%s\"", bad[i].text, bad[i].says, st,
                     ax_error_text());
        assert_null(a.layers);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* The last layer is full whatever the list says; it uses the keys of the last full one before those that share. */
static void layers_know_whose_keys_they_use(void **state) {
    (void)state;
    struct ax_arch a, kinds;
    int as[4];
    assert_int_equal(parse(&a, SMALL_KINDS ", \"num_kv_shared_layers\": 2, "
                                           "\"use_double_wide_mlp\": true}"),
                     AX_OK);
    static const int64_t heads[] = {8, 12, 8, 12}, source[] = {0, 0, 0, 1};
    for (int i = 0; i < 4; i++) {
        const struct ax_layer_spec *l = &a.layers[i];
        assert_int_equal(l->head_dim, heads[i]);
        assert_int_equal(l->window, i % 2 ? 0 : 512);
        assert_int_equal(l->borrows, i >= 2);
        assert_int_equal(l->lends, i < 2);
        assert_int_equal(l->source, source[i]);
        assert_int_equal(ax_spec_width(&a, l), i < 2 ? 128 : 256);
        assert_int_equal(ax_kv_keeps(&a, i), i < 2);
    }
    assert_int_equal(ax_kv_layers(&a), 2);
    assert_int_equal(ax_state_layers(&a), 0);
    assert_int_equal(ax_kv_token_bytes(&a, 1, AX_BF16), 2 * 2 * 4 * (8 + 12));
    assert_int_equal(ax_kv_token_bytes(&a, 2, AX_BF16), 2 * 2 * 2 * (8 + 12));
    assert_int_equal(a.rope.dim, 12);
    assert_int_equal(a.rope.turning, 1);
    assert_int_equal(a.rope_local.dim, 8);
    assert_int_equal(ax_arch_kinds(&a, false, &kinds, as), AX_OK);
    assert_int_equal(kinds.n_layers, 4);
    ax_free(kinds.layers);
    const struct ax_hf_unused unused = ax_arch_unused(&a);
    assert_true(ax_hf_is_unused(&unused, "model.layers.2.self_attn.k_proj.weight"));
    assert_false(ax_hf_is_unused(&unused, "model.layers.1.self_attn.k_proj.weight"));
    assert_false(ax_hf_is_unused(&unused, "model.layers.3.self_attn.q_norm.weight"));
    ax_arch_free(&a);
}

/* Layer 3 uses the keys of layer 1, whose unit is 2: they cross the boundaries in between. */
static void lent_keys_cross_boundaries(void **state) {
    (void)state;
    struct ax_arch a;
    assert_int_equal(parse(&a, SMALL_KINDS ", \"num_kv_shared_layers\": 1}"), AX_OK);
    for (int64_t layer = 0; layer < 4; layer++)
        for (int unit = 0; unit < 6; unit++)
            assert_int_equal(ax_lent_crosses(&a, layer, unit),
                             layer == 1 && (unit == 3 || unit == 4));
    ax_arch_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named_with_their_key),
        cmocka_unit_test(layers_know_whose_keys_they_use),
        cmocka_unit_test(lent_keys_cross_boundaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
