/* Rope: frequencies against the reference's numbers, tables, and what a config may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "model/arch/arch.h"
#include "model/arch/rope.h"
#include "tests/golden_files.h"

static int64_t count_of(struct ax_json c, const char *key) {
    int64_t n;
    assert_int_equal(ax_json_i64_or(ax_json_get(c, key), 0, INT32_MAX, 0, &n), AX_OK);
    return n;
}

static void assert_close(double got, double want, const char *what, size_t c) {
    if (!(fabs(got - want) <= 1e-6 * fabs(want)))
        fail_msg("case %zu: %s %.9g, expected %.9g", c, what, got, want);
}

static void check_case(struct ax_json c, size_t index, bool kinds[]) {
    struct ax_rope_config r;
    float inv_freq[64 + 1];
    double want, scaling;
    const int64_t head_dim = count_of(c, "head_dim"), max = count_of(c, "max_position_embeddings");
    if (ax_rope_parse(&r, c, (struct ax_rope_usual){0}, head_dim, max) != AX_OK)
        fail_msg("case %zu: %s", index, ax_error_text());
    assert_int_equal(r.dim, head_dim);
    kinds[r.kind] = true;
    assert_in_range(head_dim, 2, 128);
    inv_freq[head_dim / 2] = -1; /* stays */
    ax_rope_frequencies(&r, count_of(c, "seq_len"), inv_freq, &scaling);
    assert_int_equal(ax_json_f64(ax_json_get(c, "attention_scaling"), &want), AX_OK);
    assert_close(scaling, want, "scaling", index);
    assert_true(inv_freq[head_dim / 2] == -1);
    const struct ax_json list = ax_json_get(c, "inv_freq");
    assert_int_equal(ax_json_size(list), head_dim / 2);
    for (size_t i = 0; i < ax_json_size(list); i++) {
        assert_int_equal(ax_json_f64(ax_json_at(list, i), &want), AX_OK);
        assert_close((double)inv_freq[i], want, "frequency", index);
    }
}

static void frequencies_are_those_of_the_reference(void **state) {
    (void)state;
    struct ax_json_doc doc;
    bool kinds[AX_ROPE_LONGROPE + 1] = {false};
    assert_int_equal(ax_json_load(&doc, golden_path("rope.json"), 1 << 20), AX_OK);
    const struct ax_json cases = ax_json_get(ax_json_root(&doc), "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++)
        check_case(ax_json_at(cases, i), i, kinds);
    print_message("%zu cases\n", ax_json_size(cases));
    ax_json_free(&doc);
    for (int k = 0; k <= AX_ROPE_LONGROPE; k++)
        assert_true(kinds[k]);
}

static enum ax_status parse(struct ax_rope_config *r, const char *text, int64_t head_dim) {
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse(&doc, "c.json", text, strlen(text)), AX_OK);
    const enum ax_status st =
        ax_rope_parse(r, ax_json_root(&doc), (struct ax_rope_usual){.part = 1}, head_dim, 4096);
    ax_json_free(&doc);
    return st;
}

static void assert_same(const struct ax_rope_config *a, const struct ax_rope_config *b) {
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->dim, b->dim);
    assert_int_equal(a->original_max_positions, b->original_max_positions);
    assert_int_equal(a->truncate, b->truncate);
    assert_true(a->theta == b->theta && a->factor == b->factor);
    assert_true(a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow);
}

