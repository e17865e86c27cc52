/* tools/sentences: which literals of a source it lists, once, with their lines. Runs at the root of
 * the sources, as all tests do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/scratch.h"

static void sentences_of_a_source(void **state) {
    static const char source[] =
        "#include \"not this one.h\"\n"
        "/* \"not a comment\" */ // \"nor this one\"\n"
        "_Static_assert(1, \"not for people\");\n"
        "f(\"%s: cannot open: %m\", '\"', \"word\");\n"
        "g(\"adjacent literals\\n\"\n"
        "  \" are one\\ttext\", \"\\xc3\\xa4 and \\\"quotes\\\" too\");\n"
        "h(\"{sssO}\", \"all|turn|last\", \"rl == dpo && x\", \"cannot go on\");\n"
        "i(\"cannot go on\", \"<b class=\\\"x y\\\">bold words</b>\");\n";
    char path[300], command[400], out[2000], want[2000];
    (void)state;
    snprintf(path, sizeof path, "%s", put_text("x.c", source));
    snprintf(command, sizeof command, "tools/sentences '%s'", path);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, sizeof out - 1, p)] = '\0';
    assert_int_equal(pclose(p), 0);
    snprintf(want, sizeof want,
             "%1$s:4: %%s: cannot open: %%m\n%1$s:5: adjacent literals are one text\n"
             "%1$s:6: \xc3\xa4 and \"quotes\" too\n%1$s:7: cannot go on\n%1$s:8: bold words\n",
             path);
    assert_string_equal(out, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentences_of_a_source)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
