/* Which final answers are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "data/reward/final_answer.h"

static void reads(void **state) {
    (void)state;
    static const struct {
        const char *text, *want; /* NULL: none */
    } cases[] = {
        {"3 + 4 = 7\n#### 7", "7"},
        {"#### 7\n#### 8", "7"},
        {"####7<tail", "7<tail"},
        {"#### $1,250.50.", "1250.5"},
        {"#### -$3", "-3"},
        {"#### +12", "12"},
        {"#### 12.0", "12"},
        {"#### 12.00 ", "12"},
        {"#### 007", "7"},
        {"#### 0.50", "0.5"},
        {"#### .5", "0.5"},
        {"#### -.50", "-0.5"},
        {"#### -0", "0"},
        {"#### 0", "0"},
        {"#### 100", "100"},
        {"#### 40%", "40"},
        {"#### 10,000,000", "10000000"},
        {"#### 1.2.3", "1.2.3"},
        {"#### 1.5,0", "1.5,0"},
        {"#### ,50", ",50"},
        {"#### twelve apples ", "twelve apples"},
        /* as lm-evaluation-harness's strict match: units, and headings before the answer */
        {"#### 12 apples", "12"},
        {"#### Step 1\nso\n#### 12", "12"},
        {"#### Step 1\n#### Paris", "Step 1"},
        {"####\n#### 12", "12"},
        {"#### 12kg", "12"},
        {"#### 12 km/h", "12"},
        {"#### 12km/h.", "12"},
        {"#### 5g", "5"},
        {"#### 12€", "12"},
        {"#### €1,250", "1250"},
        {"#### $-5", "-5"},
        {"#### 12 %", "12"},
        {"#### 1,250 (dollars)", "1250"},
        {"#### 12, as said", "12"},
        /* but not where commas, or what follows, make it another value */
        {"#### 1,2", "1,2"},
        {"#### 0,5", "0,5"},
        {"#### 1,,2", "1,,2"},
        {"#### 1,2500", "1,2500"},
        {"#### 1250,000", "1250,000"},
        {"#### 12,345,67", "12,345,67"},
        {"#### 1,234.5", "1234.5"},
        {"#### 1.234,567", "1.234,567"},
        {"#### 1/2", "1/2"},
        {"#### 3 1/2", "3 1/2"},
        {"#### 12:30", "12:30"},
        {"#### 2x", "2x"},
        {"#### 2x+1", "2x+1"},
        {"#### 1e5", "1e5"},
        {"#### 10 000", "10 000"},
        {"#### 12 / 5", "12 / 5"},
        {"#### 1,2\n#### 12", "12"},
        {"no mark, 7", NULL},
        {"### 7", NULL},
        {"#### ", NULL},
        {"####\n7", NULL},
        {"", NULL},
        {"#### .", "."},
        {"#### -", "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[AX_FINAL_ANSWER_MAX];
        const bool got = ax_final_answer(cases[i].text, strlen(cases[i].text), out);
        if (got != (cases[i].want != NULL) || (got && strcmp(out, cases[i].want) != 0))
            fail_msg("\"%s\": got %s, expected %s", cases[i].text, got ? out : "none",
                     cases[i].want ? cases[i].want : "none");
    }
}

/* Every length around the cap, and text that is not NUL-terminated. */
static void lengths(void **state) {
    (void)state;
    char text[256] = "#### ", out[AX_FINAL_ANSWER_MAX];
    for (size_t n = 1; n < 200; n++) {
        memset(text + 5, '7', n);
        text[5 + n] = '8';
        assert_int_equal(ax_final_answer(text, 5 + n, out), n < AX_FINAL_ANSWER_MAX);
        if (n < AX_FINAL_ANSWER_MAX)
            assert_int_equal(strlen(out), n);
        memset(text + 5, 'x', n);
        assert_int_equal(ax_final_answer(text, 5 + n, out), n < AX_FINAL_ANSWER_MAX);
        memset(text + 5, '0', n);
        if (ax_final_answer(text, 5 + n, out))
            assert_string_equal(out, n < AX_FINAL_ANSWER_MAX ? "0" : "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
