/* sft: TRL's SFTTrainer. A micro-batch is padded rows, or packed documents laid end to end; its
 * loss is the sum over its tokens, divided by the step's tokens. */
#include <stdio.h>
#include <string.h>

#include "tests/goldens/run.h"

static enum ax_status objective(struct ax_run *r) {
    const char *type;
    AX_TRY(ax_json_str_or(ax_run_setting(r, "loss_type"), "nll", &type));
    r->sft.dynamic = strcmp(type, "dft") == 0;
    if (strcmp(type, "nll") != 0 && strcmp(type, "chunked_nll") != 0 && !r->sft.dynamic)
        return ax_error(AX_ERR_UNSUPPORTED, "loss_type: \"%s\" is not supported", type);
    r->objective = ax_objective_sft_with(&r->sft);
    return AX_OK;
}

/* Packed documents lie end to end, between the places in cu_seq_lens_q. */
static enum ax_status add_packed(struct ax_run *r, struct ax_run_micro *m,
                                 const struct ax_run_rows *rows,
                                 const struct ax_golden_tensor *cu) {
    for (int64_t i = 0; i + 1 < cu->numel; i++) {
        const int64_t first = (int64_t)cu->v[i], n = (int64_t)cu->v[i + 1] - first;
        if (first < 0 || n < 0 || n > rows->ids.numel - first)
            return ax_error(AX_ERR_DATA, "%s: cu_seq_lens_q is out of range", r->fed.path);
        AX_TRY(ax_run_micro_add(m, rows, first, n, first));
    }
    return AX_OK;
}

static enum ax_status read_documents(struct ax_run *r, int k, struct ax_run_micro *m) {
    char name[32];
    snprintf(name, sizeof name, "m%02d.cu_seq_lens_q", k);
    const bool packed = ax_safetensors_find(&r->fed, name) != NULL;
    const struct ax_run_names names = {
        .ids = "input_ids", .mask = packed ? NULL : "attention_mask", .scored = "labels"};
    struct ax_run_rows rows;
    struct ax_golden_tensor cu = {0};
    enum ax_status st = AX_OK;
    AX_TRY(ax_run_rows_open(&rows, r, k, &names));
    if (packed) {
        AX_TRY_GOTO(ax_run_fed(r, k, "cu_seq_lens_q", &cu), st, done);
        AX_TRY_GOTO(add_packed(r, m, &rows, &cu), st, done);
    }
    for (int64_t i = 0; i < rows.ids.shape[0] && !packed; i++)
        AX_TRY_GOTO(ax_run_micro_add_row(m, &rows, i), st, done);
done:
    ax_golden_tensor_free(&cu);
    ax_run_rows_close(&rows);
    return st;
}

static void metrics(const struct ax_run *r, const struct ax_run_micro *m,
                    struct ax_run_metrics *out) {
    (void)r;
    double entropy = 0, top1 = 0;
    for (int64_t t = 0; t < m->tokens; t++) {
        entropy += m->entropy[t];
        top1 += m->top1[t];
    }
    ax_run_metric_add(out, "entropy", entropy / (double)m->scored);
    ax_run_metric_add(out, "mean_token_accuracy", top1 / (double)m->scored);
}

const struct ax_run_family ax_run_family_sft = {.name = "sft",
                                                .loss = 5e-6,
                                                .grad_norm = 1e-5,
                                                .objective = objective,
                                                .read = read_documents,
                                                .metrics = metrics};
