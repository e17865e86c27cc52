/* What a checkpoint holds of optimizer state can be cut for another mesh and put together again:
 * elements, 8-bit codes with the scales of their blocks, and what belongs to whole matrices; and
 * training goes on from it to the bit, also where parameters begin inside a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/state/checkpoint_load.h"
#include "kernels/quant/dynamic_map.h"
#include "optim/step/state.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

#define MAX_RANKS 8

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Matrices and biases that are read as one begin anywhere in a block of 256 elements, and some go
 * on in the next: k's bias is elements 200 to 299 of its run, up's 150 to 299. */
static void uneven_arch(struct ax_arch *arch) {
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 31, \"hidden_size\": 20, "
        "\"intermediate_size\": 150, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 50, \"initializer_range\": 0.15, "
        "\"max_position_embeddings\": 64, \"attention_bias\": true, \"mlp_bias\": true}";
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "uneven", text, strlen(text)));
    must(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
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
    if (o->relora.interval > 0)
        ax_relora_parts(&r->step.model, &r->parts);
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
            must(ax_state_part_copy(NULL, to, p, p->data, &copied));
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

static const struct ax_peft_config *adapter; /* of the next steps, with restarts; NULL: none */

/* From one rank to `world` and back to one: the same bytes. */
static void there_and_back(const char *optimizer, enum ax_moments moments, enum ax_masters masters,
                           struct ax_mesh_sizes sizes, int world) {
    static const int64_t lengths[] = {8, 0};
    const struct ax_mesh_sizes single = {1, 1, 1, 1, 1, 1};
    struct rank one, back, ranks[MAX_RANKS];
    struct ax_arch arch;
    uneven_arch(&arch);
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_optimizer_find(optimizer, &o.optimizer, &o.opt));
    o.opt.moments = moments;
    o.model.masters = masters;
    o.model.adapter = adapter;
    o.relora.interval = adapter ? 1 : 0;
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
    for (int n = 2; n <= 4; n++) {
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

/* Frozen matrices that restarts change: not one part of them is missing or twice. */
static void merged_bases(void **state) {
    (void)state;
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};
    const struct ax_mesh_sizes shards = {1, 1, 3, 1, 1, 1}, both = {1, 1, 2, 1, 2, 1};
    adapter = &lora;
    there_and_back("adamw", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, shards, 3);
    there_and_back("adamw", AX_MOMENTS_BF16, AX_MASTERS_ACCUM, both, 4);
    adapter = NULL;
}

/* Scales of a matrix that is sliced otherwise have another shape; nothing else has. Returns how many. */
static int sliced_scales(const struct ax_arch *arch, struct ax_mesh_sizes sizes) {
    static const int64_t lengths[] = {8, 0};
    struct rank one, half;
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_optimizer_find("adamw_8bit", &o.optimizer, &o.opt));
    open_rank(&one, arch, &o, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0);
    open_rank(&half, arch, &o, sizes, 2, 1);
    int others = 0;
    for (int i = 0, k = 0; i < half.parts.n; i++, k++) {
        const struct ax_state_part *b = &half.parts.list[i];
        while (k < one.parts.n && ax_state_part_compare(&one.parts.list[k], b) != 0)
            k++;
        assert_true(k < one.parts.n);
        const struct ax_state_part *a = &one.parts.list[k];
        if (memcmp(a->shape, b->shape, sizeof a->shape) != 0) {
            assert_non_null(strstr(a->slot, "_scale"));
            assert_int_equal(a->shape[0], 1);
            assert_int_equal(b->shape[0], 2);
            assert_int_equal(b->start[0], 1);
            others++;
        }
    }
    close_rank(&half);
    close_rank(&one);
    return others;
}

static void scales_know_their_slices(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    assert_int_equal(sliced_scales(&arch, (struct ax_mesh_sizes){1, 1, 1, 1, 2, 1}),
                     2 * (arch.n_layers * 7 + 2)); /* linears, embedding, head */
    ax_arch_free(&arch);
}

/* Stacked experts are sliced, too: each rank has some of them. */
static void scales_know_their_experts(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "gpt_oss", false,
                   ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2"));
    assert_int_equal(sliced_scales(&arch, (struct ax_mesh_sizes){1, 1, 2, 1, 1, 2}),
                     2 * arch.n_layers * 4); /* gate_up, down, and the biases of both */
    ax_arch_free(&arch);
}

