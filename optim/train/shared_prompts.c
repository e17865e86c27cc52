#include "optim/train/shared_prompts.h"

/* The routers' loss is of all tokens, noise is drawn for each, and a row that is cut would have a
 * prompt in one part. */
static bool may_share(const struct ax_train_options *o) {
    const struct ax_step_options *so = &o->step;
    return so->balance_coef == 0 && so->sequence_coef == 0 && so->neftune_alpha == 0 &&
           o->runtime.sizes.cp <= 1 && (!so->model.adapter || so->model.adapter->dropout == 0);
}

bool ax_train_pairs_share(const struct ax_train_options *o) {
    return o->step.objective->per == AX_PER_PAIR && may_share(o);
}

void ax_train_share_prompts(struct ax_step_options *so, const struct ax_train_options *o) {
    const struct ax_rollout_options *r = &o->rollout;
    const int64_t completions = o->data.sequences_per_batch;
    if (ax_train_pairs_share(o)) {
        so->alike = 2;
        so->keys = so->tokens;
    }
    if (r->group < 2 || completions < 2 || !may_share(o))
        return;
    so->alike = r->group < completions ? r->group : completions;
    so->keys = so->tokens;
    so->tokens =
        ax_rollout_groups_in(r, completions) * (r->max_prompt - 1) + completions * (1 + r->max_new);
}
