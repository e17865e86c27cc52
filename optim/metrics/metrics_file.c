#include "optim/metrics/metrics_file.h"

#include <string.h>

#include "base/log.h"

/* How many bytes of an existing file to keep. */
static enum ax_status kept_bytes(const char *path,
                                 uint64_t (*whole)(const unsigned char *, size_t, int64_t),
                                 int64_t resume_step, uint64_t *kept) {
    struct ax_mapping map;
    *kept = 0;
    if (!whole || !ax_path_exists(path))
        return AX_OK;
    AX_TRY(ax_map_file(&map, path));
    *kept = whole(map.data, map.len, resume_step);
    ax_unmap_file(&map);
    return AX_OK;
}

enum ax_status ax_metrics_file_open(struct ax_metrics_file *m, const char *path,
                                    uint64_t (*whole)(const unsigned char *data, size_t n,
                                                      int64_t resume_step),
                                    int64_t resume_step) {
    *m = (struct ax_metrics_file){0};
    AX_TRY(kept_bytes(path, whole, resume_step, &m->end));
    AX_TRY(ax_file_open_update(&m->f, path));
    const enum ax_status st = ax_file_truncate(&m->f, m->end);
    if (st != AX_OK)
        (void)ax_file_close(&m->f);
    return st;
}

void ax_metrics_file_append(struct ax_metrics_file *m, const void *data, size_t n) {
    if (!m->f.path)
        return;
    if (ax_file_pwrite(&m->f, data, n, m->end) == AX_OK) {
        m->end += n;
        return;
    }
    if (m->lost++ == 0)
        ax_log_warn("%s. Training continues without this record.", ax_error_text());
    ax_error_clear();
}

bool ax_metrics_file_replace(struct ax_metrics_file *m, const void *data, size_t n, const void *old,
                             size_t n_old) {
    if (ax_file_pwrite(&m->f, data, n, 0) == AX_OK) {
        m->end = n;
        return true;
    }
    (void)ax_file_pwrite(&m->f, old, n_old, 0); /* has its space already */
    (void)ax_file_truncate(&m->f, m->end);      /* what was written behind it */
    ax_error_clear();
    return false;
}

void ax_metrics_file_close(struct ax_metrics_file *m) {
    if (!m->f.path)
        return;
    if (m->lost > 0)
        ax_log_warn("%s: %lld records could not be written", m->f.path, (long long)m->lost);
    /* a partial record may follow the end */
    if ((m->lost > 0 && ax_file_truncate(&m->f, m->end) != AX_OK) || ax_file_close(&m->f) != AX_OK)
        ax_log_warn("%s", ax_error_text());
    ax_error_clear();
    *m = (struct ax_metrics_file){0};
}

const char *ax_metrics_last_line(const char *path, char *buf, size_t size) {
    struct ax_file f;
    uint64_t n;
    size_t got = 0;
    if (ax_file_open_read(&f, path) != AX_OK)
        return NULL;
    enum ax_status st = ax_file_size(&f, &n);
    if (st == AX_OK) {
        got = n < size ? (size_t)n : size;
        st = ax_file_pread(&f, buf, got, n - got);
    }
    st = ax_file_end(&f, st);
    if (st != AX_OK || got == 0 || buf[got - 1] != '\n')
        return NULL;
    buf[got - 1] = '\0';
    const char *before = strrchr(buf, '\n');
    return before ? before + 1 : n == got ? buf : NULL;
}
