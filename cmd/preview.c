/* `axtrain preview`: the sequences that training will see, and what is left out. */
#include "cmd/preview/preview.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/commands.h"
#include "cmd/args/config_args.h"

/* ---- totals ---- */

static int64_t steps_of(int64_t rows, const struct ax_setup_data *d) {
    const int64_t per = d->sequences_per_step;
    const int64_t unit = d->drop_last ? per : d->drop_partial ? d->sequences_per_batch : 1;
    return (rows / unit * unit + per - 1) / per;
}

/* The most tokens that a row takes of an example, whose rest is left out. */
static int64_t most_tokens(const struct ax_setup_data *d, bool eval) {
    return d->pack_mode[eval] == AX_PACK_BEST ? d->keys.sequence_len[eval] : INT64_MAX;
}

static enum ax_status count(const struct ax_setup_data *d, bool eval, struct ax_preview_totals *t) {
    const struct ax_corpus *c = eval ? &d->eval : &d->train;
    struct ax_loader *loader = eval ? d->eval_loader : d->train_loader;
    const bool prompts = ax_method_of(d->cfg)->task == AX_TASK_PROMPT;
    const int64_t most = most_tokens(d, eval);
    struct ax_loader_count n;
    t->dropped = eval ? d->eval_report : d->train_report;
    if (!loader || (!eval && d->stream))
        return AX_OK;
    t->known = true;
    t->documents = (int64_t)c->n;
    for (size_t i = 0; i < c->n; i++) {
        const struct ax_example_ref *ref = &c->refs[i];
        const int64_t tokens = ref->n < most ? ref->n : most;
        t->longest = tokens > t->longest ? tokens : t->longest;
    }
    AX_TRY(ax_loader_count_epoch(loader, 0, d->pad_multiple, &n));
    if (!prompts)
        AX_TRY(ax_loader_count_trained(loader, 0, &t->trained));
    t->tokens = n.tokens;
    t->rows = n.sequences;
    t->padded = n.padded;
    t->efficiency = n.padded > 0 ? (double)n.tokens / (double)n.padded : 0;
    t->steps = steps_of(n.sequences, d);
    t->for_evaluation = eval || d->eval_sets.n > 0 ? 0 : (int64_t)d->eval.n;
    return AX_OK;
}

static enum ax_status add_line(void *ctx, const char *text) {
    struct ax_preview_lines *l = ctx;
    AX_TRY(ax_regrow(&l->list, l->n, l->n + 1, sizeof *l->list));
    AX_TRY(ax_strdup(&l->list[l->n], text));
    l->n++;
    return AX_OK;
}

static void free_lines(struct ax_preview_lines *l) {
    for (size_t i = 0; i < l->n; i++)
        ax_free(l->list[i]);
    ax_free(l->list);
}

/* ---- the command ---- */

static enum ax_status preview(struct ax_preview *p, struct ax_buf *out) {
    AX_TRY(count(p->data, false, &p->train));
    AX_TRY(count(p->data, true, &p->eval));
    AX_TRY(ax_preview_turns_open(p));
    AX_TRY(ax_setup_data_forms(p->data, add_line, &p->forms));
    AX_TRY(ax_setup_data_warnings(p->data, add_line, &p->warnings));
    if (p->train.known && p->train.rows > 0 && p->train.steps == 0 &&
        ax_method_of(p->cfg)->task != AX_TASK_PROMPT)
        AX_TRY(add_line(&p->warnings,
                        "one step needs more sequences than there are, so nothing would be "
                        "trained; lower gradient_accumulation_steps or micro_batch_size"));
    return p->o.json ? ax_preview_json(p, out) : ax_preview_print(p, out);
}

enum ax_status ax_cmd_preview(int argc, char **argv) {
    struct ax_preview p = {.o = {.step = 1, .rows = 2}};
    const char *color = "auto";
    const struct ax_arg args[] = {
        {"--step", AX_ARG_INT, &p.o.step, 1, INT64_MAX / 2},
        {"--rows", AX_ARG_INT, &p.o.rows, 0, INT32_MAX},
        {"--ids", AX_ARG_FLAG, &p.o.ids, 0, 0},
        {"--eval", AX_ARG_FLAG, &p.o.eval, 0, 0},
        {"--json", AX_ARG_FLAG, &p.o.json, 0, 0},
        {"--color", AX_ARG_STRING, &color, 0, 0},
    };
    struct ax_config cfg;
    struct ax_setup_data data = {0};
    struct ax_buf out = {0};
    enum ax_status st;
    AX_TRY(ax_setup_args(argc, argv, 6, args, AX_CONFIG_FOR_TEXT, &cfg));
    p.data = &data;
    p.cfg = &cfg;
    AX_TRY_GOTO(ax_color_mode_parse("--color", color, &p.o.color), st, done);
    AX_TRY_GOTO(ax_setup_data_open(&data, &cfg, false), st, done);
    AX_TRY_GOTO(preview(&p, &out), st, done);
    AX_TRY_GOTO(ax_write_result(NULL, out.data, out.len), st, done);
    st = ax_setup_data_require(&data);
done:
    free_lines(&p.forms);
    free_lines(&p.warnings);
    ax_buf_free(&out);
    ax_setup_data_close(&data);
    ax_config_free(&cfg);
    return st;
}
