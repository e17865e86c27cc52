/* A teacher that a server has: log-probs of tokens through OpenAI's HTTP API (docs/distillation.md).
 *
 * Reading order: prompt_logprobs.h (what a server answers), request.c (what it is asked), vocabulary.c (whether its
 * tokens are the model's), teacher.c. */
#ifndef AX_DATA_REMOTE_TEACHER_H
#define AX_DATA_REMOTE_TEACHER_H

#include "base/net/endpoint.h"
#include "data/remote/prompt_logprobs.h"
#include "data/text/tokenizer/tokenizer.h"

struct ax_remote_teacher_options {
    struct ax_endpoint_options server;
    const char *model; /* its name there; NULL: the first one */
    int64_t prompts;   /* texts in a request */
    int k;             /* likeliest tokens of each place; 0: only the text's own */
    const struct ax_tokenizer *tokenizer; /* NULL: texts are not compared */
    int64_t vocab;                        /* tokens of the model */
    int64_t longest;                      /* tokens of the longest text */
};

struct ax_remote_teacher;

/* Asks the server for its models and what its tokens are. AX_ERR_CONFIG: it has other ones, another model, or reads
 * shorter texts. */
enum ax_status ax_remote_teacher_open(struct ax_remote_teacher **out,
                                      const struct ax_remote_teacher_options *o);
void ax_remote_teacher_close(struct ax_remote_teacher *t); /* NULL is fine */
/* Log-probs of n texts. May be called by several threads at a time. */
enum ax_status ax_remote_teacher_read(const struct ax_remote_teacher *t, int64_t n,
                                      const struct ax_remote_text *texts,
                                      const struct ax_endpoint_look *look);
/* The name of the model. */
const char *ax_remote_teacher_model(const struct ax_remote_teacher *t);

/* ---- parts ---- */

struct ax_remote_teacher {
    struct ax_remote_teacher_options o;
    struct ax_endpoint server;
    char *model;
    json_t *name; /* the model's, as JSON */
    bool one;     /* the server generates at least a token */
};

/* The request for the log-probs of n texts; request.c. Free *body with ax_free. */
enum ax_status ax_remote_teacher_body(const struct ax_remote_teacher *t, int64_t n,
                                      const struct ax_remote_text *texts, char **body);
/* Compares how both tokenize a text, if the server has /tokenize, and what single tokens are in its answers;
 * vocabulary.c. */
enum ax_status ax_remote_vocabulary_check(struct ax_remote_teacher *t);

#endif
