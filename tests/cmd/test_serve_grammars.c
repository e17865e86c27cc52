/* Grammars that a server keeps: those asked for last, and all that are in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cmd/serve/grammars.h"
#include "data/text/tokenizer/tokenizer.h"
#include "tests/golden_files.h"

enum { N = AX_SERVE_GRAMMARS };

static struct ax_tokenizer *tokenizer;

static struct ax_serve_grammar *take(struct ax_serve_grammars *all, const char *text) {
    struct ax_serve_grammar *g;
    json_t *v = json_string(text);
    if (ax_serve_grammar_take(all, AX_SOURCE_REGEX, v, &g) != AX_OK)
        fail_msg("%s", ax_error_text());
    json_decref(v);
    return g;
}

static const char *numbered(int i) {
    static char text[16];
    snprintf(text, sizeof text, "x%d", i);
    return text;
}

static bool is_kept(const struct ax_serve_grammars *all, const char *text) {
    char quoted[32];
    bool yes = false;
    snprintf(quoted, sizeof quoted, "\"%s\"", text);
    for (int i = 0; i < N; i++)
        yes = yes || (all->kept[i] && strcmp(all->kept[i]->text, quoted) == 0);
    return yes;
}

static void open_all(struct ax_serve_grammars *all) {
    *all = (struct ax_serve_grammars){0};
    assert_int_equal(ax_serve_grammars_open(all), AX_OK);
    for (int twice = 0; twice < 2; twice++)
        assert_int_equal(
            ax_serve_grammars_prepare(all, tokenizer, (int64_t)ax_tokenizer_size(tokenizer)),
            AX_OK);
}

static void the_longest_unused_goes(void **state) {
    (void)state;
    struct ax_serve_grammars all;
    open_all(&all);
    struct ax_serve_grammar *first = take(&all, numbered(0));
    assert_ptr_equal(take(&all, numbered(0)), first);
    assert_int_equal(first->users, 2);
    ax_serve_grammar_release(&all, first);
    ax_serve_grammar_release(&all, first);
    assert_int_equal(first->users, 0);
    for (int i = 1; i < N; i++)
        ax_serve_grammar_release(&all, take(&all, numbered(i)));
    for (int i = 0; i < N; i++)
        assert_true(is_kept(&all, numbered(i)));
    assert_ptr_equal(take(&all, numbered(0)), first); /* now the latest */
    ax_serve_grammar_release(&all, first);
    for (int i = 1; i < N - 1; i++) { /* each goes in its turn, and none but it */
        ax_serve_grammar_release(&all, take(&all, numbered(N + i)));
        assert_false(is_kept(&all, numbered(i)));
        assert_true(is_kept(&all, numbered(i + 1)) && is_kept(&all, numbered(N + i)));
        assert_true(is_kept(&all, numbered(0)));
    }
    ax_serve_grammar_release(&all, NULL);
    ax_serve_grammars_close(&all);
}

static void those_in_use_stay(void **state) {
    (void)state;
    struct ax_serve_grammars all;
    struct ax_serve_grammar *used[N], *extra, *again;
    open_all(&all);
    for (int i = 0; i < N; i++)
        used[i] = take(&all, numbered(i));
    extra = take(&all, "more");
    assert_false(is_kept(&all, "more"));
    again = take(&all, "more");
    assert_ptr_not_equal(again, extra);
    ax_serve_grammar_release(&all, again);
    ax_serve_grammar_release(&all, used[5]); /* the only one that may go */
    ax_serve_grammar_release(&all, take(&all, "other"));
    assert_true(is_kept(&all, "other") && !is_kept(&all, numbered(5)));
    ax_serve_grammar_release(&all, extra);
    for (int i = 0; i < N; i++)
        if (i != 5) {
            assert_true(is_kept(&all, numbered(i)));
            ax_serve_grammar_release(&all, used[i]);
        }
    ax_serve_grammars_close(&all);
}

/* One of another source is another one; what is none is kept nowhere. */
static void sources_differ(void **state) {
    (void)state;
    struct ax_serve_grammars all;
    struct ax_serve_grammar *g[2], *none;
    open_all(&all);
    json_t *list = json_pack("[s]", "a"), *number = json_integer(3), *open = json_string("(");
    assert_int_equal(ax_serve_grammar_take(&all, AX_SOURCE_CHOICE, list, &g[0]), AX_OK);
    g[1] = take(&all, "a");
    assert_ptr_not_equal(g[0], g[1]);
    assert_int_equal(ax_serve_grammar_take(&all, AX_SOURCE_REGEX, number, &none), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "expected the text of an expression"));
    assert_int_not_equal(ax_serve_grammar_take(&all, AX_SOURCE_REGEX, open, &none), AX_OK);
    assert_null(all.kept[2]);
    for (int i = 0; i < 2; i++)
        ax_serve_grammar_release(&all, g[i]);
    json_decref(list);
    json_decref(number);
    json_decref(open);
    ax_serve_grammars_close(&all);
}

static int begin(void **state) {
    (void)state;
    return ax_tokenizer_load(&tokenizer, golden_path("models/llama")) == AX_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    ax_tokenizer_free(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_unused_goes),
        cmocka_unit_test(those_in_use_stay),
        cmocka_unit_test(sources_differ),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
