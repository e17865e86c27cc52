/* One template rendered for a test. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_TEMPLATE_CASE_H
#define AX_TESTS_DATA_TEMPLATE_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "data/text/template/template.h"

/* 2026-03-05 14:07:09 UTC, where the clock of the golden cases stands. */
static const struct ax_template_options stopped = {.fixed_now = true, .now = 1772719629};

/* Compiles and renders with variables given as JSON; *out is to be freed when AX_OK. */
static inline enum ax_status render(const char *source, const char *vars,
                                    const struct ax_template_options *options,
                                    struct ax_template_output *out) {
    struct ax_template *t;
    struct ax_json_doc doc;
    *out = (struct ax_template_output){0};
    AX_TRY(ax_template_compile(&t, "t", source, strlen(source)));
    enum ax_status st = ax_json_parse(&doc, "vars", vars, strlen(vars));
    if (st == AX_OK)
        st = ax_template_render(t, doc.root, options, out);
    ax_json_free(&doc);
    ax_template_free(t);
    return st;
}

/* Rendering gives this text and leaves nothing allocated. */
static inline void gives(const char *source, const char *vars, const char *text) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_template_output out;
    if (render(source, vars, &stopped, &out) != AX_OK)
        fail_msg("%s\n  %s", source, ax_error_text());
    if (out.len != strlen(text) || memcmp(out.text, text, out.len) != 0)
        fail_msg("%s\n  gave %s\n  not  %s", source, out.text, text);
    ax_template_output_free(&out);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Compiling or rendering fails as data with a message that begins and ends like this. */
static inline void refuses_with(const char *source, const char *vars,
                                const struct ax_template_options *options, const char *place,
                                const char *end) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_template_output out;
    if (render(source, vars, options, &out) == AX_OK)
        fail_msg("%s\n  gave %s", source, out.text);
    assert_null(out.text);
    const char *text = ax_error_text();
    const size_t n = strlen(text), m = strlen(end);
    if (strncmp(text, place, strlen(place)) != 0 || n < m || strcmp(text + n - m, end) != 0)
        fail_msg("%s\n  said %s\n  not  %s … %s", source, text, place, end);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static inline void refuses(const char *source, const char *vars, const char *place,
                           const char *end) {
    refuses_with(source, vars, &stopped, place, end);
}

#endif
