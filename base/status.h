/* Status codes, the user's error text, and the file:line trace of its callers.
 *
 * Every fallible function returns enum ax_status. The message (what, where, remedy) is built once,
 * by ax_error(), where the cause is known; callers propagate it with AX_TRY. The record is per
 * thread. */
#ifndef AX_BASE_STATUS_H
#define AX_BASE_STATUS_H

#include <stddef.h>

enum ax_status {
    AX_OK = 0,
    AX_ERR_FAILED,      /* anything without its own code; exit 1 */
    AX_ERR_CONFIG,      /* usage, command line, YAML, a config.json written by hand; exit 2 */
    AX_ERR_DATA,        /* records, weights, tokenizer, checkpoint contents; exit 3 */
    AX_ERR_IO,          /* an operating system error on a file or socket; exit 1 */
    AX_ERR_PEER,        /* another rank was lost or disagrees; exit 4 */
    AX_ERR_NOMEM,       /* memory; exit 5 */
    AX_ERR_DIVERGED,    /* NaN, inf or a loss spike; exit 6 */
    AX_ERR_UNSUPPORTED, /* valid, but this program does not do it; exit 2 */
    AX_ERR_STORAGE,     /* the disk or a quota is full; exit 7 */
    AX_SAVED_REQUEUE,   /* saved after SIGTERM, SIGUSR1 or SIGHUP; exit 75 */
    AX_INTERRUPTED,     /* saved after the first Ctrl-C; exit 130 */
    AX_ERR_EMPTY,       /* a record with nothing to learn from, which data sets skip; exit 3 */
    AX_STATUS_COUNT
};

#define AX_ERROR_TEXT 2048 /* bytes of an error text at most, with its NUL */

struct ax_status_info {
    const char *name;    /* "config" */
    int exit_code;       /* what main() returns */
    const char *meaning; /* for --help and docs */
};
const struct ax_status_info *ax_status_info(enum ax_status st);

/* Sets this thread's error text (printf style; a long one loses its middle) and clears the trace. Returns st.
 * Text form: `WHERE: what happened, with the value. What to do.` without a final newline. */
enum ax_status ax_error_at(enum ax_status st, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The value is `st` itself, so that compilers and clang-tidy see that it is not AX_OK. */
#define ax_error(st, ...) ((void)ax_error_at((st), __FILE__, __LINE__, __VA_ARGS__), (st))

/* Prepends "prefix: " to the current text, so that a caller can add the location it knows. */
enum ax_status ax_error_prefix(enum ax_status st, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The text, and "file:line < file:line …" of the trace; "" when there is none. Valid until the
 * next ax_error on this thread. */
const char *ax_error_text(void);
const char *ax_error_trace(void);
void ax_error_clear(void);
/* Copies the record of one thread to another (workers pass theirs to the joining thread). */
struct ax_error_record {
    enum ax_status st;
    char text[AX_ERROR_TEXT];
    char trace[512];
};
void ax_error_save(struct ax_error_record *out, enum ax_status st);
enum ax_status ax_error_restore(const struct ax_error_record *rec);

void ax_error_add_trace(const char *file, int line); /* for AX_TRY only */

#define AX_TRY(call)                                                                               \
    do {                                                                                           \
        enum ax_status ax_try_st_ = (call);                                                        \
        if (ax_try_st_ != AX_OK) {                                                                 \
            ax_error_add_trace(__FILE__, __LINE__);                                                \
            return ax_try_st_;                                                                     \
        }                                                                                          \
    } while (0)

#define AX_TRY_GOTO(call, st, label)                                                               \
    do {                                                                                           \
        (st) = (call);                                                                             \
        if ((st) != AX_OK) {                                                                       \
            ax_error_add_trace(__FILE__, __LINE__);                                                \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* Only for our own bugs: prints and aborts. Always on. */
void ax_assert_failed(const char *expr, const char *file, int line) __attribute__((noreturn));
#define AX_ASSERT(expr) ((expr) ? (void)0 : ax_assert_failed(#expr, __FILE__, __LINE__))

#endif
