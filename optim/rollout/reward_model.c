#include "optim/rollout/reward_model.h"

#include "model/adapter/load.h"
#include "optim/rollout/rollout.h"

#define MAX_DOCS 64 /* of a pass */

enum ax_status ax_reward_model_create(struct ax_reward_model *r, const struct ax_model *beside,
                                      const struct ax_model *lender) {
    const struct ax_model_options o = {.dtype = beside->dtype,
                                       .max_positions = r->max_len,
                                       .lender = lender,
                                       .adapter = r->adapter ? &r->adapter->config : NULL};
    const enum ax_status st = ax_model_create(&r->model, r->arch, beside->rt, &o);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "%s", r->name);
}

enum ax_status ax_reward_model_load(struct ax_reward_model *r) {
    AX_TRY(r->weights ? ax_model_load(&r->model, r->weights) : ax_model_init_random(&r->model, 1));
    return r->adapter ? ax_adapter_load(&r->model, r->adapter) : AX_OK;
}

void ax_reward_model_free(struct ax_reward_model *r) {
    ax_model_free(&r->model);
}

enum ax_status ax_reward_model_read(struct ax_reward_model *r, int n,
                                    const struct ax_document *docs, double *logits) {
    const struct ax_classify_options o = {.tokens = r->tokens,
                                          .max_docs = MAX_DOCS,
                                          .max_len = r->max_len,
                                          .shared = true,
                                          .stop_now = ax_rollout_stop_now};
    return ax_classify(&r->model, &o, n, docs, logits);
}
