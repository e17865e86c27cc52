/* `axtrain check mesh`: compares the same training steps on a mesh of ranks and on one rank.
 *
 * The ranks are threads of this process, or processes connected by Gloo. Documents, masks and
 * (without a folder) weights come from a counter-based RNG, so both sides see the same. Runs two
 * steps of SGD with momentum and clipping, and records losses (also the balancing loss of a mixture
 * of experts without a pipeline), gradient norms, gathered gradients and weights. Some documents
 * have no labels; some have no trained token. Tolerances: on `ref` (F64) 1e-11; on `cpu` those of
 * the golden files, or of bf16. */
#ifndef AX_OPTIM_CHECK_MESH_H
#define AX_OPTIM_CHECK_MESH_H

#include "optim/check/report.h"
#include "optim/step/step.h"
#include <sys/types.h>
#include "parallel/fabric/comm_local.h"
#include "parallel/job/store.h"

struct ax_mesh_check {
    const struct ax_arch *arch;
    const struct ax_hf *hf; /* weights; NULL: random */
    struct ax_mesh_sizes sizes;
    const char *backend; /* cpu, cuda or ref */
    /* Both sides' options. n_microbatches are those of a data rank, and the step's second one is fully
     * masked; virtual_stages 0 = the schedule's default; tokens are those of a sequence; with an
     * adapter, B starts at random too, and with relora it is restarted before the second step, with
     * adamw. The check sets dtype, optimizer, objective, clipping, balancing and documents. */
    struct ax_step_options step;
    int64_t longest; /* document; 0 = a third of the tokens */
    bool gloo;       /* processes instead of threads */
    struct ax_sft_options sft;
    bool bf16;  /* compute in bfloat16 instead of float32 (on cpu) */
    bool adamw; /* the optimizer; else SGD with momentum */
    /* For tests: called on every rank before the first step, planning and real, to break
     * something. */
    void (*tamper)(struct ax_step *s, void *ctx);
    void *tamper_ctx;
    /* out: arena bytes of the largest rank, and of the one rank */
    size_t rank_bytes, one_bytes;
    /* out: choices of experts by all tokens and layers, and how many differ at least, by the experts'
     * loads */
    double choices, other_choices;
};

/* AX_OK if both sides ran, whatever the figures. With gloo it returns in every process; *here is
 * false in those that have nothing to report. */
enum ax_status ax_mesh_check_run(struct ax_mesh_check *c, struct ax_golden_report *r, bool *here);

/* Ranks of a check: threads of this process, forked processes, or those that a launcher started. */
struct ax_mesh_launch {
    int world;
    bool processes;
    int rank;      /* out: 0 except in forked processes and in ranks of a launcher */
    bool launched; /* out: a launcher started this process as one of the ranks */

    /* for forked processes; rank 0 serves their store and waits for them */
    int listening, port;
    unsigned char key[AX_STORE_KEY_BYTES];
    struct ax_store_server *server;
    pid_t *children; /* [world], 0: none */
};

/* Rank 0 waits for the others. Returns st, or AX_ERR_PEER naming a failed process. */
enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st);

#endif
