/* run.json: what stays constant during a run, for later inspection. */
#include "base/log.h"
#include "optim/plan/plan.h"
#include "optim/train/run.h"

/* {"bytes", "recompute", "blocks": [{"name", "where", "bytes"}]}: the plan's bytes per name. */
static enum ax_status add_memory(json_t *about, const struct ax_plan *p,
                                 const struct ax_step_options *so) {
    json_t *blocks = json_array();
    for (int i = 0; i < p->n_blocks; i++)
        json_array_append_new(blocks, json_pack("{ss ss sI}", "name", p->blocks[i].name, "where",
                                                p->blocks[i].where, "bytes",
                                                (json_int_t)p->blocks[i].bytes));
    json_t *memory = json_pack("{sI ss so}", "bytes", (json_int_t)ax_arena_plan_total(&p->arena),
                               "recompute", ax_recompute_name(so->recompute), "blocks", blocks);
    if (!memory || json_object_set_new(about, "memory", memory) != 0 ||
        json_object_set_new(about, "compute_dtype",
                            json_string(ax_dtype_info(so->model.dtype)->name)) != 0 ||
        json_object_set_new(about, "parameters", json_integer(p->parameters)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for run.json");
    return AX_OK;
}

static enum ax_status write_about(const struct ax_train *t, const struct ax_step_options *so) {
    const struct ax_train_options *o = t->o;
    struct ax_plan *plan = NULL;
    char *path = NULL, *text = NULL;
    size_t len;
    json_t *about = json_copy((json_t *)(uintptr_t)o->about); /* jansson takes no const */
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&plan, 1, sizeof *plan), st, done);
    AX_TRY_GOTO(ax_plan_make(plan, &t->runtime, o->arch, so), st, done);
    AX_TRY_GOTO(add_memory(about, plan, so), st, done);
    AX_TRY_GOTO(ax_json_dump(about, &text, &len), st, done);
    AX_TRY_GOTO(ax_path_join(&path, o->save.output_dir, "run.json"), st, done);
    st = ax_write_file_atomic(path, text, len);
done:
    json_decref(about);
    ax_free(plan);
    ax_free(path);
    ax_free(text);
    return st;
}

void ax_train_write_about(const struct ax_train *t, const struct ax_step_options *so) {
    if (!t->o->about || write_about(t, so) == AX_OK)
        return;
    ax_log_warn("run.json: %s", ax_error_text());
    ax_error_clear();
}
