/* Lists and numbers in README, docs and help that the code knows: each is what its table says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "ckpt/gguf/model.h"
#include "cmd/help/help.h"
#include "optim/losses/preference.h"

#define MANY 64

static char *page(const char *path) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    return text;
}

/* The words (letters, digits, _) between two places, sorted out of punctuation. */
static int words_of(char words[MANY][32], const char *from, const char *to) {
    int n = 0;
    while (from < to) {
        size_t len = 0;
        while (from + len < to && (isalnum((unsigned char)from[len]) || from[len] == '_'))
            len++;
        if (len > 0) {
            assert_in_range(n, 0, MANY - 1);
            snprintf(words[n++], 32, "%.*s", (int)len, from);
        }
        from += len + 1;
    }
    return n;
}

static bool has(char words[MANY][32], int n, const char *word) {
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

/* What a page names is what the code knows, in any order. */
static void expect_same(const char *where, char named[MANY][32], int n_named, char known[MANY][32],
                        int n_known) {
    for (int i = 0; i < n_known; i++)
        if (!has(named, n_named, known[i]))
            fail_msg("%s does not name %s", where, known[i]);
    for (int i = 0; i < n_named; i++)
        if (!has(known, n_known, named[i]))
            fail_msg("%s names %s, which the code does not know", where, named[i]);
}

/* Architectures of GGUF: Mistral's is Llama's. */
static int architectures(char known[MANY][32]) {
    char list[1024];
    ax_gguf_kind_list(list, sizeof list);
    const int n = words_of(known, list, list + strlen(list));
    assert_in_range(n, 10, MANY - 2);
    snprintf(known[n], 32, "mistral");
    return n + 1;
}

static void convert_names_its_architectures(void **state) {
    (void)state;
    char known[MANY][32], named[MANY][32];
    const int n = architectures(known);
    const char *from = strstr(ax_command_find(ax_commands, "convert")->details, "Architectures: ");
    assert_non_null(from);
    from += strlen("Architectures: ");
    const char *to = strchr(from, '.');
    assert_non_null(to);
    expect_same("help convert", named, words_of(named, from, to), known, n);
}

/* The first column of the table in docs/gguf.md. */
static void a_page_names_them(void **state) {
    (void)state;
    char known[MANY][32], named[MANY][32];
    const int n = architectures(known);
    char *text = page("docs/gguf.md");
    int n_named = 0;
    const char *line = strstr(text, "|---|---|---|---|\n| llama ");
    assert_non_null(line);
    for (line = strchr(line, '\n') + 1; *line == '|'; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line + 1, '|');
        n_named += words_of(named + n_named, line + 1, end);
    }
    expect_same("docs/gguf.md", named, n_named, known, n);
    ax_free(text);
}

/* Losses of pairs that dpo_loss_type takes: all but ORPO's own term. */
static void pages_count_the_losses(void **state) {
    (void)state;
    static const char *const pages[] = {"README.md", "CHANGELOG.md"};
    char expected[64];
    snprintf(expected, sizeof expected, "`rl: dpo` with %d losses", AX_PREFER_TERMS - 1);
    assert_int_equal(ax_preference_term_find("odds_ratio"), AX_PREFER_ODDS_RATIO);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char *text = page(pages[i]);
        if (!strstr(text, expected))
            fail_msg("%s does not say \"%s\"", pages[i], expected);
        ax_free(text);
    }
}

/* The commands that train, on pages that say which commands run on ranks. */
static void a_page_names_what_trains(void **state) {
    (void)state;
    char known[MANY][32], named[MANY][32];
    int n = 0;
    for (const struct ax_command *c = ax_commands; c->name; c++)
        if (c->trains)
            snprintf(known[n++], 32, "%s", c->name);
    char *text = page("docs/launch.md");
    const char *from = strstr(text, "All commands that train (");
    assert_non_null(from);
    from += strlen("All commands that train (");
    expect_same("docs/launch.md", named, words_of(named, from, strchr(from, ')')), known, n);
    ax_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convert_names_its_architectures),
        cmocka_unit_test(a_page_names_them),
        cmocka_unit_test(pages_count_the_losses),
        cmocka_unit_test(a_page_names_what_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
