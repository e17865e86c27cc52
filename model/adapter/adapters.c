#include "model/adapter/adapters.h"

#include <string.h>

#include "base/io_path.h"
#include "model/adapter/base_note.h"
#include "ckpt/hf/merge_note.h"
#include "model/adapter/load.h"
#include "model/arch/classifier.h"

/* Splits "NAME=DIR"; "DIR" alone is named by its last part. */
static enum ax_status split(const char *text, char **name, const char **path) {
    const char *equals = strchr(text, '=');
    if (equals && !memchr(text, '/', (size_t)(equals - text)) && !ax_peft_is_folder(text)) {
        *path = equals + 1;
        return ax_sprintf(name, "%.*s", (int)(equals - text), text);
    }
    size_t len;
    const char *last = ax_path_last(text, &len);
    *path = text;
    return ax_sprintf(name, "%.*s", (int)len, last);
}

static enum ax_status check_name(const struct ax_adapters *a, const char *text, const char *path) {
    const char *name = a->names[a->n];
    if (!*name || !*path)
        return ax_error(AX_ERR_CONFIG, "--adapter %s: expected DIR or NAME=DIR", text);
    if (strcmp(name, AX_BASE_NAME) == 0)
        return ax_error(AX_ERR_CONFIG,
                        "--adapter %s: \"base\" means the model itself; choose another "
                        "name: --adapter NAME=%s",
                        text, path);
    for (int i = 0; i < a->n; i++)
        if (strcmp(name, a->names[i]) == 0)
            return ax_error(AX_ERR_CONFIG,
                            "--adapter %s: %s is also named \"%s\"; rename one of them: "
                            "--adapter NAME=%s",
                            text, a->pefts[i].dir, name, path);
    return AX_OK;
}

static enum ax_status open_one(struct ax_adapters *a, const char *text, const char *base) {
    struct ax_peft *peft = &a->pefts[a->n];
    const char *path;
    enum ax_status st;
    AX_TRY(split(text, &a->names[a->n], &path));
    AX_TRY_GOTO(check_name(a, text, path), st, fail);
    AX_TRY_GOTO(ax_peft_open(peft, path), st, fail);
    AX_TRY_GOTO(ax_merge_note_check(base, peft), st, fail);
    AX_TRY_GOTO(ax_base_note_check(base, peft), st, fail);
    a->n++;
    return AX_OK;
fail:
    ax_peft_close(peft);
    ax_free(a->names[a->n]);
    return st;
}

/* An adapter that changes the vocabulary must be the only one: for others, it would be a
 * different model. */
static enum ax_status take_vocabulary(struct ax_adapters *a, struct ax_arch *arch) {
    const int64_t before = arch->vocab_size;
    for (int i = 0; i < a->n; i++) {
        ax_adapter_vocabulary(arch, &a->pefts[i]);
        a->grown = arch->vocab_size != before;
        if (a->grown && a->n > 1)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: the adapter was trained with a vocabulary of %lld tokens, but its "
                            "base has %lld; give it without other adapters",
                            a->pefts[i].dir, (long long)arch->vocab_size, (long long)before);
    }
    return AX_OK;
}

enum ax_status ax_adapters_open(struct ax_adapters *a, const struct ax_arg_list *given,
                                const char *base, struct ax_arch *arch) {
    *a = (struct ax_adapters){0};
    enum ax_status st = AX_OK;
    for (int i = 0; i < given->n && st == AX_OK; i++) {
        st = open_one(a, given->text[i], base);
        if (st == AX_OK)
            st = ax_classifier_of_adapter(arch, &a->pefts[i]);
    }
    if (st == AX_OK)
        st = take_vocabulary(a, arch);
    if (st != AX_OK)
        ax_adapters_close(a);
    return st;
}

void ax_adapters_close(struct ax_adapters *a) {
    for (int i = 0; i < a->n; i++) {
        ax_peft_close(&a->pefts[i]);
        ax_free(a->names[i]);
    }
    *a = (struct ax_adapters){0};
}

const char *ax_adapters_name(const struct ax_adapters *a, int which) {
    return which == AX_ADAPTER_NONE ? AX_BASE_NAME : a->names[which];
}

enum ax_status ax_adapters_list(const struct ax_adapters *a, struct ax_buf *out) {
    for (int i = AX_ADAPTER_NONE; i < a->n; i++)
        AX_TRY(ax_buf_printf(out, "%s%s", i < 0 ? "" : ", ", ax_adapters_name(a, i)));
    return AX_OK;
}

static enum ax_status unknown(const struct ax_adapters *a, const char *name) {
    struct ax_buf known = {0};
    AX_TRY(ax_adapters_list(a, &known));
    const enum ax_status st =
        ax_error(AX_ERR_CONFIG, "no adapter is named \"%s\"; available: %s%s", name, known.data,
                 a->n > 0 ? "" : " only (add adapters with --adapter NAME=DIR)");
    ax_buf_free(&known);
    return st;
}

enum ax_status ax_adapters_find(const struct ax_adapters *a, const char *name, int *out) {
    for (int i = AX_ADAPTER_NONE; i < a->n; i++) {
        if (strcmp(name, ax_adapters_name(a, i)) != 0)
            continue;
        *out = i;
        return i != AX_ADAPTER_NONE || !a->grown
                   ? AX_OK
                   : ax_error(AX_ERR_UNSUPPORTED,
                              "%s was trained with a larger vocabulary than its base, so base is "
                              "not available; omit --adapter",
                              a->names[0]);
    }
    return unknown(a, name);
}

struct ax_adapter_bank *ax_adapters_bank(const struct ax_adapters *a, struct ax_adapter_bank *b) {
    *b = (struct ax_adapter_bank){.n = a->n, .pefts = a->pefts};
    return a->n > 0 ? b : NULL;
}