/* transformers 5 and 4, and the older "type". */
static void both_spellings_say_the_same(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 5e5, \"factor\": 4, "
        "\"original_max_position_embeddings\": 1024, \"beta_fast\": 16, \"truncate\": false}}",
        "{\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 1024, \"beta_fast\": 16, \"truncate\": false}}",
        "{\"rope_theta\": 500000.0, \"rope_scaling\": {\"type\": \"yarn\", "
        "\"beta_fast\": 16, \"truncate\": false}, \"original_max_position_embeddings\": 1024}",
    };
    struct ax_rope_config first, other;
    assert_int_equal(parse(&first, same[0], 64), AX_OK);
    assert_int_equal(first.kind, AX_ROPE_YARN);
    assert_true(first.theta == 5e5 && first.factor == 4 && first.beta_fast == 16);
    assert_true(first.beta_slow == 1 && !first.truncate && first.original_max_positions == 1024);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(parse(&other, same[i], 64), AX_OK);
        assert_same(&first, &other);
    }
    assert_int_equal(parse(&first, "{}", 64), AX_OK);
    assert_int_equal(first.kind, AX_ROPE_DEFAULT);
    assert_true(first.theta == 10000);
    assert_int_equal(parse(&other, "{\"rope_scaling\": null, \"rope_theta\": null}", 64), AX_OK);
    assert_same(&first, &other);
    assert_int_equal(parse(&first, "{\"partial_rotary_factor\": 0.25}", 64), AX_OK);
    assert_int_equal(first.dim, 16);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        int64_t head_dim;
    } bad[] = {
        {"{\"rope_scaling\": {\"type\": \"ntk\"}}",
         "c.json: rope_scaling.type: rope type \"ntk\" is not one of default, linear", 64},
        {"{\"rope_parameters\": {\"rope_type\": 3}}",
         "rope_parameters.rope_type: expected a string", 64},
        {"{\"rope_theta\": 1}", "rope_theta: rope_theta must be above 1", 64},
        {"{\"rope_theta\": 1e31}", "at most 1e30", 64},
        {"{\"rope_theta\": \"x\"}", "rope_theta: expected a number", 64},
        {"{\"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling.factor: missing", 64},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}}",
         "rope_scaling.factor: expected a number from 1 to 1e6, got 0.5", 64},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
         "rope_scaling.low_freq_factor: missing", 64},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 2}}",
         "high_freq_factor: must not be smaller than low_freq_factor", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"beta_slow\": 0}}",
         "beta_fast and beta_slow must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"beta_fast\": 0}}",
         "beta_fast and beta_slow must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"mscale\": -1}}",
         "mscale and attention_factor must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"mscale_all_dim\": -1}}",
         "rope_scaling.mscale_all_dim: must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"attention_factor\": -1}}",
         "mscale and attention_factor must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"attention_factor\": -1}}",
         "rope_scaling: attention_factor must be positive", 64},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": 0}}",
         "original_max_position_embeddings: expected an integer of at least 1", 64},
        {"{\"partial_rotary_factor\": 0}", "partial_rotary_factor: 0 of 64 elements", 64},
        {"{\"partial_rotary_factor\": 1e300}", "partial_rotary_factor: 0 of 64 elements", 64},
        {"{}", "head_dim: 7 of 7 elements of a head would be rotated", 7},
        {"{\"rope_parameters\": {\"rope_theta\": 5e5}, \"rope_scaling\": {\"type\": \"linear\", "
         "\"factor\": 2}}",
         "rope_scaling: this is read in place of rope_parameters, whose rope_theta would be lost",
         64},
        {"{\"rope_theta\": 5e5, \"rope_parameters\": {\"partial_rotary_factor\": 0.5}, "
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "whose partial_rotary_factor would be lost", 64},
        {"{\"rope_parameters\": {\"full_attention\": {}}, \"rope_scaling\": {\"factor\": 2}}",
         "rope_scaling: rope_parameters has full_attention, …; write it there", 64},
        {"{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "dynamic rope needs at least 4", 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_rope_config r;
        if (parse(&r, bad[i].text, bad[i].head_dim) == AX_OK)
            fail_msg("accepted: %s", bad[i].text);
        if (!strstr(ax_error_text(), bad[i].says))
            fail_msg("expected \"%s\" in \"%s\"", bad[i].says, ax_error_text());
    }
}

/* Where a file has both objects, transformers reads rope_scaling, unless it is empty. */
static void rope_scaling_wins(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum ax_rope_kind kind;
        double theta, factor;
    } cases[] = {
        {"{\"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
         "\"rope_parameters\": {\"rope_theta\": 7e5, \"rope_type\": \"dynamic\", \"factor\": 3}}",
         AX_ROPE_LINEAR, 5e5, 2},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 6e5}, "
         "\"rope_parameters\": {\"rope_theta\": 7e5, \"rope_type\": \"default\"}}",
         AX_ROPE_LINEAR, 6e5, 2},
        {"{\"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 7e5, \"rope_type\": "
         "\"dynamic\", "
         "\"factor\": 3}}",
         AX_ROPE_DYNAMIC, 7e5, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_rope_config r;
        assert_int_equal(parse(&r, cases[i].text, 64), AX_OK);
        assert_int_equal(r.kind, cases[i].kind);
        assert_true(r.theta == cases[i].theta && r.factor == cases[i].factor);
    }
}

/* YaRN where the last dimension ends the ramp: low 4, high 15 of 16, ramps in between. With a short
 * context the first one begins it. */