/* ---- in the middle of a block ---- */

static int64_t first_block(const struct ax_param *p) {
    return p->offset / AX_8BIT_BLOCK;
}

static int64_t blocks_of(const struct ax_param *p) {
    return (p->offset + ax_param_local_numel(p) - 1) / AX_8BIT_BLOCK - first_block(p) + 1;
}

/* One scale for each block that a parameter has an element in. */
static void pieces_have_a_scale_per_block(void **state) {
    (void)state;
    static const int64_t lengths[] = {8, 0};
    struct rank one;
    struct ax_arch arch;
    uneven_arch(&arch);
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_optimizer_find("adamw_8bit", &o.optimizer, &o.opt));
    open_rank(&one, &arch, &o, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0);
    const struct ax_model *m = &one.step.model;
    int inside = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const struct ax_param_state *s = &one.step.states[i];
        const int64_t n = ax_param_numel(p);
        assert_int_equal(s->n, 4);
        assert_int_equal(s->piece.phase, p->offset % AX_8BIT_BLOCK);
        for (int k = 0; k < 4; k++)
            assert_int_equal(s->slots[k].value.shape[0], k < 2 ? n : blocks_of(p));
        inside += blocks_of(p) > (n + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
    }
    assert_int_equal(inside, 2 * 5); /* of each layer k, v and up, and the biases of k and up */
    close_rank(&one);
    ax_arch_free(&arch);
}

/* Some steps from the start or from `from`; the parts at the end in memory of their own. */
struct leg {
    const struct ax_arch *arch;
    struct ax_step_options o;
    const struct leg *from;
    int steps, count; /* here; with those before */
    struct ax_state_parts end;
};

static void take_from(struct ax_step *s, const struct leg *from) {
    struct ax_state_parts live;
    must(ax_param_states_parts(&s->model, s->states, &live));
    assert_int_equal(live.n, from->end.n);
    for (int i = 0; i < live.n; i++) {
        const struct ax_state_part *p = &from->end.list[i];
        assert_string_equal(live.list[i].slot, p->slot);
        int64_t copied = 0;
        must(ax_state_part_copy(live.q, &live.list[i], p, p->data, &copied));
        assert_int_equal(copied, live.list[i].n);
    }
    ax_state_parts_free(&live);
    must(ax_step_restore(s, from->count));
}

static void keep_end(struct leg *l, const struct ax_step *s) {
    must(ax_param_states_parts(&s->model, s->states, &l->end));
    for (int i = 0; i < l->end.n; i++) {
        struct ax_state_part *p = &l->end.list[i];
        const void *live = p->data;
        must(ax_alloc(&p->data, 1, part_bytes(p)));
        must(ax_queue_read(l->end.q, live, p->data, part_bytes(p), NULL));
    }
    l->count = (int)s->count;
}

static enum ax_status run_leg(struct ax_runtime *rt, void *ctx) {
    static const int64_t lengths[] = {9, 7, 0};
    struct leg *l = ctx;
    struct ax_step s;
    struct ax_step_result r;
    const bool planning = ax_runtime_planning(rt);
    AX_TRY(ax_step_create(&s, rt, l->arch, &l->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 3), st, done);
    if (l->from && !planning)
        take_from(&s, l->from);
    for (int i = 0; i < l->steps; i++) {
        AX_TRY_GOTO(tiny_fill(&s, lengths, (uint64_t)s.count), st, done);
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
    }
    if (!planning)
        keep_end(l, &s);
done:
    ax_step_free(&s);
    return st;
}

static void run_steps(struct leg *l) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    must(ax_runtime_run(&ro, run_leg, l, NULL));
}

static void free_leg(struct leg *l) {
    for (int i = 0; i < l->end.n; i++)
        ax_free(l->end.list[i].data);
    ax_state_parts_free(&l->end);
}

