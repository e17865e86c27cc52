/* One thread computes everything: connections hand it jobs and wait for them.
 *
 * A job is a request: one sequence for each of its answers, and one for each prompt whose log-probs
 * are asked for. Its sequences join the generator before the next pass, in the order of arrival; a
 * job whose client has gone leaves it before the next pass. A job's fields that say so change
 * under the engine's lock while it is pending.
 *
 * On several ranks all of them have the same jobs, and an engine each (round.h); connections are rank 0's.
 *
 * Read engine.c (the thread), then queue.c (how jobs come and end) and job.c (requests → jobs). */
#ifndef AX_CMD_SERVE_ENGINE_H
#define AX_CMD_SERVE_ENGINE_H

#include <pthread.h>

#include "cmd/serve/request.h"
#include "data/text/text_stream.h"
#include "model/generate/generate.h"
#include "parallel/fabric/team.h"

struct ax_serve_job;

/* An answer. */
struct ax_serve_choice {
    struct ax_serve_job *job;
    const struct ax_serve_prompt *prompt;
    int32_t *tokens; /* [max_tokens] */
    int k;           /* how many of the likeliest tokens it has */
    double *logprobs, *best_logprobs;
    int32_t *best;
    /* under the lock: */
    int64_t n_tokens;
    struct ax_bias bias;         /* the request's, with what it is held to */
    struct ax_serve_place place; /* where it is in that; the engine's thread */
    bool complete;               /* it has ended without a token that says so */
    struct ax_text_stream stream;
    struct ax_buf text;
    size_t call_at;        /* where the text had come to when a call began; SIZE_MAX: none has */
    const char *finish;    /* NULL: not yet; "stop", "length", "tool_calls" or "abort" */
    const char *stop_text; /* what ended it: a text, */
    int32_t stop_id;       /* or one of stop_token_ids; −1: neither */
    /* calls of an answer that has ended */
    bool read;     /* it has been searched for calls */
    json_t *calls; /* as in the protocol's messages; owned; NULL: none */
    /* how much of it a stream has sent */
    bool begun, ended;
    int64_t sent_tokens, offset;
    size_t sent_text;
};

/* A prompt's log-probs, [n − 1]: those of all tokens but the first. */
struct ax_serve_score {
    int k; /* likeliest tokens in each place */
    double *logprobs, *best_logprobs;
    int32_t *best;
};

/* A sequence of the generator, and what it is for. */
struct ax_serve_unit {
    struct ax_sequence s;
    struct ax_serve_job *job;
    struct ax_serve_choice *choice; /* NULL: the score of a prompt */
};

struct ax_serve_job {
    struct ax_serve_engine *engine;
    struct ax_serve_request r;
    char id[AX_SERVE_ID + 16];
    int64_t created;    /* seconds since 1970 */
    struct ax_buf body; /* where others must be told, until they have been */
    uint64_t stream;    /* random numbers of its first answer */
    int64_t n_choices, n_units;
    struct ax_serve_choice *choices; /* those of prompt 0, then of prompt 1, … */
    struct ax_serve_score *scores;   /* [prompts]; NULL: not asked for */
    struct ax_serve_unit *units;
    int32_t *ints;   /* memory of all tokens, */
    double *numbers; /* and of all log-probs */
    size_t bytes;    /* memory of both */
    pthread_cond_t changed;
    /* under the lock: */
    int64_t pending; /* units that have not ended */
    /* version of the weights that answer; −1: they do not change, or it has not begun */
    int64_t version;
    bool leaves;
    bool failed;     /* the engine has ended */
    uint64_t number; /* place among all that have begun */
    struct ax_serve_job *next;
};

/* What the engine leaves undone. */
enum ax_serve_pause {
    AX_SERVE_GOES_ON,
    AX_SERVE_BEGINS_NOTHING, /* jobs wait, others go on */
    AX_SERVE_COMPUTES_NOTHING
};

/* Work for the engine's thread between two passes. */
struct ax_serve_call {
    enum ax_status (*run)(void *ctx, struct ax_generator *g);
    void *ctx;
    struct ax_error_record record;
    bool done;
};

enum ax_serve_state { AX_SERVE_LOADING, AX_SERVE_READY, AX_SERVE_STOPPING, AX_SERVE_ENDED };

