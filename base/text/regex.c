/* PCRE2 behind regex.h; the translation of patterns is in regex_rewrite.c. */
#include "base/text/regex.h"

#include <stdint.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#if PCRE2_MAJOR == 10 && PCRE2_MINOR < 38
#error "PCRE2 10.38 is needed: before, \\K in a look-ahead lets a match end before it begins"
#endif

#include "base/text/unicode.h"

enum {
    MAX_PATTERN = 65536,
    STEPS = 1000000,      /* limit per match, in PCRE2's unit */
    STEPS_PER_BYTE = 100, /* added for each byte of the text */
    JIT_STACK_START = 32 * 1024,
    JIT_STACK_MAX = 64 * 1024 * 1024,
    HEAP_KIB = 64 * 1024
};

struct ax_regex {
    pcre2_code *code; /* NULL: find `pattern` itself */
    bool jit, python;
    char *pattern; /* as given */
    size_t len;
};

static void *hook_malloc(size_t n, void *unused) {
    (void)unused;
    return ax_malloc_hook(n);
}

static void hook_free(void *p, void *unused) {
    (void)unused;
    ax_free_hook(p);
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory: regular expression");
}

static enum ax_status compile_pcre2(struct ax_regex *re, const char *pattern, size_t len) {
    /* In Ruby's syntax ^ and $ match at line boundaries. */
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (re->python ? 0 : PCRE2_MULTILINE);
    pcre2_general_context *general = pcre2_general_context_create(hook_malloc, hook_free, NULL);
    pcre2_compile_context *context = general != NULL ? pcre2_compile_context_create(general) : NULL;
    enum ax_status st = AX_OK;
    if (context == NULL) {
        st = no_memory();
        goto done;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    PCRE2_SIZE at;
    re->code = pcre2_compile((PCRE2_SPTR)pattern, len, options, &error, &at, context);
    if (re->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) {
        st = no_memory();
    } else if (re->code == NULL) {
        unsigned char why[160];
        pcre2_get_error_message(error, why, sizeof why);
        size_t shown = len < 200 ? len : 200;
        st = ax_error(AX_ERR_DATA, "bad regular expression: %s at byte %zu of \"%.*s\"", why, at,
                      (int)shown, pattern);
    }
done:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return st;
}

enum syntax { RUBY, PYTHON, LITERAL };

static enum ax_status compile(struct ax_regex **out, const char *pattern, size_t len,
                              enum syntax syntax) {
    const bool literal = syntax == LITERAL;
    if (len > MAX_PATTERN)
        return ax_error(AX_ERR_DATA, "a regular expression has %zu bytes; at most %d are allowed",
                        len, MAX_PATTERN);
    if (ax_utf8_check(pattern, len) != len)
        return ax_error(AX_ERR_DATA, "a regular expression is not UTF-8 at byte %zu",
                        ax_utf8_check(pattern, len));
    if (!literal && memchr(pattern, '\0', len) != NULL)
        return ax_error(AX_ERR_DATA, "a regular expression contains a NUL");
    if (literal && len == 0)
        return ax_error(AX_ERR_DATA, "the string to find is empty");
    struct ax_regex *re = NULL;
    struct ax_buf text = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&re, 1, sizeof *re), st, done);
    AX_TRY_GOTO(ax_strndup(&re->pattern, pattern, len), st, done);
    re->len = len;
    re->python = syntax == PYTHON;
    if (!literal) {
        AX_TRY_GOTO(re->python ? ax_regex_rewrite_python(&text, re->pattern, len)
                               : ax_regex_rewrite(&text, pattern, len),
                    st, done);
        AX_TRY_GOTO(compile_pcre2(re, text.data != NULL ? text.data : "", text.len), st, done);
        re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
    }
    *out = re;
    re = NULL;
done:
    ax_buf_free(&text);
    ax_regex_free(re);
    return st;
}

enum ax_status ax_regex_compile(struct ax_regex **out, const char *pattern, size_t len,
                                bool literal) {
    return compile(out, pattern, len, literal ? LITERAL : RUBY);
}