/* Five steps are three, a new process, and two: to the bit. */
static void going_on_is_bitwise(void **state) {
    (void)state;
    static const int64_t lengths[] = {9, 7, 0};
    struct ax_arch arch;
    uneven_arch(&arch);
    for (int masters = AX_MASTERS_ACCUM; masters <= AX_MASTERS_STOCHASTIC; masters++) {
        struct leg all = {.arch = &arch, .steps = 5};
        all.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
        must(ax_optimizer_find("adamw_8bit", &all.o.optimizer, &all.o.opt));
        all.o.model.masters = (enum ax_masters)masters;
        all.o.seed = 6;
        struct leg first = all, second = all;
        first.steps = 3;
        second.steps = 2;
        second.from = &first;
        run_steps(&all);
        run_steps(&first);
        run_steps(&second);
        assert_int_equal(all.count, second.count);
        for (int i = 0; i < all.end.n; i++) {
            const struct ax_state_part *a = &all.end.list[i], *b = &second.end.list[i];
            if (memcmp(a->data, b->data, part_bytes(a)) != 0)
                fail_msg("masters %d: %s of %s differs", masters, a->slot, a->name);
        }
        free_leg(&all);
        free_leg(&first);
        free_leg(&second);
    }
    ax_arch_free(&arch);
}

/* ---- an update, cut over ranks ---- */

/* Ranks are threads; each hands its parts in to `whole`, which has room for those of one rank. */
struct update {
    const struct ax_arch *arch;
    struct ax_mesh_sizes sizes;
    struct ax_step_options o;
    struct rank *whole;
    pthread_mutex_t lock;
};

/* Gradients and moments are the same on any mesh: by the element's place in the parameter. */
static void set_element(struct ax_step *s, int param, int64_t i) {
    const struct ax_param *p = &s->model.params[param];
    const struct ax_segment *seg = &s->model.units[p->unit].segments[p->segment];
    const struct ax_param_state *state = &s->states[param];
    const struct ax_rng_key key = {3, 0, (uint32_t)param};
    int64_t run;
    const int64_t global = ax_param_global_index(p, &s->rt->mesh, state->first + i, &run);
    const uint64_t k = 4 * (uint64_t)global;
    ax_store(seg->grad.dtype, seg->grad.data, state->at + i, (double)ax_rng_normal(key, k + 1));
    for (int slot = 0; slot < state->n; slot++) {
        const struct ax_state_slot *to = &state->slots[slot];
        if (to->layout == AX_STATE_ELEMENTS && to->value.dtype != AX_U8)
            ax_store(to->value.dtype, to->value.data, i,
                     (double)ax_rng_uniform(key, k + 2 + (uint64_t)slot));
    }
}

static enum ax_status update_all(struct ax_step *s) {
    const struct ax_step_scalars scalars = {
        .lr = 0.1, .inv_weight = 1, .clip = 0.7, .step = 3, .seed = s->o.seed};
    AX_TRY(ax_queue_write(s->rt->q, s->scalars, &scalars, sizeof scalars));
    for (int i = 0; i < s->model.n_params; i++) {
        const int64_t n = ax_runtime_planning(s->rt) ? 0 : s->states[i].piece.n;
        if (n > 0)
            AX_TRY(ax_model_draw(&s->model, &s->model.params[i], AX_VALUES_NORMAL, 1, 3));
        for (int64_t k = 0; k < n; k++)
            set_element(s, i, k);
        AX_TRY(ax_param_update(&s->model, i, &s->states[i], s->o.optimizer, &s->o.opt, s->scalars));
    }
    return AX_OK;
}

static enum ax_status hand_in(struct update *u, const struct ax_step *s) {
    struct ax_state_parts live;
    AX_TRY(ax_param_states_parts(&s->model, s->states, &live));
    pthread_mutex_lock(&u->lock);
    for (int i = 0; i < live.n; i++)
        for (int k = 0; k < u->whole->parts.n; k++) {
            const struct ax_state_part *from = &live.list[i], *to = &u->whole->parts.list[k];
            int64_t copied = 0;
            if (strcmp(from->name, to->name) == 0 && strcmp(from->slot, to->slot) == 0)
                AX_TRY(ax_state_part_copy(NULL, to, from, from->data, &copied));
        }
    pthread_mutex_unlock(&u->lock);
    ax_state_parts_free(&live);
    return AX_OK;
}

