/* Random initial values: matrices as config.json says, biases 0, and norms so that they multiply by one,
 * whatever their formula adds to the weight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "tests/tiny.h"

struct counts {
    const struct ax_arch *arch;
    int norms, biases, matrices;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct counts *c = ctx;
    struct ax_model m;
    const struct ax_model_options o = {.dtype = AX_F64, .max_positions = 16};
    AX_TRY(ax_model_create(&m, c->arch, rt, &o));
    enum ax_status st = ax_model_init_random(&m, 6);
    for (int i = 0; i < m.n_params && st == AX_OK && !ax_runtime_planning(rt); i++) {
        const struct ax_param *p = &m.params[i];
        const struct ax_tensor t = ax_model_value(&m, p);
        const double *v = t.data;
        const int64_t n = ax_tensor_numel(&t);
        const bool norm = strstr(p->name, "norm.weight") != NULL;
        double squares = 0;
        assert_int_equal(t.dtype, AX_F64);
        for (int64_t k = 0; k < n; k++) {
            squares += v[k] * v[k];
            if (p->ndim == 1)
                assert_true(v[k] + (norm ? c->arch->norm.offset : 1) == 1);
        }
        if (p->ndim > 1)
            assert_true(fabs(sqrt(squares / (double)n) / c->arch->init_range - 1) < 0.1);
        c->norms += norm;
        c->biases += p->ndim == 1 && !norm;
        c->matrices += p->ndim > 1;
    }
    ax_model_free(&m);
    return st;
}

static void values(const char *model_type, const char *more, double offset, bool biases) {
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, model_type, false, more), AX_OK);
    assert_true(arch.norm.offset == offset);
    struct counts c = {.arch = &arch};
    const struct ax_runtime_options o = {.backend = "ref", .threads = 1};
    assert_int_equal(ax_runtime_run(&o, body, &c, NULL), AX_OK);
    assert_true(c.norms > 0 && c.matrices > 0 && (c.biases > 0) == biases);
    ax_arch_free(&arch);
}

static void norms_multiply_by_one(void **state) {
    (void)state;
    values("llama", "", 0, false);
    values("qwen2", "", 0, true);
    values("gemma3_text", "", 1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_multiply_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
