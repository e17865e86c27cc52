/* Reads requests: a table of keys first, then what needs more than a range. messages.c has conversations. */
#include "cmd/serve/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/text/json.h"
#include "data/text/tokenizer/encode.h"

/* ---- the keys ---- */

enum kind {
    INT,     /* from min to max */
    REAL,    /* likewise */
    BOOL,    /* true or false */
    IGNORED, /* changes no answer */
    ONLY,    /* one of a few values, which ask for nothing that is not done */
    OWN,     /* read by a function below, or of another key */
};
enum {
    CHAT = AX_SERVE_CHAT,
    COMPLETION = AX_SERVE_COMPLETION,
    BOTH = CHAT | COMPLETION,
    CHAT_IDS = CHAT | AX_SERVE_TOKENIZE,
    TEXT_IDS = COMPLETION | AX_SERVE_TOKENIZE,
    ALL = BOTH | AX_SERVE_TOKENIZE | AX_SERVE_DETOKENIZE
};

struct key {
    const char *name;
    int where;
    enum kind kind;
    size_t at;
    double min, max;
    const char *values; /* ONLY: JSON, separated by blanks */
};
#define AT(member) offsetof(struct ax_serve_request, member)
#define MOST       ((double)((int64_t)1 << 53))

static const struct key keys[] = {
    {"model", ALL, OWN, 0, 0, 0, NULL},
    {"messages", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"prompt", TEXT_IDS, OWN, 0, 0, 0, NULL},
    {"stop", BOTH, OWN, 0, 0, 0, NULL},
    {"stop_token_ids", BOTH, OWN, 0, 0, 0, NULL},
    {"stream_options", BOTH, OWN, 0, 0, 0, NULL},
    {"seed", BOTH, OWN, 0, 0, 0, NULL},
    {"stream", BOTH, BOOL, AT(stream), 0, 0, NULL},
    {"echo", COMPLETION, BOOL, AT(echo), 0, 0, NULL},
    {"max_tokens", BOTH, INT, AT(max_tokens), 0, MOST, NULL},
    {"max_completion_tokens", CHAT, INT, AT(max_completion_tokens), 1, MOST, NULL},
    {"n", BOTH, INT, AT(n), 1, AX_SERVE_SAMPLES, NULL},
    {"best_of", COMPLETION, INT, AT(best_of), 1, AX_SERVE_SAMPLES, NULL},
    {"temperature", BOTH, REAL, AT(temperature), 0, 100, NULL},
    {"top_p", BOTH, REAL, AT(top_p), 0, 1, NULL},
    {"min_p", BOTH, REAL, AT(min_p), 0, 1, NULL},
    {"top_k", BOTH, INT, AT(top_k), -1, INT32_MAX, NULL},
    {"repetition_penalty", BOTH, REAL, AT(repetition_penalty), 0.01, 100, NULL},
    {"logprobs", CHAT, BOOL, AT(logprobs_asked), 0, 0, NULL},
    {"top_logprobs", CHAT, INT, AT(logprobs), 0, AX_LIKELIEST_MAX, NULL},
    {"logprobs", COMPLETION, INT, AT(logprobs), 0, AX_LIKELIEST_MAX, NULL},
    {"prompt_logprobs", BOTH, INT, AT(prompt_logprobs), 0, AX_LIKELIEST_MAX, NULL},
    {"presence_penalty", BOTH, REAL, AT(bias.presence), -2, 2, NULL},
    {"frequency_penalty", BOTH, REAL, AT(bias.frequency), -2, 2, NULL},
    {"min_tokens", BOTH, INT, AT(bias.min_new), 0, MOST, NULL},
    {"logit_bias", BOTH, OWN, 0, 0, 0, NULL},
    {"return_token_ids", BOTH, BOOL, AT(return_ids), 0, 0, NULL},
    {"return_tokens_as_token_ids", BOTH, BOOL, AT(ids_as_text), 0, 0, NULL},
    {"include_stop_str_in_output", BOTH, BOOL, AT(include_stop), 0, 0, NULL},
    {"ignore_eos", BOTH, BOOL, AT(ignore_eos), 0, 0, NULL},
    {"add_special_tokens", TEXT_IDS, BOOL, AT(add_special), 0, 0, NULL},
    {"priority", BOTH, INT, AT(priority), -MOST, MOST, NULL},
    {"return_token_strs", AX_SERVE_TOKENIZE, ONLY, 0, 0, 0, "false"},
    {"tokens", AX_SERVE_DETOKENIZE, OWN, 0, 0, 0, NULL},
    {"request_id", BOTH, OWN, 0, 0, 0, NULL},
    {"cache_salt", BOTH, OWN, 0, 0, 0, NULL},
    {"user", ALL, IGNORED, 0, 0, 0, NULL},
    {"metadata", ALL, IGNORED, 0, 0, 0, NULL},
    {"store", ALL, IGNORED, 0, 0, 0, NULL},
    {"service_tier", ALL, IGNORED, 0, 0, 0, NULL},
    {"session_id", ALL, IGNORED, 0, 0, 0, NULL},
    {"safety_identifier", ALL, IGNORED, 0, 0, 0, NULL},
    {"prompt_cache_key", ALL, IGNORED, 0, 0, 0, NULL},
    {"parallel_tool_calls", CHAT, BOOL, AT(parallel_calls), 0, 0, NULL},
    {"skip_special_tokens", BOTH, ONLY, 0, 0, 0, "true"},
    {"spaces_between_special_tokens", BOTH, ONLY, 0, 0, 0, "true"},
    {"logprobs_mode", BOTH, ONLY, 0, 0, 0, "\"raw\""},
    {"suffix", COMPLETION, ONLY, 0, 0, 0, "\"\""},
    {"tools", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"tool_choice", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"functions", CHAT, ONLY, 0, 0, 0, "[]"},
    {"function_call", CHAT, ONLY, 0, 0, 0, "\"none\" \"auto\""},
    {"response_format", BOTH, OWN, 0, 0, 0, NULL},
    {"structured_outputs", BOTH, OWN, 0, 0, 0, NULL},
    {"guided_json", BOTH, OWN, 0, 0, 0, NULL},
    {"guided_regex", BOTH, OWN, 0, 0, 0, NULL},
    {"guided_choice", BOTH, OWN, 0, 0, 0, NULL},
    {"guided_grammar", BOTH, ONLY, 0, 0, 0, ""},
    {"chat_template", CHAT_IDS, ONLY, 0, 0, 0, ""},
    {"chat_template_kwargs", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"reasoning_effort", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"add_generation_prompt", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"continue_final_message", CHAT_IDS, OWN, 0, 0, 0, NULL},
    {"modalities", CHAT, ONLY, 0, 0, 0, "[\"text\"]"},
    {"audio", CHAT, ONLY, 0, 0, 0, ""},
    {"prediction", CHAT, ONLY, 0, 0, 0, ""},
    {"web_search_options", CHAT, ONLY, 0, 0, 0, ""},
};
#define N_KEYS (sizeof keys / sizeof *keys)

