/* `axtrain serve` on a golden model, and a client that speaks HTTP over a socket. Include after
 * cmocka.h. */
#ifndef AX_TESTS_CMD_SERVE_CASE_H
#define AX_TESTS_CMD_SERVE_CASE_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "tests/cmd/chat_case.h"

extern char **environ;

/* ---- the server ---- */

struct server {
    pid_t pid;
    int port;
    const char *log; /* a file */
};

static inline const char *server_said(const struct server *s) {
    static char text[1 << 16];
    char *read = NULL;
    size_t len;
    if (ax_read_file(s->log, sizeof text - 1, &read, &len) != AX_OK)
        return "";
    snprintf(text, sizeof text, "%s", read);
    ax_free(read);
    return text;
}

static inline void nap(double seconds) {
    nanosleep(
        &(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)},
        NULL);
}

/* Starts axtrain with words, separated by blanks. */
static inline void server_start(struct server *s, const char *words) {
    static int count;
    char text[3000], name[32], *argv[48] = {"axtrain"}, *rest = text;
    posix_spawn_file_actions_t files;
    int n = 1;
    const char *bin = getenv("AX_TEST_BIN");
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&rest, " ")) != NULL && n < 47;)
        if (*word)
            argv[n++] = word;
    snprintf(name, sizeof name, "log%d", count++);
    static char logs[16][256];
    s->log = logs[count % 16];
    snprintf(logs[count % 16], sizeof logs[0], "%s", in_scratch(name));
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, s->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    assert_int_equal(posix_spawn(&s->pid, bin ? bin : "build/axtrain", &files, NULL, argv, environ),
                     0);
    posix_spawn_file_actions_destroy(&files);
}

/* `axtrain serve`, with words behind the model's. */
static inline void serve_start(struct server *s, const char *folder, const char *words) {
    char all[3000];
    snprintf(all, sizeof all, "serve %s --dtype float32 --port 0 %s", folder, words);
    server_start(s, all);
}

/* Its exit code. */
static inline int serve_wait(struct server *s, double seconds) {
    int status = 0;
    for (const double until = ax_clock_now() + seconds; waitpid(s->pid, &status, WNOHANG) == 0;
         nap(0.005))
        if (ax_clock_now() > until) {
            kill(s->pid, SIGKILL);
            waitpid(s->pid, &status, 0);
            fail_msg("the server goes on: %s", server_said(s));
        }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Waits until it says where it is. */
static inline void server_find(struct server *s) {
    const char *at;
    for (const double until = ax_clock_now() + 60; !(at = strstr(server_said(s), " url=http://"));
         nap(0.005))
        if (ax_clock_now() > until || waitpid(s->pid, NULL, WNOHANG) != 0)
            fail_msg("the server does not start: %s", server_said(s));
    s->port = (int)strtol(
        strrchr(strndupa(at, strcspn(at, "/") + 2 + strcspn(strstr(at, "//") + 2, "/")), ':') + 1,
        NULL, 10);
    assert_true(s->port > 0);
}

static inline void serve_open(struct server *s, const char *folder, const char *words) {
    serve_start(s, folder, words);
    server_find(s);
}

static inline void serve_close(struct server *s) {
    assert_int_equal(kill(s->pid, SIGTERM), 0);
    const int code = serve_wait(s, 60);
    if (code != 0)
        fail_msg("exit code %d: %s", code, server_said(s));
}

/* ---- the client ---- */

struct client {
    int fd;
    char head[4096]; /* of the last answer */
    char value[256]; /* of its header that was asked for last */
    struct ax_buf read, body;
};

static inline void client_open(struct client *c, const struct server *s) {
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)s->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(c, 0, sizeof *c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(c->fd, (const struct sockaddr *)&a, sizeof a), 0);
}

static inline void client_close(struct client *c) {
    close(c->fd);
    ax_buf_free(&c->read);
    ax_buf_free(&c->body);
}

static inline void client_write(struct client *c, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t k = send(c->fd, text, n, MSG_NOSIGNAL);
        assert_true(k > 0);
        text += k;
        n -= (size_t)k;
    }
}