static enum ax_status run_update(struct ax_runtime *rt, void *ctx) {
    struct update *u = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, u->arch, &u->o));
    enum ax_status st;
    AX_TRY_GOTO(update_all(&s), st, done);
    if (!ax_runtime_planning(rt))
        st = hand_in(u, &s);
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status update_rank(struct ax_fabric *fabric, void *ctx) {
    struct update *u = ctx;
    const struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = u->sizes, .fabric = fabric};
    return ax_runtime_run(&o, run_update, u, NULL);
}

static void update_on(struct update *u, struct rank *whole, struct ax_mesh_sizes sizes) {
    const int world = sizes.dp_replicate * sizes.dp_shard * sizes.tp;
    open_rank(whole, u->arch, &u->o, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0);
    for (int i = 0; i < whole->parts.n; i++)
        memset(whole->parts.list[i].data, 0xff, part_bytes(&whole->parts.list[i]));
    u->sizes = sizes;
    u->whole = whole;
    must(world > 1 ? ax_local_run(world, NULL, update_rank, u) : update_rank(NULL, u));
}

/* Also of rows that are cut, and cut again within a row: what is drawn is numbered by the whole
 * parameter. Blocks of 8 bits are those of the slice, and so change with tp. */
static void updates_know_no_mesh(void **state) {
    (void)state;
    static const struct {
        const char *optimizer;
        enum ax_moments moments;
        enum ax_masters masters;
        struct ax_mesh_sizes sizes;
    } cases[] = {
        {"adamw", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC, {1, 1, 3, 1, 1, 1}},
        {"adamw", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC, {1, 1, 1, 1, 2, 1}},
        {"adamw", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC, {1, 1, 2, 1, 2, 1}},
        {"adamw", AX_MOMENTS_8BIT, AX_MASTERS_STOCHASTIC, {1, 1, 3, 1, 1, 1}},
        {"lion", AX_MOMENTS_BF16, AX_MASTERS_REMAINDER, {1, 1, 2, 1, 2, 1}},
        {"muon", AX_MOMENTS_FULL, AX_MASTERS_STOCHASTIC, {1, 2, 1, 1, 1, 1}},
    };
    struct ax_arch arch;
    uneven_arch(&arch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const int64_t lengths[] = {8, 0};
        struct rank one, many;
        struct update u = {.arch = &arch, .lock = PTHREAD_MUTEX_INITIALIZER};
        u.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
        must(ax_optimizer_find(cases[i].optimizer, &u.o.optimizer, &u.o.opt));
        u.o.opt.moments = cases[i].moments;
        u.o.model.masters = cases[i].masters;
        u.o.seed = 77;
        update_on(&u, &one, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1});
        update_on(&u, &many, cases[i].sizes);
        for (int k = 0; k < one.parts.n; k++) {
            const struct ax_state_part *a = &one.parts.list[k], *b = &many.parts.list[k];
            if (memcmp(a->data, b->data, part_bytes(a)) != 0)
                fail_msg("case %d: %s of %s differs", (int)i, a->slot, a->name);
        }
        close_rank(&many);
        close_rank(&one);
    }
    ax_arch_free(&arch);
}

/* ---- 8-bit moments of another mesh ---- */

/* What a mesh has of one slot of codes, by element of the whole tensor. */
struct decoded {
    const struct ax_dynamic_map *map;
    int64_t n;
    uint8_t *code;
    float *scale;
    int *block; /* number of the block in its part, and of the rank */
};

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static const struct ax_state_part *part_of(const struct rank *r, const char *name, const char *slot,
                                           const char *suffix) {
    char full[AX_SLOT_NAME];
    snprintf(full, sizeof full, "%s%s", slot, suffix);
    for (int i = 0; i < r->parts.n; i++)
        if (strcmp(r->parts.list[i].name, name) == 0 && strcmp(r->parts.list[i].slot, full) == 0)
            return &r->parts.list[i];
    return NULL;
}

static double value_of(const struct decoded *d, int64_t i) {
    return (double)d->map->value[d->code[i]] * (double)d->scale[i];
}