static void ramps_end_with_the_dimensions(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double low, high;
    } cases[] = {
        {"{\"rope_theta\": 10, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 32768, \"beta_fast\": 1500}}",
         4, 15},
        {"{\"rope_theta\": 10, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 64, \"beta_fast\": 20, \"beta_slow\": 2}}",
         0, 6},
    };
    for (size_t c = 0; c < 2; c++) {
        struct ax_rope_config r;
        float got[8];
        double scaling;
        assert_int_equal(parse(&r, cases[c].text, 16), AX_OK);
        ax_rope_frequencies(&r, 100, got, &scaling);
        for (int i = 0; i < 8; i++) {
            const double f = pow(10, -2.0 * i / 16);
            double ramp = (i - cases[c].low) / (cases[c].high - cases[c].low);
            ramp = fmin(fmax(ramp, 0), 1);
            assert_close((double)got[i], f / 4 * ramp + f * (1 - ramp), "frequency", c);
        }
        assert_close(scaling, 0.1 * log(4) + 1, "scaling", c);
    }
}

/* Tables hold cos and sin of position · frequency, in either type, scaled. */
static void tables_hold_the_angles(void **state) {
    (void)state;
    struct ax_queue queue = {.ops = &ax_ops_ref};
    static const enum ax_dtype types[] = {AX_F32, AX_F64};
    struct ax_rope_config r;
    float inv_freq[4];
    double scaling;
    assert_int_equal(parse(&r, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}", 8),
                     AX_OK);
    ax_rope_frequencies(&r, 0, inv_freq, &scaling);
    assert_true(scaling > 1.1);
    for (int t = 0; t < 2; t++) {
        double cos_data[400], sin_data[400]; /* room for either type */
        struct ax_tensor c = ax_tensor_2d(types[t], cos_data, 100, 4);
        struct ax_tensor s = ax_tensor_2d(types[t], sin_data, 100, 4);
        assert_int_equal(ax_rope_tables(&r, 0, &queue, &c, &s), AX_OK);
        for (int i = 0; i < 400; i++) {
            const int position = i / 4;
            const double angle = position * (double)inv_freq[i % 4];
            assert_true(fabs(ax_load(types[t], cos_data, i) - scaling * cos(angle)) < 1e-5);
            assert_true(fabs(ax_load(types[t], sin_data, i) - scaling * sin(angle)) < 1e-5);
        }
    }
}