/* More bytes; false at the end of the connection. */
static inline bool client_more(struct client *c) {
    char piece[4096];
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (poll(&p, 1, 60000) != 1)
        fail_msg("no answer in a minute");
    const ssize_t n = recv(c->fd, piece, sizeof piece, 0);
    if (n <= 0)
        return false;
    assert_int_equal(ax_buf_append(&c->read, piece, (size_t)n), AX_OK);
    return true;
}

static inline void client_drop(struct client *c, size_t n) {
    memmove(c->read.data, c->read.data + n, c->read.len - n);
    c->read.len -= n;
    c->read.data[c->read.len] = '\0';
}

/* The next line, without its end. */
static inline void client_line(struct client *c, char *line, size_t size) {
    char *end;
    while (c->read.len == 0 || !(end = memmem(c->read.data, c->read.len, "\r\n", 2)))
        assert_true(client_more(c));
    snprintf(line, size, "%.*s", (int)(end - c->read.data), c->read.data);
    client_drop(c, (size_t)(end - c->read.data) + 2);
}

static inline void client_take(struct client *c, size_t n) {
    while (c->read.len < n)
        assert_true(client_more(c));
    assert_int_equal(ax_buf_append(&c->body, c->read.len ? c->read.data : "", n), AX_OK);
    if (n > 0)
        client_drop(c, n);
}

/* Reads an answer's head; returns its status. */
static inline int client_head(struct client *c) {
    char line[1024];
    size_t n = 0;
    client_line(c, line, sizeof line);
    assert_memory_equal(line, "HTTP/1.1 ", 9);
    const int status = (int)strtol(line + 9, NULL, 10);
    c->body.len = 0;
    assert_int_equal(ax_buf_append(&c->body, "", 0), AX_OK);
    while (client_line(c, line, sizeof line), line[0])
        n += (size_t)snprintf(c->head + n, sizeof c->head - n, "%s\n", line);
    c->head[n] = '\0';
    return status;
}

static inline const char *client_header(struct client *c, const char *name) {
    const char *at = strcasestr(c->head, name);
    if (!at)
        return NULL;
    at += strlen(name) + 2;
    snprintf(c->value, sizeof c->value, "%.*s", (int)strcspn(at, "\n"), at);
    return c->value;
}

/* A piece of a chunked body; false behind the last. */
static inline bool client_chunk(struct client *c) {
    char line[64];
    client_line(c, line, sizeof line);
    const size_t n = (size_t)strtoul(line, NULL, 16);
    client_take(c, n);
    client_line(c, line, sizeof line);
    return n > 0;
}

static inline int client_answer(struct client *c) {
    int status = client_head(c);
    if (status == 100)
        status = client_head(c);
    const char *length = client_header(c, "Content-Length");
    if (length)
        client_take(c, (size_t)strtoul(length, NULL, 10));
    else
        while (client_chunk(c))
            ;
    return status;
}

static inline void client_send(struct client *c, const char *method, const char *path,
                               const char *body) {
    struct ax_buf b = {0};
    assert_int_equal(ax_buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path),
                     AX_OK);
    if (body)
        assert_int_equal(ax_buf_printf(&b,
                                       "Content-Type: application/json\r\nContent-Length: "
                                       "%zu\r\n\r\n%s",
                                       strlen(body), body),
                         AX_OK);
    else
        assert_int_equal(ax_buf_puts(&b, "\r\n"), AX_OK);
    client_write(c, b.data, b.len);
    ax_buf_free(&b);
}

static inline int ask(struct client *c, const char *method, const char *path, const char *body) {
    client_send(c, method, path, body);
    return client_answer(c);
}

/* The body as an object; free it. */
static inline json_t *client_json(const struct client *c) {
    json_t *v = json_loadb(c->body.data, c->body.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(v))
        fail_msg("not an object: %s", c->body.data);
    return v;
}

/* A new connection; the answer's status must be 200. */
static inline json_t *post(const struct server *s, const char *path, const char *body) {
    struct client c;
    client_open(&c, s);
    if (ask(&c, "POST", path, body) != 200)
        fail_msg("%s: %s", body, c.body.data);
    json_t *v = client_json(&c);
    client_close(&c);
    return v;
}

