#include "optim/evaluate/answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/term.h"
#include "data/reward/pass_at_k.h"
#include "model/text/turns.h"

/* ---- questions ---- */

/* Tokens [from, to) of the last trained span; false if no token is trained on. */
static bool last_stretch(const struct ax_examples *set, const struct ax_example_ref *ref,
                         uint32_t *from, uint32_t *to) {
    const struct ax_stored *x = &set->list[ref->index];
    const uint32_t *words = ax_examples_words(set, ref->index);
    uint32_t i = ref->n;
    while (i > 0 && ax_word_label(x, words, i - 1) == AX_NO_LABEL)
        i--;
    *to = i;
    while (i > 0 && ax_word_label(x, words, i - 1) != AX_NO_LABEL)
        i--;
    *from = i;
    return *to > *from;
}

void ax_questions_tokens(const struct ax_questions *q, const struct ax_question *one, uint32_t from,
                         uint32_t to, int32_t *out) {
    const uint32_t *words = ax_examples_words(&q->corpus->sets[one->ref.set], one->ref.index);
    for (uint32_t i = from; i < to; i++)
        out[i - from] = ax_word_token(words, i);
}

const char *ax_questions_where(const struct ax_questions *q, const struct ax_question *one,
                               char *buf, size_t size) {
    return ax_examples_where(&q->corpus->sets[one->ref.set], one->ref.index, buf, size);
}

static enum ax_status find_question(struct ax_questions *q, struct ax_question *one, int32_t *ids) {
    struct ax_answer *a = &one->answer;
    struct ax_buf text = {0};
    if (!last_stretch(&q->corpus->sets[one->ref.set], &one->ref, &a->prompt, &a->end) ||
        a->prompt == 0)
        return AX_OK;
    ax_questions_tokens(q, one, a->prompt, a->end, ids);
    enum ax_status st = ax_tokenizer_decode(q->tokenizer, ids, a->end - a->prompt, true, &text);
    if (st == AX_OK && ax_final_answer(text.data ? text.data : "", text.len, a->want))
        q->asked++;
    else
        a->want[0] = '\0';
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_questions_find(struct ax_questions *q) {
    int32_t *ids;
    char where[512];
    AX_TRY(ax_alloc(&ids, (size_t)q->longest, sizeof *ids));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < q->n && st == AX_OK; i++)
        st = find_question(q, &q->list[i], ids);
    ax_free(ids);
    AX_TRY(st);
    if (q->asked > 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: no record ends in a trained answer with \"#### \" before its final "
                    "answer, which --task final-answer needs (is train_on_inputs on?)",
                    ax_questions_where(q, &q->list[0], where, sizeof where));
}

int64_t ax_questions_positions(const struct ax_questions *q) {
    int64_t longest = 0;
    for (size_t i = 0; i < q->n; i++)
        if (q->list[i].answer.want[0] && q->list[i].answer.prompt > longest)
            longest = q->list[i].answer.prompt;
    return longest + q->max_new_tokens;
}

void ax_questions_free(struct ax_questions *q) {
    for (size_t i = 0; q->list && i < q->n; i++) {
        ax_free(q->list[i].answer.text);
        json_decref(q->list[i].answer.messages);
        json_decref(q->list[i].answer.log);
    }
    ax_free(q->list);
}

/* ---- answers of either kind ---- */

/* What is graded. */
struct given {
    struct ax_buf text;
    int64_t tokens; /* sampled ones */
    bool cut;
};

static enum ax_status give(const struct ax_questions *q, const struct ax_sequence *s,
                           struct given *out) {
    *out = (struct given){.tokens = s->n_new, .cut = s->finish == AX_FINISH_LENGTH};
    AX_TRY(ax_tokenizer_decode(q->tokenizer, s->tokens, (size_t)s->n_new, true, &out->text));
    return out->text.data ? AX_OK : ax_buf_puts(&out->text, "");
}

