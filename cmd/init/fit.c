/* Searches for what fits: dry runs of steps (optim/plan/plan.h), best option first. */
#include "base/clock.h"
#include "cmd/init/init.h"
#include "kernels/cpu/isa.h"
#include "model/arch/classifier.h"
#include "optim/train/train.h"

#define RESERVE 1.05 /* this many times the plan must be free */
#define DOCS    200  /* upper limit of documents per packed sequence: sample_packing_bin_size */
/* Size of a micro-batch, if memory allows: larger ones are not faster. */
#define BATCH_TOKENS 4096
/* Below this size, micro-batches are slow, so recompute is preferred. */
#define LEAST_TOKENS 512

const char *const ax_init_method_names[AX_INIT_METHODS] = {
    [AX_INIT_FULL] = "full", [AX_INIT_LORA] = "lora", [AX_INIT_QLORA] = "qlora"};

struct search {
    struct ax_init_fit *f;
    const struct ax_init_problem *p;
};

/* Bytes needed, as training will count them (optim/train/train.h) with the written file. */
static enum ax_status needed(struct search *s, enum ax_init_method method, enum ax_recompute mode,
                             int64_t micro, uint64_t *bytes) {
    struct ax_peft_config lora = {
        .r = AX_INIT_LORA_R, .alpha = 2.0 * AX_INIT_LORA_R, .all_linear = true};
    const struct ax_init_shape *shape = s->p->shape;
    const bool short_rows = !shape->packing && shape->longest < shape->sequence_len;
    const int64_t length = short_rows && shape->longest > 0 ? shape->longest : shape->sequence_len;
    const int64_t group = shape->pairs ? 2 : 1, docs = shape->packing ? DOCS : group;
    struct ax_step_options so = {
        .model.dtype = ax_cpu_prefers_bf16(ax_cpu_isa()) ? AX_BF16 : AX_F32,
        .recompute = mode,
        .objective = s->p->objective,
        .max_norm = 1,
        .n_microbatches = (int)s->f->accumulate,
        .tokens = micro * length * group,
        .n_docs = micro * docs,
        .max_len = length,
        .model.adapter = method == AX_INIT_FULL ? NULL : &lora,
        .model.base_store = method == AX_INIT_QLORA ? AX_STORAGE_NF4 : AX_STORAGE_PLAIN,
    };
    AX_TRY(ax_optimizer_find("adamw", &so.optimizer, &so.opt));
    struct ax_train_options o = {
        .arch = s->p->arch,
        .runtime = {.backend = "cpu"},
        .step = so,
        .data = {.sequence_tokens = length * group, .sequence_docs = docs, .doc_tokens = length}};
    if (shape->evaluates) {
        o.data.eval_tokens = micro * length * group;
        o.data.eval_docs = o.data.eval_tokens / 8 > DOCS ? o.data.eval_tokens / 8 : DOCS;
    }
    struct ax_train_fit fit = {0};
    enum ax_status st = ax_classifier_adapter(s->p->arch, &lora);
    if (st == AX_OK)
        st = ax_train_fit(&o, &so, &fit);
    ax_peft_config_free(&lora);
    *bytes = fit.arena + fit.beside;
    return st;
}

/* The largest micro-batch that fits with this method and recompute. */
static enum ax_status try_mode(struct search *s, enum ax_init_method method, enum ax_recompute mode,
                               bool *found) {
    const int64_t length = s->p->shape->sequence_len * (s->p->shape->pairs ? 2 : 1);
    int64_t micro = BATCH_TOKENS / length > 1 ? BATCH_TOKENS / length : 1;
    micro = micro < s->p->rows_per_step ? micro : s->p->rows_per_step;
    for (;; micro /= 2) {
        struct ax_init_fit *f = s->f;
        uint64_t bytes;
        f->accumulate = s->p->rows_per_step / micro;
        AX_TRY(needed(s, method, mode, micro, &bytes));
        if (f->need[method] == 0 || bytes < f->need[method])
            f->need[method] = bytes;
        *found = f->available == 0 || (double)bytes * RESERVE <= (double)f->available;
        if (*found) {
            f->method = method;
            f->recompute = mode;
            f->micro = micro;
            f->chosen = bytes;
            return AX_OK;
        }
        const bool smaller =
            micro > 1 && (micro / 2 * length >= LEAST_TOKENS || mode == AX_RECOMPUTE_ON);
        if (!smaller)
            return AX_OK;
    }
}

static enum ax_status search_all(struct search *s) {
    static const enum ax_recompute modes[] = {AX_RECOMPUTE_OFF, AX_RECOMPUTE_SELECTIVE,
                                              AX_RECOMPUTE_ON};
    const int methods = s->p->arch->moe.n_experts > 0 ? 1 : AX_INIT_METHODS; /* no adapters there */
    char need[32], is[32];
    for (int m = 0; m < methods; m++)
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            bool found;
            AX_TRY(try_mode(s, (enum ax_init_method)m, modes[i], &found));
            if (found)
                return AX_OK;
        }
    return ax_error(
        AX_ERR_NOMEM,
        "this model does not fit in memory: %s with sequences of %lld tokens needs %s, but only "
        "%s are free; use a smaller model, shorter records, or a larger machine",
        methods > 1 ? "even QLoRA"
                    : "full fine-tuning (adapters on experts are not "
                      "supported yet)",
        (long long)s->p->shape->sequence_len,
        ax_format_bytes(need, sizeof need, (double)s->f->need[methods - 1]),
        ax_format_bytes(is, sizeof is, (double)s->f->available));
}

enum ax_status ax_init_fit_choose(struct ax_init_fit *f, const struct ax_init_problem *p) {
    struct search search = {.f = f, .p = p};
    *f = (struct ax_init_fit){.available = p->available};
    return search_all(&search);
}
