#include "cmd/args/config_args.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/args/other_options.h"

/* The option that an argument names, with or without "=value". */
static const struct ax_arg *option(const char *word, int n, const struct ax_arg *args) {
    const size_t len = strcspn(word, "=");
    for (int i = 0; i < n; i++)
        if (strlen(args[i].name) == len && strncmp(args[i].name, word, len) == 0)
            return &args[i];
    return NULL;
}

/* Rejects a word with dashes that is neither an option of the command nor a key, and suggests
 * the nearest. */
static enum ax_status check_dashes(const char *command, const char *word, int n,
                                   const struct ax_arg *args) {
    char name[256], path[256], hint[200] = "";
    struct ax_nearest nearest = {.given = name, .within = 3};
    const int len = (int)strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || len >= (int)sizeof name)
        return AX_OK;
    snprintf(name, sizeof name, "%.*s", len, word);
    snprintf(path, sizeof path, "%s", name + 2);
    for (char *c = path; *c; c++)
        *c = *c == '-' ? '_' : *c;
    if (strchr(path, '.') || ax_config_knows(path))
        return AX_OK;
    AX_TRY(ax_refuse_other_option(command, name));
    for (int i = 0; i < n; i++)
        ax_nearest_try(&nearest, args[i].name);
    if (nearest.name)
        return ax_error(AX_ERR_CONFIG, "%s: unknown option %s; did you mean %s?", command, name,
                        nearest.name);
    ax_config_suggest_key("", path, hint, sizeof hint);
    return ax_error(AX_ERR_CONFIG, "%s: %s is neither an option nor a key%s%s%s", command, name,
                    *hint ? hint : "; see `axtrain ", *hint ? "" : command,
                    *hint ? "" : " --help`");
}

/* Separates the words: `own` gets the command's options, `rest` the file and the overrides. */
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
    for (int i = 0; i < n_rest; i++)
        AX_TRY_GOTO(check_dashes(argv[0], rest[i], n, args), st, done);
    AX_TRY_GOTO(ax_args_parse(n_own, words, n, args, 0, 0, NULL, &n_positional), st, done);
    if (n_rest == 0 || strncmp(rest[0], "--", 2) == 0)
        st = ax_error(AX_ERR_CONFIG,
                      "%s: the first argument must be a config file; see `axtrain "
                      "%s --help`",
                      argv[0], argv[0]);
    if (st == AX_OK && ax_path_is_dir(rest[0]))
        st = ax_error(AX_ERR_CONFIG,
                      "%s: %s is a folder, and the first argument must be a config file; the model "
                      "is its key base_model (axtrain %s CONFIG base_model=%s)",
                      argv[0], rest[0], argv[0], rest[0]);
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