static bool is_among(const char *values, const char *text) {
    const size_t n = strlen(text);
    for (const char *at = values; (at = strstr(at, text)) != NULL; at++)
        if ((at == values || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return n > 0;
    return false;
}

static enum ax_status read_only(struct ax_serve_request *r, const struct key *k, const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a request");
    const bool fine = is_among(k->values, text);
    ax_free_hook(text);
    if (fine)
        return AX_OK;
    return ax_serve_refuse(r, k->name, "not supported yet%s%s; leave it out",
                           k->values[0] ? ", other than " : "", k->values);
}

static enum ax_status read_number(struct ax_serve_request *r, const struct key *k,
                                  const json_t *v) {
    const bool fits = k->kind == INT ? json_is_integer(v) : json_is_number(v);
    const double x = json_number_value(v);
    void *to = (char *)r + k->at;
    if (!fits || !(x >= k->min && x <= k->max))
        return ax_serve_refuse(r, k->name, "expected %s from %.16g to %.16g",
                               k->kind == INT ? "an integer" : "a number", k->min, k->max);
    if (k->kind == INT)
        *(int64_t *)to = json_integer_value(v);
    else
        *(double *)to = x;
    return AX_OK;
}

static enum ax_status read_key(struct ax_serve_request *r, const struct key *k, const json_t *v) {
    switch (k->kind) {
    case INT:
    case REAL:
        return read_number(r, k, v);
    case BOOL:
        if (!json_is_boolean(v))
            return ax_serve_refuse(r, k->name, "expected true or false");
        *(bool *)((char *)r + k->at) = json_is_true(v);
        return AX_OK;
    case ONLY:
        return read_only(r, k, v);
    default:
        return AX_OK;
    }
}

/* The key of that name on one of the routes; NULL: they have none. */
static const struct key *find_key(const char *name, int where) {
    for (size_t i = 0; i < N_KEYS; i++)
        if ((keys[i].where & where) && strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

/* Names of llama.cpp, ollama and transformers. */
static const struct {
    const char *name, *ours;
} others[] = {{"n_predict", "max_tokens"},        {"num_predict", "max_tokens"},
              {"max_new_tokens", "max_tokens"},   {"repeat_penalty", "repetition_penalty"},
              {"num_return_sequences", "n"},      {"stop_strings", "stop"},
              {"json_schema", "response_format"}, {"extra_body", "the keys in it, one by one"}};

static enum ax_status refuse_unknown(struct ax_serve_request *r, int where, const char *name) {
    struct ax_nearest near = {.given = name, .within = 4};
    char shown[48];
    snprintf(shown, sizeof shown, "%s", name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0)
            return ax_serve_refuse(r, shown, "no such key; write %s", others[i].ours);
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].where & where)
            ax_nearest_try(&near, keys[i].name);
    return ax_serve_refuse(r, shown, "no such key%s%s%s", near.name ? "; did you mean " : "",
                           near.name ? near.name : "", near.name ? "?" : "");
}

enum ax_status ax_serve_read_keys(struct ax_serve_request *r, enum ax_serve_route where) {
    const char *name;
    json_t *v;
    json_object_foreach(r->root, name, v) {
        const struct key *k = find_key(name, (int)where);
        if (!k && where == AX_SERVE_TOKENIZE && find_key(name, BOTH))
            continue; /* the body that asks for an answer */
        if (!k)
            return refuse_unknown(r, (int)where, name);
        if (!json_is_null(v))
            AX_TRY(read_key(r, k, v));
    }
    return AX_OK;
}

/* NULL: absent, or null. */
static json_t *get(const struct ax_serve_request *r, const char *name) {
    json_t *v = json_object_get(r->root, name);
    return json_is_null(v) ? NULL : v;
}

/* ---- keys that need more ---- */

enum ax_status ax_serve_read_model(struct ax_serve_request *r, struct ax_serve_models *all) {
    const json_t *v = get(r, "model");
    const char *name = json_string_value(v);
    char why[800];
    if (v && !name)
        return ax_serve_refuse(r, "model", "expected text");
    r->models = all;
    if (ax_serve_models_take(all, name, &r->model) == AX_OK)
        return AX_OK;
    r->status = 404;
    r->code = "model_not_found";
    snprintf(why, sizeof why, "%s", ax_error_text());
    return ax_serve_refuse(r, "model", "%s", why);
}

static enum ax_status add_stop(struct ax_serve_request *r, const json_t *v) {
    const char *text = json_string_value(v);
    if (!text || text[0] == '\0' || strlen(text) != json_string_length(v))
        return ax_serve_refuse(r, "stop", "expected a text, not empty and without NUL, or a list");
    if (r->n_stops == AX_SERVE_STOPS)
        return ax_serve_refuse(r, "stop", "at most %d texts are supported", AX_SERVE_STOPS);
    r->stops[r->n_stops++] = text;
    return AX_OK;
}

static enum ax_status read_stop(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const json_t *v = get(r, "stop");
    for (int i = 0; !v && i < m->stop->n; i++)
        r->stops[r->n_stops++] = m->stop->text[i];
    if (v && !json_is_array(v))
        return add_stop(r, v);
    for (size_t i = 0; i < json_array_size(v); i++)
        AX_TRY(add_stop(r, json_array_get(v, i)));
    return AX_OK;
}

static enum ax_status read_id(struct ax_serve_request *r, const struct ax_serve_model *m,
                              const char *param, const json_t *v, int32_t *id) {
    const json_int_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < 0 || x >= m->vocab_size)
        return ax_serve_refuse(r, param, "expected token ids from 0 to %lld",
                               (long long)m->vocab_size - 1);
    *id = (int32_t)x;
    return AX_OK;
}

static enum ax_status read_stop_ids(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const json_t *v = get(r, "stop_token_ids");
    if (v && (!json_is_array(v) || json_array_size(v) > AX_SERVE_STOP_IDS))
        return ax_serve_refuse(r, "stop_token_ids", "expected a list of up to %d ids",
                               AX_SERVE_STOP_IDS);
    for (size_t i = 0; i < json_array_size(v); i++)
        AX_TRY(
            read_id(r, m, "stop_token_ids", json_array_get(v, i), &r->stop_ids[r->n_stop_ids++]));
    return AX_OK;
}

static enum ax_status read_stream_options(struct ax_serve_request *r) {
    const json_t *v = get(r, "stream_options"), *usage;
    const char *name;
    json_t *item;
    if (!v)
        return AX_OK;
    if (!json_is_object(v) || !r->stream)
        return ax_serve_refuse(r, "stream_options", "expected an object, with \"stream\": true");
    json_object_foreach((json_t *)(uintptr_t)v, name, item) {
        if (strcmp(name, "include_usage") != 0 && !json_is_false(item) && !json_is_null(item))
            return ax_serve_refuse(r, "stream_options", "only include_usage is supported");
    }
    usage = json_object_get(v, "include_usage");
    if (usage && !json_is_boolean(usage))
        return ax_serve_refuse(r, "stream_options", "include_usage: expected true or false");
    r->include_usage = json_is_true(usage);
    return AX_OK;
}

/* What tells requests apart: their ids, and whose prompts may be shared. */
static enum ax_status read_names(struct ax_serve_request *r) {
    const json_t *id = get(r, "request_id"), *salt = get(r, "cache_salt");
    const size_t n = json_string_length(id);
    if (id &&
        (!json_is_string(id) || n == 0 || n > AX_SERVE_ID || strlen(json_string_value(id)) != n))
        return ax_serve_refuse(r, "request_id", "expected a text of up to %d bytes", AX_SERVE_ID);
    if (salt && json_string_length(salt) == 0)
        return ax_serve_refuse(r, "cache_salt", "expected a text, not empty");
    r->request_id = json_string_value(id);
    if (salt)
        r->salt = ax_hash64(json_string_value(salt), json_string_length(salt), 1);
    return AX_OK;
}

static enum ax_status read_sampling(struct ax_serve_request *r) {
    const json_t *seed = get(r, "seed");
    if (seed && !json_is_integer(seed))
        return ax_serve_refuse(r, "seed", "expected an integer");
    r->seeded = seed != NULL;
    r->seed = json_integer_value(seed);
    r->sampling = (struct ax_sampling){
        .temperature = r->temperature, .repetition_penalty = r->repetition_penalty, .raw = true};
    if (r->temperature == 0)
        return AX_OK;
    r->sampling.top_k = r->top_k > 0 ? r->top_k : 0;
    r->sampling.top_p = ax_given_top_p(r->top_p);
    r->sampling.min_p = r->min_p;
    return AX_OK;
}

/* ---- prompts ---- */

static enum ax_status add_prompt(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 size_t first, const json_t *text) {
    const char *param = r->chat ? "messages" : "prompt";
    if (r->ids.n == first)
        return ax_serve_refuse(r, param, "there are no tokens in it");
    AX_TRY(ax_serve_check_ids(r, m, param, r->ids.ids + first, r->ids.n - first));
    r->prompts[r->n_prompts++] = (struct ax_serve_prompt){
        .first = (int64_t)first, .n = (int64_t)(r->ids.n - first), .text = text};
    return AX_OK;
}

enum ax_status ax_serve_read_text(struct ax_serve_request *r, const struct ax_serve_model *m,
                                  const json_t *text) {
    const struct ax_encode_options plain = {0};
    const size_t n = json_string_length(text);
    return r->add_special ? ax_text_side_encode(m->side, json_string_value(text), n, &r->ids)
                          : ax_tokenizer_encode(m->side->tokenizer, json_string_value(text), n,
                                                &plain, &r->ids);
}

enum ax_status ax_serve_read_ids(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 const char *param, const json_t *ids) {
    const size_t more = json_array_size(ids);
    if (r->ids.n + more > r->ids.cap) {
        AX_TRY(ax_regrow(&r->ids.ids, r->ids.cap, r->ids.n + more, sizeof *r->ids.ids));
        r->ids.cap = r->ids.n + more;
    }
    for (size_t i = 0; i < more; i++)
        AX_TRY(read_id(r, m, param, json_array_get(ids, i), &r->ids.ids[r->ids.n++]));
    return AX_OK;
}

static enum ax_status read_prompt(struct ax_serve_request *r, const struct ax_serve_model *m,
                                  const json_t *v) {
    const size_t first = r->ids.n;
    if (json_is_string(v))
        AX_TRY(ax_serve_read_text(r, m, v));
    else if (json_is_array(v))
        AX_TRY(ax_serve_read_ids(r, m, "prompt", v));
    else
        return ax_serve_refuse(r, "prompt",
                               "expected a text, a list of texts, a list of token ids, "
                               "or a list of such lists");
    return add_prompt(r, m, first, json_is_string(v) ? v : NULL);
}

static enum ax_status read_prompts(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const json_t *v = get(r, "prompt");
    if (!v)
        return ax_serve_refuse(r, "prompt", "it is missing");
    const bool many = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    const size_t n = many ? json_array_size(v) : 1;
    if (n < 1 || n > AX_SERVE_PROMPTS)
        return ax_serve_refuse(r, "prompt", "expected 1 to %d prompts, got %zu", AX_SERVE_PROMPTS,
                               n);
    AX_TRY(ax_alloc(&r->prompts, n, sizeof *r->prompts));
    for (size_t i = 0; i < n; i++)
        AX_TRY(read_prompt(r, m, many ? json_array_get(v, i) : v));
    return AX_OK;
}

static enum ax_status read_chat(struct ax_serve_request *r, const struct ax_serve_model *m) {
    AX_TRY(ax_alloc(&r->prompts, 1, sizeof *r->prompts));
    AX_TRY(ax_serve_read_tools(r, m));
    AX_TRY(ax_serve_read_messages(r, m, get(r, "messages")));
    return add_prompt(r, m, 0, NULL);
}

/* The prompts that another rank has read. */
static enum ax_status take_given(struct ax_serve_request *r, const struct ax_serve_body *b) {
    int64_t first = 0;
    r->ids.n = 0;
    AX_TRY(ax_encoding_reserve(&r->ids, b->n_ids, false));
    memcpy(r->ids.ids, b->ids, b->n_ids * sizeof *r->ids.ids);
    r->ids.n = b->n_ids;
    for (size_t i = 0; i < b->n_prompts && b->n_prompts == (size_t)r->n_prompts; i++) {
        struct ax_serve_prompt *p = &r->prompts[i];
        memcpy(&p->n, b->lengths + i * sizeof p->n, sizeof p->n);
        p->first = first;
        if (p->n < 1 || p->n > (int64_t)b->n_ids - first)
            break;
        first += p->n;
    }
    return first == (int64_t)b->n_ids
               ? AX_OK
               : ax_error(AX_ERR_PEER, "rank 0 reads other prompts in it; all ranks need the same "
                                       "model folder");
}

/* ---- what changes logits ---- */

#define MOST_BIAS 100 /* as in the protocol */

/* A token's id is the key of an object, and so a text. */
static enum ax_status read_entry(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 const char *name, const json_t *v) {
    char *end;
    const double x = json_number_value(v);
    const size_t n = strlen(name);
    json_t *id = n > 0 && n < 10 && strspn(name, "0123456789") == n
                     ? json_integer(strtol(name, &end, 10))
                     : NULL;
    const enum ax_status st = read_id(r, m, "logit_bias", id, &r->biased[r->bias.n]);
    json_decref(id);
    AX_TRY(st);
    if (!json_is_number(v) || !(x >= -MOST_BIAS && x <= MOST_BIAS))
        return ax_serve_refuse(r, "logit_bias", "expected numbers from -%d to %d", MOST_BIAS,
                               MOST_BIAS);
    r->biases[r->bias.n++] = (float)x;
    return AX_OK;
}

static enum ax_status read_logit_bias(struct ax_serve_request *r, const struct ax_serve_model *m) {
    json_t *v = json_object_get(r->root, "logit_bias"), *item;
    const char *name;
    const size_t n = json_object_size(v);
    if (!v || json_is_null(v))
        return AX_OK;
    if (!json_is_object(v) || n > AX_SERVE_BIASES)
        return ax_serve_refuse(r, "logit_bias", "expected an object of up to %d token ids",
                               AX_SERVE_BIASES);
    AX_TRY(ax_alloc(&r->biased, n, sizeof *r->biased));
    AX_TRY(ax_alloc(&r->biases, n, sizeof *r->biases));
    r->bias.tokens = r->biased;
    r->bias.values = r->biases;
    json_object_foreach(v, name, item) {
        AX_TRY(read_entry(r, m, name, item));
    }
    return AX_OK;
}

/* Ends of a folder may have no logit: a tokenizer can have more tokens than its model. */
static void add_ends(struct ax_serve_request *r, const struct ax_serve_model *m, const int32_t *ids,
                     int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] < m->vocab_size)
            r->ends[r->bias.n_ends++] = ids[i];
}

