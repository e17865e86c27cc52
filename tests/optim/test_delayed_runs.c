/* Training steps whose data arrive late: on random meshes, schedules and links, ranks end, and learn what
 * they do without delays, to the bit. Few cases here, and 500 with AXTRAIN_SWEEP (tools/test-all). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/doubles/delay.h"
#include "tests/sweep.h"
#include "tests/tiny.h"

enum { FEW = 6, MANY = 500, STEPS = 2, MOST_RANKS = 8 };
static const int64_t lengths[] = {9, 1, 14, 0};

struct run {
    struct ax_arch arch;
    struct ax_mesh_sizes sizes;
    struct ax_step_options o;
    struct ax_delay_link link;
    bool turns;
    char text[128];
    /* out */
    uint64_t masters[MOST_RANKS];
    double loss[STEPS], norm[STEPS];
};

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

/* In the mode of turns up to eight ranks, else four. */
static void draw(struct run *r, unsigned seed) {
    static const enum ax_pipeline_kind kinds[] = {AX_PIPELINE_1F1B, AX_PIPELINE_AFAB,
                                                  AX_PIPELINE_ZERO_BUBBLE};
    const int micro = 1 + (int)(seed % 6);
    srand(seed);
    r->turns = rand() % 2;
    r->o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, micro, lengths);
    do
        r->sizes = (struct ax_mesh_sizes){.pp = 1 + rand() % 2,
                                          .dp_replicate = 1 + rand() % 2,
                                          .dp_shard = 1 + rand() % 2,
                                          .cp = 1 + rand() % 2,
                                          .tp = 1 + rand() % 2,
                                          .ep = 1};
    while (world_of(&r->sizes) < 2 || world_of(&r->sizes) > (r->turns ? MOST_RANKS : 4));
    r->o.pipeline = kinds[rand() % 3];
    r->o.model.tp_overlap = rand() % 2;
    r->o.model.sharding =
        ax_zero_stage(r->o.pipeline == AX_PIPELINE_ZERO_BUBBLE ? 1 : 1 + rand() % 3);
    r->link = (struct ax_delay_link){1e-6 * (rand() % 300), 1e6 * (1 << rand() % 10)};
    snprintf(r->text, sizeof r->text,
             "seed %u: pp %d, dp %d x %d, cp %d, tp %d, schedule %d, %d micro", seed, r->sizes.pp,
             r->sizes.dp_replicate, r->sizes.dp_shard, r->sizes.cp, r->sizes.tp, (int)r->o.pipeline,
             micro);
}

static enum ax_status take_steps(struct run *r, struct ax_step *s) {
    const int rank = s->rt->mesh.rank;
    AX_TRY(ax_model_init_random(&s->model, 5));
    AX_TRY(tiny_take_steps(s, lengths, STEPS, r->loss, r->norm));
    return ax_runtime_planning(s->rt) ? AX_OK : tiny_hash_masters(s, &r->masters[rank]);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, &r->arch, &r->o));
    const enum ax_status st = take_steps(r, &s);
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *r = ctx;
    struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = r->sizes, .fabric = fabric};
    struct ax_mesh mesh;
    AX_TRY(ax_mesh_create(&mesh, r->sizes, fabric->world, fabric->rank));
    AX_TRY(ax_step_slots(&r->o, mesh.coord[AX_ROLE_PP], mesh.size[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, r, NULL);
}

static void delays_change_no_bit(void **state) {
    (void)state;
    const unsigned n = sweeping() ? MANY : FEW;
    struct run late = {0};
    assert_int_equal(tiny_arch(&late.arch, "llama", false, ""), AX_OK);
    for (unsigned seed = 1; seed <= n; seed++) {
        memset(late.masters, 0, sizeof late.masters);
        draw(&late, seed);
        struct run straight = late;
        if (ax_local_run(world_of(&late.sizes), NULL, run_rank, &straight) != AX_OK ||
            ax_delay_run(world_of(&late.sizes), late.link, late.turns, run_rank, &late) != AX_OK)
            fail_msg("%s: %s", late.text, ax_error_text());
        if (memcmp(late.masters, straight.masters, sizeof late.masters) != 0 ||
            memcmp(late.loss, straight.loss, sizeof late.loss) != 0 ||
            memcmp(late.norm, straight.norm, sizeof late.norm) != 0)
            fail_msg("%s: delays changed what is learned", late.text);
    }
    ax_arch_free(&late.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(delays_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