/* The events of a streamed answer, as a list; the last must be [DONE]. Free it. */
static inline json_t *post_stream(const struct server *s, const char *path, const char *body) {
    struct client c;
    json_t *list = json_array();
    client_open(&c, s);
    if (ask(&c, "POST", path, body) != 200)
        fail_msg("%s: %s", body, c.body.data);
    assert_string_equal(client_header(&c, "Content-Type"), "text/event-stream");
    assert_string_equal(client_header(&c, "Cache-Control"), "no-cache");
    const char *event = c.body.data;
    for (const char *end; strncmp(event, "data: {", 7) == 0; event = end + 2) {
        end = strstr(event, "\n\n");
        json_t *v = json_loadb(event + 6, (size_t)(end - event - 6), JSON_ALLOW_NUL, NULL);
        assert_true(json_is_object(v)); /* and so UTF-8 */
        json_array_append_new(list, v);
    }
    assert_string_equal(event, "data: [DONE]\n\n");
    assert_int_equal(ask(&c, "GET", "/health", NULL), 200); /* the connection lives on */
    client_close(&c);
    return list;
}

/* A value by a path such as "choices.0.text"; borrowed. */
static inline json_t *at(const json_t *v, const char *path) {
    char text[128], *rest = text;
    snprintf(text, sizeof text, "%s", path);
    for (char *word; (word = strsep(&rest, ".")) != NULL;)
        v = json_is_array(v) ? json_array_get(v, (size_t)strtoul(word, NULL, 10))
                             : json_object_get(v, word);
    if (!v)
        fail_msg("there is no %s", path);
    return (json_t *)(uintptr_t)v;
}

static inline const char *text_at(const json_t *v, const char *path) {
    const char *text = json_string_value(at(v, path));
    assert_non_null(text);
    return text;
}

/* Runs the commands of docs/serving.md that begin with curl and ask this route, with `to` in place of `from`, and
 * compares what they print; returns how many. */
static inline int run_documented(const struct server *s, const char *route, const char *from,
                                 const char *to, const char *wanted) {
    char *page, printed[1 << 14];
    size_t len;
    int n = 0;
    assert_int_equal(ax_read_file("docs/serving.md", 1 << 20, &page, &len), AX_OK);
    for (char *line = page; (line = strstr(line, "\ncurl ")) != NULL;) {
        struct ax_buf command = {0};
        char *end = strstr(++line, "\n```"), *next = strstr(line, "\ncurl ");
        end = next && next < end ? next : end;
        char *at = memmem(line, (size_t)(end - line), ":8000/", 6),
             *name = from[0] ? memmem(line, (size_t)(end - line), from, strlen(from)) : NULL;
        assert_non_null(at);
        if (strncmp(at + 5, route, strlen(route)) != 0)
            continue;
        assert_int_equal(ax_buf_printf(&command, "curl -sS --fail%.*s:%d", (int)(at - line - 4),
                                       line + 4, s->port),
                         AX_OK);
        at += 5;
        if (name)
            assert_int_equal(ax_buf_printf(&command, "%.*s%s", (int)(name - at), at, to), AX_OK);
        at = name ? name + strlen(from) : at;
        assert_int_equal(ax_buf_printf(&command, "%.*s", (int)(end - at), at), AX_OK);
        FILE *p = popen(command.data, "r");
        assert_non_null(p);
        printed[fread(printed, 1, sizeof printed - 1, p)] = '\0';
        if (pclose(p) != 0 || !strstr(printed, wanted))
            fail_msg("%s: %s", command.data, printed);
        ax_buf_free(&command);
        n++;
    }
    ax_free(page);
    return n;
}

/* A number of /metrics. */
static inline double metric(const struct server *s, const char *name) {
    struct client c;
    char line[128];
    client_open(&c, s);
    assert_int_equal(ask(&c, "GET", "/metrics", NULL), 200);
    snprintf(line, sizeof line, "\naxtrain_%s ", name);
    const char *found = strstr(c.body.data, line);
    assert_non_null(found);
    const double value = strtod(found + strlen(line), NULL);
    client_close(&c);
    return value;
}

#endif
