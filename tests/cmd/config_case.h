/* A configuration from a string, for the tests of cmd/config*.c. */
#ifndef AX_TESTS_CMD_CONFIG_CASE_H
#define AX_TESTS_CMD_CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cmd/config/build.h"

/* Overrides end with NULL. */
static inline enum ax_status load_with(struct ax_config *cfg, const char *text, char **overrides) {
    int n = 0;
    while (overrides != NULL && overrides[n] != NULL)
        n++;
    return ax_config_parse(cfg, "c.yaml", text, strlen(text), n, overrides);
}

static inline void load_ok(struct ax_config *cfg, const char *text, char **overrides) {
    enum ax_status st = load_with(cfg, text, overrides);
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static inline void expect_text(const char *whole, const char *part) {
    if (whole == NULL || strstr(whole, part) == NULL)
        fail_msg("expected \"%s\" in:\n%s", part, whole ? whole : "nothing");
}

/* Loading fails with a text that holds each of the parts (NULL ends them), and leaves nothing. */
static inline void load_fails(const char *text, char **overrides, const char *const *parts) {
    uint64_t live = ax_mem_live_blocks();
    struct ax_config cfg;
    if (load_with(&cfg, text, overrides) == AX_OK) {
        ax_config_free(&cfg);
        fail_msg("expected an error with \"%s\" for:\n%s", parts[0], text);
    }
    for (; *parts != NULL; parts++)
        expect_text(ax_error_text(), *parts);
    assert_null(cfg.doc.root);
    assert_int_equal(ax_mem_live_blocks(), live);
}

#define FAILS(text, ...) load_fails(text, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define OVERRIDES(...)   ((char *[]){__VA_ARGS__, NULL})

/* The note about a path, or NULL. */
static inline const struct ax_config_note *note_of(const struct ax_config *cfg, const char *path) {
    for (size_t i = 0; i < cfg->n_notes; i++)
        if (strcmp(cfg->notes[i].path, path) == 0)
            return &cfg->notes[i];
    return NULL;
}

static inline void expect_note(const struct ax_config *cfg, const char *path,
                               enum ax_config_note_kind kind, const char *text) {
    const struct ax_config_note *note = note_of(cfg, path);
    if (note == NULL) {
        fail_msg("no note about %s", path);
    } else {
        assert_int_equal(note->kind, kind);
        expect_text(note->text, text);
    }
}

#endif
