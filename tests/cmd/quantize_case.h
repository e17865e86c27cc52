/* What `axtrain quantize --calibrate` and `axtrain eval` say of folders. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_QUANTIZE_CASE_H
#define AX_TESTS_CMD_QUANTIZE_CASE_H

#include "tests/cmd/chats_case.h"

/* The number after `what` in what the last command printed. */
static inline double number_after(const char *what) {
    char *text;
    size_t n;
    assert_int_equal(ax_read_file(in_scratch("stderr"), 1 << 20, &text, &n), AX_OK);
    const char *at = strstr(text, what);
    if (!at)
        fail_msg("\"%s\" is missing in: %s", what, text);
    const double value = at ? strtod(at + strlen(what), NULL) : 0;
    ax_free(text);
    return value;
}

/* The weights of two folders. */
static inline bool same_files(const char *a, const char *b) {
    char path[64], *first, *second;
    size_t n, m;
    snprintf(path, sizeof path, "%s/model.safetensors", a);
    assert_int_equal(ax_read_file(in_scratch(path), 1 << 24, &first, &n), AX_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", b);
    assert_int_equal(ax_read_file(in_scratch(path), 1 << 24, &second, &m), AX_OK);
    const bool same = n == m && memcmp(first, second, n) == 0;
    ax_free(first);
    ax_free(second);
    return same;
}

static inline double written_over_nearest(int layer) {
    char at[64];
    snprintf(at, sizeof at, "layer %d: relative error of outputs ", layer);
    const double written = number_after(at);
    snprintf(at, sizeof at, "outputs %.4f, rounded to nearest ", written);
    return written / number_after(at);
}

static inline double evaluated(const char *model, const char *rows, const char *type) {
    sft_command = "eval";
    EXPECT(0, "perplexity", model, "--data", rows, "--type", type);
    return number_after("perplexity  ");
}

#endif
