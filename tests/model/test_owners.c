/* Which rank owns what: over all ranks of a mesh, every element of every parameter has one owner, and
 * the view of a rank's values is of its own elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/model.h"
#include "tests/tiny.h"

enum { MAX_PARAMS = 200 };

static const struct ax_mesh_sizes meshes[] = {
    /* pp, dp_replicate, dp_shard, cp, tp, ep */
    {1, 1, 1, 1, 1, 1}, {1, 1, 3, 1, 1, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 1, 2, 1, 1},
    {1, 1, 1, 1, 2, 1}, {1, 1, 1, 1, 4, 1}, {2, 1, 1, 1, 1, 1}, {2, 2, 2, 1, 2, 1},
    {1, 1, 2, 2, 2, 1}, {2, 1, 1, 2, 2, 1}, {1, 2, 2, 1, 2, 4}, {1, 1, 2, 1, 1, 2},
};

static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};

struct owners {
    const struct ax_arch *arch;
    const struct ax_peft_config *adapter;
    int n_params;
    uint8_t *counts[MAX_PARAMS]; /* per element */
    char names[MAX_PARAMS][AX_NAME_MAX];
    int64_t numel[MAX_PARAMS];
};

static void check_view(const struct ax_model *m, const struct ax_param *p, int64_t n) {
    const struct ax_tensor value = ax_model_value(m, p), grad = ax_model_grad(m, p);
    if (n > 0)
        assert_int_equal(ax_tensor_numel(&value), n);
    if (n > 0 && p->trainable)
        assert_int_equal(ax_tensor_numel(&grad), n);
    if (n == ax_param_numel(p))
        assert_memory_equal(value.shape, p->shape, (size_t)p->ndim * sizeof *p->shape);
    else if (n > 0)
        assert_int_equal(value.ndim, 1);
}

static void count_param(struct owners *o, const struct ax_model *m, int i) {
    const struct ax_param *p = &m->params[i];
    const struct ax_unit *unit = &m->units[p->unit];
    const struct ax_mesh *mesh = &m->rt->mesh;
    int64_t first, n, at, run;
    if (!o->counts[i]) {
        o->numel[i] = ax_param_numel(p);
        memcpy(o->names[i], p->name, sizeof p->name);
        assert_int_equal(ax_alloc(&o->counts[i], (size_t)o->numel[i], 1), AX_OK);
    }
    if (!ax_unit_present(unit))
        return;
    ax_unit_owned(unit, mesh, p, &first, &n, &at);
    check_view(m, p, n);
    for (int64_t e = first; ax_unit_owns(unit, mesh, p) && e < first + n; e++)
        o->counts[i][ax_param_global_index(p, mesh, e, &run)]++;
}

static void count_rank(struct owners *o, const struct ax_mesh_sizes *sizes, int world, int rank) {
    struct ax_runtime rt;
    struct ax_model m;
    const struct ax_runtime_options ro = {
        .backend = "ref", .threads = 1, .sizes = *sizes, .world = world, .rank = rank};
    const struct ax_model_options mo = {
        .dtype = AX_F32, .train = true, .max_positions = 8, .adapter = o->adapter};
    assert_int_equal(ax_runtime_open_planning(&rt, &ro), AX_OK);
    assert_int_equal(ax_model_create(&m, o->arch, &rt, &mo), AX_OK);
    assert_in_range(m.n_params, 1, MAX_PARAMS);
    o->n_params = m.n_params;
    for (int i = 0; i < m.n_params; i++)
        count_param(o, &m, i);
    ax_model_free(&m);
    ax_runtime_close(&rt);
}

static void expect_one_owner(const struct ax_arch *arch, const struct ax_mesh_sizes *s,
                             const struct ax_peft_config *adapter) {
    static struct owners o;
    const int world = s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
    o = (struct owners){.arch = arch, .adapter = adapter};
    for (int rank = 0; rank < world; rank++)
        count_rank(&o, s, world, rank);
    for (int i = 0; i < o.n_params; i++) {
        for (int64_t e = 0; e < o.numel[i]; e++)
            if (o.counts[i][e] != 1)
                fail_msg("pp %d dp_replicate %d dp_shard %d cp %d tp %d ep %d: %s: element %lld "
                         "has %d owners",
                         s->pp, s->dp_replicate, s->dp_shard, s->cp, s->tp, s->ep, o.names[i],
                         (long long)e, o.counts[i][e]);
        ax_free(o.counts[i]);
    }
}

static void every_element_has_one_owner(void **state) {
    (void)state;
    static const struct {
        const char *type, *extra;
        bool tied;
    } models[] = {{"llama", ", \"attention_bias\": true", true},
                  {"qwen3", "", false},
                  {"mixtral", ", \"num_local_experts\": 8, \"num_experts_per_tok\": 2", true}};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct ax_arch arch;
        assert_int_equal(tiny_arch(&arch, models[k].type, models[k].tied, models[k].extra), AX_OK);
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
            if (k < 2 && meshes[i].ep > 1)
                continue;
            expect_one_owner(&arch, &meshes[i], NULL);
            if (k < 2)
                expect_one_owner(&arch, &meshes[i], &lora);
        }
        ax_arch_free(&arch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_has_one_owner)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
