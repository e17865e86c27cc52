/* The residual stream's gradient in bfloat16, which norms write where they can, is the rounding of the one in float32
 * wherever a branch reads it: in every family, and on a mesh whose ranks have parts of rows and layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

#define GOLDENS "tests/goldens/models"

static const int64_t lengths[] = {9, 5, 0};

/* The last gradient that a branch has read. */
struct seen {
    struct ax_tensor wide;
    int n, wrong;
};

static void watch(void *ctx, const char *what, int layer, const struct ax_tensor *t) {
    struct seen *s = ctx;
    (void)layer;
    if (strcmp(what, "gradient") == 0)
        s->wide = *t;
    if (strcmp(what, "narrow gradient") != 0)
        return;
    s->n++;
    for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++) {
        const int64_t row = i / t->shape[1], col = i % t->shape[1];
        const float x = ((const float *)s->wide.data)[row * s->wide.row_stride + col];
        const uint16_t got = ((const uint16_t *)t->data)[row * t->row_stride + col];
        s->wrong += got != ax_f32_to_bf16(x);
    }
}

/* A step of one family, and what each rank has seen of it. */
struct run {
    struct ax_arch arch;
    struct ax_mesh_sizes sizes;
    struct ax_step_options o;
    struct seen seen[4];
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    struct ax_step_result result;
    AX_TRY(ax_step_create(&s, rt, &r->arch, &r->o));
    for (int m = 0; m < r->o.n_microbatches && !ax_runtime_planning(rt); m++) {
        s.passes[m].tap = watch;
        s.passes[m].tap_ctx = &r->seen[rt->mesh.rank];
    }
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 5), st, done);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 3), st, done);
    st = ax_step_gradients(&s, &result);
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *r = ctx;
    struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = r->sizes, .fabric = fabric};
    struct ax_mesh mesh;
    struct ax_arena_plan plan;
    AX_TRY(ax_mesh_create(&mesh, r->sizes, fabric->world, fabric->rank));
    AX_TRY(ax_step_slots(&r->o, mesh.coord[AX_ROLE_PP], mesh.size[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, r, &plan);
}

static void check(const char *model, struct ax_mesh_sizes sizes, int n_micro) {
    const int world = sizes.pp * sizes.tp;
    struct run r = {.sizes = sizes,
                    .o = tiny_options(AX_BF16, AX_RECOMPUTE_SELECTIVE, n_micro, lengths)};
    char path[512];
    snprintf(path, sizeof path, GOLDENS "/%s/config.json", model);
    if (ax_arch_load(&r.arch, path) != AX_OK || ax_local_run(world, NULL, run_rank, &r) != AX_OK)
        fail_msg("%s: %s", model, ax_error_text());
    for (int rank = 0; rank < world; rank++)
        if (r.seen[rank].wrong > 0)
            fail_msg("%s, rank %d: %d elements of %d gradients", model, rank, r.seen[rank].wrong,
                     r.seen[rank].n);
    if (r.arch.residual_scale == 1)
        assert_true(r.seen[0].n > 0);
    ax_arch_free(&r.arch);
}

static int is_shown(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static void each_family_reads_the_rounding(void **state) {
    (void)state;
    struct dirent **models;
    const int n = scandir(GOLDENS, &models, is_shown, alphasort);
    assert_true(n > 40);
    for (int i = 0; i < n; i++) {
        check(models[i]->d_name, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1);
        free(models[i]);
    }
    free(models);
}

/* A stage begins with a gradient that has arrived. */
static void ranks_read_the_rounding(void **state) {
    (void)state;
    check("llama", (struct ax_mesh_sizes){2, 1, 1, 1, 2, 1}, 3);
    check("qwen3_next", (struct ax_mesh_sizes){2, 1, 1, 1, 1, 1}, 3);
    check("deepseek_v3", (struct ax_mesh_sizes){2, 1, 1, 1, 1, 1}, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_reads_the_rounding),
        cmocka_unit_test(ranks_read_the_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
