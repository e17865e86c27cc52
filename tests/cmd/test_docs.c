/* Names of TRL in docs/from-trl.md, and command lines in README and docs: the program knows them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/config/table.h"
#include "cmd/help/help.h"

static char *page(const char *path) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    return text;
}

/* ---- TRL's names ---- */

static bool is_answered(const char *name) {
    for (size_t i = 0; i < ax_config_n_other_trainers; i++)
        if (strcmp(ax_config_other_trainers[i].name, name) == 0)
            return true;
    return false;
}

/* A key at the top level, of a data set, or under trl. */
static bool is_key(const char *name) {
    static const char *const before[] = {"", "datasets[].", "trl."};
    char path[AX_CONFIG_PATH];
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        snprintf(path, sizeof path, "%s%s", before[i], name);
        if (ax_config_find(path))
            return true;
    }
    return false;
}

/* The names in the first column of the tables of docs/from-trl.md are keys here, too, or an error answers
 * them. */
static void names_of_trl_are_answered(void **state) {
    (void)state;
    char *text = page("docs/from-trl.md");
    const char *from = strstr(text, "| DPOConfig, "), *to = strstr(text, "\n## Data\n");
    int n = 0, wrong = 0;
    assert_true(from && to);
    for (const char *line = from; line < to; line = strchr(line, '\n') + 1) {
        const char *end = *line == '|' ? strpbrk(line + 1, "|\n") : line;
        for (const char *at = line; (at = memchr(at, '`', (size_t)(end - at))) != NULL; at++) {
            char name[64];
            const size_t len = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
            if (at[1 + len] != '`' || len == 0) {
                at = strchr(at + 1, '`');
                continue;
            }
            snprintf(name, sizeof name, "%.*s", (int)len, at + 1);
            at += 1 + len;
            n++;
            if (is_key(name) || is_answered(name))
                continue;
            print_error("docs/from-trl.md: %s is no key, and no error answers it\n", name);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(n > 60);
    ax_free(text);
}

/* ---- command lines ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

/* Whether a command's help has an option, whole. */
static bool knows_option(const struct ax_command *c, const char *option, size_t n) {
    const char *const texts[] = {c->usage, c->details};
    for (int i = 0; i < 2; i++)
        for (const char *at = texts[i]; at && (at = strstr(at, "--")) != NULL; at += 2)
            if (strncmp(at, option, n) == 0 && !is_word(at[n]))
                return true;
    return false;
}

/* The words after "axtrain " in a code span or a line of a block: a command, perhaps one of its kinds, and
 * options that it has. `end`: the end of the span. */
static int check_command_line(const char *path, const char *words, const char *end) {
    char name[32], forms[AX_HELP_MAX_FORMS][24];
    const size_t n = strspn(words, "abcdefghijklmnopqrstuvwxyz");
    snprintf(name, sizeof name, "%.*s", (int)n, words);
    const struct ax_command *c = ax_command_find(ax_commands, name);
    int wrong = 0;
    if (n == 0)
        return 0;
    if (!c) {
        print_error("%s: `axtrain %s` is no command\n", path, name);
        return 1;
    }
    const int n_forms = ax_help_forms(c, forms);
    const char *second = words + n + (words[n] == ' ');
    const size_t len = strspn(second, "abcdefghijklmnopqrstuvwxyz");
    bool known = n_forms == 0 || len == 0 || (second[len] && !strchr(" `;,)\n", second[len]));
    for (int i = 0; i < n_forms; i++)
        known = known || (strlen(forms[i]) == len && strncmp(forms[i], second, len) == 0);
    wrong += !known;
    if (!known)
        print_error("%s: `axtrain %s %.*s`: no such kind\n", path, name, (int)len, second);
    if (ax_help_takes_config(c) || strcmp(name, "launch") == 0) /* any key may be an option */
        return wrong;
    for (const char *at = words; (at = strstr(at, " --")) != NULL && at < end; at += 3) {
        size_t option = 1;
        while (is_word(at[1 + option]))
            option++;
        if (option <= 2 || knows_option(c, at + 1, option))
            continue;
        print_error("%s: `axtrain %s` has no option %.*s\n", path, name, (int)option, at + 1);
        wrong++;
    }
    return wrong;
}

/* Whether an odd number of fences precedes it. */
static bool in_block(const char *text, const char *at) {
    bool in = false;
    for (const char *fence = text; (fence = strstr(fence, "```")) != NULL && fence < at; fence += 3)
        in = !in;
    return in;
}

/* Code spans that begin with "axtrain ", and lines of code blocks that do, also after "$ ". */
static void command_lines_are_right(void **state) {
    (void)state;
    static const char *const pages[] = {"README.md",
                                        "docs/first-hour.md",
                                        "docs/from-axolotl.md",
                                        "docs/from-trl.md",
                                        "docs/launch.md",
                                        "docs/deploying.md",
                                        "docs/eval.md",
                                        "docs/gguf.md",
                                        "docs/grpo.md",
                                        "docs/ppo.md",
                                        "docs/preferences.md",
                                        "docs/reward-models.md",
                                        "docs/rewards.md",
                                        "docs/run.md",
                                        "docs/plan.md",
                                        "docs/checkpoint.md",
                                        "docs/data-formats.md",
                                        "docs/quantization.md",
                                        "docs/distillation.md",
                                        "docs/troubleshooting.md",
                                        "docs/sandbox.md",
                                        "docs/tools.md",
                                        "docs/environments.md",
                                        "docs/bench.md",
                                        "docs/install.md",
                                        "docs/gpu.md"};
    int n = 0, wrong = 0;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char *text = page(pages[i]);
        for (const char *at = text; (at = strstr(at, "axtrain ")) != NULL; at += 8) {
            const char before = at == text ? '\n' : at[-1];
            const bool block = before == '\n' || (before == ' ' && at - text >= 2 && at[-2] == '$');
            if (before != '`' && !block)
                continue;
            const char *end = at + strcspn(at, before == '`' ? "`" : "\n#;|&");
            const char *next = at + 8;
            const char *newline = strchr(at, '\n');
            if (block && (!in_block(text, at) || strncmp(newline, "\nerror ", 7) == 0))
                continue; /* a sentence; a mistake that is shown */
            wrong += check_command_line(pages[i], next, end);
            n++;
        }
        ax_free(text);
    }
    assert_int_equal(wrong, 0);
    assert_true(n > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_trl_are_answered),
        cmocka_unit_test(command_lines_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
