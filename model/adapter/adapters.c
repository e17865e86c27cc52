#include "model/adapter/adapters.h"

#include <string.h>

#include "base/io_path.h"
#include "base/text/unicode.h"
#include "model/adapter/base_note.h"
#include "ckpt/hf/merge_note.h"
#include "model/adapter/load.h"
#include "model/arch/classifier.h"

/* Splits "NAME=DIR"; "DIR" alone is named by its last part. Names are text: they are in answers and requests. */
static enum ax_status split(const char *text, char **name, const char **path) {
    const char *equals = strchr(text, '=');
    if (equals && !memchr(text, '/', (size_t)(equals - text)) && !ax_peft_is_folder(text)) {
        *path = equals + 1;
        return ax_utf8_repaired(name, text, (size_t)(equals - text));
    }
    size_t len;
    const char *last = ax_path_last(text, &len);
    *path = text;
    return ax_utf8_repaired(name, last, len);
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

enum ax_status ax_adapter_open(struct ax_peft *peft, const char *dir, const char *base) {
    AX_TRY(ax_peft_open(peft, dir));
    enum ax_status st = ax_merge_note_check(base, peft);
    if (st == AX_OK)
        st = ax_base_note_check(base, peft);
    if (st != AX_OK)
        ax_peft_close(peft);
    return st;
}

static enum ax_status open_one(struct ax_adapters *a, const char *text, const char *base) {
    const char *path;
    enum ax_status st;
    AX_TRY(split(text, &a->names[a->n], &path));
    AX_TRY_GOTO(check_name(a, text, path), st, fail);
    AX_TRY_GOTO(ax_adapter_open(&a->pefts[a->n], path, base), st, fail);
    a->n++;
    return AX_OK;
fail:
    ax_free(a->names[a->n]);
    return st;
}

/* An adapter that changes the vocabulary must be the only one: for others, it would be a
 * different model. */
static enum ax_status take_vocabulary(struct ax_adapters *a, struct ax_arch *arch) {
    const int64_t before = arch->vocab_size;
    for (int i = 0; i < a->n; i++) {
        AX_TRY(ax_adapter_vocabulary(arch, &a->pefts[i]));
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
        if (st == AX_OK)
            st = ax_base_note_score_pad(&a->pefts[i], &arch->score_pad);
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

/* ---- places for adapters that come later ---- */

enum ax_status ax_adapters_add_slots(struct ax_adapters *a, int64_t n) {
    if (n > 0 && a->n == 0)
        return ax_error(AX_ERR_CONFIG, "--adapter-slots: places have the shape of the first "
                                       "adapter; give one with --adapter NAME=DIR");
    if (n > 0 && a->grown)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "--adapter-slots: %s changes the vocabulary, so there is no room for others",
            a->pefts[0].dir);
    if (a->n + n > AX_ARG_LIST_MAX)
        return ax_error(AX_ERR_CONFIG, "--adapter-slots: at most %d adapters, these included",
                        AX_ARG_LIST_MAX);
    for (int64_t i = 0; i < n; i++) {
        AX_TRY(ax_sprintf(&a->names[a->n], "slot %lld", (long long)i));
        const enum ax_status st = ax_peft_open(&a->pefts[a->n], a->pefts[0].dir);
        if (st != AX_OK) {
            ax_free(a->names[a->n]);
            return st;
        }
        a->n++;
        a->n_slots++;
    }
    return AX_OK;
}

static bool same_patterns(const struct ax_peft_pattern *a, int n, const struct ax_peft_pattern *b,
                          int m) {
    for (int i = 0; i < n && i < m; i++)
        if (strcmp(a[i].pattern, b[i].pattern) != 0 || a[i].value != b[i].value)
            return false;
    return n == m;
}

static enum ax_status differs(const struct ax_adapters *a, int which, const struct ax_peft *peft,
                              const char *key) {
    return ax_error(AX_ERR_CONFIG,
                    "%s: %s is not that of %s, whose shape the place has; start a server with "
                    "an adapter of this shape",
                    peft->dir, key, a->pefts[which].dir);
}

/* The first tensor of x that is not in y with its shape; NULL: there is none. Matrices of the base that PEFT stores
 * beside adapters do not count. */
static const char *missing_in(const struct ax_safetensors *x, const struct ax_safetensors *y) {
    for (int i = 0; i < x->n; i++) {
        const struct ax_st_entry *e = &x->entries[i], *other = ax_safetensors_find(y, e->name);
        bool same = other && other->ndim == e->ndim;
        for (int d = 0; same && d < e->ndim; d++)
            same = other->shape[d] == e->shape[d];
        if (!same && !strstr(e->name, ".base_layer."))
            return e->name;
    }
    return NULL;
}

static enum ax_status match_tensors(const struct ax_adapters *a, int which,
                                    const struct ax_peft *peft) {
    const struct ax_peft *own = &a->pefts[which];
    const char *name = missing_in(&peft->weights, &own->weights);
    if (!name)
        name = missing_in(&own->weights, &peft->weights);
    return name ? differs(a, which, peft, name) : AX_OK;
}

enum ax_status ax_adapters_match(const struct ax_adapters *a, int which,
                                 const struct ax_peft *peft) {
    const struct ax_peft_config *x = &a->pefts[which].config, *y = &peft->config;
    if (x->r != y->r)
        return differs(a, which, peft, "r");
    if (x->alpha != y->alpha)
        return differs(a, which, peft, "lora_alpha");
    if (x->rslora != y->rslora)
        return differs(a, which, peft, "use_rslora");
    if (x->dora != y->dora)
        return differs(a, which, peft, "use_dora");
    if (!same_patterns(x->ranks, x->n_ranks, y->ranks, y->n_ranks))
        return differs(a, which, peft, "rank_pattern");
    if (!same_patterns(x->alphas, x->n_alphas, y->alphas, y->n_alphas))
        return differs(a, which, peft, "alpha_pattern");
    if (x->save.n > 0 || y->save.n > 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: adapters with modules_to_save cannot be replaced in a running server",
                        x->save.n > 0 ? a->pefts[which].dir : peft->dir);
    return match_tensors(a, which, peft);
}

enum ax_status ax_adapters_replace(struct ax_adapters *a, struct ax_model *m, int which,
                                   struct ax_peft *peft) {
    AX_TRY(ax_adapter_bank_fill(m, which, peft));
    ax_peft_close(&a->pefts[which]);
    a->pefts[which] = *peft;
    *peft = (struct ax_peft){0};
    return AX_OK;
}