/* What changes logits; after the stops and tools. */
static enum ax_status read_bias(struct ax_serve_request *r, const struct ax_serve_model *m) {
    AX_TRY(read_logit_bias(r, m));
    r->bias.ends = r->ends;
    add_ends(r, m, r->stop_ids, r->n_stop_ids);
    if (!r->ignore_eos)
        add_ends(r, m, m->side->stop.ids, m->side->stop.n);
    if (!r->ignore_eos && r->tools)
        add_ends(r, m, m->tools->stop, m->tools->n_stop);
    return AX_OK;
}

/* ---- lengths ---- */

#define COMPLETION_TOKENS 16 /* the protocol's, where nobody says how many */

static enum ax_status choose_length(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const char *key = r->max_completion_tokens >= 0 ? "max_completion_tokens" : "max_tokens";
    int64_t longest = 0;
    for (int64_t i = 0; i < r->n_prompts; i++)
        longest = r->prompts[i].n > longest ? r->prompts[i].n : longest;
    const int64_t room = m->context - longest;
    if (r->max_completion_tokens >= 0)
        r->max_tokens = r->max_completion_tokens;
    if (r->chat && r->max_tokens == 0)
        return ax_serve_refuse(r, key, "expected 1 or more");
    if (room < (r->max_tokens == 0 ? 0 : 1) || r->max_tokens > room) {
        r->code = "context_length_exceeded";
        return ax_serve_refuse(
            r,
            r->max_tokens > 0 ? key
            : r->chat         ? "messages"
                              : "prompt",
            "the context has %lld tokens, but the prompt has %lld and the answer "
            "may have %lld",
            (long long)m->context, (long long)longest,
            (long long)(r->max_tokens < 0 ? 1 : r->max_tokens));
    }
    if (r->max_tokens < 0) {
        const int64_t most = m->max_new > 0 ? m->max_new : r->chat ? room : COMPLETION_TOKENS;
        r->max_tokens = most < room ? most : room;
    }
    if (r->bias.min_new > r->max_tokens)
        return ax_serve_refuse(r, "min_tokens", "expected at most %lld, as the answer has no more",
                               (long long)r->max_tokens);
    return AX_OK;
}

