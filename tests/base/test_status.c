/* The error record: text, trace, limits, threads. */
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/log.h"
#include "base/threads.h"

static void every_status_has_a_row(void **state) {
    (void)state;
    static const int exit_codes[AX_STATUS_COUNT] = {0, 1, 2, 3, 1, 4, 5, 6, 2, 7, 75, 130, 3};
    for (int st = 0; st < AX_STATUS_COUNT; st++) {
        const struct ax_status_info *info = ax_status_info((enum ax_status)st);
        assert_int_equal(info->exit_code, exit_codes[st]);
        assert_true(strlen(info->name) > 0 && strlen(info->meaning) > 0);
    }
}

static enum ax_status innermost(void) {
    return ax_error(AX_ERR_DATA, "row %d is broken", 7);
}

static enum ax_status middle(void) {
    AX_TRY(innermost());
    return AX_OK;
}

static enum ax_status outer(int *cleaned) {
    enum ax_status st;
    AX_TRY_GOTO(middle(), st, done);
done:
    *cleaned = 1;
    return st;
}

static void a_trace_names_every_place(void **state) {
    (void)state;
    int cleaned = 0;
    assert_int_equal(outer(&cleaned), AX_ERR_DATA);
    assert_int_equal(cleaned, 1);
    assert_string_equal(ax_error_text(), "row 7 is broken");
    int places = 0;
    for (const char *p = ax_error_trace(); (p = strstr(p, "test_status.c:")) != NULL; p++)
        places++;
    assert_int_equal(places, 3);
    assert_non_null(strstr(ax_error_trace(), " < "));
    ax_error_clear();
    assert_string_equal(ax_error_text(), "");
    assert_string_equal(ax_error_trace(), "");
}

static void a_new_error_may_quote_the_last_one(void **state) {
    (void)state;
    (void)innermost();
    assert_int_equal(ax_error(AX_ERR_IO, "file.jsonl: %s", ax_error_text()), AX_ERR_IO);
    assert_string_equal(ax_error_text(), "file.jsonl: row 7 is broken");
    assert_null(strstr(ax_error_trace(), " < "));
    assert_int_equal(ax_error_prefix(AX_ERR_IO, "step %d", 3), AX_ERR_IO);
    assert_string_equal(ax_error_text(), "step 3: file.jsonl: row 7 is broken");
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with) {
    const size_t n = strlen(text), tail = strlen(with);
    return n >= tail && strcmp(text + n - tail, with) == 0;
}

static bool is_utf8(const char *text) {
    json_t *v = json_string(text);
    const bool valid = v != NULL;
    json_decref(v);
    return valid;
}

static void long_texts_lose_their_middle(void **state) {
    (void)state;
    char path[3001], text[9000] = "";
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    (void)ax_error(AX_ERR_IO, "config/%s: no such file. Name another.", path);
    assert_true(begins(ax_error_text(), "config/xxx"));
    assert_true(ends(ax_error_text(), "xxx: no such file. Name another."));
    assert_int_equal(strlen(ax_error_text()), AX_ERROR_TEXT - 1);
    assert_non_null(strstr(ax_error_text(), "x \xE2\x80\xA6 x"));
    (void)ax_error_prefix(AX_ERR_IO, "rank 3: %s", path);
    assert_true(begins(ax_error_text(), "rank 3: xxx"));
    assert_true(ends(ax_error_text(), "xxx: no such file. Name another."));
    assert_true(strlen(ax_error_text()) < AX_ERROR_TEXT);
    /* characters stay complete, wherever the gap is */
    for (int i = 0; i < 2900; i++)
        memcpy(text + 3 * (size_t)i, "\xE2\x82\xAC", 4);
    for (int before = 0; before < 3; before++)
        for (int after = 0; after < 3; after++) {
            (void)ax_error(AX_ERR_IO, "%.*s%s%.*s", before, "ab", text, after, "yz");
            assert_true(is_utf8(ax_error_text()));
            assert_true(strlen(ax_error_text()) > AX_ERROR_TEXT - 8);
        }
    for (int before = 0; before < 3; before++) { /* too long even for that */
        (void)ax_error(AX_ERR_IO, "%.*s%s%s", before, "ab", text, text);
        assert_true(is_utf8(ax_error_text()));
    }
    for (int i = 0; i < 100; i++)
        ax_error_add_trace("some/folder/with/a/long/name/file.c", i);
    assert_true(strlen(ax_error_trace()) < 512);
}

/* What of a token the gap would leave is masked, too. */
static void a_gap_in_a_token_shows_nothing_of_it(void **state) {
    (void)state;
    static const char token[] = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH";
    char path[2100];
    memset(path, '.', sizeof path);
    for (size_t at = 980; at < 1060; at++) {
        (void)ax_error(AX_ERR_IO, "%.*s%s%.2000s", (int)at, path, token, path + 100);
        assert_null(strstr(ax_error_text(), "abc"));
        assert_null(strstr(ax_error_text(), "FGH"));
    }
}

