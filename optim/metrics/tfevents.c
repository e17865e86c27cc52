#include "optim/metrics/tfevents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "optim/losses/figures.h"

#define PREFIX "events.out.tfevents."

/* Bytes around a record's message. */
enum { LENGTH_BYTES = 8, CRC_BYTES = 4, HEAD = LENGTH_BYTES + CRC_BYTES };

/* ---- encoding ---- */

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static enum ax_status put_varint(struct ax_buf *b, uint64_t v) {
    unsigned char out[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (unsigned char)(v | 0x80);
    out[n++] = (unsigned char)v;
    return ax_buf_append(b, out, n);
}

static enum ax_status put_tag(struct ax_buf *b, unsigned field, enum wire wire) {
    return put_varint(b, field << 3 | (unsigned)wire);
}

static void store_le(unsigned char *out, uint64_t v, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t load_le(const unsigned char *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static enum ax_status put_fixed(struct ax_buf *b, unsigned field, const void *bits, size_t n) {
    uint64_t v = 0;
    unsigned char out[8];
    if (n == 8) {
        memcpy(&v, bits, 8);
    } else {
        uint32_t w;
        memcpy(&w, bits, 4);
        v = w;
    }
    store_le(out, v, n);
    AX_TRY(put_tag(b, field, n == 8 ? WIRE_FIXED64 : WIRE_FIXED32));
    return ax_buf_append(b, out, n);
}

static enum ax_status put_bytes(struct ax_buf *b, unsigned field, const void *data, size_t n) {
    AX_TRY(put_tag(b, field, WIRE_BYTES));
    AX_TRY(put_varint(b, n));
    return ax_buf_append(b, data, n);
}

/* The fields at the start of every event. Step 0 is omitted: it is protobuf's default. */
static enum ax_status put_head(struct ax_buf *b, int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    AX_TRY(put_fixed(b, 1, &wall, sizeof wall));
    if (step == 0)
        return AX_OK;
    AX_TRY(put_tag(b, 2, WIRE_VARINT));
    return put_varint(b, (uint64_t)step);
}

static enum ax_status put_value(struct ax_buf *summary, const struct ax_tf_scalar *s) {
    struct ax_buf value = {0};
    const float v = (float)s->value;
    enum ax_status st;
    AX_TRY_GOTO(put_bytes(&value, 1, s->tag, strlen(s->tag)), st, done);
    AX_TRY_GOTO(put_fixed(&value, 2, &v, sizeof v), st, done);
    st = put_bytes(summary, 1, value.data, value.len);
done:
    ax_buf_free(&value);
    return st;
}

/* ---- records ---- */

static uint32_t masked_crc(const void *data, size_t n) {
    const uint32_t crc = ax_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

static enum ax_status append_record(struct ax_tfevents *t, const struct ax_buf *event) {
    struct ax_buf out = {0};
    unsigned char head[HEAD], tail[CRC_BYTES];
    store_le(head, event->len, LENGTH_BYTES);
    store_le(head + LENGTH_BYTES, masked_crc(head, LENGTH_BYTES), CRC_BYTES);
    store_le(tail, masked_crc(event->data, event->len), CRC_BYTES);
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_append(&out, head, sizeof head), st, done);
    AX_TRY_GOTO(ax_buf_append(&out, event->data, event->len), st, done);
    AX_TRY_GOTO(ax_buf_append(&out, tail, sizeof tail), st, done);
    ax_metrics_file_append(&t->file, out.data, out.len);
done:
    ax_buf_free(&out);
    return st;
}

static enum ax_status write_version(struct ax_tfevents *t) {
    static const char version[] = "brain.Event:2";
    struct ax_buf event = {0};
    enum ax_status st;
    AX_TRY_GOTO(put_head(&event, 0), st, done);
    AX_TRY_GOTO(put_bytes(&event, 3, version, sizeof version - 1), st, done);
    st = append_record(t, &event);
done:
    ax_buf_free(&event);
    return st;
}

static enum ax_status write_start(struct ax_tfevents *t, int64_t first_step) {
    static const unsigned char start[] = {1 << 3 | WIRE_VARINT, 1}; /* status = START */
    struct ax_buf event = {0};
    enum ax_status st;
    AX_TRY_GOTO(put_head(&event, first_step), st, done);
    AX_TRY_GOTO(put_bytes(&event, 7, start, sizeof start), st, done);
    st = append_record(t, &event);
done:
    ax_buf_free(&event);
    return st;
}

static enum ax_status write_scalars(struct ax_tfevents *t, int64_t step, int n,
                                    const struct ax_tf_scalar *s) {
    struct ax_buf summary = {0}, event = {0};
    enum ax_status st = AX_OK;
    for (int i = 0; i < n; i++)
        AX_TRY_GOTO(put_value(&summary, &s[i]), st, done);
    AX_TRY_GOTO(put_head(&event, step), st, done);
    AX_TRY_GOTO(put_bytes(&event, 5, summary.data, summary.len), st, done);
    st = append_record(t, &event);
done:
    ax_buf_free(&summary);
    ax_buf_free(&event);
    return st;
}

void ax_tfevents_write(struct ax_tfevents *t, int64_t step, int n, const struct ax_tf_scalar *s) {
    if (!t->file.f.path || write_scalars(t, step, n, s) == AX_OK)
        return;
    ax_log_warn("TensorBoard: %s", ax_error_text());
    ax_error_clear();
}

/* ---- older files ---- */

/* The step of an event as put_head writes it. */
static int64_t step_of(const unsigned char *event, size_t n) {
    size_t i = 1 + 8;
    uint64_t step = 0;
    if (n <= i || event[i++] != (2 << 3 | WIRE_VARINT))
        return 0;
    for (unsigned shift = 0; i < n && shift < 63; shift += 7) {
        const unsigned char c = event[i++];
        step |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            break;
    }
    return (int64_t)step;
}

uint64_t ax_tfevents_whole(const unsigned char *data, size_t n, int64_t resume_step) {
    uint64_t end = 0;
    while (n - end > HEAD + CRC_BYTES) {
        const unsigned char *head = data + end;
        const uint64_t len = load_le(head, LENGTH_BYTES), room = n - end - HEAD - CRC_BYTES;
        if (load_le(head + LENGTH_BYTES, CRC_BYTES) != masked_crc(head, LENGTH_BYTES) || len > room)
            break;
        const unsigned char *event = head + HEAD;
        if (load_le(event + len, CRC_BYTES) != masked_crc(event, len) ||
            step_of(event, len) > resume_step)
            break;
        end += HEAD + len + CRC_BYTES;
    }
    return end;
}

static enum ax_status cut(const char *path, int64_t resume_step) {
    struct ax_metrics_file old;
    if (resume_step == 0)
        return ax_unlink(path);
    AX_TRY(ax_metrics_file_open(&old, path, ax_tfevents_whole, resume_step));
    const bool empty = old.end == 0;
    ax_metrics_file_close(&old);
    return empty ? ax_unlink(path) : AX_OK;
}

static enum ax_status cut_older(const char *dir, int64_t resume_step) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open_existing(&d, dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        char *path;
        struct stat info;
        if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        AX_TRY_GOTO(ax_path_join(&path, dir, name), st, done);
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode))
            st = cut(path, resume_step);
        ax_free(path);
    }
done:
    return ax_dir_end(&d, st);
}

