/* Random requests at `axtrain serve`, of clients at the same time, have the answers of a model of the API in Python
 * (tests/peers/serve_random.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"

static void as_the_model_says(void **state) {
    (void)state;
    char words[1024], said[1 << 14];
    FILE *p;
    snprintf(words, sizeof words,
             "python3 tests/peers/serve_random.py '%s' '%s' --requests 160 --seed 3 2>&1",
             test_program(), golden_path("models/llama"));
    assert_non_null(p = popen(words, "r"));
    said[fread(said, 1, sizeof said - 1, p)] = '\0';
    if (pclose(p) != 0 || !strstr(said, "160 requests of 8 clients: "))
        fail_msg("%s", said);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_model_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
