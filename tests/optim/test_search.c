/* A search for meshes: none is forgotten, rules leave out what they say, and what is best fits and is fastest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/forecast/search.h"
#include "tests/tiny.h"

enum { WORLD = 16, NODE = 8, LENGTH = 32, ROWS = 16 };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Of a small model's step on two nodes. memory: bytes of a GPU, 0: its own. */
static void search(struct ax_search *s, double memory) {
    static const int64_t lengths[] = {LENGTH, 0};
    struct ax_arch arch;
    struct ax_hardware h;
    must(tiny_arch(&arch, "llama", false, ""));
    must(ax_hardware_find("H100-SXM-80", &h));
    assert_int_equal(h.node, NODE);
    struct ax_rates rates = ax_rates_of(&h);
    if (memory > 0)
        rates.hardware.memory = memory;
    const struct ax_plan_request r = {
        .arch = &arch,
        .runtime =
            {.backend = "sheet",
             .threads = 1,
             .sizes = {.pp = 1, .dp_replicate = 1, .dp_shard = WORLD, .cp = 1, .tp = 1, .ep = 1},
             .world = WORLD},
        .step = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, ROWS / WORLD, lengths),
        .sequences = 1,
        .sequence_tokens = LENGTH,
        .first = AX_RECOMPUTE_OFF,
        .last = AX_RECOMPUTE_ON,
        .rates = &rates};
    must(ax_search_run(s, &r));
    ax_arch_free(&arch);
}

static double need_of(const struct ax_search_choice *c) {
    return (double)(c->time.arena + c->time.beside);
}

static void check_best(const struct ax_search *s) {
    for (int i = 0; i < s->n; i++) {
        const struct ax_search_choice *c = &s->best[i];
        const struct ax_mesh_sizes *m = &c->sizes;
        const int data = m->dp_replicate * m->dp_shard;
        assert_int_equal(m->pp * data * m->cp * m->tp, WORLD);
        assert_int_equal(ROWS % (data * c->rows), 0);
        assert_true(c->time.tokens == ROWS * LENGTH);
        assert_true(fabs(c->time.tokens_per_second * c->time.step / c->time.tokens - 1) < 1e-9);
        assert_true(i == 0 || c->time.tokens_per_second <= s->best[i - 1].time.tokens_per_second);
    }
}

/* Meshes are the products of sizes; each is left out for one reason, or among the best. */
static void each_mesh_is_counted_once(void **state) {
    (void)state;
    struct ax_search s;
    int meshes = 0, far = 0, cut = 0, replicas = 0, counted = 0;
    for (int tp = 1; tp <= WORLD; tp++)
        for (int pp = 1; pp <= WORLD; pp++)
            for (int cp = 1; cp <= WORLD; cp++)
                for (int rep = 1; rep <= WORLD; rep++) {
                    const int shard = WORLD / (tp * pp * cp * rep), node = shard * tp;
                    if (tp * pp * cp * rep * shard != WORLD)
                        continue;
                    meshes++;
                    if (tp > NODE)
                        far++;
                    else if (cp > 1)
                        cut++;
                    else if (rep > 1 && node != NODE)
                        replicas++;
                }
    search(&s, 0);
    assert_int_equal(s.tried, meshes);
    assert_int_equal(s.left_out[AX_SEARCH_TP_FAR], far);
    assert_int_equal(s.left_out[AX_SEARCH_CP_SHORT], cut);
    assert_int_equal(s.left_out[AX_SEARCH_REPLICAS], replicas);
    assert_int_equal(s.left_out[AX_SEARCH_MEMORY] + s.left_out[AX_SEARCH_STATES], 0);
    assert_true(s.n == AX_SEARCH_BEST && s.left_out[AX_SEARCH_SLOWER] > 0);
    for (int i = 0; i < AX_SEARCH_REASONS; i++)
        counted += s.left_out[i];
    assert_int_equal(counted + s.n, s.tried);
    assert_true(s.seconds > 0 && s.seconds < 600);
    check_best(&s);
}

/* What needs all of the memory fits; of a byte less, nothing that needs more is chosen. */
static void the_best_fits(void **state) {
    (void)state;
    struct ax_search all, exact, less;
    search(&all, 0);
    const double need = need_of(&all.best[0]);
    assert_true(all.best[0].time.beside > 0);
    search(&exact, need);
    assert_memory_equal(&exact.best[0].sizes, &all.best[0].sizes, sizeof all.best[0].sizes);
    assert_true(need_of(&exact.best[0]) == need);
    search(&less, need - 1);
    for (int i = 0; i < less.n; i++)
        assert_true(need_of(&less.best[i]) < need);
    check_best(&exact);
    check_best(&less);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mesh_is_counted_once),
        cmocka_unit_test(the_best_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
