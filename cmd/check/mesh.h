/* `axtrain check mesh`: the same training steps on a mesh of ranks and on one rank, compared.
 *
 * The ranks are threads of this process, or processes connected by Gloo. Documents, masks and (if
 * no folder is given) weights are random by counter RNG, so both sides see the same. Two steps of
 * SGD with momentum and clipping; losses (of a mixture of experts without a pipeline the balancing
 * loss too), gradient norms, gathered gradients and weights are noted in the report. Some documents
 * have no labels, of some none is trained. Tolerances: on `ref` (F64) 1e-11; on `cpu` (F32) those
 * of the golden files. */
#ifndef AX_CMD_CHECK_MESH_H
#define AX_CMD_CHECK_MESH_H

#include "cmd/check/golden.h"
#include "optim/step.h"

struct ax_mesh_check {
    const struct ax_arch *arch;
    const struct ax_hf *hf; /* weights; NULL: random */
    struct ax_mesh_sizes sizes;
    const char *backend; /* "ref" or "cpu" */
    enum ax_recompute recompute;
    int n_microbatches; /* of each data rank; the second of the step is masked entirely */
    int64_t tokens;     /* of a row */
    bool gloo;          /* processes instead of threads */
    const struct ax_peft_config *adapter; /* NULL: everything trains; else B begins at random too */
    enum ax_store base_store;             /* of the frozen matrices under it */
    struct ax_sft_options sft;
    double neftune_alpha;
    /* For tests: called on every rank before the first step, planned and real, to break something.
     */
    void (*tamper)(struct ax_step *s, void *ctx);
    void *tamper_ctx;
    /* out: bytes of the largest rank's arena, and of the one rank's */
    size_t rank_bytes, one_bytes;
};

/* AX_OK when both sides ran, whatever the figures say. With gloo it returns in every process, and
 * *here is false in those that have nothing to report. */
enum ax_status ax_mesh_check_run(struct ax_mesh_check *c, struct ax_golden_report *r, bool *here);

#endif