static enum ax_status give_turns(const struct ax_turns_answer *a, struct given *out) {
    *out = (struct given){.tokens = ax_turns_sampled(a), .cut = a->episode.truncated};
    return ax_buf_puts(&out->text, ax_episode_last(a->episode.messages));
}

static struct ax_turns_answer ask_with_tools(const struct ax_questions *q, int64_t n_prompt,
                                             int32_t *ids, bool *inserted, int64_t number) {
    return (struct ax_turns_answer){.rules = q->turns,
                                    .n_prompt = n_prompt,
                                    .cap = q->max_new_tokens,
                                    .ids = ids,
                                    .inserted = inserted,
                                    .stream = (uint64_t)number,
                                    .number = number};
}

/* ---- greedy answers ---- */

/* Groups examples of similar length: a batch costs as much as its longest prompt. */
static int by_prompt(const void *x, const void *y) {
    const struct ax_question *a = *(struct ax_question *const *)x,
                             *b = *(struct ax_question *const *)y;
    if (a->answer.prompt != b->answer.prompt)
        return a->answer.prompt < b->answer.prompt ? 1 : -1;
    return a < b ? -1 : a > b; /* compares positions in one array */
}

/* Takes the text. */
static void note_answer(struct ax_greedy *r, struct ax_answer *a, const struct given *g) {
    ax_free(a->text); /* from the previous adapter */
    a->text = g->text.data;
    a->len = g->text.len;
    a->tokens = g->tokens;
    a->cut = g->cut;
    if (!ax_final_answer(g->text.data, g->text.len, a->got))
        a->got[0] = '\0';
    a->solved = strcmp(a->got, a->want) == 0;
    r->solved += a->solved;
    r->cut += a->cut;
    r->generated += g->tokens;
}

static enum ax_status note_sequence(const struct ax_questions *q, struct ax_greedy *r,
                                    struct ax_question *row, const struct ax_sequence *s) {
    struct given g;
    AX_TRY(give(q, s, &g));
    note_answer(r, &row->answer, &g);
    return AX_OK;
}

static enum ax_status note_turns(struct ax_greedy *r, struct ax_question *row,
                                 const struct ax_turns_answer *t) {
    struct ax_answer *a = &row->answer;
    struct given g;
    AX_TRY(give_turns(t, &g));
    note_answer(r, a, &g);
    json_decref(a->messages);
    json_decref(a->log);
    a->messages = json_incref(t->episode.messages);
    a->log = json_incref(t->episode.log);
    r->calls += t->episode.n_calls;
    r->failed += t->episode.n_failed;
    return AX_OK;
}

struct answer_batch {
    struct ax_sequence *seqs;
    int32_t *ids;                  /* prompts, each followed by its answer */
    struct ax_turns_answer *turns; /* with tools, in place of seqs */
    bool *inserted;                /* [batch][max_new_tokens] */
};

/* The prompt and the answer of the i-th are at ids + i·(longest + max_new_tokens). */
static enum ax_status answer_turns(struct ax_questions *q, struct ax_greedy *r,
                                   struct ax_generator *g, int n, struct ax_question **rows,
                                   const struct answer_batch *b) {
    const int64_t each = rows[0]->answer.prompt + q->max_new_tokens;
    bool stopped = false;
    for (int i = 0; i < n; i++)
        b->turns[i] = ask_with_tools(q, rows[i]->answer.prompt, b->ids + each * i,
                                     b->inserted + q->max_new_tokens * i, rows[i] - q->list);
    enum ax_status st = ax_turns_take(g, q->tools, NULL, n, b->turns, &stopped);
    for (int i = 0; i < n && st == AX_OK; i++)
        st = note_turns(r, rows[i], &b->turns[i]);
    ax_turns_free(b->turns, n);
    return st;
}

static enum ax_status answer_sequences(struct ax_questions *q, struct ax_greedy *r,
                                       struct ax_generator *g, int n, struct ax_question **rows,
                                       const struct answer_batch *b) {
    AX_TRY(ax_generate(g, n, b->seqs));
    for (int i = 0; i < n && !ax_runtime_planning(g->model->rt); i++)
        AX_TRY(note_sequence(q, r, rows[i], &b->seqs[i]));
    return AX_OK;
}

