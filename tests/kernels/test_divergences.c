/* Divergences from a teacher, over all tokens and over the likeliest, and their gradients: what TRL's trainers make of them
 * (tests/goldens/ops/divergences.json), by the reference in float64 and on every instruction set of this
 * machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/text/json.h"
#include "kernels/ref/ref.h"
#include "tests/golden_files.h"
#include "tests/kernels/isa.h"

enum { T = 5, V = 24 };
#define TOLERANCE 1e-6

static const struct isa reference = {.name = "ref",
                                     .divergence = ax_ref_divergence,
                                     .support_logits = ax_ref_support_logits,
                                     .tail_logits = ax_ref_tail_logits,
                                     .divergence_merge = ax_ref_divergence_merge,
                                     .distill_backward = ax_ref_distill_backward};

static struct ax_tensor matrix(struct ax_json v, enum ax_dtype dtype) {
    const struct ax_tensor t = grid(dtype, T, V, 0);
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < V; c++)
            set(&t, i, c, json_number_value(ax_json_at(ax_json_at(v, (size_t)i), (size_t)c).v));
    return t;
}

static struct ax_tensor lse_of(const struct ax_tensor *z, double temper, enum ax_dtype dtype) {
    const struct ax_tensor t = line(dtype, T);
    for (int64_t i = 0; i < T; i++) {
        double sum = 0;
        for (int64_t c = 0; c < V; c++)
            sum += exp(get(z, i, c) * temper);
        set(&t, i, 0, log(sum));
    }
    return t;
}

/* The k largest of each row; elsewhere AX_TRUNCATED. */
static struct ax_tensor largest(const struct ax_tensor *z, int k) {
    const struct ax_tensor t = grid(z->dtype, T, V, 3);
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < V; c++) {
            int above = 0;
            for (int64_t other = 0; other < V; other++)
                above += get(z, i, other) > get(z, i, c);
            set(&t, i, c, above < k ? get(z, i, c) : AX_TRUNCATED);
        }
    return t;
}

/* log Σ e^z over the tokens that have no mark. */
static struct ax_tensor tail_of(const struct isa *isa, const struct ax_tensor *z,
                                const struct ax_tensor *marks, const struct ax_tensor *more) {
    const struct ax_tensor rest = grid(z->dtype, T, V, 1);
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < V; c++)
            set(&rest, i, c, get(z, i, c));
    RUN(isa, 1, support_logits, *marks, *more, rest, false);
    return lse_of(&rest, 1, z->dtype);
}

/* Changes both models' logits to those of distributions over the support of a case, if it has one. */
static void keep_support(const struct isa *isa, struct ax_json v, const struct ax_tensor *student,
                         const struct ax_tensor *teacher) {
    const char *of = json_string_value(ax_json_get(v, "support").v);
    const int k = (int)json_integer_value(ax_json_get(v, "top_k").v);
    struct ax_tensor more = {0};
    if (!of)
        return;
    const struct ax_tensor marks = largest(strcmp(of, "student") == 0 ? student : teacher, k);
    if (strcmp(of, "both") == 0)
        more = largest(student, k);
    if (json_is_true(ax_json_get(v, "tail").v)) {
        RUN(isa, 1, tail_logits, marks, more, *student, tail_of(isa, student, &marks, &more),
            tail_of(isa, teacher, &marks, &more), *teacher, 1);
        return;
    }
    RUN(isa, 1, support_logits, marks, more, *student, true);
    RUN(isa, 1, support_logits, marks, more, *teacher, true);
}

/* The largest deviation of the loss or the gradient. */
static double deviation(const struct isa *isa, enum ax_dtype dtype, struct ax_json root,
                        struct ax_json v) {
    const double beta = json_number_value(ax_json_get(v, "beta").v),
                 temper = 1 / json_number_value(ax_json_get(v, "temperature").v);
    const struct ax_tensor student = matrix(ax_json_get(root, "student"), dtype),
                           teacher = matrix(ax_json_get(root, "teacher"), dtype);
    keep_support(isa, v, &student, &teacher);
    const struct ax_tensor want = matrix(ax_json_get(v, "grad"), AX_F64),
                           lse = lse_of(&student, temper, dtype),
                           teacher_lse = lse_of(&teacher, temper, dtype),
                           nll_lse = lse_of(&student, 1, dtype), labels = line(AX_I32, T),
                           parts = grid(dtype, T, 2, 0), divergence = line(dtype, T),
                           student_kl = line(dtype, T), g_logprob = line(dtype, T),
                           g = line(dtype, T), got = grid(dtype, T, V, 0);
    double worst = 0;
    for (int64_t i = 0; i < T; i++)
        set(&g, i, 0, 1);
    RUN(isa, 1, divergence, student, teacher, lse, teacher_lse, parts, beta, temper);
    RUN(isa, 1, divergence_merge, ax_tensor_3d(dtype, parts.data, 1, T, 2), divergence, student_kl,
        beta);
    RUN(isa, 1, distill_backward, student, teacher, labels, nll_lse, lse, teacher_lse, student_kl,
        g_logprob, g, got, 0, beta, temper);
    for (int64_t i = 0; i < T; i++) {
        const double loss = json_number_value(ax_json_at(ax_json_get(v, "loss"), (size_t)i).v);
        worst = fmax(worst, fabs(get(&divergence, i, 0) - loss));
        for (int64_t c = 0; c < V; c++)
            worst = fmax(worst, fabs(get(&got, i, c) - get(&want, i, c)));
    }
    release();
    return worst;
}

static void divergences_are_trl_s(void **state) {
    (void)state;
    struct ax_json_doc doc;
    char path[512];
    snprintf(path, sizeof path, "%s", golden_path("ops/divergences.json"));
    assert_int_equal(ax_json_load(&doc, path, 1 << 20), AX_OK);
    const struct ax_json root = ax_json_root(&doc), cases = ax_json_get(root, "cases");
    assert_int_equal(ax_json_size(cases), 24);
    for (size_t k = 0; k < ax_json_size(cases); k++)
        for (int i = -1; i < isas_here(); i++) {
            const struct isa *isa = i < 0 ? &reference : &ISAS[i];
            const double worst =
                deviation(isa, i < 0 ? AX_F64 : AX_F32, root, ax_json_at(cases, k));
            if (!(worst <= TOLERANCE))
                fail_msg("case %zu on %s: %g", k + 1, isa->name, worst);
        }
    ax_json_free(&doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(divergences_are_trl_s)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
