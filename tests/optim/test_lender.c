/* Two models with adapters on one base: what they learn is what they learn on copies of it, in the
 * memory of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "model/arch/classifier.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

enum { STEPS = 3, MICRO = 2, MAX_WORLD = 4 };

static const int64_t lengths[] = {9, 1, 14, 0};
static char *score[] = {"score"};
static const struct ax_peft_config first_lora = {.r = 3, .alpha = 6, .all_linear = true};
static const struct ax_peft_config second_lora = {
    .r = 5, .alpha = 10, .all_linear = true, .save = {1, score}};

struct pair {
    const char *backend;
    struct ax_mesh_sizes sizes;
    enum ax_dtype dtype;
    enum ax_storage store;
    struct ax_offload offload;
    bool tied;
    bool lends;
    struct ax_arch arch, other;
    /* out; of rank 0 where not per rank */
    double loss[2][STEPS], norm[2][STEPS];
    uint64_t trained[MAX_WORLD]; /* of both */
    size_t lent[MAX_WORLD];      /* bytes of frozen weights that one of the two reads only */
    struct ax_arena_plan plan[MAX_WORLD];
};

struct ranked {
    struct pair *p;
    int rank;
};

static enum ax_status hash_trained(const struct ax_step *s, uint64_t *hash) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor t = ax_model_value(&s->model, p);
        void *copy;
        if (!p->trainable || !t.data)
            continue;
        AX_TRY(ax_alloc(&copy, ax_tensor_bytes(&t), 1));
        const enum ax_status st = ax_queue_read(s->rt->q, t.data, copy, ax_tensor_bytes(&t), NULL);
        *hash = ax_hash64(copy, ax_tensor_bytes(&t), *hash);
        ax_free(copy);
        AX_TRY(st);
    }
    return AX_OK;
}

static size_t lent_bytes(const struct ax_model *m) {
    size_t bytes = 0;
    for (int u = 0; u < m->n_units; u++)
        for (int k = 0; k < m->units[u].n_segments; k++) {
            const struct ax_segment *seg = &m->units[u].segments[k];
            for (int i = 0; seg->lender && i < AX_PACKED_BUFFERS; i++)
                if (seg->packed_shard[i].data)
                    bytes += ax_arena_round(ax_tensor_bytes(&seg->packed_shard[i]));
            if (seg->lender && seg->packing.store == AX_STORAGE_PLAIN)
                bytes += ax_arena_round((size_t)seg->shard_numel * ax_dtype_size(seg->compute));
        }
    return bytes;
}

static enum ax_status start(struct ax_step *s, uint64_t seed) {
    AX_TRY(ax_model_init_random(&s->model, 5));
    return tiny_adapters(&s->model, seed);
}

