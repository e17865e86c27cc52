/* The per-thread error record: one text, one trace, both in fixed storage so that an out-of-memory
 * error needs none. Texts quote input, so control bytes and tokens (fit.h) are masked. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fit.h"

static const struct ax_status_info status_table[] = {
    [AX_OK] = {"ok", 0, "success"},
    [AX_ERR_FAILED] = {"failed", 1, "any other failure"},
    [AX_ERR_CONFIG] = {"config", 2, "an error in the command line or the configuration"},
    [AX_ERR_DATA] = {"data", 3, "an error in data: records, weights, tokenizer or checkpoint"},
    [AX_ERR_IO] = {"io", 1, "the operating system refused a file or socket"},
    [AX_ERR_PEER] = {"peer", 4, "another rank was lost or disagrees"},
    [AX_ERR_NOMEM] = {"memory", 5, "not enough memory"},
    [AX_ERR_DIVERGED] = {"diverged", 6, "NaN, inf or a loss spike"},
    [AX_ERR_UNSUPPORTED] = {"unsupported", 2, "valid, but not supported"},
    [AX_ERR_STORAGE] = {"storage", 7, "the disk or a quota is full"},
    [AX_SAVED_REQUEUE] = {"requeue", 75,
                          "saved after SIGTERM, SIGUSR1 or SIGHUP; run again to resume"},
    [AX_INTERRUPTED] = {"interrupted", 130, "saved after the first Ctrl-C"},
    [AX_ERR_EMPTY] = {"empty", 3, "a record with nothing to learn from"},
};
_Static_assert(sizeof status_table / sizeof status_table[0] == AX_STATUS_COUNT,
               "one row per status");

static _Thread_local struct ax_error_record record;

const struct ax_status_info *ax_status_info(enum ax_status st) {
    AX_ASSERT((unsigned)st < AX_STATUS_COUNT);
    return &status_table[st];
}

/* A text may be an argument of the one that replaces it. */
__attribute__((format(printf, 1, 0))) static void set_text(const char *fmt, va_list ap) {
    ax_vfit(record.text, sizeof record.text, fmt, ap);
    for (char *p = record.text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if ((c < 0x20 && c != '\n') || c == 0x7F)
            *p = '?';
        else if (c == 0xC2 && ((unsigned char)p[1] & 0xE0U) == 0x80U) /* U+0080 to U+009F */
            p[0] = p[1] = '?';
    }
}

enum ax_status ax_error_at(enum ax_status st, const char *file, int line, const char *fmt, ...) {
    const int saved_errno = errno; /* the macro evaluates `st` again */
    va_list ap;
    va_start(ap, fmt);
    set_text(fmt, ap);
    va_end(ap);
    errno = saved_errno;
    record.st = st;
    record.trace[0] = '\0';
    ax_error_add_trace(file, line);
    return st;
}

enum ax_status ax_error_prefix(enum ax_status st, const char *fmt, ...) {
    char before[sizeof record.text];
    va_list ap;
    memcpy(before, record.text, sizeof before);
    va_start(ap, fmt);
    set_text(fmt, ap);
    va_end(ap);
    ax_fit(record.text, sizeof record.text, "%s: %s", record.text, before);
    return st;
}

const char *ax_error_text(void) {
    return record.text;
}

const char *ax_error_trace(void) {
    return record.trace;
}

void ax_error_clear(void) {
    record.st = AX_OK;
    record.text[0] = '\0';
    record.trace[0] = '\0';
}

void ax_error_save(struct ax_error_record *out, enum ax_status st) {
    *out = record;
    out->st = st;
}

enum ax_status ax_error_restore(const struct ax_error_record *rec) {
    record = *rec;
    return rec->st;
}

void ax_error_add_trace(const char *file, int line) {
    size_t n = strlen(record.trace);
    char place[160];
    int m = snprintf(place, sizeof place, "%s%s:%d", n > 0 ? " < " : "", file, line);
    /* A location that does not fit is dropped: the first ones matter most. */
    if ((size_t)m < sizeof place && n + (size_t)m < sizeof record.trace)
        memcpy(record.trace + n, place, (size_t)m + 1);
}

_Noreturn void ax_assert_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "axtrain: a bug in this program: %s is false (%s:%d)\n", expr, file, line);
    abort();
}
