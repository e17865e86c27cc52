/* Texts that end an answer while it is sampled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/rollout/rollout.h"
#include "tests/golden_files.h"

static struct ax_tokenizer *tokenizer;

/* A text of as many tokens as characters ends a completion at its last one, and never before. */
static void any_tokens_make_a_text(void **state) {
    (void)state;
    static const char text[] = "so it goes on and on until </answer>";
    int32_t tokens[4 * sizeof text];
    const char *const stops[] = {"never", "</answer>"};
    const struct ax_rollout_options o = {
        .n_stop_strings = 2, .stop_strings = stops, .tokenizer = tokenizer};
    struct ax_sequence s = {.tokens = tokens};
    bool ended = false;
    for (size_t i = 0; text[i]; i++) {
        struct ax_encoding e = {0};
        assert_false(ended);
        assert_int_equal(
            ax_tokenizer_encode(tokenizer, text + i, 1, &(struct ax_encode_options){0}, &e), AX_OK);
        assert_int_equal(e.n, 1);
        tokens[s.n_new++] = e.ids[0];
        ax_encoding_free(&e);
        assert_int_equal(ax_rollout_ends(&o, &s, &ended), AX_OK);
    }
    assert_true(ended);
}

/* So does that of a special token, which is no part of an answer's text. */
static void a_special_token_ends_by_its_text(void **state) {
    (void)state;
    const char *const stops[] = {"<|eot_id|>", "a"};
    struct ax_rollout_options o = {
        .n_stop_strings = 1, .stop_strings = stops, .tokenizer = tokenizer};
    int32_t tokens[2];
    struct ax_encoding e = {0};
    bool ended = true;
    assert_int_equal(ax_tokenizer_encode(tokenizer, "a", 1, &(struct ax_encode_options){0}, &e),
                     AX_OK);
    tokens[0] = e.ids[e.n - 1];
    tokens[1] = ax_tokenizer_find(tokenizer, stops[0], strlen(stops[0]));
    ax_encoding_free(&e);
    assert_true(ax_tokenizer_is_special(tokenizer, tokens[1]));
    struct ax_sequence s = {.tokens = tokens, .n_new = 1};
    assert_int_equal(ax_rollout_ends(&o, &s, &ended), AX_OK);
    assert_false(ended);
    o.n_stop_strings = 2;
    assert_int_equal(ax_rollout_ends(&o, &s, &ended), AX_OK);
    assert_true(ended);
    o.n_stop_strings = 1;
    s.n_new = 2;
    assert_int_equal(ax_rollout_ends(&o, &s, &ended), AX_OK);
    assert_true(ended);
}

static int load_tokenizer(void **state) {
    (void)state;
    return ax_tokenizer_load(&tokenizer, golden_path("models/llama")) == AX_OK ? 0 : -1;
}

static int free_tokenizer(void **state) {
    (void)state;
    ax_tokenizer_free(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_tokens_make_a_text),
        cmocka_unit_test(a_special_token_ends_by_its_text),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, free_tokenizer);
}