/* Answers one batch, whose first prompt is the longest. */
static enum ax_status answer_batch(struct ax_questions *q, struct ax_greedy *r, struct ax_model *m,
                                   int n, struct ax_question **rows, const struct answer_batch *b) {
    const int64_t longest = rows[0]->answer.prompt;
    const int ranks = m->rt->mesh.size[AX_ROLE_BATCH]; /* which share them */
    const struct ax_generate_options o = {.max_prompt = longest,
                                          .max_new = q->max_new_tokens,
                                          .long_prompts = q->turns != NULL,
                                          .n_seqs = (n + ranks - 1) / ranks,
                                          .n_stop = q->stop.n,
                                          .stop = q->stop.ids};
    struct ax_generator g;
    for (int i = 0; i < n; i++) {
        int32_t *prompt = b->ids + (longest + q->max_new_tokens) * i;
        ax_questions_tokens(q, rows[i], 0, rows[i]->answer.prompt, prompt);
        b->seqs[i] = (struct ax_sequence){
            .n_prompt = rows[i]->answer.prompt, .prompt = prompt, .tokens = prompt + longest};
    }
    AX_TRY(ax_generator_create(&g, m, &o));
    const enum ax_status st = q->turns && !ax_runtime_planning(m->rt)
                                  ? answer_turns(q, r, &g, n, rows, b)
                                  : answer_sequences(q, r, &g, n, rows, b);
    ax_generator_free(&g);
    return st;
}

static enum ax_status answer_greedily(struct ax_questions *q, struct ax_greedy *r,
                                      struct ax_model *m, struct ax_question **rows,
                                      const struct answer_batch *b) {
    const bool planning = ax_runtime_planning(m->rt);
    for (int64_t at = 0; at < q->asked; at += q->batch) {
        const int64_t left = q->asked - at, n = left < q->batch ? left : q->batch;
        AX_TRY(answer_batch(q, r, m, (int)n, rows + at, b));
        if (!planning)
            ax_term_progress("answers", at + n, q->asked);
    }
    return AX_OK;
}

enum ax_status ax_questions_solve(struct ax_questions *q, struct ax_model *m, struct ax_greedy *r) {
    struct ax_question **rows = NULL;
    struct answer_batch b = {0};
    const double start = ax_clock_now();
    const size_t per_seq = (size_t)ax_questions_positions(q), n = (size_t)q->batch;
    size_t k = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&rows, (size_t)q->asked, sizeof(struct ax_question *)), st, done);
    AX_TRY_GOTO(ax_alloc(&b.seqs, n, sizeof *b.seqs), st, done);
    AX_TRY_GOTO(ax_alloc(&b.ids, n * per_seq, sizeof *b.ids), st, done);
    if (q->turns) {
        AX_TRY_GOTO(ax_alloc(&b.turns, n, sizeof *b.turns), st, done);
        AX_TRY_GOTO(ax_alloc(&b.inserted, n * (size_t)q->max_new_tokens, sizeof *b.inserted), st,
                    done);
    }
    for (size_t i = 0; i < q->n; i++)
        if (q->list[i].answer.want[0])
            rows[k++] = &q->list[i];
    qsort(rows, k, sizeof(struct ax_question *), by_prompt);
    st = answer_greedily(q, r, m, rows, &b);
done:
    r->seconds = ax_clock_now() - start;
    ax_free(rows);
    ax_free(b.seqs);
    ax_free(b.ids);
    ax_free(b.turns);
    ax_free(b.inserted);
    return st;
}

/* ---- sampled answers ---- */

/* Sequences passed to the generator per call: far more than its lanes. Questions go through one generator
 * in chunks; the samples of one are adjacent, so that they share the keys and values of its prompt. */
#define CHUNK 1024

