/* What a server is asked for the log-probs of texts. */
#include "base/mem.h"
#include "data/remote/teacher.h"

static enum ax_status put_ids(struct ax_buf *b, const struct ax_remote_text *text) {
    AX_TRY(ax_buf_puts(b, "["));
    for (int64_t i = 0; i < text->n; i++)
        AX_TRY(ax_buf_printf(b, i > 0 ? ",%d" : "%d", text->ids[i]));
    return ax_buf_puts(b, "]");
}

static enum ax_status put_body(struct ax_buf *b, const struct ax_remote_teacher *t, int64_t n,
                               const struct ax_remote_text *texts) {
    char *name = json_dumps(t->name, JSON_ENCODE_ANY);
    if (!name)
        return ax_error(AX_ERR_NOMEM, "out of memory for a request");
    const enum ax_status st = ax_buf_printf(b, "{\"model\":%s,\"prompt\":[", name);
    ax_free_hook(name);
    AX_TRY(st);
    for (int64_t i = 0; i < n; i++) {
        AX_TRY(ax_buf_puts(b, i > 0 ? "," : ""));
        AX_TRY(put_ids(b, &texts[i]));
    }
    return ax_buf_printf(b, "],\"max_tokens\":%d,\"temperature\":0,\"prompt_logprobs\":%d}", t->one,
                         t->o.k);
}

enum ax_status ax_remote_teacher_body(const struct ax_remote_teacher *t, int64_t n,
                                      const struct ax_remote_text *texts, char **body) {
    struct ax_buf b = {0};
    const enum ax_status st = put_body(&b, t, n, texts);
    if (st != AX_OK)
        ax_buf_free(&b);
    *body = b.data;
    return st;
}
