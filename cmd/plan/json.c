/* {"model", "mesh": {…, "stages"}, "parameters", "tokens_per_step", "recompute", "memory", "run", "time", "plans": […]}. */
#include "cmd/plan/plan.h"

#include <stdio.h>

#include "base/text/json.h"

static json_t *plan_json(const struct ax_plan *p, enum ax_recompute mode) {
    json_t *blocks = json_array();
    for (int i = 0; i < p->blocks.n; i++) {
        const struct ax_plan_block *b = &p->blocks.list[i];
        json_array_append_new(blocks, json_pack("{ss ss sI}", "name", b->name, "where", b->where,
                                                "bytes", (json_int_t)b->bytes));
    }
    return json_pack("{ss sI sI sf sf so}", "recompute", ax_recompute_name(mode), "bytes",
                     (json_int_t)ax_arena_plan_total(&p->arena), "persistent_bytes",
                     (json_int_t)p->arena.persistent, "flops", p->flops, "model_flops",
                     p->model_flops, "blocks", blocks);
}

/* null for an unknown number. */
static json_t *known(int64_t n) {
    return n > 0 ? json_integer(n) : json_null();
}

static json_t *run_json(const struct ax_plan_words *w, const struct ax_train_forecast *t) {
    if (!w->plan.train)
        return json_null();
    return json_pack("{so so so so so sI sf sf sI}", "documents", known(t->epoch.examples),
                     "tokens_per_epoch", known(t->epoch.tokens), "sequences_per_epoch",
                     known(t->epoch.sequences), "steps", known(t->steps), "tokens",
                     known(t->tokens), "checkpoints", (json_int_t)t->checkpoints,
                     "checkpoint_bytes", t->checkpoint_bytes, "disk_bytes", t->disk_bytes,
                     "disk_available_bytes", (json_int_t)t->disk_available);
}

/* {"fsdp": {"all_gather": BYTES}}: without zeros. */
static json_t *sent_json(const struct ax_plan *p) {
    json_t *roles = json_object();
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        json_t *kinds = json_object();
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            if (p->bytes_sent[role][kind] > 0)
                json_object_set_new(kinds, ax_collective_name((enum ax_collective_kind)kind),
                                    json_real(p->bytes_sent[role][kind]));
        if (json_object_size(kinds) > 0)
            json_object_set(roles, ax_role_name((enum ax_role)role), kinds);
        json_decref(kinds);
    }
    return roles;
}

/* Of each pipeline stage, the rank that needs most. */
static json_t *stages_json(const struct ax_plan_figures *f) {
    json_t *all = json_array();
    for (int i = 0; i < f->n_stages; i++) {
        const struct ax_plan_stage *s = &f->stages[i];
        json_array_append_new(all, json_pack("{si sI si so}", "rank", s->mesh.rank, "arena_bytes",
                                             (json_int_t)s->arena, "layers", s->plan.n_layers,
                                             "sent_bytes_per_step", sent_json(&s->plan)));
    }
    return all;
}

static json_t *time_json(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    const struct ax_plan_time *t = &f->time;
    if (!w->plan.rates)
        return json_null();
    json_t *work = json_object(), *roles = json_object(), *ops = json_object();
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (t->ops[op].calls > 0)
            json_object_set_new(
                ops, ax_op_name((enum ax_op)op),
                json_pack("{sf sf}", "seconds", t->ops[op].seconds, "calls", t->ops[op].calls));
    for (int kind = 0; kind < AX_TIME_KINDS; kind++)
        json_object_set_new(work, ax_time_kind_name((enum ax_time_kind)kind),
                            json_real(t->work[kind]));
    for (int role = 0; role < AX_TIME_ROLES; role++)
        if (t->moved[role] > 0)
            json_object_set_new(roles, ax_time_role_name((enum ax_time_role)role),
                                json_pack("{sf sf}", "moved_seconds", t->moved[role],
                                          "exposed_seconds", t->exposed[role]));
    return json_pack("{ss ss sf sf sf sf sf sI so so so}", "machine", w->plan.rates->hardware.name,
                     "rates", w->plan.rates->source, "step_seconds", t->step, "tokens_per_second",
                     t->tokens_per_second, "mfu", t->mfu, "mfu_full_attention", t->mfu_full,
                     "idle_seconds", t->idle, "arena_bytes", (json_int_t)t->arena,
                     "compute_seconds", work, "ops", ops, "transfers", roles);
}

enum ax_status ax_plan_print_json(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    const struct ax_plan *p = &f->plans[f->chosen];
    const struct ax_train_fit *fit = &f->forecast.fit;
    json_t *plans = json_array();
    char *text = NULL;
    size_t len;
    for (int mode = (int)w->plan.first; mode <= (int)w->plan.last; mode++)
        json_array_append_new(plans, plan_json(&f->plans[mode], (enum ax_recompute)mode));
    json_t *root = json_pack(
        "{ss s{si si sf so} sI sI ss s{sI sI sI sb} so sf so so}", "model", w->name, "mesh",
        "ranks", w->plan.runtime.world > 1 ? w->plan.runtime.world : 1, "rank",
        w->plan.runtime.rank, "pipeline_idle", p->idle, "stages", stages_json(f), "parameters",
        (json_int_t)p->parameters, "tokens_per_step", (json_int_t)ax_plan_step_tokens(&w->plan, p),
        "recompute", ax_recompute_name(f->chosen), "memory", "arena_bytes", (json_int_t)fit->arena,
        "other_bytes", (json_int_t)fit->beside, "available_bytes", (json_int_t)fit->available,
        "fits", fit->fits, "run", run_json(w, &f->forecast), "tokens_per_second", f->speed, "time",
        time_json(w, f), "plans", plans);
    if (!root)
        return ax_error(AX_ERR_NOMEM, "out of memory for the plan's JSON");
    const enum ax_status st = ax_json_dump(root, &text, &len);
    if (st == AX_OK)
        printf("%s\n", text);
    ax_free(text);
    json_decref(root);
    return st;
}