struct ax_serve_engine {
    struct ax_serve_models models;
    int64_t most;         /* sequences that are pending at a time */
    size_t most_bytes;    /* memory of their tokens and log-probs */
    double stop_seconds;  /* how long answers may go on after a request to stop */
    double ping_seconds;  /* how long a stream is silent */
    bool in_rounds;       /* jobs wait for ax_serve_engine_answer */
    bool shared;          /* there are several ranks, of which rank 0 takes jobs */
    bool follows;         /* this is another one */
    struct ax_team *team; /* all of them, while they compute */
    pthread_mutex_t lock;
    pthread_cond_t wake, settled; /* settled: a call is done, or what was to be paused is */
    /* under the lock: */
    enum ax_serve_state state;
    struct ax_serve_job *waiting, *running;
    int64_t n_pending;
    size_t bytes;
    double stop_at;
    uint64_t jobs, refused, left;
    struct ax_generate_counters counters; /* as of the last pass */
    int64_t version;                      /* version of the weights; −1 unless in_rounds */
    bool round_begins;
    int64_t lanes;
    enum ax_serve_pause pause;
    bool rests; /* the thread waits because of it */
    struct ax_serve_call *call;

    struct ax_generator *generator;
    bool asked_to_stop;         /* a rank was */
    uint64_t begun;             /* jobs so far */
    struct ax_serve_job *ended; /* other ranks' own, to be freed */
};

void ax_serve_engine_init(struct ax_serve_engine *e);
void ax_serve_engine_free(struct ax_serve_engine *e);
/* The options of its generator that are the engine's. */
void ax_serve_engine_options(struct ax_serve_engine *e, struct ax_generate_options *o);
/* From now on jobs are taken. */
void ax_serve_engine_open(struct ax_serve_engine *e, struct ax_generator *g);
/* Computes until a signal has asked to stop and the answers have ended. */
enum ax_status ax_serve_engine_run(struct ax_serve_engine *e);
/* With in_rounds, between steps of a training: is there a job? From the first call on jobs are taken, and with
 * `last` none any more. */
bool ax_serve_engine_pending(struct ax_serve_engine *e, bool last);
/* Answers the jobs that wait, with weights of this version. Those that come meanwhile wait for the next round. */
enum ax_status ax_serve_engine_answer(struct ax_serve_engine *e, struct ax_generator *g,
                                      struct ax_team *team, int64_t version);
/* Has the engine's thread run it, and waits. AX_ERR_FAILED if there is no such thread, or no more. */
enum ax_status ax_serve_engine_call(struct ax_serve_engine *e, struct ax_serve_call *call);
/* Nothing is computed any more; what is pending has failed. */
void ax_serve_engine_end(struct ax_serve_engine *e);

/* ---- job.c ---- */

enum ax_status ax_serve_job_create(struct ax_serve_job **out, struct ax_serve_engine *e);
/* After its request has been read: an id, random numbers, memory and sequences. */
enum ax_status ax_serve_job_prepare(struct ax_serve_job *j);
/* Likewise, with the random numbers that its stream says. */
enum ax_status ax_serve_job_lay_out(struct ax_serve_job *j);
/* Leaves, and frees it. */
void ax_serve_job_close(void *job);

/* ---- queue.c: what connections ask ---- */

/* The error of a server in this state, which is not AX_SERVE_READY; *status: HTTP's; NULL: the caller sets it. */
enum ax_status ax_serve_unready(enum ax_serve_state state, int *status);
/* AX_ERR_FAILED, with r.status 429 if there is too much to do, or 503. */
enum ax_status ax_serve_submit(struct ax_serve_job *j);
/* With the lock: waits until something of the job has changed; false after `seconds`. */
bool ax_serve_job_wait(struct ax_serve_job *j, double seconds);
/* With the lock: it ends now if it has not begun, else before the next pass. */
void ax_serve_job_abort(struct ax_serve_job *j);
/* Waits until the engine has let it go. */
void ax_serve_leave(struct ax_serve_job *j);

/* ---- queue.c: what the engine does, with the lock ---- */

/* The job is pending. */
void ax_serve_job_count(struct ax_serve_job *j);
/* It begins, and its sequences are appended to *last. */
void ax_serve_job_begin(struct ax_serve_job *j, struct ax_sequence ***last);
/* One of its units has ended; with the last one, the job. */
void ax_serve_unit_end(struct ax_serve_job *j);
/* Those that wait or run have failed. */
void ax_serve_jobs_fail(struct ax_serve_engine *e);

#endif
