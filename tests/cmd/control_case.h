/* A server that is held still: requests to it, and its answers. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_CONTROL_CASE_H
#define AX_TESTS_CMD_CONTROL_CASE_H

#include "tests/cmd/serve_case.h"

#define COMPLETE "/v1/completions"

static struct server server;

static inline int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    make_long_model();
    serve_open(&server, long_model,
               "--allow-control --parallel 2 --context 60000 --cache-tokens 130000");
    return 0;
}

static inline int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

/* ---- requests ---- */

static inline void begin(struct client *c, const char *id, int tokens, bool stream) {
    char body[300];
    snprintf(body, sizeof body,
             "{\"prompt\": \"chat\", \"temperature\": 0, \"ignore_eos\": true, \"max_tokens\": %d, "
             "\"stream\": %s, \"request_id\": \"%s\"}",
             tokens, stream ? "true" : "false", id);
    client_open(c, &server);
    client_send(c, "POST", COMPLETE, body);
    if (stream) {
        assert_int_equal(client_head(c), 200);
        assert_true(client_chunk(c));
    }
}

static inline void wait_pending(double n) {
    for (const double until = ax_clock_now() + 60; metric(&server, "sequences_pending") != n;
         nap(0.005))
        assert_true(ax_clock_now() < until);
}

/* The rest of a stream: its text and how it ended; free the text. */
static inline json_t *stream_end(struct client *c, const char **finish) {
    static char ended[32];
    struct ax_buf text = {0};
    ended[0] = '\0';
    while (client_chunk(c))
        ;
    for (char *event = c->body.data; strncmp(event, "data: {", 7) == 0;) {
        char *end = strstr(event, "\n\n");
        json_t *v = json_loadb(event + 6, (size_t)(end - event - 6), JSON_ALLOW_NUL, NULL);
        const json_t *piece = at(v, "choices.0.text"), *why = at(v, "choices.0.finish_reason");
        assert_int_equal(ax_buf_append(&text, json_string_value(piece), json_string_length(piece)),
                         AX_OK);
        if (json_is_string(why))
            snprintf(ended, sizeof ended, "%s", json_string_value(why));
        json_decref(v);
        event = end + 2;
    }
    client_close(c);
    json_t *whole = json_stringn(text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    *finish = ended;
    return whole;
}

/* A route without a body. */
static inline int post_to(const char *path, struct client *c) {
    client_open(c, &server);
    char text[300];
    snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
             path);
    client_write(c, text, strlen(text));
    return client_answer(c);
}

static inline void control(const char *path, int status, const char *says) {
    struct client c;
    const int got = post_to(path, &c);
    if (got != status || !strstr(c.body.data, says))
        fail_msg("%s: %d %s", path, got, c.body.data);
    client_close(&c);
}

static inline bool is_paused(void) {
    struct client c;
    client_open(&c, &server);
    assert_int_equal(ask(&c, "GET", "/is_paused", NULL), 200);
    json_t *v = client_json(&c);
    const bool paused = json_is_true(at(v, "is_paused"));
    json_decref(v);
    client_close(&c);
    return paused;
}

static inline void aborted_answer(struct client *c) {
    assert_int_equal(client_answer(c), 200);
    json_t *v = client_json(c);
    assert_string_equal(text_at(v, "choices.0.finish_reason"), "abort");
    json_decref(v);
    client_close(c);
}

#endif
