/* kto: TRL's KTOTrainer. A document is an answer that is desirable or not; the loss of a micro-batch is
 * a mean over its documents. The reference estimates KL from rows of the micro-batch's own prompts and
 * others' answers, the product from the step's. */
#include <string.h>

#include "tests/goldens/run.h"

static enum ax_status objective(struct ax_run *r) {
    struct ax_kto_options o = {0};
    const char *type;
    AX_TRY(ax_json_str_or(ax_run_setting(r, "loss_type"), "kto", &type));
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "beta"), 0.1, &o.beta));
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "desirable_weight"), 1, &o.desirable_weight));
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "undesirable_weight"), 1, &o.undesirable_weight));
    o.apo_zero_unpaired = strcmp(type, "apo_zero_unpaired") == 0;
    if (!o.apo_zero_unpaired && strcmp(type, "kto") != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "loss_type: \"%s\" is not supported", type);
    r->objective = ax_objective_kto(&r->kto, &o);
    return AX_OK;
}

static enum ax_status read_rows(struct ax_run *r, int k, struct ax_run_micro *m,
                                const struct ax_run_names *names) {
    struct ax_run_rows rows;
    AX_TRY(ax_run_rows_open(&rows, r, k, names));
    enum ax_status st = AX_OK;
    for (int64_t i = 0; i < rows.ids.shape[0] && st == AX_OK; i++)
        st = ax_run_micro_add_row(m, &rows, i);
    ax_run_rows_close(&rows);
    return st;
}

static enum ax_status read_answers(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names names = {
        .ids = "input_ids", .mask = "attention_mask", .scored = "completion_mask", .least = 1};
    struct ax_golden_tensor labels;
    AX_TRY(read_rows(r, k, m, &names));
    AX_TRY(ax_run_fed(r, k, "label", &labels));
    enum ax_status st = ax_alloc(&m->desirable, (size_t)m->n, sizeof *m->desirable);
    if (st == AX_OK && labels.numel != m->n)
        st = ax_error(AX_ERR_DATA, "%s: label of micro-batch %d has another shape than input_ids",
                      r->fed.path, k);
    for (int i = 0; i < m->n && st == AX_OK; i++)
        m->desirable[i] = labels.v[i] != 0;
    ax_golden_tensor_free(&labels);
    return st;
}

static enum ax_status read_mismatched(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names names = {.ids = "KL_input_ids",
                                              .mask = "KL_attention_mask",
                                              .scored = "KL_completion_mask",
                                              .least = 1};
    return r->kto.o.apo_zero_unpaired ? AX_OK : read_rows(r, k, m, &names);
}

/* The KL of apo_zero_unpaired is logged as 0. */
static void metrics(const struct ax_run *r, const struct ax_run_micro *m,
                    struct ax_run_metrics *out) {
    (void)m;
    if (r->kto.o.apo_zero_unpaired)
        ax_run_metric_add(out, "kl", 0);
}

const struct ax_run_family ax_run_family_kto = {.name = "kto",
                                                .task = AX_TASK_UNPAIRED,
                                                .loss = 5e-6,
                                                .grad_norm = 1e-5,
                                                .mean = true,
                                                .objective = objective,
                                                .read = read_answers,
                                                .read_mismatched = read_mismatched,
                                                .metrics = metrics};