/* ---- open and close ---- */

/* A name that sorts after those of older files: readers process the files in name order. */
static enum ax_status new_path(char **path, const char *dir) {
    char host[64] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    for (int i = 0;; i++) {
        AX_TRY(ax_sprintf(path, "%s/" PREFIX "%010lld.%s.%ld.%d", dir, (long long)time(NULL), host,
                          (long)getpid(), i));
        if (!ax_path_exists(*path))
            return AX_OK;
        ax_free(*path);
    }
}

enum ax_status ax_tfevents_open(struct ax_tfevents *t, const char *dir, int64_t resume_step) {
    char *path = NULL;
    *t = (struct ax_tfevents){0};
    AX_TRY(ax_mkdir_parents(dir));
    AX_TRY(cut_older(dir, resume_step));
    AX_TRY(new_path(&path, dir));
    enum ax_status st;
    AX_TRY_GOTO(ax_metrics_file_open(&t->file, path, NULL, 0), st, done);
    AX_TRY_GOTO(write_version(t), st, done);
    if (resume_step > 0)
        AX_TRY_GOTO(write_start(t, resume_step + 1), st, done);
done:
    ax_free(path);
    if (st != AX_OK)
        ax_tfevents_close(t);
    return st;
}

void ax_tfevents_close(struct ax_tfevents *t) {
    ax_metrics_file_close(&t->file);
}

void ax_tfevents_write_named(struct ax_tfevents *f, int64_t step, const char *of, int count,
                             const char *const *names, const double *values) {
    char tags[AX_FIGURES_MAX][AX_FIGURES_NAME + 8];
    struct ax_tf_scalar s[AX_FIGURES_MAX];
    int n = 0;
    for (int i = 0; i < count && names && names[i]; i++) {
        if (isnan(values[i]))
            continue;
        (void)snprintf(tags[n], sizeof tags[n], "%s/%s", of, names[i]);
        s[n] = (struct ax_tf_scalar){tags[n], values[i]};
        n++;
    }
    if (n > 0)
        ax_tfevents_write(f, step, n, s);
}
