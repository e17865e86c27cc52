/* The cache's blocks: whatever is appended, shared and given back, in any order, a sequence reads
 * what was written for it, and every block is free or somebody's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "model/core/kvcache.h"
#include "parallel/runtime.h"

enum { SEQS = 5, CAP = 70, BLOCKS = 16, LAYERS = 2, T = 40, STEPS = 600, KEY = 3, VALUE = 2 };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct test {
    const char *backend;
    bool values_in_keys;
    struct ax_kvcache c;
    struct ax_tensor k, v;         /* of a pass */
    float said[SEQS][CAP];         /* what each sequence should have */
    float next;                    /* a number for each token */
    int64_t appended, forked, cut; /* how often */
};

static void create(struct test *t, struct ax_runtime *rt) {
    struct ax_kv_row rows[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        rows[i] = (struct ax_kv_row){
            .n_heads = 1, .key_dim = KEY, .value_dim = VALUE, .values_in_keys = t->values_in_keys};
    const struct ax_kvcache_options o = {.dtype = AX_F32,
                                         .n_seqs = SEQS,
                                         .cap = CAP,
                                         .n_layers = LAYERS,
                                         .n_blocks = BLOCKS,
                                         .rows = rows,
                                         .T = T,
                                         .planning = ax_runtime_planning(rt)};
    struct ax_stack *stack = &rt->arena.persistent;
    memset(t->said, 0, sizeof t->said);
    t->next = 0;
    t->appended = t->forked = t->cut = 0;
    must(ax_kvcache_create(&t->c, stack, rt->q, &o));
    t->k = ax_tensor_3d(AX_F32, NULL, T, 1, KEY);
    t->v = ax_tensor_3d(AX_F32, NULL, T, 1, VALUE);
    t->k.data = ax_stack_push(stack, "k", ax_tensor_bytes(&t->k));
    t->v.data = ax_stack_push(stack, "v", ax_tensor_bytes(&t->v));
}

/* ---- what may happen ---- */

/* A pass of n tokens for a sequence, m for another, and padding: of the number of a token. */
static void append(struct test *t, struct ax_queue *q, const int32_t *seqs, const int64_t *n) {
    float k[T][KEY], v[T][VALUE];
    int64_t row = 0;
    for (int d = 0; d < 2; d++)
        for (int64_t i = 0; i < n[d]; i++, row++) {
            t->said[seqs[d]][t->c.length[seqs[d]] + i] = ++t->next;
            for (int e = 0; e < KEY; e++)
                k[row][e] = t->next + 0.25F * (float)e;
            for (int e = 0; e < VALUE; e++)
                v[row][e] = -t->next - 0.25F * (float)e;
        }
    for (; row < T; row++)
        k[row][0] = v[row][0] = -1e9F; /* goes nowhere */
    must(ax_queue_write(q, t->k.data, k, sizeof k));
    must(ax_queue_write(q, t->v.data, v, sizeof v));
    must(ax_kvcache_advance(&t->c, q, T, 2, seqs, n));
    for (int layer = 0; layer < LAYERS; layer++)
        must(ax_kvcache_write(&t->c, q, layer, &t->k, t->values_in_keys ? NULL : &t->v));
    t->appended++;
}

static void step(struct test *t, struct ax_queue *q, uint64_t number) {
    const struct ax_rng_key key = {77, 0, 0};
    uint64_t draw[6];
    for (uint64_t i = 0; i < 6; i++)
        draw[i] = ax_rng_below(key, 6 * number + i, 1 << 20);
    const int32_t a = (int32_t)(draw[0] % SEQS), b = (int32_t)((draw[0] + 1) % SEQS);
    struct ax_kvcache *c = &t->c;
    if (draw[1] % 8 < 4) {
        const int32_t seqs[] = {a, b};
        const int64_t n[] = {(int64_t)(draw[2] % 20), (int64_t)(draw[3] % 3)};
        const int64_t needs = ax_kvcache_needs(c, a, n[0]) + ax_kvcache_needs(c, b, n[1]);
        if (needs <= c->n_free && c->length[a] + n[0] <= CAP && c->length[b] + n[1] <= CAP) {
            const int64_t left = c->n_free - needs;
            append(t, q, seqs, n);
            assert_int_equal(c->n_free, left);
        }
    } else if (draw[1] % 8 < 7 && c->n_free > 0) {
        const int32_t to = draw[4] % 3 == 0 ? a : b;
        const int64_t n = (int64_t)(draw[5] % (uint64_t)(c->length[a] + 1));
        memmove(t->said[to], t->said[a], sizeof t->said[a]);
        must(ax_kvcache_fork(c, q, a, to, n));
        assert_int_equal(c->length[to], n);
        t->forked++;
    } else if (c->length[a] > 0) {
        ax_kvcache_shorten(c, a);
        assert_int_equal(c->length[a] % AX_KV_BLOCK, 0);
        t->cut++;
    }
}

/* ---- what must hold ---- */

static void blocks_are_owned(const struct ax_kvcache *c) {
    int users[BLOCKS] = {0}, free = 0;
    for (int s = 0; s < SEQS; s++)
        for (int64_t i = 0; i < ax_kvcache_blocks(c->length[s]); i++)
            users[c->table[s * c->columns + i]]++;
    for (int b = 0; b < BLOCKS; b++) {
        assert_int_equal(c->users[b], users[b]);
        free += users[b] == 0;
    }
    assert_int_equal(c->n_free, free);
}

static void sequences_are_theirs(const struct test *t, struct ax_queue *q, int layer) {
    static float k[BLOCKS * AX_KV_BLOCK][KEY], v[BLOCKS * AX_KV_BLOCK][VALUE];
    const struct ax_kvcache *c = &t->c;
    must(ax_queue_read(q, c->k[layer].data, k, sizeof k, NULL));
    if (!t->values_in_keys)
        must(ax_queue_read(q, c->v[layer].data, v, sizeof v, NULL));
    for (int s = 0; s < SEQS; s++)
        for (int64_t i = 0; i < c->length[s]; i++) {
            const int64_t row =
                c->table[s * c->columns + i / AX_KV_BLOCK] * AX_KV_BLOCK + i % AX_KV_BLOCK;
            for (int e = 0; e < KEY; e++)
                assert_true(k[row][e] == t->said[s][i] + 0.25F * (float)e);
            for (int e = 0; e < VALUE && !t->values_in_keys; e++)
                assert_true(v[row][e] == -t->said[s][i] - 0.25F * (float)e);
        }
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct test *t = ctx;
    create(t, rt);
    if (ax_runtime_planning(rt)) {
        const int32_t seqs[] = {0, 1};
        const int64_t n[] = {T - 3, 3};
        append(t, rt->q, seqs, n);
        must(ax_kvcache_fork(&t->c, rt->q, 0, 1, T - 5));
    }
    for (uint64_t i = 0; i < STEPS && !ax_runtime_planning(rt); i++) {
        step(t, rt->q, i);
        blocks_are_owned(&t->c);
        sequences_are_theirs(t, rt->q, (int)(i % LAYERS));
    }
    if (!ax_runtime_planning(rt)) {
        assert_true(t->appended > 50 && t->forked > 50 && t->cut > 20 && t->c.shared > 20);
        ax_kvcache_clear(&t->c);
        assert_int_equal(t->c.n_free, BLOCKS);
    }
    ax_kvcache_free(&t->c);
    return AX_OK;
}

static void any_order(void **state) {
    (void)state;
    static const char *const backends[] = {"cpu", "far"};
    for (int i = 0; i < 4; i++) {
        struct test t = {.backend = backends[i % 2], .values_in_keys = i >= 2};
        const struct ax_runtime_options ro = {.backend = t.backend, .threads = 1};
        must(ax_runtime_run(&ro, body, &t, NULL));
    }
}

static enum ax_status fill(struct ax_runtime *rt, void *ctx) {
    struct test *t = ctx;
    const int32_t seqs[] = {0, 1};
    enum ax_status st = AX_OK;
    create(t, rt);
    for (int i = 0; i < 2 && st == AX_OK; i++) {
        const int64_t n[] = {CAP / 2 + i, 1};
        st = ax_kvcache_advance(&t->c, rt->q, T, 2, seqs, n);
    }
    ax_kvcache_free(&t->c);
    return st;
}

static void a_full_sequence_is_named(void **state) {
    (void)state;
    struct test t = {.backend = "cpu"};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    assert_int_equal(ax_runtime_run(&ro, fill, &t, NULL), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "needs 71 positions, but the KV cache has 70"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),
        cmocka_unit_test(a_full_sequence_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
