/* What a checkpoint holds of optimizer state can be cut for another mesh and put together again:
 * elements, 8-bit codes with the scales of their blocks, and what belongs to whole matrices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "optim/state.h"
#include "tests/tiny.h"

#define MAX_RANKS 4

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The parts of one rank, in memory of their own. */
struct rank {
    struct ax_runtime rt;
    struct ax_step step;
    struct ax_state_parts parts;
};

static size_t part_bytes(const struct ax_state_part *p) {
    return (size_t)p->n * ax_dtype_size(p->dtype);
}

static void open_rank(struct rank *r, const struct ax_arch *arch, const struct ax_step_options *o,
                      struct ax_mesh_sizes sizes, int world, int rank) {
    const struct ax_runtime_options ro = {
        .backend = "cpu", .threads = 1, .sizes = sizes, .world = world, .rank = rank};
    must(ax_runtime_open_planning(&r->rt, &ro));
    must(ax_step_create(&r->step, &r->rt, arch, o));
    must(ax_param_states_parts(&r->step.model, r->step.states, &r->parts));
    for (int i = 0; i < r->parts.n; i++)
        must(ax_alloc(&r->parts.list[i].data, 1, part_bytes(&r->parts.list[i])));
}

static void close_rank(struct rank *r) {
    for (int i = 0; i < r->parts.n; i++)
        ax_free(r->parts.list[i].data);
    ax_state_parts_free(&r->parts);
    ax_step_free(&r->step);
    ax_runtime_close(&r->rt);
}

/* Copies into `to` what `from` has of it; returns the elements copied. */
static int64_t take_part(const struct ax_state_part *to, const struct rank *from) {
    int64_t copied = 0;
    for (int i = 0; i < from->parts.n; i++) {
        const struct ax_state_part *p = &from->parts.list[i];
        if (strcmp(p->name, to->name) == 0 && strcmp(p->slot, to->slot) == 0) {
            assert_int_equal(p->dtype, to->dtype);
            assert_int_equal(p->ndim, to->ndim);
            copied += ax_state_part_copy(to, p, p->data);
        }
    }
    return copied;
}

static void fill(struct rank *r) {
    for (int i = 0; i < r->parts.n; i++) {
        unsigned char *bytes = r->parts.list[i].data;
        for (size_t k = 0; k < part_bytes(&r->parts.list[i]); k++)
            bytes[k] = (unsigned char)ax_rng_u32((struct ax_rng_key){5, 0, (uint32_t)i}, k);
    }
}

/* From one rank to `world` and back to one: the same bytes. */
static void there_and_back(const char *optimizer, enum ax_moments moments, enum ax_masters masters,
                           struct ax_mesh_sizes sizes, int world) {
    static const int64_t lengths[] = {8, 0};
    const struct ax_mesh_sizes single = {1, 1, 1, 1, 1, 1};
    struct rank one, back, ranks[MAX_RANKS];
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_optimizer_find(optimizer, &o.optimizer, &o.opt));
    o.opt.moments = moments;
    o.masters = masters;
    open_rank(&one, &arch, &o, single, 1, 0);
    open_rank(&back, &arch, &o, single, 1, 0);
    fill(&one);
    for (int r = 0; r < world; r++) {
        open_rank(&ranks[r], &arch, &o, sizes, world, r);
        for (int i = 0; i < ranks[r].parts.n; i++)
            assert_int_equal(take_part(&ranks[r].parts.list[i], &one), ranks[r].parts.list[i].n);
    }
    for (int i = 0; i < back.parts.n; i++) {
        const struct ax_state_part *p = &back.parts.list[i];
        int64_t copied = 0;
        for (int r = 0; r < world; r++)
            copied += take_part(p, &ranks[r]);
        if (copied < p->n) /* more where ranks share a block or hold the same */
            fail_msg("%s of %s: %lld of %lld", p->slot, p->name, (long long)copied,
                     (long long)p->n);
        assert_memory_equal(p->data, one.parts.list[i].data, part_bytes(p));
    }
    for (int r = 0; r < world; r++)
        close_rank(&ranks[r]);
    close_rank(&back);
    close_rank(&one);
    ax_arch_free(&arch);
}

static void shards(void **state) {
    (void)state;
    for (int n = 2; n <= MAX_RANKS; n++) {
        const struct ax_mesh_sizes sizes = {1, 1, n, 1, 1, 1};
        there_and_back("adamw", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, sizes, n);
        there_and_back("adamw", AX_MOMENTS_8BIT, AX_MASTERS_REMAINDER, sizes, n);
        there_and_back("lion", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC, sizes, n);
    }
}

static void slices(void **state) {
    (void)state;
    const struct ax_mesh_sizes tp = {1, 1, 1, 1, 2, 1}, both = {1, 1, 2, 1, 2, 1};
    there_and_back("adamw", AX_MOMENTS_FULL, AX_MASTERS_REMAINDER, tp, 2);
    there_and_back("adamw", AX_MOMENTS_BF16, AX_MASTERS_ACCUM, both, 4);
}

static void whole_matrices(void **state) {
    (void)state;
    const struct ax_mesh_sizes sizes = {1, 2, 1, 1, 1, 1};
    there_and_back("adafactor", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, sizes, 2);
    there_and_back("muon", AX_MOMENTS_FULL, AX_MASTERS_REMAINDER, sizes, 2);
}

/* Scales of a matrix that is sliced otherwise have another shape, which is how loading finds out;
 * nothing else has. */
static void scales_know_their_slices(void **state) {
    (void)state;
    static const int64_t lengths[] = {8, 0};
    struct rank one, half;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_optimizer_find("adamw_8bit", &o.optimizer, &o.opt));
    open_rank(&one, &arch, &o, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0);
    open_rank(&half, &arch, &o, (struct ax_mesh_sizes){1, 1, 1, 1, 2, 1}, 2, 1);
    assert_int_equal(one.parts.n, half.parts.n);
    int others = 0;
    for (int i = 0; i < one.parts.n; i++) {
        const struct ax_state_part *a = &one.parts.list[i], *b = &half.parts.list[i];
        assert_string_equal(a->slot, b->slot);
        if (memcmp(a->shape, b->shape, sizeof a->shape) != 0) {
            assert_non_null(strstr(a->slot, "_scale"));
            assert_int_equal(a->shape[0], 1);
            assert_int_equal(b->shape[0], 2);
            others++;
        }
    }
    assert_int_equal(others, 2 * (arch.n_layers * 7 + 2)); /* linears, embedding, head */
    close_rank(&half);
    close_rank(&one);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards),
        cmocka_unit_test(slices),
        cmocka_unit_test(whole_matrices),
        cmocka_unit_test(scales_know_their_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
