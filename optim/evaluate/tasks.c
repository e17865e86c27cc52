#include "optim/evaluate/tasks.h"

#include "base/stop.h"

#define PASS_TOKENS 64 /* small passes: steps do not need their memory */

static bool stop_now(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

/* A lane holds a text and one token more: the text may be all prompt, or nearly all answer. */
static struct ax_generate_options options(const struct ax_tasks *t, struct ax_sampling sampling) {
    return (struct ax_generate_options){.n_seqs = t->lanes,
                                        .max_prompt = 1,
                                        .max_new = t->max_length,
                                        .long_prompts = true,
                                        .pass_tokens = PASS_TOKENS,
                                        .scoring = true,
                                        .n_stop = t->stop.n,
                                        .stop = t->stop.ids,
                                        .sampling = sampling,
                                        .stop_now = stop_now};
}

enum ax_status ax_tasks_plan(const struct ax_tasks *t, struct ax_model *m) {
    const enum ax_phase before = m->rt->arena.phase;
    /* filters need memory, and a task may ask for them */
    const struct ax_generate_options o =
        options(t, (struct ax_sampling){.temperature = 1, .top_k = 1});
    struct ax_generator g;
    struct ax_sequence s = {0};
    AX_TRY(ax_generator_create(&g, m, &o));
    const enum ax_status st = ax_generate(&g, 1, &s);
    ax_generator_free(&g);
    ax_arena_enter(&m->rt->arena, before);
    return st;
}

enum ax_status ax_tasks_answer(const struct ax_tasks *t, struct ax_model *m, struct ax_team *team,
                               struct ax_text_requests *r) {
    const enum ax_phase before = m->rt->arena.phase;
    const struct ax_generate_options o = options(t, ax_text_requests_sampling(r, t->seed));
    struct ax_text_requests_counters counters = {0};
    struct ax_generator g;
    r->quiet = true;
    AX_TRY(ax_generator_create(&g, m, &o));
    const enum ax_status st = ax_text_requests_generate(r, &g, &counters);
    ax_generator_free(&g);
    ax_arena_enter(&m->rt->arena, before);
    AX_TRY(st);
    double cut =
        counters.requests < (int64_t)r->n; /* those that a stop has ended are not counted */
    AX_TRY(ax_team_max(team, &cut));
    return cut > 0 ? AX_INTERRUPTED : AX_OK;
}
