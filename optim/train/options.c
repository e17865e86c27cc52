/* What follows from a run's options alone: which parts a run has, and the options of its passes. */
#include "optim/train/options.h"

#include "model/arch/kv_row.h"

/* ---- which parts it has ---- */

bool ax_train_has_rollout(const struct ax_train_options *o) {
    return o->rollout.group > 0;
}

bool ax_train_runs_ahead(const struct ax_train_options *o) {
    return o->rollout_ranks > 0 || o->rollout.staleness > 0;
}

bool ax_train_has_value(const struct ax_train_options *o) {
    return o->value.arch != NULL;
}

bool ax_train_has_reference(const struct ax_train_options *o) {
    return o->step.objective->documents && o->step.objective->documents->reference >= 0;
}

bool ax_train_copies_reference(const struct ax_train_options *o) {
    return !o->step.model.adapter || o->start;
}

const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o) {
    return o->step.relora.interval > 0 ? NULL : o->step.model.adapter;
}

int64_t ax_train_sequences_per_step(const struct ax_train_options *o, int data_ranks) {
    return ax_train_has_rollout(o)
               ? o->rollout.prompts
               : o->data.sequences_per_batch * o->step.n_microbatches * data_ranks;
}

/* ---- documents that begin alike ---- */

static bool attends_in_chunks(const struct ax_train_options *o) {
    return o->arch->chunk > 0 || (ax_train_has_value(o) && o->value.arch->chunk > 0);
}

/* What forbids it: losses of routers and indexers and biases of routers, which are of all tokens; noise and dropout, which are drawn for each;
 * rows that cp cuts, which would have the prompt in one part; states, which are of all tokens before; and chunks, of
 * which a batch has one table. */
static bool may_share_prompts(const struct ax_train_options *o) {
    const struct ax_step_options *so = &o->step;
    return so->balance_coef == 0 && so->sequence_coef == 0 && so->router_bias_speed == 0 &&
           so->neftune_alpha == 0 && so->model.indexers == AX_INDEXERS_FROZEN &&
           o->runtime.sizes.cp <= 1 && ax_state_layers(o->arch) == 0 && !attends_in_chunks(o) &&
           (!so->model.adapter || so->model.adapter->dropout == 0);
}

static bool pairs_share(const struct ax_train_options *o) {
    return o->step.objective->per == AX_PER_PAIR && may_share_prompts(o);
}

/* The most groups that a micro-batch of `completions` completions can contain parts of. */
static int64_t groups_in(const struct ax_rollout_options *o, int64_t completions) {
    const int64_t most = completions < o->prompts ? completions : o->prompts;
    int64_t groups = (completions + o->group - 2) / o->group + 1;
    if (o->steps > 1)
        return most;
    if (completions % o->group == 0)
        groups = completions / o->group;
    else if (o->group % completions == 0)
        groups = 1;
    return groups < most ? groups : most;
}

/* Sets `alike` and `keys` of a step whose documents may share their prompts, and `tokens` of one of sampled answers. */
static void share_prompts(struct ax_step_options *so, const struct ax_train_options *o) {
    const struct ax_rollout_options *r = &o->rollout;
    const int64_t completions = o->data.sequences_per_batch;
    if (pairs_share(o)) {
        so->alike = 2;
        so->keys = so->tokens;
    }
    if (r->group < 2 || r->observes || completions < 2 || !may_share_prompts(o))
        return;
    so->alike = r->group < completions ? r->group : completions;
    so->keys = so->tokens;
    so->tokens = groups_in(r, completions) * (r->max_prompt - 1) + completions * (1 + r->max_new);
}

/* ---- its passes ---- */

struct ax_step_options ax_train_step_options(const struct ax_train_options *o) {
    struct ax_step_options so = o->step;
    so.tokens = o->data.sequences_per_batch * o->data.sequence_tokens;
    so.n_docs = o->data.sequences_per_batch * o->data.sequence_docs;
    so.max_len = o->data.doc_tokens;
    share_prompts(&so, o);
    so.pad = o->data.pad;
    so.model.max_positions = o->samples.n > 0 ? o->samples.max_prompt + o->samples.max_new : 0;
    const struct ax_generate_options *asked = &o->requests.o;
    if (asked->n_seqs > 0 && so.model.max_positions < asked->max_prompt + asked->max_new)
        so.model.max_positions = asked->max_prompt + asked->max_new;
    if (so.model.max_positions < ax_tasks_positions(&o->tasks))
        so.model.max_positions = ax_tasks_positions(&o->tasks);
    if (so.model.max_positions < o->data.eval_doc_tokens)
        so.model.max_positions = o->data.eval_doc_tokens;
    return so;
}

struct ax_eval_options ax_train_eval_options(const struct ax_train_options *o) {
    return (struct ax_eval_options){.tokens = o->data.eval_tokens,
                                    .max_docs = o->data.eval_docs,
                                    .max_len = o->data.eval_tokens,
                                    .pairs_share = pairs_share(o),
                                    .documents = o->step.objective->documents,
                                    .distill = o->step.objective->head.distill};
}

struct ax_eval_options ax_train_reference_options(const struct ax_train_options *o) {
    return (struct ax_eval_options){.tokens = o->data.sequence_tokens,
                                    .max_docs = o->data.sequence_docs,
                                    .max_len = o->data.doc_tokens,
                                    .pairs_share = pairs_share(o),
                                    .documents = o->step.objective->documents};
}
