/* Answers to evaluation prompts, shown after an evaluation. */
#include "base/log.h"
#include "optim/train/run.h"

static enum ax_status put_sample(const struct ax_train *t, int i, const struct ax_sequence *s,
                                 struct ax_buf *prompt, struct ax_buf *answer) {
    const struct ax_samples *o = &t->o->samples;
    AX_TRY(o->text(o->ctx, s->prompt, s->n_prompt, prompt));
    AX_TRY(o->text(o->ctx, s->tokens, s->n_new, answer));
    ax_metrics_sample(t->metrics, t->done, i + 1, prompt, answer);
    return AX_OK;
}

/* Only warns if a sample cannot be shown: training continues. */
static void sampled(void *ctx, int i, const struct ax_sequence *s) {
    struct ax_buf prompt = {0}, answer = {0};
    if (put_sample(ctx, i, s, &prompt, &answer) != AX_OK)
        ax_log_warn("sample %d: %s", i + 1, ax_error_text());
    ax_error_clear();
    ax_buf_free(&prompt);
    ax_buf_free(&answer);
}

enum ax_status ax_train_show_samples(struct ax_train *t) {
    if (t->o->samples.n == 0)
        return AX_OK;
    ax_metrics_doing(t->metrics, "sampling", 0, 0);
    return ax_samples_run(&t->step.model, &t->o->samples, sampled, t);
}
