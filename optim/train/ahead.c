/* Generations that are drawn before the weights are there that train on them, on ranks of their own (sampler.c) or, in
 * turns, on those that train. Generation g is step g's, and drawn with the weights after step g − 1 − staleness (or the
 * first). So which weights a token sees is a matter of the options and not of time, and a run that resumes, or has other
 * ranks, has the same bits.
 *
 * With ranks that sample, a step begins with a copy of the weights for them, and takes its generation, which they have
 * sent when it was ready. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "optim/train/run.h"

/* ---- memory ---- */

static int64_t staleness(const struct ax_train *t) {
    return t->o->rollout.staleness;
}

static bool has_samplers(const struct ax_train *t) {
    return t->o->rollout_ranks > 0;
}

enum ax_status ax_train_ahead_create(struct ax_train *t) {
    struct ax_train_ahead *a = &t->ahead;
    if (!ax_train_runs_ahead(t->o))
        return AX_OK;
    a->letters = json_array();
    if (!a->letters)
        return ax_error(AX_ERR_NOMEM, "out of memory for generations");
    if (!has_samplers(t))
        return ax_rollout_create(&a->rollout, &t->o->rollout);
    AX_TRY(ax_alloc(&a->handovers, (size_t)staleness(t) + 1, sizeof *a->handovers));
    return ax_alloc(&a->outgoing, (size_t)staleness(t) + 1, sizeof *a->outgoing);
}

void ax_train_ahead_free(struct ax_train *t) {
    struct ax_train_ahead *a = &t->ahead;
    for (int64_t i = 0; a->handovers && i <= staleness(t); i++)
        ax_handover_free(&a->handovers[i]);
    for (int64_t i = 0; a->outgoing && i <= staleness(t); i++) {
        ax_free(a->outgoing[i].text);
        ax_free(a->outgoing[i].letters);
    }
    ax_free(a->outgoing);
    ax_free(a->handovers);
    ax_rollout_free(&a->rollout);
    json_decref(a->letters);
    *a = (struct ax_train_ahead){0};
}

/* ---- the list of letters ---- */

static struct ax_json letter_at(const struct ax_train *t, size_t i) {
    return (struct ax_json){.v = json_array_get(t->ahead.letters, i), .doc = "generation"};
}

static int64_t number_of(struct ax_json letter) {
    return json_integer_value(ax_json_get(ax_json_get(letter, "rollout"), "generation").v);
}

