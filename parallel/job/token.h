/* The secret that the ranks of a job share. */
#ifndef AX_PARALLEL_JOB_TOKEN_H
#define AX_PARALLEL_JOB_TOKEN_H

#include <stdbool.h>

#include "parallel/job/env.h"
#include "parallel/job/store_wire.h"

enum { AX_TOKEN_MIN = 16, AX_TOKEN_MAX = 256 };

/* 128 random bits as text. */
enum ax_status ax_token_random(char token[AX_TOKEN_MAX + 1]);

/* The token that this process was given: by descriptor (AXTRAIN_TOKEN_FD, from `axtrain launch`),
 * in a file that only its owner can read (AXTRAIN_TOKEN_FILE), or as AXTRAIN_TOKEN, which is removed
 * from the environment so that children do not get it. "" if there is none. AX_ERR_CONFIG says what
 * is wrong with it, without showing it. */
enum ax_status ax_token_find(char token[AX_TOKEN_MAX + 1]);
/* AX_ERR_CONFIG with the lines to add to a batch script if ranks of several hosts have none. */
enum ax_status ax_token_needed(const char *host);

/* Derives the key of a job from its token and the name that distinguishes it from other jobs. */
void ax_token_key(unsigned char key[AX_STORE_KEY_BYTES], const char *token, const char *job);

#endif