struct sampling {
    struct ax_questions *q;
    const struct ax_sampled_options *o;
    struct ax_sampled *result;
    struct ax_sequence *seqs;      /* of a chunk; while planning, or without tools */
    struct ax_question **asked;    /* the row of each sequence */
    int32_t *prompts;              /* [rows of a chunk][longest] */
    int32_t *tokens;               /* [sequences of a chunk][max_new] */
    struct ax_turns_answer *turns; /* with tools, in place of seqs */
    int32_t *ids;                  /* [sequences of a chunk][longest + max_new] of turns */
    bool *inserted;                /* [sequences of a chunk][max_new] */
    int64_t longest;
    int64_t done;
};

/* Grades the i-th answer of a chunk; takes the text. */
static void grade(struct sampling *g, int64_t i, struct given *given) {
    struct ax_answer *a = &g->asked[i]->answer;
    struct ax_buf *text = &given->text;
    char got[AX_FINAL_ANSWER_MAX];
    if (!ax_final_answer(text->data, text->len, got))
        got[0] = '\0';
    const bool right = strcmp(got, a->want) == 0;
    if (a->samples) {
        struct ax_answer_sample *kept = &a->samples[i % g->o->samples];
        *kept = (struct ax_answer_sample){.text = text->data, .len = text->len, .right = right};
        memcpy(kept->got, got, sizeof got);
    } else {
        ax_buf_free(text);
    }
    a->correct += right;
    g->result->correct += right;
    g->result->cut += given->cut;
    g->result->generated += given->tokens;
    ax_term_progress("answers", ++g->done, g->q->asked * g->o->samples);
}

static enum ax_status grade_sequence(void *ctx, struct ax_sequence *s) {
    struct sampling *g = ctx;
    struct given given;
    AX_TRY(give(g->q, s, &given));
    grade(g, s - g->seqs, &given);
    return AX_OK;
}

static enum ax_status grade_turns(struct sampling *g, int64_t i) {
    struct given given;
    AX_TRY(give_turns(&g->turns[i], &given));
    grade(g, i, &given);
    g->result->calls += g->turns[i].episode.n_calls;
    g->result->failed += g->turns[i].episode.n_failed;
    return AX_OK;
}

/* Adds record i as sequences. Its streams are i·samples …, independent of the other records. */
static void ask(struct sampling *g, size_t i, int64_t in_chunk) {
    struct ax_questions *q = g->q;
    struct ax_question *row = &q->list[i];
    const int64_t samples = g->o->samples;
    int32_t *prompt = g->prompts + in_chunk * g->longest;
    ax_questions_tokens(q, row, 0, row->answer.prompt, prompt);
    for (int64_t k = 0; k < samples; k++) {
        const int64_t at = in_chunk * samples + k, number = (int64_t)i * samples + k;
        g->asked[at] = row;
        if (g->turns) {
            int32_t *ids = g->ids + at * (g->longest + q->max_new_tokens);
            memcpy(ids, prompt, row->answer.prompt * sizeof *ids);
            g->turns[at] = ask_with_tools(q, row->answer.prompt, ids,
                                          g->inserted + at * q->max_new_tokens, number);
            continue;
        }
        g->seqs[at] = (struct ax_sequence){.n_prompt = row->answer.prompt,
                                           .prompt = prompt,
                                           .stream = (uint64_t)number,
                                           .tokens = g->tokens + at * q->max_new_tokens};
    }
}

static enum ax_status take_chunk(struct sampling *g, struct ax_generator *d, int64_t n) {
    bool stopped = false;
    if (!g->turns)
        return ax_generate(d, n, g->seqs);
    enum ax_status st = ax_turns_take(d, g->q->tools, NULL, n, g->turns, &stopped);
    for (int64_t i = 0; i < n && st == AX_OK; i++)
        st = grade_turns(g, i);
    ax_turns_free(g->turns, n);
    return st;
}

static enum ax_status sample_all(struct sampling *g, struct ax_generator *d, int64_t rows) {
    struct ax_questions *q = g->q;
    int64_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        if (!q->list[i].answer.want[0])
            continue;
        ask(g, i, n++);
        if (n < rows)
            continue;
        AX_TRY(take_chunk(g, d, n * g->o->samples));
        n = 0;
    }
    return take_chunk(g, d, n * g->o->samples);
}

