/* Bodies of /v1/completions, /v1/chat/completions, /tokenize and /detokenize: every key is checked, and one that is not
 * followed is an error that names it. */
#ifndef AX_CMD_SERVE_REQUEST_H
#define AX_CMD_SERVE_REQUEST_H

#include <jansson.h>
#include <pthread.h>

#include "cmd/serve/models.h"

#define AX_SERVE_PROMPTS  2048 /* prompts of a request, and answers to all of them */
#define AX_SERVE_SAMPLES  128
#define AX_SERVE_STOPS    64
#define AX_SERVE_STOP_IDS 64
#define AX_SERVE_ID       64   /* bytes of a request_id */
#define AX_SERVE_BIASES   4096 /* tokens of logit_bias */

struct ax_serve_prompt {
    int64_t first, n;   /* ids [first, first + n) */
    const json_t *text; /* in `root`, for echo; NULL: ids were given */
};

struct ax_serve_request {
    struct ax_serve_models *models;
    const struct ax_serve_model *model; /* held until the request is freed */
    bool chat;
    json_t *root; /* has the texts; owned */
    bool stream, include_usage, echo, return_ids, ids_as_text, include_stop, ignore_eos;
    bool add_special, logprobs_asked;
    int64_t max_tokens, max_completion_tokens; /* the first: −1 = not given; then of each answer */
    int64_t n, best_of, seed, top_k;
    int64_t logprobs; /* how many of the likeliest tokens beside the chosen; −1: no log-probs */
    int64_t priority; /* lower first */
    int64_t prompt_logprobs; /* likewise, for tokens of prompts */
    double temperature, top_p, min_p, repetition_penalty;
    bool seeded;
    struct ax_sampling sampling;
    struct ax_serve_constraint constraint;
    struct ax_bias bias;
    int32_t *biased; /* its tokens, */
    float *biases;   /* and their values */
    int32_t ends[AX_SERVE_STOP_IDS + AX_MAX_STOP_TOKENS + 2];
    const char *stops[AX_SERVE_STOPS]; /* texts in `root`, or the model's */
    int n_stops;
    const char *request_id; /* in `root`; NULL: none */
    uint64_t salt;          /* hash of cache_salt; 0: none */
    int32_t stop_ids[AX_SERVE_STOP_IDS];
    int n_stop_ids;
    json_t *variables;   /* the template's, beside messages and tools; owned */
    const json_t *tools; /* in `root`; NULL: none */
    enum ax_serve_tool_choice tool_choice;
    const json_t *tool_named; /* function of the tool, for AX_TOOLS_NAMED */
    bool parallel_calls;      /* all calls of a turn count, and not only the first */
    bool thinks;              /* the answer begins in an open thought */
    struct ax_encoding ids;   /* those of all prompts */
    struct ax_serve_prompt *prompts;
    int64_t n_prompts;
    /* the key that an error is about, its code or NULL, and the status or 0 */
    char param[96];
    const char *code;
    int status;
};

/* A request that is to be read, borrowed. */
struct ax_serve_body {
    bool chat;
    const char *text;
    size_t len;
    /* The prompts as another rank has read them, as a template may write the time: int64_t lengths[n_prompts], and
     * int32_t ids[n_ids], of any alignment. NULL: its own. */
    const char *lengths, *ids;
    size_t n_prompts, n_ids;
};
/* AX_ERR_DATA: the request is wrong. _free is safe after an error. */
enum ax_status ax_serve_request_read(struct ax_serve_request *r, struct ax_serve_models *all,
                                     const struct ax_serve_body *body);
void ax_serve_request_free(struct ax_serve_request *r);

/* The parts that /tokenize and /detokenize have in common with these. */
enum ax_status ax_serve_parse(struct ax_serve_request *r, const char *body, size_t len);
enum ax_serve_route {
    AX_SERVE_CHAT = 1,
    AX_SERVE_COMPLETION = 2,
    AX_SERVE_TOKENIZE = 4,
    AX_SERVE_DETOKENIZE = 8
};
/* Checks all keys of the body, and reads those that need no more; null is as good as absent. /tokenize takes the
 * body that asks for an answer, and does not read what is of the answer. */
enum ax_status ax_serve_read_keys(struct ax_serve_request *r, enum ax_serve_route where);
/* Sets r->model. */
enum ax_status ax_serve_read_model(struct ax_serve_request *r, struct ax_serve_models *all);
enum ax_status ax_serve_read_messages(struct ax_serve_request *r, const struct ax_serve_model *m,
                                      const json_t *messages);
enum ax_status ax_serve_read_text(struct ax_serve_request *r, const struct ax_serve_model *m,
                                  const json_t *text);
enum ax_status ax_serve_read_ids(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 const char *param, const json_t *ids);
/* AX_ERR_DATA about a key: an id of a text that the model does not have. */
enum ax_status ax_serve_check_ids(struct ax_serve_request *r, const struct ax_serve_model *m,
                                  const char *param, const int32_t *ids, size_t n);
/* AX_ERR_DATA about a key. */
enum ax_status ax_serve_refuse(struct ax_serve_request *r, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