static enum ax_status parse_family(struct ax_arch *a, const char *family, const char *rope) {
    struct ax_json_doc doc;
    char text[600];
    const int n = snprintf(text, sizeof text,
                           "{\"model_type\": \"%s\", \"vocab_size\": 512, \"hidden_size\": 64, "
                           "\"intermediate_size\": 128, \"num_hidden_layers\": 4, "
                           "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                           "\"head_dim\": 32%s}",
                           family, rope);
    assert_int_equal(ax_json_parse(&doc, "config.json", text, (size_t)n), AX_OK);
    const enum ax_status st = ax_arch_parse(a, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

/* Where a config says nothing of the base or the part of a head that is rotated. */
static void families_have_their_own(void **state) {
    (void)state;
    static const struct {
        const char *family, *rope;
        int64_t dim;
        double theta;
        enum ax_rope_kind kind;
    } cases[] = {
        {"llama", "", 32, 1e4, AX_ROPE_DEFAULT},
        {"glm4", "", 16, 1e4, AX_ROPE_DEFAULT},
        {"glm4", ", \"partial_rotary_factor\": 1", 32, 1e4, AX_ROPE_DEFAULT},
        {"glm4", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}", 16, 1e4,
         AX_ROPE_YARN},
        {"glm4_moe", ", \"rope_theta\": 5e6", 16, 5e6, AX_ROPE_DEFAULT},
        {"glm4_moe",
         ", \"rope_scaling\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 1.0}", 32,
         1e4, AX_ROPE_DEFAULT},
        {"qwen3_next", ", \"rope_parameters\": {\"rope_theta\": 1e7}", 8, 1e7, AX_ROPE_DEFAULT},
        {"lfm2", "", 32, 1e6, AX_ROPE_DEFAULT},
        {"ernie4_5", "", 32, 5e5, AX_ROPE_DEFAULT},
        {"olmo3", "", 32, 5e5, AX_ROPE_DEFAULT},
        {"cohere", "", 32, 5e5, AX_ROPE_DEFAULT},
        {"mixtral", "", 32, 1e6, AX_ROPE_DEFAULT},
        {"smollm3", "", 32, 2e6, AX_ROPE_DEFAULT},
        {"gpt_oss", ", \"rope_parameters\": {}", 32, 150000, AX_ROPE_DEFAULT},
        {"ministral3", ", \"rope_parameters\": {\"rope_type\": \"default\"}", 32, 1e4,
         AX_ROPE_DEFAULT},
        {"minimax_m2", ", \"rotary_dim\": 16", 16, 5e6, AX_ROPE_DEFAULT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        if (parse_family(&a, cases[i].family, cases[i].rope) != AX_OK)
            fail_msg("%s: %s", cases[i].family, ax_error_text());
        if (a.rope.dim != cases[i].dim || a.rope.theta != cases[i].theta ||
            a.rope.kind != cases[i].kind)
            fail_msg("%s%s: %d of a head, base %g", cases[i].family, cases[i].rope, (int)a.rope.dim,
                     a.rope.theta);
        ax_arch_free(&a);
    }
}

/* In place of a missing object transformers takes YaRN, with the numbers of the published model. */
static void a_scaling_that_is_missing_is_the_published_one(void **state) {
    (void)state;
    struct ax_arch a;
    assert_int_equal(parse_family(&a, "gpt_oss", ", \"rope_theta\": 5e5, \"rope_scaling\": null"),
                     AX_OK);
    assert_true(a.rope.kind == AX_ROPE_YARN && a.rope.factor == 32 && !a.rope.truncate);
    assert_true(a.rope.theta == 5e5 && a.rope.original_max_positions == 4096);
    ax_arch_free(&a);
    assert_int_equal(parse_family(&a, "ministral3", ""), AX_OK);
    assert_true(a.rope.kind == AX_ROPE_YARN && a.rope.factor == 16 && a.rope.theta == 1e6);
    assert_true(a.rope_queries.growth == 0.1 && a.rope_queries.period == 16384);
    ax_arch_free(&a);
}

/* transformers 5.23 reads the part in these families, and in the others only where the rope is proportional. */
static void families_read_the_part_or_refuse_it(void **state) {
    (void)state;
    static const char *const reads[] = {"phi3", "glm4", "glm4_moe", "minimax_m2", "qwen3_next"};
    static const struct {
        const char *family, *rope;
    } ignores[] = {
        {"llama", ", \"partial_rotary_factor\": 0.5"},
        {"mistral", ", \"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}"},
        {"qwen2", ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                  "\"partial_rotary_factor\": 0.5}"},
        {"qwen3", ", \"partial_rotary_factor\": 0.25"},
        {"gemma2", ", \"partial_rotary_factor\": 0.75"},
        {"deepseek_v3", ", \"partial_rotary_factor\": 0.5"},
        {"olmo3", ", \"rope_parameters\": {\"full_attention\": {\"partial_rotary_factor\": 0.5}}"},
        {"gemma4_text",
         ", \"rope_parameters\": {\"sliding_attention\": {\"partial_rotary_factor\": 0.5}}"},
        {"lfm2", ", \"partial_rotary_factor\": 0"},
    };
    struct ax_arch a;
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        if (parse_family(&a, reads[i], ", \"partial_rotary_factor\": 0.75") != AX_OK)
            fail_msg("%s: %s", reads[i], ax_error_text());
        assert_int_equal(a.rope.dim, 24);
        ax_arch_free(&a);
    }
    for (size_t i = 0; i < sizeof ignores / sizeof *ignores; i++) {
        assert_int_equal(parse_family(&a, ignores[i].family, ignores[i].rope), AX_ERR_UNSUPPORTED);
        if (!strstr(ax_error_text(), "partial_rotary_factor: 0") ||
            !strstr(ax_error_text(), "transformers rotates whole heads, other programs a part"))
            fail_msg("%s: %s", ignores[i].family, ax_error_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_those_of_the_reference),
        cmocka_unit_test(both_spellings_say_the_same),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(rope_scaling_wins),
        cmocka_unit_test(ramps_end_with_the_dimensions),
        cmocka_unit_test(tables_hold_the_angles),
        cmocka_unit_test(families_have_their_own),
        cmocka_unit_test(a_scaling_that_is_missing_is_the_published_one),
        cmocka_unit_test(families_read_the_part_or_refuse_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
