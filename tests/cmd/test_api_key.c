/* Keys of endpoints: one word of visible ASCII, in a file or the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cmd/api_key.h"
#include "tests/data/scratch.h"

static const struct {
    const char *text, *key; /* NULL: none */
} cases[] = {
    {"sk-1", "sk-1"},   {"!~", "!~"},       {"k", "k"},        {"key\n", "key"},
    {"key\r\n", "key"}, {"key\n\n", "key"}, {"", NULL},        {"\n", NULL},
    {" key", NULL},     {"key ", NULL},     {"a b", NULL},     {"key\nmore\n", NULL},
    {"\x7fkey", NULL},  {"ke\x7fy", NULL},  {"key\x7f", NULL}, {"k\xc3\xa9y", NULL},
    {"\tkey", NULL},
};

static void expect(size_t i, enum ax_status st, char *key, const char *where) {
    if (cases[i].key) {
        assert_int_equal(st, AX_OK);
        assert_string_equal(key, cases[i].key);
        ax_free(key);
        return;
    }
    assert_int_equal(st, AX_ERR_CONFIG);
    assert_null(key);
    char want[300];
    snprintf(want, sizeof want, "%s: expected one line with a key of visible ASCII", where);
    assert_non_null(strstr(ax_error_text(), want));
    ax_error_clear();
}

static void keys_of_files(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *key = NULL;
        const char *path = put_bytes("key", cases[i].text, strlen(cases[i].text));
        const enum ax_status st = ax_api_key_read(path, &key);
        expect(i, st, key, path);
    }
}

static void keys_of_the_environment(void **state) {
    (void)state;
    static char own[] = "own";
    char *key = own;
    unsetenv("A_TEST_KEY");
    assert_int_equal(ax_api_key_environment("A_TEST_KEY", &key), AX_OK);
    assert_ptr_equal(key, own);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (*cases[i].text == '\0')
            continue; /* as if it were unset */
        key = NULL;
        setenv("A_TEST_KEY", cases[i].text, 1);
        const enum ax_status st = ax_api_key_environment("A_TEST_KEY", &key);
        expect(i, st, key, "A_TEST_KEY");
    }
    unsetenv("A_TEST_KEY");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_of_files),
                                       cmocka_unit_test(keys_of_the_environment)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
