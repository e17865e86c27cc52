/* Records of a file → scores, handed over as lines and a total. */
#include "cmd/eval/score.h"

#include "base/io.h"
#include "base/log.h"
#include "data/records/format/tools.h"

static enum ax_status add(struct ax_score *s, const struct ax_raw_row *raw) {
    const struct ax_origin origin = {raw->file, raw->line, raw->index};
    json_t *record;
    AX_TRY(ax_rows_parse(s->rows, raw, &record));
    const enum ax_status st = ax_score_set_add(&s->set, record, origin, NULL);
    json_decref(record);
    return st == AX_ERR_DATA || st == AX_ERR_EMPTY
               ? ax_error_prefix(st, "%s:%llu", ax_rows_file(s->rows, raw->file),
                                 (unsigned long long)raw->line)
               : st;
}

static enum ax_status warn_of_lost(const struct ax_score *s) {
    const struct ax_template *t = ax_format_template(s->set.format);
    const size_t n = ax_rows_n_files(s->rows);
    struct ax_buf text = {0};
    char **files;
    AX_TRY(ax_alloc(&files, n, sizeof *files));
    for (size_t i = 0; i < n; i++)
        files[i] = (char *)(uintptr_t)ax_rows_file(s->rows, i);
    const enum ax_status st = t ? ax_tools_put_lost(&text, t, s->set.lost, files, n) : AX_OK;
    if (st == AX_OK && text.len > 0)
        ax_log_warn("%s; the scores do not depend on them", text.data);
    ax_buf_free(&text);
    ax_free(files);
    return st;
}

static enum ax_status read_all(struct ax_score *s) {
    const struct ax_rows_options o = {.path = s->e->data};
    const int64_t most = s->e->max_rows > 0 ? s->e->max_rows : INT64_MAX;
    struct ax_raw_row raw;
    bool got = true;
    AX_TRY(ax_rows_open(&s->rows, &o));
    AX_TRY(ax_score_set_open(&s->set, &s->scorer));
    while ((int64_t)s->set.n_rows < most) {
        AX_TRY(ax_rows_next(s->rows, &raw, &got));
        if (!got)
            break;
        AX_TRY(add(s, &raw));
    }
    AX_TRY(warn_of_lost(s));
    return s->set.n_rows > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: no records to score", s->e->data);
}

static enum ax_status put_results(const struct ax_score *s, struct ax_buf *out) {
    struct ax_buf rows = {0};
    enum ax_status st = ax_score_put_rows(s, s->e->out ? &rows : out);
    if (st == AX_OK && s->e->out && ax_ranks_lead(&s->e->ranks))
        st = ax_write_file_atomic(s->e->out, rows.data, rows.len);
    ax_buf_free(&rows);
    AX_TRY(st);
    return ax_score_put_total(s, s->e->json || !s->e->out, out);
}

enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out) {
    struct ax_score s = {.e = e};
    const struct ax_text_scorer_options o = {.model = e->model,
                                             .kind = kind,
                                             .adapters = &e->adapter_args,
                                             .dtype = e->dtype,
                                             .store = e->store,
                                             .runtime =
                                                 ax_ranks_runtime(&e->ranks, (int)e->threads)};
    enum ax_status st;
    AX_TRY_GOTO(ax_text_scorer_open(&s.scorer, &o), st, done);
    AX_TRY_GOTO(read_all(&s), st, done);
    AX_TRY_GOTO(ax_score_set_run(&s.set), st, done);
    st = put_results(&s, out);
done:
    ax_score_set_close(&s.set);
    ax_rows_close(s.rows);
    ax_text_scorer_close(&s.scorer);
    return st;
}
