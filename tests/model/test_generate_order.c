/* Who comes first in a generator: short prompts beside long ones, priorities, and what a sequence that is put back
 * before its first token counts as shared. */
#include "tests/model/generate_case.h"

#define LANES 3

/* Sequences join at given calls of `more`; notes the call before which each got its first token. */
struct joins {
    struct test *t;
    int calls;
    int at[N];    /* −1: never */
    int first[N]; /* −1: none */
    int ended;
    int order[N]; /* in which they ended */
};

static int number_of(const struct joins *j, const struct ax_sequence *s) {
    return (int)(s - j->t->result);
}

static enum ax_status more(void *ctx, bool idle, struct ax_sequence **joining) {
    struct joins *j = ctx;
    bool later = false;
    for (int i = N; i-- > 0;)
        later = later || j->at[i] > j->calls;
    for (int i = N; i-- > 0;)
        if (j->at[i] == j->calls) {
            struct ax_sequence *s = &j->t->result[i];
            s->next = *joining;
            *joining = s;
        }
    j->calls++;
    assert_false(idle && later && !*joining);
    return AX_OK;
}

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct joins *j = ctx;
    (void)stop;
    if (s->n_new == 1)
        j->first[number_of(j, s)] = j->calls;
    return AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct joins *j = ctx;
    j->order[j->ended++] = number_of(j, s);
    return AX_OK;
}

static void setup_order(struct test *t, struct joins *j, int lanes, int64_t pass_tokens) {
    setup(t, "llama", AX_F32, lanes);
    *j = (struct joins){.t = t};
    t->o.pass_tokens = pass_tokens;
    t->o.more = more;
    t->o.token = on_token;
    t->o.done = on_done;
    t->o.ctx = j;
    t->n = 0;
    for (int i = 0; i < N; i++)
        j->at[i] = j->first[i] = -1;
}

static void short_joins_the_next_pass(void **state) {
    (void)state;
    static struct test t;
    static struct joins j;
    setup_order(&t, &j, LANES, 8);
    t.result[1].n_prompt = 5;
    j.at[6] = 0; /* 37 tokens, of five passes */
    j.at[1] = 2;
    must(try(&t, "cpu", 1));
    assert_int_equal(j.first[1], 3); /* `more` was called a third time for it */
    assert_true(j.first[6] > 5);
    ax_arch_free(&t.arch);
}

/* Short ones do not keep a long one from being read. */
static void long_is_read(void **state) {
    (void)state;
    static struct test t;
    static struct joins j;
    setup_order(&t, &j, LANES, 9);
    t.result[6].n_prompt = 9;
    j.at[6] = 0;
    for (int i = 0; i < 6; i++) { /* of 8 tokens each, to which the pass would go */
        t.result[i].n_prompt = 8;
        t.result[i].max_new = 1;
        j.at[i] = i;
    }
    must(try(&t, "cpu", 1));
    assert_true(j.first[6] > 1 && j.first[6] <= 5);
    assert_int_equal(j.ended, N);
    ax_arch_free(&t.arch);
}

static void priorities(void **state) {
    (void)state;
    static struct test t;
    static struct joins j;
    static const int64_t priority[N] = {5, -3, 5, 0, 9, -3, 0};
    static const int want[N] = {6, 1, 5, 3, 0, 2, 4}; /* the first has begun when the others come */
    setup_order(&t, &j, 1, 0);
    for (int i = 0; i < N; i++) {
        t.result[i].priority = priority[i];
        t.result[i].max_new = 4;
        j.at[i] = i == 6 ? 0 : 1;
    }
    must(try(&t, "cpu", 1));
    assert_memory_equal(j.order, want, sizeof want);
    ax_arch_free(&t.arch);
}

/* Put back while its prompt was being read, it finds more to share when it comes again; it has then been computed
 * twice. */
static void shared_when_it_began(void **state) {
    (void)state;
    static struct test t;
    static struct joins j;
    static const int who[] = {2, 3, 5};
    setup_order(&t, &j, LANES, 3);
    t.o.kv_tokens = (int64_t)7 * AX_KV_BLOCK;
    for (int i = 0; i < 3; i++) {
        t.result[who[i]].max_new = 30;
        j.at[who[i]] = 0;
    }
    t.result[3].n_prompt = 13;
    memcpy(t.prompts[5], t.prompts[3], 13 * sizeof **t.prompts);
    must(try(&t, "cpu", 1));
    assert_true(t.counters.shared_tokens > 0);
    assert_true(j.first[5] > 40); /* behind the others' answers */
    for (int i = 0; i < 3; i++)
        assert_int_equal(t.result[who[i]].n_shared, 0);
    ax_arch_free(&t.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_joins_the_next_pass),
        cmocka_unit_test(long_is_read),
        cmocka_unit_test(priorities),
        cmocka_unit_test(shared_when_it_began),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