static enum ax_status learn(const struct ranked *r, struct ax_step s[2]) {
    struct pair *p = r->p;
    const int data_rank = s[0].rt->mesh.coord[AX_ROLE_BATCH];
    AX_TRY(start(&s[0], 7));
    AX_TRY(start(&s[1], 8));
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < 2; k++) {
            struct ax_step_result result;
            AX_TRY(tiny_fill(&s[k], lengths, (uint64_t)(10 * i + data_rank)));
            AX_TRY(ax_step_run(&s[k], 1e-2, &result));
            if (r->rank == 0) {
                p->loss[k][i] = result.loss;
                p->norm[k][i] = result.grad_norm;
            }
        }
    if (ax_runtime_planning(s[0].rt))
        return AX_OK;
    p->lent[r->rank] = lent_bytes(&s[1].model);
    AX_TRY(hash_trained(&s[0], &p->trained[r->rank]));
    return hash_trained(&s[1], &p->trained[r->rank]);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct ranked *r = ctx;
    struct ax_step s[2];
    struct ax_step_options o = tiny_options(r->p->dtype, AX_RECOMPUTE_OFF, MICRO, lengths);
    o.model.adapter = &first_lora;
    o.model.base_store = r->p->store;
    o.model.offload = r->p->offload;
    AX_TRY(ax_step_create(&s[0], rt, &r->p->arch, &o));
    o.model.adapter = &second_lora;
    o.model.lender = r->p->lends ? &s[0].model : NULL;
    enum ax_status st = ax_step_create(&s[1], rt, &r->p->other, &o);
    if (st == AX_OK)
        st = learn(r, s);
    ax_step_free(&s[1]);
    ax_step_free(&s[0]);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct ranked r = {ctx, fabric->rank};
    struct ax_runtime_options o = {.backend = r.p->backend,
                                   .threads = 1,
                                   .n_slots = MICRO,
                                   .sizes = r.p->sizes,
                                   .fabric = fabric};
    struct ax_mesh mesh;
    AX_TRY(ax_mesh_create(&mesh, r.p->sizes, fabric->world, fabric->rank));
    const struct ax_step_options so = {.n_microbatches = MICRO};
    AX_TRY(ax_step_slots(&so, mesh.coord[AX_ROLE_PP], mesh.size[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, &r, &r.p->plan[fabric->rank]);
}

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static void run(struct pair *p) {
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(tiny_arch(&p->arch, "llama", p->tied, ""), AX_OK);
    assert_int_equal(tiny_arch(&p->other, "llama", p->tied, ""), AX_OK);
    assert_int_equal(ax_classifier_choose(&p->other, &ax_classifier_prm), AX_OK);
    if (ax_local_run(world_of(&p->sizes), NULL, run_rank, p) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&p->arch);
    ax_arch_free(&p->other);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void one_base_is_two(void **state) {
    (void)state;
    static const struct pair kinds[] = {
        {.backend = "cpu", .sizes = {1, 1, 1, 1, 1, 1}, .dtype = AX_F32},
        {.backend = "cpu", .sizes = {1, 1, 1, 1, 1, 1}, .dtype = AX_BF16, .tied = true},
        {.backend = "cpu", .sizes = {1, 1, 1, 1, 1, 1}, .dtype = AX_F32, .store = AX_STORAGE_NF4},
        {.backend = "cpu", .sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_F32},
        {.backend = "cpu", .sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_F32, .store = AX_STORAGE_INT8},
        {.backend = "cpu", .sizes = {1, 2, 1, 1, 2, 1}, .dtype = AX_F32, .tied = true},
        {.backend = "far",
         .sizes = {1, 1, 1, 1, 1, 1},
         .dtype = AX_F32,
         .offload = {.layers = true, .optimizer = true}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pair one = kinds[i], two = kinds[i];
        one.lends = true;
        run(&one);
        run(&two);
        assert_memory_equal(one.loss, two.loss, sizeof one.loss);
        assert_memory_equal(one.norm, two.norm, sizeof one.norm);
        assert_memory_equal(one.trained, two.trained, sizeof one.trained);
        assert_true(one.trained[0] != 0 && one.loss[1][0] != one.loss[1][STEPS - 1]);
        for (int r = 0; r < world_of(&kinds[i].sizes); r++) {
            assert_true(one.lent[r] > 0 && two.lent[r] == 0);
            assert_int_equal(two.plan[r].persistent + two.plan[r].host - one.plan[r].persistent -
                                 one.plan[r].host,
                             one.lent[r]);
        }
    }
}

/* Weights that train, or that an adapter's folder has in place of the base's, are a model's own. */
static enum ax_status create_all(struct ax_runtime *rt, void *ctx) {
    static char *embedding[] = {"embed_tokens"};
    static const struct ax_peft_config saves = {
        .r = 3, .alpha = 6, .all_linear = true, .save = {1, embedding}};
    const struct ax_arch *arch = ctx;
    struct ax_step lender;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, MICRO, lengths);
    struct ax_model m;
    o.model.adapter = &first_lora;
    AX_TRY(ax_step_create(&lender, rt, arch, &o));
    for (int kind = 0; kind < 3; kind++) {
        const struct ax_model_options mo = {.dtype = AX_F32,
                                            .train = kind == 1,
                                            .max_positions = 32,
                                            .adapter = kind == 2 ? &saves : NULL,
                                            .lender = &lender.model};
        AX_TRY(ax_model_create(&m, arch, rt, &mo));
        for (int u = 0; u < m.n_units; u++) {
            bool lent = false;
            for (int k = 0; k < m.units[u].n_segments; k++)
                lent = lent || m.units[u].segments[k].lender;
            assert_int_equal(lent, kind != 1 && !(kind == 2 && u == 0));
        }
        ax_model_free(&m);
    }
    ax_step_free(&lender);
    return AX_OK;
}

static void what_is_a_models_own(void **state) {
    (void)state;
    struct ax_arch arch;
    struct ax_runtime rt;
    const struct ax_runtime_options o = {.backend = "cpu", .threads = 1, .n_slots = MICRO};
    assert_int_equal(tiny_arch(&arch, "llama", false, ""), AX_OK);
    assert_int_equal(ax_runtime_open_planning(&rt, &o), AX_OK);
    if (create_all(&rt, &arch) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_runtime_close(&rt);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_base_is_two),
        cmocka_unit_test(what_is_a_models_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
