#include "cmd/config_args.h"

#include <string.h>

#include "base/mem.h"

/* The option of the table that an argument names, with or without "=value". */
static const struct ax_arg *option(const char *word, int n, const struct ax_arg *args) {
    const size_t len = strcspn(word, "=");
    for (int i = 0; i < n; i++)
        if (strlen(args[i].name) == len && strncmp(args[i].name, word, len) == 0)
            return &args[i];
    return NULL;
}

/* Sorts the words: `own` gets the command's options, `rest` the file and the overrides. */
static void sort_words(int argc, char **argv, int n, const struct ax_arg *args, char **own,
                       int *n_own, char **rest, int *n_rest) {
    *n_own = 1;
    *n_rest = 0;
    own[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        const struct ax_arg *a = option(argv[i], n, args);
        if (!a) {
            rest[(*n_rest)++] = argv[i];
            continue;
        }
        own[(*n_own)++] = argv[i];
        if (a->kind != AX_ARG_FLAG && !strchr(argv[i], '=') && i + 1 < argc)
            own[(*n_own)++] = argv[++i];
    }
}

enum ax_status ax_setup_args(int argc, char **argv, int n, const struct ax_arg *args,
                             enum ax_config_use use, struct ax_config *cfg) {
    char **words;
    int n_own;
    int n_rest;
    int n_positional;
    enum ax_status st;
    AX_TRY(ax_alloc(&words, 2 * (size_t)argc, sizeof *words));
    char **rest = words + argc;
    sort_words(argc, argv, n, args, words, &n_own, rest, &n_rest);
    AX_TRY_GOTO(ax_args_parse(n_own, words, n, args, 0, 0, NULL, &n_positional), st, done);
    if (n_rest == 0 || strncmp(rest[0], "--", 2) == 0)
        st = ax_error(AX_ERR_CONFIG,
                      "%s: the first argument must be a config file; see `axtrain "
                      "%s --help`",
                      argv[0], argv[0]);
    if (st == AX_OK)
        st = ax_config_load(cfg, rest[0], n_rest - 1, rest + 1);
done:
    ax_free(words);
    AX_TRY(st);
    st = ax_config_require(cfg, use);
    if (st != AX_OK)
        ax_config_free(cfg);
    return st;
}