/* Keys that do not go together. */
static enum ax_status check(struct ax_serve_request *r) {
    if (r->n_prompts * r->n > AX_SERVE_PROMPTS)
        return ax_serve_refuse(r, "n", "at most %d answers in a request", AX_SERVE_PROMPTS);
    if (r->best_of > 0 && r->best_of != r->n)
        return ax_serve_refuse(r, "best_of", "not supported yet, other than equal to n");
    if (r->chat && r->logprobs > 0 && !r->logprobs_asked)
        return ax_serve_refuse(r, "top_logprobs", "needs \"logprobs\": true");
    if (r->chat && r->logprobs <= 0)
        r->logprobs = r->logprobs_asked ? 0 : -1;
    if (r->stream && r->echo && r->logprobs >= 0)
        return ax_serve_refuse(r, "stream", "not supported yet with both echo and logprobs");
    if (r->stream && r->prompt_logprobs >= 0)
        return ax_serve_refuse(r, "prompt_logprobs", "a stream has none");
    return AX_OK;
}

/* A tree takes many times its text; that of stops and the like is small. */
static void forget_prompts(struct ax_serve_request *r) {
    (void)json_object_del(r->root, "messages");
    if (!r->echo)
        (void)json_object_del(r->root, "prompt");
    for (int64_t i = 0; i < r->n_prompts && !r->echo; i++)
        r->prompts[i].text = NULL;
}