static enum ax_status sample_with(struct sampling *g, struct ax_model *m, int64_t rows) {
    struct ax_questions *q = g->q;
    const int64_t n = rows * g->o->samples;
    const struct ax_generate_options o = {.n_seqs = (int)(n < q->batch ? n : q->batch),
                                          .max_prompt = g->longest,
                                          .max_new = q->max_new_tokens,
                                          .long_prompts = q->turns != NULL,
                                          .n_stop = q->stop.n,
                                          .stop = q->stop.ids,
                                          .sampling = g->o->sampling,
                                          .done = g->turns ? NULL : grade_sequence,
                                          .ctx = g};
    struct ax_generator d;
    AX_TRY(ax_generator_create(&d, m, &o));
    const enum ax_status st = sample_all(g, &d, rows);
    ax_generator_free(&d);
    return st;
}

static void sum_up(const struct ax_questions *q, const struct ax_sampled_options *o,
                   struct ax_sampled *p) {
    for (size_t i = 0; i < q->n; i++)
        for (int k = 0; k < o->n_at && q->list[i].answer.want[0]; k++)
            p->at[k] +=
                ax_pass_at_k(o->samples, q->list[i].answer.correct, o->at[k]) / (double)q->asked;
}

/* Memory for n answers; a plan is the same with tools. */
static enum ax_status alloc_answers(struct sampling *g, const struct ax_model *m, size_t n) {
    const size_t max_new = (size_t)g->q->max_new_tokens;
    if (!g->q->turns || ax_runtime_planning(m->rt)) {
        AX_TRY(ax_alloc(&g->seqs, n, sizeof *g->seqs));
        return ax_alloc(&g->tokens, n * max_new, sizeof *g->tokens);
    }
    AX_TRY(ax_alloc(&g->turns, n, sizeof *g->turns));
    AX_TRY(ax_alloc(&g->ids, n * ((size_t)g->longest + max_new), sizeof *g->ids));
    return ax_alloc(&g->inserted, n * max_new, sizeof *g->inserted);
}

enum ax_status ax_questions_sample(struct ax_questions *q, const struct ax_sampled_options *o,
                                   struct ax_model *m, struct ax_sampled *p) {
    const int64_t samples = o->samples;
    const int64_t most = samples < CHUNK ? CHUNK / samples : 1;
    const int64_t rows = q->asked < most ? q->asked : most;
    const size_t n = (size_t)(rows * samples);
    struct sampling g = {
        .q = q, .o = o, .result = p, .longest = ax_questions_positions(q) - q->max_new_tokens};
    const double start = ax_clock_now();
    enum ax_status st;
    *p = (struct ax_sampled){0};
    for (size_t i = 0; i < q->n; i++)
        q->list[i].answer.correct = 0;
    AX_TRY_GOTO(alloc_answers(&g, m, n), st, done);
    AX_TRY_GOTO(ax_alloc(&g.asked, n, sizeof(struct ax_question *)), st, done);
    AX_TRY_GOTO(ax_alloc(&g.prompts, (size_t)rows * (size_t)g.longest, sizeof *g.prompts), st,
                done);
    st = sample_with(&g, m, rows);
    if (st == AX_OK && !ax_runtime_planning(m->rt))
        sum_up(q, o, p);
done:
    p->seconds = ax_clock_now() - start;
    ax_free(g.seqs);
    ax_free(g.asked);
    ax_free(g.prompts);
    ax_free(g.tokens);
    ax_free(g.turns);
    ax_free(g.ids);
    ax_free(g.inserted);
    return st;
}

size_t ax_answer_vote(const struct ax_answer_sample *s, size_t n) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t votes = 0;
        for (size_t k = 0; k < n && s[i].got[0]; k++)
            votes += strcmp(s[i].got, s[k].got) == 0;
        if (votes > most) {
            most = votes;
            best = i;
        }
    }
    return best;
}
