/* Parses argv in one pass against a table of options. */
#include "cmd/args/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/args/other_options.h"

static enum ax_status unknown_option(const char *command, const char *given, int n,
                                     const struct ax_arg *args) {
    char name[64];
    AX_TRY(ax_refuse_other_option(command, given));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given);
    const int half = (int)strlen(name) / 2; /* of short names, others are as near by chance */
    struct ax_nearest nearest = {.given = name, .within = half < 4 ? half : 4};
    for (int i = 0; i < n; i++)
        ax_nearest_try(&nearest, args[i].name);
    if (nearest.name)
        return ax_error(AX_ERR_CONFIG, "%s: unknown option %s; did you mean %s?", command, given,
                        nearest.name);
    return ax_error(AX_ERR_CONFIG, "%s: unknown option %s; see `axtrain %s --help`", command, given,
                    command);
}

static enum ax_status store(const char *command, const struct ax_arg *a, const char *value) {
    char *end;
    errno = 0;
    switch (a->kind) {
    case AX_ARG_FLAG:
        *(bool *)a->out = true;
        return AX_OK;
    case AX_ARG_STRING:
        *(const char **)a->out = value;
        return AX_OK;
    case AX_ARG_LIST: {
        struct ax_arg_list *list = a->out;
        if (list->n == AX_ARG_LIST_MAX)
            return ax_error(AX_ERR_CONFIG, "%s: %s can be given at most %d times", command, a->name,
                            AX_ARG_LIST_MAX);
        list->text[list->n++] = value;
        return AX_OK;
    }
    case AX_ARG_INT: {
        const long long v = strtoll(value, &end, 10);
        if (errno != 0 || end == value || *end != '\0' || v < a->min || v > a->max)
            return ax_error(AX_ERR_CONFIG,
                            "%s: %s: expected an integer from %lld to %lld, got "
                            "\"%s\"",
                            command, a->name, (long long)a->min, (long long)a->max, value);
        *(int64_t *)a->out = v;
        return AX_OK;
    }
    case AX_ARG_FLOAT: {
        const double v = strtod(value, &end);
        if (errno != 0 || end == value || *end != '\0' || isnan(v)) /* which means: not given */
            return ax_error(AX_ERR_CONFIG, "%s: %s: expected a number, got \"%s\"", command,
                            a->name, value);
        *(double *)a->out = v;
        return AX_OK;
    }
    }
    return AX_OK;
}

static const struct ax_arg *find(int n, const struct ax_arg *args, const char *word, size_t len) {
    for (int i = 0; i < n; i++)
        if (strlen(args[i].name) == len && strncmp(args[i].name, word, len) == 0)
            return &args[i];
    return NULL;
}

enum ax_status ax_args_parse(int argc, char **argv, int n, const struct ax_arg *args,
                             int min_positional, int max_positional, const char **positional,
                             int *n_positional) {
    bool options = true;
    *n_positional = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (options && strcmp(word, "--") == 0) {
            options = false;
            continue;
        }
        const bool is_option =
            strncmp(word, "--", 2) == 0 || find(n, args, word, strlen(word)) != NULL; /* also -o */
        if (!options || !is_option) {
            const bool dash = options && word[0] == '-' && word[1] != '\0';
            if (dash || *n_positional == max_positional)
                AX_TRY(ax_refuse_other_option(argv[0], word));
            if (*n_positional == max_positional)
                return ax_error(AX_ERR_CONFIG,
                                "%s: unexpected argument \"%s\"; see `axtrain %s --help`", argv[0],
                                word, argv[0]);
            positional[(*n_positional)++] = word;
            continue;
        }
        const char *equals = strchr(word, '=');
        const struct ax_arg *a =
            find(n, args, word, equals ? (size_t)(equals - word) : strlen(word));
        if (!a)
            return unknown_option(argv[0], word, n, args);
        const char *value = equals ? equals + 1 : NULL;
        if (a->kind == AX_ARG_FLAG && value)
            return ax_error(AX_ERR_CONFIG, "%s: %s takes no value", argv[0], a->name);
        if (a->kind != AX_ARG_FLAG && !value) {
            if (i + 1 == argc)
                return ax_error(AX_ERR_CONFIG, "%s: %s needs a value", argv[0], a->name);
            value = argv[++i];
        }
        AX_TRY(store(argv[0], a, value));
    }
    if (*n_positional < min_positional)
        return ax_error(AX_ERR_CONFIG, "%s: an argument is missing; see `axtrain %s --help`",
                        argv[0], argv[0]);
    return AX_OK;
}

enum ax_status ax_args_parse_model(int argc, char **argv, int n, const struct ax_arg *args,
                                   const char **model) {
    const char *positional = NULL;
    int given;
    AX_TRY(ax_args_parse(argc, argv, n, args, 0, 1, &positional, &given));
    if (given == 0)
        return AX_OK;
    if (*model)
        return ax_error(AX_ERR_CONFIG, "%s: two models are given, \"%s\" and --model %s", argv[0],
                        positional, *model);
    *model = positional;
    return AX_OK;
}

static const enum ax_dtype computed[] = {AX_F32, AX_BF16, AX_F64};

enum ax_status ax_args_dtype(const char *value, enum ax_dtype *out) {
    enum ax_dtype dtype;
    const enum ax_status st = ax_dtype_parse(value, &dtype);
    for (size_t i = 0; st == AX_OK && i < sizeof computed / sizeof *computed; i++)
        if (dtype == computed[i]) {
            *out = dtype;
            return AX_OK;
        }
    return ax_error(AX_ERR_CONFIG, "--dtype: expected float32 or bfloat16, got \"%s\"", value);
}

const char *ax_args_dtype_word(size_t i) {
    return i < 2 ? ax_dtype_info(computed[i])->name : NULL;
}

enum ax_status ax_args_word(const char *option, const char *words, const char *text, int *which) {
    char list[64];
    size_t at = 0;
    const size_t size = text ? strlen(text) : 0;
    *which = 0;
    for (const char *word = words; *word; (*which)++) {
        const size_t len = strcspn(word, "|");
        if (text && len == size && memcmp(word, text, len) == 0)
            return AX_OK;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", at > 0 ? " or " : "",
                               (int)len, word);
        word += len + (word[len] == '|');
    }
    const char *quote = text ? "\"" : "";
    return ax_error(AX_ERR_CONFIG, "%s: expected %s, got %s%s%s", option, list, quote,
                    text ? text : "nothing", quote);
}