/* A line of the log on stderr, as it is written. */
static void log_line(char *line, size_t size, const char *text) {
    int pipes[2];
    const int saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(dup2(pipes[1], STDERR_FILENO), STDERR_FILENO);
    ax_log_error("%s: no such file. Name another.", text);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(pipes[1]);
    close(saved);
    const ssize_t n = read(pipes[0], line, size - 1);
    assert_true(n > 0);
    line[n] = '\0';
    close(pipes[0]);
}

static void log_lines_lose_their_middle(void **state) {
    (void)state;
    static char line[3 * AX_LOG_LINE], text[2 * AX_LOG_LINE];
    log_line(line, sizeof line, "a/b");
    assert_string_equal(line, "error a/b: no such file. Name another.\n");
    memset(text, 'x', sizeof text - 1);
    log_line(line, sizeof line, text);
    assert_true(begins(line, "error xxx") && ends(line, "xxx: no such file. Name another.\n"));
    assert_int_equal(strlen(line), AX_LOG_LINE);
}

static void control_bytes_do_not_reach_the_terminal(void **state) {
    (void)state;
    (void)ax_error(AX_ERR_DATA, "key \"%s\"\nsecond line", "\x1B[31mred\x7F");
    assert_string_equal(ax_error_text(), "key \"?[31mred?\"\nsecond line");
    (void)ax_error(AX_ERR_DATA, "é, \u00a0 and %s",
                   "\xC2\x9B"
                   "31m, \xC2\x80, \xC2.");
    assert_string_equal(ax_error_text(), "é, \u00a0 and ??31m, ??, \xC2.");
}

static enum ax_status fail_in_worker(void *arg) {
    (void)arg;
    return ax_error(AX_ERR_PEER, "rank 3 is gone");
}

static void records_belong_to_their_thread(void **state) {
    (void)state;
    (void)ax_error(AX_ERR_IO, "mine");
    struct ax_worker w;
    assert_int_equal(ax_worker_start(&w, fail_in_worker, NULL), AX_OK);
    assert_string_equal(ax_error_text(), "mine");
    assert_int_equal(ax_worker_join(&w), AX_ERR_PEER);
    assert_string_equal(ax_error_text(), "rank 3 is gone");
}

static void a_saved_record_comes_back_whole(void **state) {
    (void)state;
    (void)middle();
    char trace[512];
    snprintf(trace, sizeof trace, "%s", ax_error_trace());
    struct ax_error_record saved;
    ax_error_save(&saved, AX_ERR_DATA);
    (void)ax_error(AX_ERR_IO, "something while cleaning up");
    assert_int_equal(ax_error_restore(&saved), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "row 7 is broken");
    assert_string_equal(ax_error_trace(), trace);
}

/* A token where another value belongs is quoted by the error about it. */
static void tokens_are_not_shown(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"adapter: got \"hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\" (c.yaml:3)",
         "adapter: got \"hf_***\" (c.yaml:3)"},
        {"hf_0123456789abcdefghij and ghp_0123456789abcdefghij", "hf_*** and ghp_***"},
        {"https://u:hf_0123456789abcdefghij@host", "https://u:hf_***@host"},
        {"sk-proj-0123456789_abcdefghij: no such file", "sk-***: no such file"},
        {"hf_", "hf_"},
        {"hf_mlflow_log_artifacts: no such key", "hf_mlflow_log_artifacts: no such key"},
        {"my_hf_0123456789abcdefghij/x", "my_hf_0123456789abcdefghij/x"},
        {"risk-0123456789abcdefghij", "risk-0123456789abcdefghij"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        (void)ax_error(AX_ERR_CONFIG, "%s", texts[i][0]);
        assert_string_equal(ax_error_text(), texts[i][1]);
        (void)ax_error_prefix(AX_ERR_CONFIG, "%s", texts[i][0]);
        assert_non_null(strstr(ax_error_text(), texts[i][1]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_row),
        cmocka_unit_test(a_trace_names_every_place),
        cmocka_unit_test(a_new_error_may_quote_the_last_one),
        cmocka_unit_test(long_texts_lose_their_middle),
        cmocka_unit_test(a_gap_in_a_token_shows_nothing_of_it),
        cmocka_unit_test(log_lines_lose_their_middle),
        cmocka_unit_test(control_bytes_do_not_reach_the_terminal),
        cmocka_unit_test(records_belong_to_their_thread),
        cmocka_unit_test(a_saved_record_comes_back_whole),
        cmocka_unit_test(tokens_are_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