enum ax_status ax_serve_parse(struct ax_serve_request *r, const char *body, size_t len) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, "body", len > 0 ? body : "", len));
    r->root = json_incref(doc.root);
    ax_json_free(&doc);
    return json_is_object(r->root) ? AX_OK : ax_error(AX_ERR_DATA, "body: expected a JSON object");
}

enum ax_status ax_serve_request_read(struct ax_serve_request *r, struct ax_serve_models *all,
                                     const struct ax_serve_body *body) {
    const struct ax_sampling *s = &all->list[0].sampling;
    *r = (struct ax_serve_request){.chat = body->chat,
                                   .max_tokens = -1,
                                   .max_completion_tokens = -1,
                                   .n = 1,
                                   .logprobs = -1,
                                   .prompt_logprobs = -1,
                                   .add_special = true,
                                   .parallel_calls = true,
                                   .temperature = s->temperature,
                                   .top_p = s->top_p > 0 ? s->top_p : 1,
                                   .top_k = s->top_k,
                                   .min_p = s->min_p,
                                   .repetition_penalty = s->repetition_penalty};
    AX_TRY(ax_serve_parse(r, body->text, body->len));
    AX_TRY(ax_serve_read_keys(r, r->chat ? AX_SERVE_CHAT : AX_SERVE_COMPLETION));
    AX_TRY(ax_serve_read_model(r, all));
    const struct ax_serve_model *m = r->model;
    AX_TRY(read_stop(r, m));
    AX_TRY(read_stop_ids(r, m));
    AX_TRY(read_stream_options(r));
    AX_TRY(read_names(r));
    AX_TRY(read_sampling(r));
    AX_TRY(body->chat ? read_chat(r, m) : read_prompts(r, m));
    if (body->ids)
        AX_TRY(take_given(r, body));
    AX_TRY(read_bias(r, m));
    AX_TRY(ax_serve_read_constraint(r, m));
    AX_TRY(check(r));
    forget_prompts(r);
    return choose_length(r, m);
}

void ax_serve_request_free(struct ax_serve_request *r) {
    json_decref(r->root);
    json_decref(r->variables);
    ax_encoding_free(&r->ids);
    ax_free(r->prompts);
    ax_serve_constraint_free(&r->constraint);
    ax_free(r->biased);
    ax_free(r->biases);
    ax_serve_models_release(r->models, r->model);
}
