/* Requests → sequences, and their memory. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/threads.h"
#include "cmd/serve/engine.h"

enum ax_status ax_serve_job_create(struct ax_serve_job **out, struct ax_serve_engine *e) {
    AX_TRY(ax_alloc(out, 1, sizeof **out));
    (*out)->engine = e;
    (*out)->version = -1;
    (*out)->created = (int64_t)time(NULL);
    ax_cond_init(&(*out)->changed);
    return AX_OK;
}

static bool is_seeded(const struct ax_serve_request *r) {
    return r->sampling.temperature > 0 && r->seeded;
}

/* Without a seed the streams of random numbers are drawn, and the seed is every such job's. */
static enum ax_status choose_streams(struct ax_serve_job *j) {
    uint64_t fresh[2];
    AX_TRY(ax_random_bytes(fresh, sizeof fresh));
    const char *kind = j->r.chat ? "chatcmpl" : "cmpl";
    if (j->r.request_id)
        snprintf(j->id, sizeof j->id, "%s-%s", kind, j->r.request_id);
    else
        snprintf(j->id, sizeof j->id, "%s-%016llx", kind, (unsigned long long)fresh[0]);
    j->stream = is_seeded(&j->r) ? 0 : fresh[1];
    return AX_OK;
}

/* Takes n of the memory; NULL if not wanted. */
static void *take(void *memory, size_t size, int64_t *used, int64_t n, bool wanted) {
    if (!wanted)
        return NULL;
    *used += n;
    return memory ? (char *)memory + (size_t)(*used - n) * size : NULL;
}

struct room {
    int64_t ints, numbers;
};

/* How many of the likeliest tokens the prompts need. */
static int most_of_prompts(const struct ax_serve_request *r) {
    const int64_t echoed = r->echo ? r->logprobs : -1,
                  most = echoed > r->prompt_logprobs ? echoed : r->prompt_logprobs;
    return most > 0 ? (int)most : 0;
}

/* Sequences of the prompts; with memory NULL, only how much they need. */
static void lay_out_scores(struct ax_serve_job *j, struct room *used) {
    const struct ax_serve_request *r = &j->r;
    const int k = most_of_prompts(r);
    for (int64_t p = 0; j->scores && p < r->n_prompts; p++) {
        const int64_t n = r->prompts[p].n - 1;
        const int32_t *ids = r->ids.ids + r->prompts[p].first;
        struct ax_serve_score *s = &j->scores[p];
        s->logprobs = take(j->numbers, sizeof *j->numbers, &used->numbers, n, true);
        s->k = k;
        s->best_logprobs = take(j->numbers, sizeof *j->numbers, &used->numbers, n * k, k > 0);
        s->best = take(j->ints, sizeof *j->ints, &used->ints, n * k, k > 0);
        if (n == 0 || !j->units)
            continue;
        j->units[j->n_units++] = (struct ax_serve_unit){.job = j,
                                                        .s = {.adapter = r->model->adapter,
                                                              .salt = r->salt,
                                                              .priority = r->priority,
                                                              .n_prompt = n,
                                                              .prompt = ids,
                                                              .n_scored = n,
                                                              .scored = ids + 1,
                                                              .logprobs = s->logprobs,
                                                              .n_best = k,
                                                              .best = s->best,
                                                              .best_logprobs = s->best_logprobs}};
    }
}

/* Which tokens of a choice may come next, for its bias. */
static enum ax_status allow(void *choice, const uint64_t **bits) {
    struct ax_serve_choice *c = choice;
    const struct ax_bias *b = &c->bias;
    return ax_serve_place_mask(&c->place, &c->job->r.constraint, b->ends, b->n_ends, bits);
}

