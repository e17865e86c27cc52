/* The rank that stands for a pipeline stage in a plan: no other of the stage needs more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/optim/train_runs.h"
#include "tests/tiny.h"

static uint64_t needs(struct train_case *c, int rank) {
    struct ax_step_options so = ax_train_step_options(&c->o);
    const int stages = c->o.runtime.sizes.pp;
    struct ax_train_fit fit;
    c->o.runtime.rank = rank;
    assert_int_equal(
        ax_step_slots(&so, rank / (c->o.runtime.world / stages), stages, &c->o.runtime.n_slots),
        AX_OK);
    if (ax_train_fit(&c->o, &so, &fit) != AX_OK)
        fail_msg("%s", ax_error_text());
    return fit.arena;
}

static void a_rank_stands_for_its_stage(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {
        /* pp, dp_replicate, dp_shard, cp, tp, ep */
        {1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 1, 3, 1, 1, 1}, {2, 1, 1, 2, 1, 1},
        {2, 1, 2, 1, 2, 1}, {2, 2, 1, 2, 1, 1}, {1, 1, 2, 2, 2, 1},
    };
    int others = 0;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const struct ax_mesh_sizes *s = &meshes[i];
        struct ax_train_stage stages[2];
        struct train_case c;
        open_case(&c, AX_F32, false);
        ax_arch_free(&c.arch);
        assert_int_equal(tiny_arch(&c.arch, "llama", false, ""), AX_OK);
        c.o.runtime.sizes = *s;
        c.o.runtime.world = s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
        assert_int_equal(ax_train_choose_rank(&c.o, stages), AX_OK);
        const int chosen = c.o.runtime.rank, ranks = c.o.runtime.world / s->pp;
        const uint64_t most = needs(&c, chosen);
        for (int rank = 0; rank < c.o.runtime.world; rank++) {
            const struct ax_train_stage *stage = &stages[rank / ranks];
            const uint64_t bytes = needs(&c, rank);
            assert_true(bytes <= stage->arena && bytes <= most);
            assert_true(rank != stage->rank || bytes == stage->arena);
        }
        for (int k = 0; k < s->pp; k++)
            others += stages[k].rank != k * ranks;
        train_case_close(&c);
    }
    assert_true(others > 0); /* it is not always the first */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_stands_for_its_stage),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
