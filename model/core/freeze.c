#include "model/core/freeze.h"

#include <string.h>

#include "base/mem.h"
#include "base/text/regex.h"
#include "model/core/pass.h"

/* "name[3:7]" selects rows of a matrix in axolotl. */
static bool has_range(const char *pattern) {
    const char *open = strrchr(pattern, '[');
    const size_t n = open ? strspn(open + 1, "0123456789:") : 0;
    return n > 0 && strcmp(open + 1 + n, "]") == 0;
}

static enum ax_status compile(const char *pattern, struct ax_regex **out) {
    struct ax_buf text = {0};
    enum ax_status st;
    if (has_range(pattern))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "unfrozen_parameters: \"%s\": training only some rows of a matrix is not "
                        "implemented; remove the range",
                        pattern);
    AX_TRY_GOTO(ax_buf_puts(&text, "\\A(?:"), st, done);
    for (const char *c = pattern; *c; c++)
        AX_TRY_GOTO(*c == '.' ? ax_buf_puts(&text, "\\.") : ax_buf_append(&text, c, 1), st, done);
    AX_TRY_GOTO(ax_buf_puts(&text, ")"), st, done);
    st = ax_regex_compile(out, text.data, text.len, false);
    if (st != AX_OK)
        st = ax_error_prefix(st, "unfrozen_parameters: \"%s\"", pattern);
done:
    ax_buf_free(&text);
    return st;
}

/* Marks the names whose beginning matches the pattern; sets *any if there are any. */
static enum ax_status mark(const char *pattern, int n, const struct ax_param *params, bool *marks,
                           bool *any) {
    struct ax_regex *re = NULL;
    struct ax_regex_work work = {0};
    size_t start, end;
    AX_TRY(compile(pattern, &re));
    enum ax_status st = AX_OK;
    for (int i = 0; i < n && st == AX_OK; i++) {
        struct ax_regex_iter it =
            ax_regex_search(re, &work, params[i].name, strlen(params[i].name));
        bool yes;
        st = ax_regex_next(&it, &yes, &start, &end);
        if (st == AX_OK && yes) {
            *any = true;
            if (marks)
                marks[i] = true;
        }
    }
    ax_regex_work_free(&work);
    ax_regex_free(re);
    return st;
}

enum ax_status ax_freeze_except(const struct ax_peft_names *patterns, int n,
                                struct ax_param *params) {
    bool *marks, any;
    AX_TRY(ax_alloc(&marks, (size_t)n, sizeof *marks));
    enum ax_status st = AX_OK;
    for (int i = 0; i < patterns->n && st == AX_OK; i++)
        st = mark(patterns->names[i], n, params, marks, &any);
    for (int i = 0; i < n && st == AX_OK; i++)
        params[i].trainable = marks[i] && !params[i].buffer;
    ax_free(marks);
    return st;
}

/* The experts' matrices and gradients are used as one. */
static enum ax_status check_experts(const struct ax_layer *l, const struct ax_param *first,
                                    int64_t n) {
    for (int64_t i = 1; first && i < n; i++)
        if (first[i].trainable != first->trainable)
            return ax_error(AX_ERR_CONFIG,
                            "unfrozen_parameters: %s is trained but %s is frozen; all experts of "
                            "layer %d must be trained together, and gate with up",
                            first[first[i].trainable ? i : 0].name,
                            first[first[i].trainable ? 0 : i].name, l->index);
    return AX_OK;
}

enum ax_status ax_freeze_check(const struct ax_model *m, const struct ax_peft_names *patterns) {
    const int64_t E = m->arch.moe.n_experts;
    for (int i = 0; i < patterns->n; i++) {
        bool any = false;
        AX_TRY(mark(patterns->names[i], m->n_params, m->params, NULL, &any));
        if (!any)
            return ax_error(AX_ERR_CONFIG,
                            "unfrozen_parameters: \"%s\" matches no parameter of this %s model "
                            "(its names look like %s)",
                            patterns->names[i], m->arch.family->model_type, m->params[1].name);
    }
    for (int i = 0; i < (int)m->arch.n_layers; i++) {
        const struct ax_moe_part *moe = &m->layers[i].moe;
        AX_TRY(check_experts(&m->layers[i], moe->gate_up, 2 * E));
        AX_TRY(check_experts(&m->layers[i], moe->down, E));
    }
    return AX_OK;
}
