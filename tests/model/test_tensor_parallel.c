/* What tensor parallelism may split: the heads, columns and rows that a size of tp must fit, and
 * the nearest size that the message names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/arch/arch.h"
#include "model/arch/split.h"
#include "model/parallel/tensor_parallel.h"

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    static const struct {
        int tp, heads, kv_heads, columns, rows;
        const char *mention; /* NULL: it fits */
    } cases[] = {
        {1, 6, 2, 16, 32, NULL},
        {2, 6, 2, 16, 32, NULL},
        {4, 8, 2, 16, 32, NULL}, /* each kv head on two ranks */
        {4, 8, 4, 4, 4, NULL},
        {4, 6, 2, 16, 32, "mesh: tp 4 does not divide the 6 attention heads. Nearest: tp 3."},
        {6, 12, 4, 16, 32, "mesh: tp 6 does not divide the 4 key and value heads. Nearest: tp 4."},
        {4, 12, 6, 16, 32, "mesh: tp 4 does not divide the 6 key and value heads. Nearest: tp 3."},
        {4, 8, 4, 3, 32, "mesh: tp 4 exceeds the 3 feed-forward columns. Nearest: tp 3."},
        {4, 8, 4, 16, 3, "mesh: tp 4 exceeds the 3 vocabulary rows. Nearest: tp 3."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_arch arch = {.n_heads = cases[i].heads,
                                     .n_kv_heads = cases[i].kv_heads,
                                     .intermediate_size = cases[i].columns,
                                     .vocab_size = cases[i].rows};
        const struct ax_mesh mesh = {.size = {[AX_ROLE_TP] = cases[i].tp}};
        const enum ax_status st = ax_tp_check(&arch, &mesh);
        assert_int_equal(st, cases[i].mention ? AX_ERR_CONFIG : AX_OK);
        if (cases[i].mention)
            assert_string_equal(ax_error_text(), cases[i].mention);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
