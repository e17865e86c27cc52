/* completions.jsonl as a table, for what reads tables: completions.parquet, if DuckDB is there. */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/train/setup.h"
#include "data/records/rows/parquet.h"

/* A name within "…" within '…'. */
static enum ax_status put_name(struct ax_buf *b, const char *name) {
    enum ax_status st = AX_OK;
    for (; *name && st == AX_OK; name++)
        st = *name == '"' || *name == '\'' ? ax_buf_printf(b, "%c%c", *name, *name)
                                           : ax_buf_append(b, name, 1);
    return st;
}

/* Those of docs/run.md. r NULL: a run without rewards. */
static enum ax_status columns(const struct ax_rewards *r, struct ax_buf *b) {
    AX_TRY(ax_buf_puts(b, "step: 'BIGINT', file: 'VARCHAR', line: 'BIGINT', prompt: 'VARCHAR', "
                          "completion: 'VARCHAR', tokens: 'BIGINT', truncated: 'BOOLEAN'"));
    if (!r)
        return AX_OK;
    AX_TRY(ax_buf_puts(b, ", rewards: 'STRUCT("));
    for (int i = 0; i < ax_rewards_count(r); i++) {
        AX_TRY(ax_buf_puts(b, i ? ", \"" : "\""));
        AX_TRY(put_name(b, ax_rewards_name(r, i)));
        AX_TRY(ax_buf_puts(b, "\" DOUBLE"));
    }
    return ax_buf_puts(b, ")', advantage: 'DOUBLE'");
}

/* What functions have logged is JSON, whose columns are known to them alone. Quotes in texts have a backslash. */
static enum ax_status put_extra(const char *lines, struct ax_buf *b) {
    static const char key[] = ", \"extra\": {";
    struct ax_mapping m;
    AX_TRY(ax_map_file(&m, lines));
    const bool has = memmem(m.data, m.len, key, strlen(key)) != NULL;
    ax_unmap_file(&m);
    return has ? ax_buf_puts(b, ", extra: 'JSON'") : AX_OK;
}

static enum ax_status write_table(const struct ax_rewards *r, const char *folder) {
    struct ax_buf names = {0};
    char *from = NULL, *to = NULL;
    enum ax_status st;
    AX_TRY_GOTO(columns(r, &names), st, done);
    AX_TRY_GOTO(ax_path_join(&from, folder, "completions.jsonl"), st, done);
    AX_TRY_GOTO(ax_path_join(&to, folder, "completions.parquet"), st, done);
    if (!ax_path_exists(from))
        goto done;
    AX_TRY_GOTO(put_extra(from, &names), st, done);
    st = ax_parquet_from_jsonl(from, names.data, to);
done:
    ax_buf_free(&names);
    ax_free(from);
    ax_free(to);
    return st;
}

void ax_train_completions_table(const struct ax_train_setup *s) {
    const struct ax_rollout_options *o = &s->o.rollout;
    const enum ax_status st = o->group > 0 ? write_table(o->rewards, s->o.save.output_dir) : AX_OK;
    if (st != AX_OK && st != AX_ERR_UNSUPPORTED)
        ax_log_warn("completions.parquet was not written, completions.jsonl has the same: %s",
                    ax_error_text());
}
