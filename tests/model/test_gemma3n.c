/* Gemma 3n's configs: kinds of layers and their gates, mistakes, what differs between layers, parameters that are missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "model/arch/kv_row.h"
#include "model/layer.h"

static enum ax_status parse(struct ax_arch *a, const char *text) {
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse(&doc, "config.json", text, strlen(text)), AX_OK);
    const enum ax_status st = ax_arch_parse(a, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

#define SMALL                                                                                      \
    "{\"model_type\": \"gemma3n_text\", \"vocab_size\": 512, \"hidden_size\": 64, "                \
    "\"num_attention_heads\": 4, "
#define FOUR SMALL "\"num_hidden_layers\": 4, \"num_kv_shared_layers\": 0, "

static void mistakes_are_named_with_their_key(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        enum ax_status st;
    } bad[] = {
        {FOUR "\"attention_bias\": true}", "attention_bias: true is not implemented in this family",
         AX_ERR_UNSUPPORTED},
        {FOUR "\"altup_correct_scale\": false}",
         "altup_correct_scale: false is not implemented in this family", AX_ERR_UNSUPPORTED},
        {FOUR "\"altup_coef_clip\": 0.5}",
         "altup_coef_clip: clipping coefficients at 0.5 is not implemented; expected at least 100",
         AX_ERR_UNSUPPORTED},
        {FOUR "\"altup_num_inputs\": 1}",
         "altup_num_inputs: expected an integer of at least 2, got 1", AX_ERR_DATA},
        {FOUR "\"altup_num_inputs\": 9}", "altup_num_inputs: expected an integer of at most 8",
         AX_ERR_DATA},
        {FOUR "\"altup_num_inputs\": 3, \"altup_active_idx\": 3}",
         "altup_active_idx: stream 3 of altup_num_inputs 3: expected 0 to 2", AX_ERR_DATA},
        {FOUR "\"laurel_rank\": 65}", "laurel_rank: expected an integer of at most 64, got 65",
         AX_ERR_DATA},
        {FOUR "\"laurel_rank\": 0}", "laurel_rank: expected an integer of at least 1, got 0",
         AX_ERR_DATA},
        {FOUR "\"intermediate_size\": [8, 8, 8]}",
         "intermediate_size: expected one entry for each of 4 layers, got 3", AX_ERR_DATA},
        {FOUR "\"intermediate_size\": [8, 8, 0, 8]}",
         "intermediate_size[2]: expected an integer of at least 1, got 0", AX_ERR_DATA},
        {FOUR "\"activation_sparsity_pattern\": [0.5, 0, 0]}",
         "activation_sparsity_pattern: expected one entry for each of 4 layers, got 3",
         AX_ERR_DATA},
        {FOUR "\"activation_sparsity_pattern\": [0.5, 0, 0, 1]}",
         "activation_sparsity_pattern[3]: expected a share of at least 0 and below 1, got 1",
         AX_ERR_DATA},
        {FOUR "\"layer_types\": [\"full_attention\"]}",
         "layer_types: expected one entry for each of 4 layers, got 1", AX_ERR_DATA},
        {FOUR "\"layer_types\": [\"full_attention\", \"linear_attention\", \"full_attention\", "
              "\"full_attention\"]}",
         "layer_types[1]: layer type \"linear_attention\" is not one of full_attention, "
         "sliding_attention",
         AX_ERR_UNSUPPORTED},
        {FOUR "\"hidden_size_per_layer_input\": 0}",
         "hidden_size_per_layer_input: expected an integer of at least 1, got 0", AX_ERR_DATA},
        {FOUR "\"num_key_value_heads\": 3}",
         "num_key_value_heads: 3 KV heads do not divide 4 attention heads", AX_ERR_DATA},
        {SMALL "\"num_hidden_layers\": 4}",
         "without num_kv_shared_layers, 15 layers use keys and values of earlier ones; there are 4",
         AX_ERR_DATA},
        {SMALL "\"num_hidden_layers\": 5, \"num_kv_shared_layers\": 1}",
         "num_kv_shared_layers: layer 4 has no earlier layer of its kind with keys", AX_ERR_DATA},
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

/* What a published config leaves out. */
static void defaults_are_those_of_the_family(void **state) {
    (void)state;
    struct ax_arch a;
    assert_int_equal(parse(&a, SMALL "\"num_hidden_layers\": 30}"), AX_OK);
    assert_int_equal(a.intermediate_size, 16384);
    assert_int_equal(a.n_kv_heads, 2);
    assert_int_equal(a.head_dim, 256);
    assert_int_equal(a.streams.n, 4);
    assert_int_equal(a.streams.active, 0);
    assert_int_equal(a.laurel_rank, 64);
    assert_int_equal(a.per_layer.rows, 262144);
    assert_int_equal(a.per_layer.columns, 30 * 256);
    assert_true(a.per_layer.shares_first && a.tied && a.logit_softcap == 30);
    for (int i = 0; i < 30; i++) {
        const struct ax_layer_spec *l = &a.layers[i];
        assert_int_equal(l->window, i % 5 == 4 ? 0 : 512);
        assert_int_equal(l->sparse, i < 10);
        assert_true(i >= 10 || (l->cut > 1.644853626 && l->cut < 1.644853628));
        assert_int_equal(l->borrows, i >= 15);
        assert_int_equal(l->source, i < 15 ? 0 : i % 5 == 4 ? 14 : 13);
    }
    assert_int_equal(ax_kv_layers(&a), 15);
    assert_true(a.rope.theta == 1e6 && a.rope_local.theta == 1e4);
    ax_arch_free(&a);
}

/* A layer's width and gates make it a kind; a share of half is a cut at the mean, not none. */
static void layers_differ(void **state) {
    (void)state;
    struct ax_arch a, kinds;
    int as[4];
    assert_int_equal(parse(&a, FOUR "\"intermediate_size\": [8, 16, 8, 16], "
                                    "\"activation_sparsity_pattern\": [0, 0, 0.5, 0.5]}"),
                     AX_OK);
    static const int64_t width[] = {8, 16, 8, 16};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ax_spec_width(&a, &a.layers[i]), width[i]);
        assert_int_equal(a.layers[i].sparse, i >= 2);
        assert_true(a.layers[i].cut > -1e-12 && a.layers[i].cut < 1e-12);
    }
    assert_int_equal(ax_arch_kinds(&a, false, &kinds, as), AX_OK);
    assert_int_equal(kinds.n_layers, 4);
    ax_free(kinds.layers);
    ax_arch_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named_with_their_key),
        cmocka_unit_test(defaults_are_those_of_the_family),
        cmocka_unit_test(layers_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
