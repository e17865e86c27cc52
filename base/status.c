/* The per-thread error record: one text, one trace, both in fixed storage so that an out-of-memory
 * error needs none. Texts quote input, so control bytes and tokens are masked. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mask.h"

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

/* Cuts an incomplete UTF-8 sequence that truncation left at the end. */
static void trim_utf8(char *s) {
    size_t n = strlen(s);
    size_t back = 0;
    while (back < 3 && back < n && ((unsigned char)s[n - 1 - back] & 0xC0U) == 0x80U)
        back++;
    if (back == n)
        return;
    unsigned char lead = (unsigned char)s[n - 1 - back];
    size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (need > back)
        s[n - 1 - back] = '\0';
}

static void set_text(const char *text) {
    size_t n = strlen(text);
    if (n >= sizeof record.text)
        n = sizeof record.text - 1;
    memcpy(record.text, text, n);
    record.text[n] = '\0';
    ax_mask_tokens(record.text);
    trim_utf8(record.text);
    for (char *p = record.text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if ((c < 0x20 && c != '\n') || c == 0x7F)
            *p = '?';
    }
}

enum ax_status ax_error_at(enum ax_status st, const char *file, int line, const char *fmt, ...) {
    /* Formatted into a temporary first: an argument may be ax_error_text() itself. */
    char text[sizeof record.text];
    const int saved_errno = errno; /* the macro evaluates `st` again */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    errno = saved_errno;
    set_text(text);
    record.st = st;
    record.trace[0] = '\0';
    ax_error_add_trace(file, line);
    return st;
}

enum ax_status ax_error_prefix(enum ax_status st, const char *fmt, ...) {
    char prefix[sizeof record.text];
    char text[2 * sizeof record.text + 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%s: %s", prefix, record.text);
    set_text(text);
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
    if (m > 0 && (size_t)m < sizeof place && n + (size_t)m < sizeof record.trace)
        memcpy(record.trace + n, place, (size_t)m + 1);
}

_Noreturn void ax_assert_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "axtrain: a bug in this program: %s is false (%s:%d)\n", expr, file, line);
    abort();
}