static void decode(struct decoded *d, const struct ax_state_codes *c, int rank) {
    const struct ax_block at = ax_state_part_block(c->codes);
    const int64_t lead = (c->scales->start[1] + c->codes->first) % AX_8BIT_BLOCK;
    int64_t run;
    for (int64_t i = 0; i < c->codes->n; i++) {
        const int64_t to = ax_block_index(&at, i, &run), block = (lead + i) / AX_8BIT_BLOCK;
        d->code[to] = ((const uint8_t *)c->codes->data)[i];
        d->scale[to] = ((const float *)c->scales->data)[block];
        d->block[to] = rank * 100000 + (int)block;
    }
}

static void open_decoded(struct decoded *d, const struct ax_state_part *like) {
    *d = (struct decoded){.n = 1};
    d->map = like->layout == AX_STATE_SIGNED_CODES ? &ax_dynamic_signed : &ax_dynamic_unsigned;
    for (int k = 0; k < like->ndim; k++)
        d->n *= like->shape[k];
    must(ax_alloc(&d->code, (size_t)d->n, 1));
    must(ax_alloc(&d->scale, (size_t)d->n, sizeof *d->scale));
    must(ax_alloc(&d->block, (size_t)d->n, sizeof *d->block));
}

static void close_decoded(struct decoded *d) {
    ax_free(d->code);
    ax_free(d->scale);
    ax_free(d->block);
}

/* What the ranks that save a slot have of it. */
static size_t saved(struct ax_state_codes *out, struct decoded *d, struct rank *ranks, int world,
                    const struct ax_state_part *like) {
    size_t n = 0;
    open_decoded(d, like);
    for (int r = 0; r < world; r++) {
        const struct ax_state_part *codes = part_of(&ranks[r], like->name, like->slot, "");
        if (!codes || codes->elsewhere)
            continue;
        out[n] = (struct ax_state_codes){
            .codes = codes, .scales = part_of(&ranks[r], like->name, like->slot, "_scale")};
        out[n].code_bytes = codes->data;
        out[n].scale_bytes = out[n].scales->data;
        must(ax_state_codes_check(&out[n]));
        decode(d, &out[n++], r);
    }
    return n;
}

/* A code and its scale are the nearest to what was there, but for a second moment's 0: as they were, or
 * with the scale of the block's largest element. Returns whether it was encoded again. */
static bool expect_block(const struct decoded *was, const struct decoded *is, const int64_t *at,
                         int64_t n) {
    bool together = true;
    double largest = 1e-12;
    for (int64_t i = 0; i < n; i++) {
        together = together && was->block[at[i]] == was->block[at[0]];
        largest = fmax(largest, fabs(value_of(was, at[i])));
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = at[i];
        if (together) {
            assert_int_equal(is->code[e], was->code[e]);
            assert_true(is->scale[e] == was->scale[e]);
            continue;
        }
        assert_true(is->scale[e] == (float)largest);
        const double wanted = value_of(was, e), scale = (double)is->scale[e];
        const double off = fabs(value_of(is, e) - wanted);
        for (int c = is->code[e] - 1; c <= is->code[e] + 1; c += 2)
            if (c >= (is->map == &ax_dynamic_unsigned) && c < 256 &&
                fabs((double)is->map->value[c] * scale - wanted) < off * 0.999)
                fail_msg("%g became %g", wanted, value_of(is, e));
    }
    return !together;
}

/* Loads the codes on one rank; returns the blocks that were encoded again, adds all to *blocks. */
static int expect_loaded(struct rank *r, const struct ax_state_part *codes, size_t n,
                         const struct ax_state_codes *from, const struct decoded *was,
                         int *blocks) {
    struct ax_state_codes to = {.codes = codes,
                                .scales = part_of(r, codes->name, codes->slot, "_scale")};
    const struct ax_block at = ax_state_part_block(codes);
    struct decoded is;
    int64_t copied, run, places[AX_8BIT_BLOCK];
    int again = 0;
    must(ax_state_codes_copy(NULL, &to, n, from, &copied));
    assert_int_equal(copied, codes->n);
    open_decoded(&is, codes);
    decode(&is, &to, 0);
    for (int64_t i = 0, first = 0; i < codes->n; i++) {
        places[i - first] = ax_block_index(&at, i, &run);
        const bool last =
            i + 1 == codes->n || is.block[ax_block_index(&at, i + 1, &run)] != is.block[places[0]];
        if (!last)
            continue;
        again += expect_block(was, &is, places, i + 1 - first);
        ++*blocks;
        first = i + 1;
    }
    close_decoded(&is);
    return again;
}

