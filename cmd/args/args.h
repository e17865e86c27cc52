/* A subcommand's command-line options, from a table. */
#ifndef AX_CMD_ARGS_H
#define AX_CMD_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text/words.h"
#include "kernels/dtype.h"

enum ax_arg_kind { AX_ARG_FLAG, AX_ARG_STRING, AX_ARG_LIST, AX_ARG_INT, AX_ARG_FLOAT };

struct ax_arg {
    const char *name; /* "--batch", "-o" */
    enum ax_arg_kind kind;
    void *out;        /* bool *, const char **, struct ax_arg_list *, int64_t *, double *; unchanged
                         if not given */
    int64_t min, max; /* AX_ARG_INT */
};

/* Parses argv[1…] in any order; `--name value` and `--name=value`; `--` ends options. Other
 * arguments go to positional: at least min_positional, at most max_positional. Errors
 * (AX_ERR_CONFIG) name the option, the value, the nearest known option, and point to --help. */
enum ax_status ax_args_parse(int argc, char **argv, int n, const struct ax_arg *args,
                             int min_positional, int max_positional, const char **positional,
                             int *n_positional);

/* The same for a command whose only positional argument is its model, which may also be given as
 * --model: *model is the variable that --model sets. */
enum ax_status ax_args_parse_model(int argc, char **argv, int n, const struct ax_arg *args,
                                   const char **model);

/* Parses the value of --dtype: a type that models compute in, that is float32, bfloat16 or
 * float64 (of the backend ref). */
enum ax_status ax_args_dtype(const char *value, enum ax_dtype *out);
/* The i-th of the first two; NULL after them. */
const char *ax_args_dtype_word(size_t i);

/* Options that take one of a few words. */
#define AX_WORDS_OUTPUT "rank0|all"
#define AX_WORDS_SPLIT  "train|test"
#define AX_WORDS_TO     "hf|gguf"
/* The number of `text` among the words; AX_ERR_CONFIG lists them, as of `option`. NULL is none. */
enum ax_status ax_args_word(const char *option, const char *words, const char *text, int *which);

#endif
