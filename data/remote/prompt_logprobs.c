#include "data/remote/prompt_logprobs.h"

#include <math.h>
#include <stdlib.h>

/* Rounding may lift a log-prob above 0, and a sum of probabilities above 1, by about this. */
#define SLACK 1e-3

struct entry {
    int32_t id;
    double logprob;
};

/* Where in the answer. */
struct place {
    int64_t choice, token;
};

#define WHERE     "choices[%lld].prompt_logprobs[%lld]: "
#define AT(place) (long long)(place).choice, (long long)(place).token

/* The likeliest first; of equal ones that with the lower id, so that the order does not depend on the server's. */
static int by_logprob(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->logprob != y->logprob ? (x->logprob < y->logprob) - (x->logprob > y->logprob)
                                    : (x->id > y->id) - (x->id < y->id);
}

static enum ax_status read_id(struct place at, const char *text, int64_t vocab, int32_t *id) {
    int64_t value = 0;
    int digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 10; digits++)
        value = value * 10 + (text[digits] - '0');
    if (digits == 0 || text[digits])
        return ax_error(AX_ERR_DATA, WHERE "expected ids of tokens as keys, got \"%.40s\"", AT(at),
                        text);
    if (value >= vocab)
        return ax_error(AX_ERR_DATA,
                        WHERE
                        "token %lld is not in the model's vocabulary of %lld: is it a teacher "
                        "with another one?",
                        AT(at), (long long)value, (long long)vocab);
    *id = (int32_t)value;
    return AX_OK;
}

static enum ax_status read_logprob(struct place at, const json_t *v, double *logprob) {
    const json_t *x = json_is_object(v) ? json_object_get(v, "logprob") : v;
    *logprob = json_number_value(x);
    if (!json_is_number(x) || !isfinite(*logprob) || *logprob > SLACK)
        return ax_error(AX_ERR_DATA, WHERE "expected a log-prob, a number up to 0", AT(at));
    return AX_OK;
}

/* All entries of a place, of which there may be one more than the likeliest: the text's own token. *own: its number. */
static enum ax_status read_entries(struct place at, json_t *table, int k, int64_t vocab, int32_t id,
                                   struct entry *entries, int *n, int *own) {
    const char *key;
    json_t *v;
    *n = 0;
    *own = -1;
    if (!json_is_object(table))
        return ax_error(AX_ERR_DATA, WHERE "expected an object of log-probs", AT(at));
    if (json_object_size(table) > (size_t)k + 1)
        return ax_error(AX_ERR_DATA, WHERE "expected at most %d log-probs, got %zu", AT(at), k + 1,
                        json_object_size(table));
    json_object_foreach(table, key, v) {
        struct entry *e = &entries[*n];
        AX_TRY(read_id(at, key, vocab, &e->id));
        AX_TRY(read_logprob(at, v, &e->logprob));
        *own = e->id == id ? *n : *own;
        ++*n;
    }
    return *own >= 0 ? AX_OK
                     : ax_error(AX_ERR_DATA, WHERE "there is no log-prob of the prompt's token %d",
                                AT(at), id);
}

static enum ax_status check_sum(struct place at, const struct entry *entries, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(entries[i].logprob);
    return sum <= 1 + SLACK
               ? AX_OK
               : ax_error(AX_ERR_DATA, WHERE "the probabilities add up to %g", AT(at), sum);
}

/* A token's place of a text. */
static enum ax_status read_place(struct place at, json_t *table, int k, int64_t vocab,
                                 const struct ax_remote_text *text) {
    struct entry entries[AX_REMOTE_LIKELIEST_MAX + 1];
    const int64_t i = at.token - text->first;
    int n, own;
    AX_TRY(read_entries(at, table, k, vocab, text->ids[at.token], entries, &n, &own));
    text->logprobs[i] = entries[own].logprob;
    AX_TRY(check_sum(at, entries, n));
    if (n > k)
        entries[own] = entries[--n];
    if (n < k)
        return ax_error(AX_ERR_DATA,
                        WHERE "expected %d log-probs, got %d: the server gives no more (vLLM: "
                              "--max-logprobs)",
                        AT(at), k, n);
    qsort(entries, (size_t)n, sizeof *entries, by_logprob);
    for (int j = 0; j < k; j++) {
        text->best[i * k + j] = entries[j].id;
        text->best_logprobs[i * k + j] = entries[j].logprob;
    }
    return AX_OK;
}

static enum ax_status read_choice(const json_t *choice, int k, int64_t vocab, int64_t number,
                                  const struct ax_remote_text *text) {
    const json_t *list = json_object_get(choice, "prompt_logprobs");
    if (!json_is_array(list) || (int64_t)json_array_size(list) != text->n)
        return ax_error(
            AX_ERR_DATA,
            "choices[%lld].prompt_logprobs: expected a list of %lld, one for each of the "
            "prompt's tokens, got %s",
            (long long)number, (long long)text->n, json_is_array(list) ? "another number" : "none");
    for (int64_t t = text->first; t < text->n; t++)
        AX_TRY(
            read_place((struct place){number, t}, json_array_get(list, (size_t)t), k, vocab, text));
    return AX_OK;
}

/* The choice of a text; servers may answer in any order. */
static const json_t *find_choice(const json_t *choices, int64_t index) {
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *choice = json_array_get(choices, i), *own = json_object_get(choice, "index");
        if (json_is_integer(own) && json_integer_value(own) == index)
            return choice;
    }
    return NULL;
}

enum ax_status ax_prompt_logprobs_read(const json_t *answer, int k, int64_t vocab, int64_t n,
                                       const struct ax_remote_text *texts) {
    const json_t *choices = json_object_get(answer, "choices");
    if ((int64_t)json_array_size(choices) != n)
        return ax_error(AX_ERR_DATA, "choices: expected %lld, one for each prompt, got %zu",
                        (long long)n, json_array_size(choices));
    for (int64_t i = 0; i < n; i++) {
        const json_t *choice = find_choice(choices, i);
        if (!choice)
            return ax_error(AX_ERR_DATA, "choices: none has the index %lld", (long long)i);
        AX_TRY(read_choice(choice, k, vocab, i, &texts[i]));
    }
    return AX_OK;
}