/* Takes the reference. */
static enum ax_status add_letter(struct ax_train *t, json_t *letter) {
    if (json_array_append_new(t->ahead.letters, letter) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for a generation");
    const size_t n = json_array_size(t->ahead.letters);
    t->ahead.received = number_of(letter_at(t, n - 1));
    return AX_OK;
}

json_t *ax_train_ahead_json(const struct ax_train *t) {
    return json_copy(t->ahead.letters);
}

enum ax_status ax_train_ahead_read(struct ax_train *t, struct ax_json list) {
    struct ax_train_ahead *a = &t->ahead;
    if (t->rollout.generation != t->done)
        return ax_error(AX_ERR_CONFIG,
                        "rollout_ranks: the checkpoint's run took several steps for a generation "
                        "(trl.steps_per_generation, trl.num_iterations): resume it without "
                        "rollout_ranks, or start over with another output_dir");
    json_array_clear(a->letters); /* those of a checkpoint that could not be used */
    a->received = t->rollout.generation;
    for (size_t i = 0; i < ax_json_size(list); i++) {
        const struct ax_json letter = ax_json_at(list, i);
        if (number_of(letter) != a->received + 1)
            return ax_json_error(letter, "expected generation %lld", (long long)a->received + 1);
        AX_TRY(add_letter(t, json_incref((json_t *)(uintptr_t)letter.v)));
    }
    a->allowed = a->rollout.generation = a->received;
    return AX_OK;
}

/* The newest generation that weights after `version` steps draw. */
static int64_t newest_of(const struct ax_train *t, int64_t version) {
    const int64_t newest = version + 1 + staleness(t);
    return newest < t->schedule.total ? newest : t->schedule.total;
}

/* ---- ranks that sample ---- */

static int first_sampler(const struct ax_train *t) {
    return t->mesh.world + t->mesh.rank;
}

static json_t *start_json(const struct ax_train *t) {
    struct ax_loader_state at;
    json_t *data;
    ax_loader_save(t->o->data.train, &at);
    if (ax_loader_state_to_json(&at, &data) != AX_OK)
        return NULL;
    return json_pack("{sb sI sI so}", "nothing_to_do", t->out->nothing_to_do, "total",
                     (json_int_t)t->schedule.total, "generation", (json_int_t)t->ahead.received,
                     "data", data);
}

enum ax_status ax_train_ahead_begin(struct ax_train *t) {
    if (!has_samplers(t) || !ax_train_is_main(t))
        return AX_OK;
    json_t *start = start_json(t);
    char *text = start ? json_dumps(start, JSON_COMPACT) : NULL;
    json_decref(start);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for ranks that sample");
    enum ax_status st = AX_OK;
    for (int to = t->mesh.world; to < t->all.size && st == AX_OK; to++) {
        struct ax_team_letter l = {.data = text, .bytes = (int64_t)strlen(text)};
        st = ax_team_send(&t->all, to, &l);
        if (st == AX_OK)
            st = ax_team_sent(&t->all, &l);
    }
    ax_free(text);
    return st;
}

/* Where there is a generation left to draw with them. */
static enum ax_status hand_over(struct ax_train *t) {
    struct ax_train_ahead *a = &t->ahead;
    const double start = ax_clock_now();
    if (newest_of(t, t->done) <= a->allowed)
        return AX_OK;
    AX_TRY(ax_handover_send(&a->handovers[t->done % (staleness(t) + 1)], &t->all, first_sampler(t),
                            t->mesh.world, &t->step.model, t->done));
    a->allowed = newest_of(t, t->done);
    a->handing = ax_clock_now() - start;
    return AX_OK;
}

/* Generations that were drawn with weights say that these have arrived. */
static enum ax_status finish_handovers(struct ax_train *t) {
    for (int64_t i = 0; i <= staleness(t); i++) {
        struct ax_handover *h = &t->ahead.handovers[i];
        if (h->weights && h->order.version <= t->ahead.received - 1 - staleness(t))
            AX_TRY(ax_handover_finish(h, &t->all));
    }
    return AX_OK;
}

static enum ax_status follow_loader(const struct ax_train *t, struct ax_json data) {
    struct ax_loader_state at;
    AX_TRY(ax_loader_state_from_json(&at, data.v));
    return ax_loader_restore(t->o->data.train, &at);
}

static enum ax_status receive_letter(struct ax_train *t) {
    struct ax_json_doc doc;
    char *text;
    int64_t n;
    const double start = ax_clock_now();
    AX_TRY(ax_team_receive(&t->all, t->mesh.world, &text, &n));
    t->ahead.waited += ax_clock_now() - start;
    const enum ax_status st = ax_json_parse(&doc, "generation", text, (size_t)n);
    ax_free(text);
    AX_TRY(st);
    json_incref(doc.root);
    AX_TRY(add_letter(t, doc.root));
    ax_json_free(&doc);
    AX_TRY(
        follow_loader(t, ax_json_get(letter_at(t, json_array_size(t->ahead.letters) - 1), "data")));
    return finish_handovers(t);
}

enum ax_status ax_train_ahead_collect(struct ax_train *t) {
    while (has_samplers(t) && t->ahead.received < t->ahead.allowed)
        AX_TRY(receive_letter(t));
    return AX_OK;
}

static bool is_end(enum ax_status st) {
    return st == AX_OK || st == AX_INTERRUPTED || st == AX_SAVED_REQUEUE;
}

enum ax_status ax_train_ahead_end(struct ax_train *t, enum ax_status st) {
    struct ax_error_record first;
    if (!has_samplers(t) || !is_end(st))
        return st;
    ax_error_save(&first, st);
    enum ax_status told = ax_train_ahead_collect(t);
    if (told == AX_OK)
        told = ax_handover_end(&t->all, first_sampler(t), t->mesh.world, st);
    return st == AX_OK ? told : ax_error_restore(&first);
}

/* ---- ranks that train sample, too ---- */

static enum ax_status draw_letter(struct ax_train *t, bool *stopped) {
    struct ax_rollout *r = &t->ahead.rollout;
    const struct ax_rollout_models m = ax_train_rollout_models(t);
    json_t *letter;
    r->version = t->done;
    ax_metrics_doing(t->metrics, "sampling", 0, 0);
    AX_TRY(ax_train_schedule_progress(&t->schedule, &t->o->data, r->generation, r));
    AX_TRY(ax_rollout_generate(r, &m, t->o->data.train, stopped));
    if (*stopped)
        return AX_OK;
    t->ahead.sampled += r->seconds;
    t->ahead.rewarded += r->reward_seconds;
    AX_TRY(ax_rollout_to_letter(r, t->o->data.train, &letter));
    return add_letter(t, letter);
}

static enum ax_status draw_letters(struct ax_train *t, bool *stopped) {
    while (!*stopped && t->ahead.received < newest_of(t, t->done))
        AX_TRY(draw_letter(t, stopped));
    return AX_OK;
}

/* ---- the next step's ---- */

/* The phases of the step are what it spent itself. */
static void put_figures(struct ax_train *t) {
    struct ax_train_ahead *a = &t->ahead;
    struct ax_rollout *r = &t->rollout;
    ax_figures_add(&r->figures, "staleness", (double)(t->done - r->version));
    if (has_samplers(t)) {
        a->elsewhere = r->seconds + r->reward_seconds;
        ax_figures_add(&r->figures, "sampling_s", a->elsewhere);
        ax_figures_add(&r->figures, "rollout_wait_s", a->waited);
        ax_figures_add(&r->figures, "weight_sync_s", a->handing);
        r->seconds = a->waited + a->handing;
        r->reward_seconds = 0;
    } else {
        r->seconds = a->sampled;
        r->reward_seconds = a->rewarded;
    }
}

void ax_train_ahead_put_saved(struct ax_train *t, double seconds) {
    const struct ax_train_ahead *a = &t->ahead;
    const double saved = a->elsewhere - a->waited - a->handing;
    if (has_samplers(t))
        ax_figures_add(&t->rollout.figures, "time_saved", saved / (seconds + saved));
}

static void report(struct ax_train *t, struct ax_json letter) {
    const struct ax_json lines = ax_json_get(letter, "lines"), shown = ax_json_get(letter, "shown");
    for (size_t i = 0; t->metrics && i < ax_json_size(lines); i++) {
        const json_t *v = ax_json_at(lines, i).v;
        const struct ax_buf line = {.data = (char *)(uintptr_t)json_string_value(v),
                                    .len = json_string_length(v)};
        ax_metrics_completion(t->metrics, &line);
    }
    for (size_t i = 0; t->metrics && i < ax_json_size(shown); i++) {
        struct ax_buf texts[3];
        for (size_t k = 0; k < 3; k++) {
            const json_t *v = ax_json_at(ax_json_at(shown, i), k).v;
            texts[k] = (struct ax_buf){.data = (char *)(uintptr_t)json_string_value(v),
                                       .len = json_string_length(v)};
        }
        ax_metrics_show(t->metrics, t->done + 1, (int)i + 1, &texts[0], &texts[1], &texts[2]);
    }
}

enum ax_status ax_train_ahead_next(struct ax_train *t, bool *stopped) {
    struct ax_train_ahead *a = &t->ahead;
    a->waited = a->handing = a->sampled = a->rewarded = 0;
    if (has_samplers(t)) {
        ax_metrics_doing(t->metrics, "waiting for answers", 0, 0);
        AX_TRY(hand_over(t));
        while (json_array_size(a->letters) == 0)
            AX_TRY(receive_letter(t));
    } else {
        AX_TRY(draw_letters(t, stopped));
        if (*stopped)
            return AX_OK;
    }
    const struct ax_json letter = letter_at(t, 0);
    AX_TRY(ax_rollout_from_letter(&t->rollout, letter));
    if (t->rollout.generation != t->done + 1 || t->done - t->rollout.version > staleness(t))
        return ax_error(
            AX_ERR_FAILED,
            "step %lld got generation %lld of the weights after step %lld; this is a bug "
            "in axtrain",
            (long long)t->done + 1, (long long)t->rollout.generation,
            (long long)t->rollout.version);
    put_figures(t);
    report(t, letter);
    json_array_remove(a->letters, 0);
    return AX_OK;
}