enum ax_status ax_regex_compile_python(struct ax_regex **out, const char *pattern, size_t len) {
    return compile(out, pattern, len, PYTHON);
}

void ax_regex_free(struct ax_regex *re) {
    if (re == NULL)
        return;
    pcre2_code_free(re->code);
    ax_free(re->pattern);
    ax_free(re);
}

const char *ax_regex_source(const struct ax_regex *re, size_t *len, bool *literal) {
    *len = re->len;
    *literal = re->code == NULL;
    return re->pattern;
}

static enum ax_status prepare_work(struct ax_regex_work *w) {
    if (w->match_data != NULL)
        return AX_OK;
    pcre2_general_context *general = pcre2_general_context_create(hook_malloc, hook_free, NULL);
    if (general == NULL)
        return no_memory();
    if (w->match_context == NULL)
        w->match_context = pcre2_match_context_create(general);
    if (w->jit_stack == NULL)
        w->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, general);
    if (w->match_context != NULL && w->jit_stack != NULL)
        w->match_data = pcre2_match_data_create(1, general);
    pcre2_general_context_free(general);
    if (w->match_data == NULL)
        return no_memory();
    pcre2_set_heap_limit(w->match_context, HEAP_KIB);
    pcre2_jit_stack_assign(w->match_context, NULL, w->jit_stack);
    return AX_OK;
}

void ax_regex_work_free(struct ax_regex_work *w) {
    pcre2_match_data_free(w->match_data);
    pcre2_match_context_free(w->match_context);
    pcre2_jit_stack_free(w->jit_stack);
    *w = (struct ax_regex_work){0};
}

struct ax_regex_iter ax_regex_search(const struct ax_regex *re, struct ax_regex_work *work,
                                     const char *s, size_t len) {
    return (struct ax_regex_iter){.re = re, .work = work, .s = s, .len = len, .last_end = SIZE_MAX};
}

static enum ax_status match_error(int rc) {
    if (rc == PCRE2_ERROR_NOMEMORY)
        return no_memory();
    unsigned char why[160];
    pcre2_get_error_message(rc, why, sizeof why);
    return ax_error(AX_ERR_DATA, "the regular expression is too slow for this text (%s)", why);
}

static bool next_literal(struct ax_regex_iter *it, size_t *start, size_t *end) {
    const struct ax_regex *re = it->re;
    const char *s = memmem(it->s + it->at, it->len - it->at, re->pattern, re->len);
    if (s == NULL)
        return false;
    *start = (size_t)(s - it->s);
    *end = it->at = *start + re->len;
    return true;
}

enum ax_status ax_regex_next(struct ax_regex_iter *it, bool *found, size_t *start, size_t *end) {
    *found = false;
    if (it->re->code == NULL) {
        *found = next_literal(it, start, end);
        return AX_OK;
    }
    AX_TRY(prepare_work(it->work));
    uint64_t steps = STEPS + (uint64_t)STEPS_PER_BYTE * it->len;
    pcre2_set_match_limit(it->work->match_context,
                          steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    while (it->at <= it->len) {
        PCRE2_SPTR s = (PCRE2_SPTR)it->s;
        const uint32_t how = it->re->python && it->last_empty ? PCRE2_NOTEMPTY_ATSTART : 0;
        int rc = it->re->jit
                     ? pcre2_jit_match(it->re->code, s, it->len, it->at, how, it->work->match_data,
                                       it->work->match_context)
                     : pcre2_match(it->re->code, s, it->len, it->at, how | PCRE2_NO_UTF_CHECK,
                                   it->work->match_data, it->work->match_context);
        if (rc == PCRE2_ERROR_NOMATCH)
            return AX_OK;
        if (rc < 0)
            return match_error(rc);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(it->work->match_data);
        *start = at[0];
        *end = at[1];
        if (!it->re->python && *start == *end && *end == it->last_end) {
            size_t n = 1;
            if (it->at < it->len)
                (void)ax_utf8_decode((const unsigned char *)it->s + it->at, &n);
            it->at += n;
            continue;
        }
        it->at = it->last_end = *end;
        it->last_empty = *start == *end;
        *found = true;
        return AX_OK;
    }
    return AX_OK;
}
