/* A timeline of some steps, of all ranks, on one clock: its zero is when all have reached the first of them. */
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "optim/metrics/trace.h"
#include "optim/train/run.h"

static bool is_profiled(const struct ax_train *t) {
    const int64_t first = t->o->profile_first;
    return t->o->profile_steps > 0 && !t->timeline.over && t->done >= first &&
           t->done < first + t->o->profile_steps;
}

enum ax_status ax_train_timeline_begin(struct ax_train *t) {
    double now = 0;
    if (t->timeline.on || !is_profiled(t))
        return AX_OK;
    if (ax_queue_is_late(t->rt->q)) {
        ax_log_warn("profiler_steps: this device computes after the calls that a timeline times; "
                    "none is written");
        t->timeline.over = true;
        return AX_OK;
    }
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &now, 1)); /* all are here */
    t->timeline.zero = ax_clock_now();
    t->timeline.first = t->done;
    t->timeline.on = true;
    t->rt->q->timeline = &t->timeline.spans;
    return AX_OK;
}

static enum ax_status take_spans(void *ctx, int rank, const char *data, int64_t bytes) {
    (void)rank;
    return ax_trace_join(ctx, data, (size_t)bytes);
}

/* On rank 0 the file's text. */
static enum ax_status merge_spans(struct ax_train *t, struct ax_trace *all) {
    struct ax_trace own = {0};
    AX_TRY(ax_trace_begin(all));
    enum ax_status st =
        ax_trace_timeline(&own, t->rt->mesh.rank, &t->timeline.spans, t->timeline.zero);
    st = ax_team_agree(&t->team, st);
    if (st == AX_OK)
        st = ax_team_collect(&t->team, own.text.data, (int64_t)own.text.len, take_spans, all);
    ax_trace_free(&own);
    AX_TRY(st);
    return ax_trace_end(all);
}

static enum ax_status write_timeline(const struct ax_train *t, const struct ax_trace *all) {
    char *path;
    if (!ax_train_is_main(t))
        return AX_OK;
    AX_TRY(ax_path_join(&path, t->o->save.output_dir, "timeline.json"));
    if (ax_write_file_atomic(path, all->text.data, all->text.len) != AX_OK)
        ax_log_warn("profiler_steps: %s", ax_error_text());
    else
        ax_log_info("timeline: %s has steps %lld to %lld", path, (long long)t->timeline.first + 1,
                    (long long)t->done);
    ax_error_clear();
    ax_free(path);
    return AX_OK;
}

enum ax_status ax_train_timeline_end(struct ax_train *t, bool last) {
    struct ax_trace all = {0};
    if (!t->timeline.on || (!last && is_profiled(t)))
        return AX_OK;
    t->rt->q->timeline = NULL;
    t->timeline.on = false;
    t->timeline.over = true;
    AX_TRY(ax_train_save_poll(t, AX_SAVE_WAIT)); /* the team is the saver's until then */
    if (t->timeline.spans.lost > 0)
        ax_log_warn("profiler_steps: %zu ops at the end are not in the timeline",
                    t->timeline.spans.lost);
    enum ax_status st = merge_spans(t, &all);
    if (st == AX_OK)
        st = write_timeline(t, &all);
    ax_trace_free(&all);
    ax_timeline_free(&t->timeline.spans);
    return st;
}