/* From each mesh to each: returns the blocks that were encoded again. */
static int each_to_each(const struct ax_arch *arch, const struct ax_mesh_sizes *meshes, int count,
                        int *blocks) {
    static const int64_t lengths[] = {8, 0};
    struct rank ranks[9][MAX_RANKS];
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    int again = 0;
    must(ax_optimizer_find("adamw_8bit", &o.optimizer, &o.opt));
    for (int a = 0; a < count; a++)
        for (int r = 0; r < world_of(&meshes[a]); r++)
            open_rank(&ranks[a][r], arch, &o, meshes[a], world_of(&meshes[a]), r);
    for (int a = 0; a < count; a++) {
        const int world = world_of(&meshes[a]);
        for (int r = 0; r < world; r++) {
            fill(&ranks[a][r]);
            for (int i = 0; i < ranks[a][r].parts.n; i++) {
                const struct ax_state_part *p = &ranks[a][r].parts.list[i];
                for (int64_t k = 0; p->layout == AX_STATE_BLOCKS && k < p->n; k++)
                    ((float *)p->data)[k] =
                        ax_rng_uniform((struct ax_rng_key){9, 0, (uint32_t)i}, (uint64_t)k) + 1e-3f;
            }
        }
        for (int b = 0; b < count; b++)
            for (int r = 0; b != a && r < world_of(&meshes[b]); r++)
                for (int i = 0; i < ranks[b][r].parts.n; i++) {
                    const struct ax_state_part *p = &ranks[b][r].parts.list[i];
                    struct ax_state_codes from[MAX_RANKS];
                    struct decoded was;
                    if (p->layout != AX_STATE_SIGNED_CODES && p->layout != AX_STATE_UNSIGNED_CODES)
                        continue;
                    const size_t n = saved(from, &was, ranks[a], world, p);
                    again += expect_loaded(&ranks[b][r], p, n, from, &was, blocks);
                    close_decoded(&was);
                }
    }
    for (int a = 0; a < count; a++)
        for (int r = 0; r < world_of(&meshes[a]); r++)
            close_rank(&ranks[a][r]);
    return again;
}

static void codes_fit_any_mesh(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {
        /* pp, dp_replicate, dp_shard, cp, tp, ep */
        {1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 1, 1, 1, 2, 1},
        {2, 1, 1, 1, 1, 1}, {1, 2, 2, 1, 1, 1}, {1, 1, 2, 1, 2, 1},
        {1, 1, 4, 1, 1, 1}, {2, 1, 1, 2, 1, 1}, {2, 1, 2, 1, 2, 1},
    };
    static const struct ax_mesh_sizes of_experts[] = {
        {1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 2}, {1, 1, 4, 1, 1, 2},
        {1, 1, 1, 1, 2, 1}, {1, 1, 2, 1, 2, 2}, {2, 1, 2, 1, 1, 2},
    };
    struct ax_arch arch;
    int blocks = 0;
    uneven_arch(&arch);
    int again = each_to_each(&arch, meshes, 9, &blocks);
    print_message("8-bit moments of 9 meshes on each other: %d of %d blocks encoded again\n", again,
                  blocks);
    assert_true(again > 0 && again < blocks);
    ax_arch_free(&arch);
    must(tiny_arch(&arch, "mixtral", false, ""));
    blocks = 0;
    again = each_to_each(&arch, of_experts, 6, &blocks);
    print_message("experts: %d of %d\n", again, blocks);
    assert_true(again > 0 && again < blocks);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards),
        cmocka_unit_test(slices),
        cmocka_unit_test(whole_matrices),
        cmocka_unit_test(merged_bases),
        cmocka_unit_test(scales_know_their_slices),
        cmocka_unit_test(scales_know_their_experts),
        cmocka_unit_test(pieces_have_a_scale_per_block),
        cmocka_unit_test(going_on_is_bitwise),
        cmocka_unit_test(updates_know_no_mesh),
        cmocka_unit_test(codes_fit_any_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