static void lay_out_choices(struct ax_serve_job *j, struct room *used) {
    const struct ax_serve_request *r = &j->r;
    const bool logprobs = r->logprobs >= 0;
    const int k = logprobs ? (int)r->logprobs : 0;
    for (int64_t i = 0; i < j->n_choices; i++) {
        struct ax_serve_choice *c = &j->choices[i];
        const int64_t n = r->max_tokens;
        c->job = j;
        c->prompt = &r->prompts[i / r->n];
        c->stop_id = -1;
        c->call_at = SIZE_MAX;
        c->bias = r->bias;
        c->bias.allow = r->constraint.n > 0 ? allow : NULL;
        c->bias.ctx = c;
        c->finish = n == 0 ? "length" : NULL;
        c->tokens = take(j->ints, sizeof *j->ints, &used->ints, n, true);
        c->k = k;
        c->best = take(j->ints, sizeof *j->ints, &used->ints, n * k, k > 0);
        c->logprobs = take(j->numbers, sizeof *j->numbers, &used->numbers, n, logprobs);
        c->best_logprobs = take(j->numbers, sizeof *j->numbers, &used->numbers, n * k, k > 0);
        if (n == 0 || !j->units)
            continue;
        j->units[j->n_units++] =
            (struct ax_serve_unit){.job = j,
                                   .choice = c,
                                   .s = {.adapter = r->model->adapter,
                                         .salt = r->salt,
                                         .priority = r->priority,
                                         .n_prompt = c->prompt->n,
                                         .prompt = r->ids.ids + c->prompt->first,
                                         .max_new = n,
                                         .stream = j->stream + (uint64_t)i,
                                         .sampling = &r->sampling,
                                         .bias = ax_bias_acts(&c->bias) ? &c->bias : NULL,
                                         .n_best = k,
                                         .tokens = c->tokens,
                                         .logprobs = c->logprobs,
                                         .best = c->best,
                                         .best_logprobs = c->best_logprobs}};
    }
}

enum ax_status ax_serve_job_prepare(struct ax_serve_job *j) {
    AX_TRY(choose_streams(j));
    return ax_serve_job_lay_out(j);
}

enum ax_status ax_serve_job_lay_out(struct ax_serve_job *j) {
    const struct ax_serve_request *r = &j->r;
    struct room room = {0};
    if (is_seeded(r))
        j->r.sampling.seed = (uint64_t)r->seed;
    j->n_choices = r->n_prompts * r->n;
    AX_TRY(ax_alloc(&j->choices, (size_t)j->n_choices, sizeof *j->choices));
    if ((r->echo && r->logprobs >= 0) || r->prompt_logprobs >= 0)
        AX_TRY(ax_alloc(&j->scores, (size_t)r->n_prompts, sizeof *j->scores));
    lay_out_scores(j, &room);
    lay_out_choices(j, &room);
    j->bytes = (size_t)room.ints * sizeof *j->ints + (size_t)room.numbers * sizeof *j->numbers;
    if (j->bytes > j->engine->most_bytes)
        return ax_serve_refuse(&j->r, "max_tokens",
                               "the answers need %zu MiB of memory together, and %zu are allowed",
                               j->bytes >> 20, j->engine->most_bytes >> 20);
    AX_TRY(ax_alloc(&j->ints, (size_t)room.ints, sizeof *j->ints));
    AX_TRY(ax_alloc(&j->numbers, (size_t)room.numbers, sizeof *j->numbers));
    AX_TRY(ax_alloc(&j->units, (size_t)(j->n_choices + r->n_prompts), sizeof *j->units));
    room = (struct room){0};
    lay_out_scores(j, &room);
    lay_out_choices(j, &room);
    for (int64_t i = 0; i < j->n_choices; i++) {
        struct ax_serve_choice *c = &j->choices[i];
        AX_TRY(
            ax_text_stream_open(&c->stream, j->r.model->side->tokenizer, j->r.stops, j->r.n_stops));
        AX_TRY(ax_serve_place_open(&c->place, &r->constraint));
    }
    return AX_OK;
}

void ax_serve_job_close(void *job) {
    struct ax_serve_job *j = job;
    ax_serve_leave(j);
    for (int64_t i = 0; j->choices && i < j->n_choices; i++) {
        ax_text_stream_close(&j->choices[i].stream);
        ax_buf_free(&j->choices[i].text);
        json_decref(j->choices[i].calls);
        ax_serve_place_close(&j->choices[i].place);
    }
    ax_serve_request_free(&j->r);
    ax_buf_free(&j->body);
    pthread_cond_destroy(&j->changed);
    ax_free(j->choices);
    ax_free(j->scores);
    ax_free(j->units);
    ax_free(j->ints);
    ax_free(j->numbers);
    ax_free(j);
}
