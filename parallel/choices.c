#include "parallel/choices.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/transfer.h"
#include "parallel/runtime.h"

#define LARGEST ((size_t)16 << 20) /* bytes of a file */

/* Warns if it is AX_ERR_DATA: then all goes on without. */
static enum ax_status or_warn(enum ax_status st, const char *where) {
    if (st != AX_ERR_DATA)
        return st;
    ax_log_warn("%s: its algorithms for matrix products are not used, and measured again: %s",
                where, ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status broadcast(struct ax_runtime *rt, void *data, int64_t bytes) {
    struct ax_queue *host;
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_U8, .recv = data, .count = bytes};
    AX_TRY(ax_host_queue_open(rt->q, &host));
    const enum ax_status st = ax_comm_run(&rt->comms[AX_ROLE_WORLD], host, &what);
    ax_host_queue_close(rt->q, host);
    return st;
}

/* Rank 0's text to all, which compute with it. */
static enum ax_status share(struct ax_runtime *rt, struct ax_buf *text) {
    int64_t n = (int64_t)text->len;
    AX_TRY(broadcast(rt, &n, sizeof n));
    if (n == 0)
        return AX_OK;
    if ((size_t)n >= text->cap) {
        AX_TRY(ax_regrow(&text->data, text->cap, (size_t)n + 1, 1));
        text->cap = (size_t)n + 1;
    }
    AX_TRY(broadcast(rt, text->data, n));
    text->data[n] = '\0';
    return or_warn(ax_queue_choose(rt->q, text->data), "rank 0");
}

bool ax_choices_are_new(const struct ax_runtime *rt) {
    return rt->q->counters.measured != rt->choices.agreed;
}

enum ax_status ax_choices_agree(struct ax_runtime *rt) {
    struct ax_buf text = {0};
    enum ax_status st = rt->mesh.rank == 0 ? ax_queue_choices(rt->q, &text) : AX_OK;
    if (st == AX_OK)
        st = share(rt, &text);
    ax_buf_free(&text);
    rt->choices.agreed = rt->q->counters.measured;
    return st;
}

enum ax_status ax_choices_resume(struct ax_runtime *rt, const char *text) {
    rt->choices.resumed = true;
    return or_warn(ax_queue_choose(rt->q, text), "the checkpoint");
}

/* ---- the file ---- */

/* Each GPU and library has its own, named by the first line. */
static enum ax_status name_file(struct ax_runtime *rt, const char *dir) {
    struct ax_buf text = {0};
    char name[32];
    enum ax_status st = ax_queue_choices(rt->q, &text);
    if (st == AX_OK) {
        snprintf(name, sizeof name, "products-%08x.txt",
                 ax_crc32c(0, text.data, strcspn(text.data, "\n")));
        st = ax_path_join(&rt->choices.file, dir, name);
    }
    ax_buf_free(&text);
    return st;
}

static enum ax_status read_file(struct ax_runtime *rt, struct ax_buf *text) {
    if (!ax_path_exists(rt->choices.file))
        return AX_OK;
    AX_TRY(ax_read_file(rt->choices.file, LARGEST, &text->data, &text->len));
    text->cap = text->len + 1;
    if (strlen(text->data) == text->len)
        return ax_queue_choose(rt->q, text->data);
    return ax_error(AX_ERR_DATA, "it is not text");
}

enum ax_status ax_choices_open(struct ax_runtime *rt, const char *dir) {
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    if (!dir || !rt->q->ops->choices)
        return AX_OK;
    if (rt->mesh.rank == 0) {
        rt->q->measures = true;
        AX_TRY(name_file(rt, dir));
        st = read_file(rt, &text);
        if (st != AX_OK && st != AX_ERR_NOMEM) { /* one that cannot be read, too */
            st = or_warn(AX_ERR_DATA, rt->choices.file);
            text.len = 0;
        }
    }
    if (st == AX_OK)
        st = share(rt, &text);
    ax_buf_free(&text);
    return st;
}

static enum ax_status write_file(struct ax_runtime *rt, const char *dir, struct ax_buf *text) {
    AX_TRY(ax_queue_choices(rt->q, text));
    AX_TRY(ax_mkdir_parents_private(dir));
    return ax_write_file_atomic(rt->choices.file, text->data, text->len);
}

void ax_choices_close(struct ax_runtime *rt) {
    struct ax_buf text = {0};
    char *dir = NULL;
    if (rt->choices.file && !rt->choices.resumed && rt->q->counters.measured > 0) {
        enum ax_status st = ax_strdup(&dir, rt->choices.file);
        if (st == AX_OK) {
            *strrchr(dir, '/') = '\0';
            st = write_file(rt, dir, &text);
        }
        if (st != AX_OK) {
            ax_log_warn("measured algorithms are not kept: %s", ax_error_text());
            ax_error_clear();
        }
    }
    ax_free(dir);
    ax_buf_free(&text);
    ax_free(rt->choices.file);
    rt->choices.file = NULL;
}
