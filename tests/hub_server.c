#include "tests/hub_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash/hash.h"

struct connection {
    struct hub_server *s;
    int fd;
    bool cdn;
};

/* ---- sending ---- */

static bool put(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n > 0) {
        const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static void answer(int fd, int status, const char *headers, const void *body, size_t n) {
    char head[4096];
    const int k =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %d Whatever\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
                 status, n, headers);
    if (put(fd, head, (size_t)k))
        (void)put(fd, body, n);
}

static void refuse(int fd, int status, const char *code, const char *message) {
    char headers[512];
    snprintf(headers, sizeof headers, "X-Error-Code: %s\r\nX-Error-Message: %s\r\n", code, message);
    answer(fd, status, headers, "<html>", 6);
}

/* ---- requests ---- */

static const char *header(const char *request, const char *name) {
    const char *at = strcasestr(request, name);
    return at ? at + strlen(name) : NULL;
}

static const struct hub_file *find(const struct hub_server *s, const char *path) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->files[i].path, path) == 0)
            return &s->files[i];
    return s->also ? find(s->also, path) : NULL;
}

static void send_list(struct connection *c, const char *query) {
    const struct hub_server *s = c->s;
    char headers[256] = "", *text = NULL; /* libc's: the tests count the blocks of base/mem.h */
    size_t n = 0;
    const char *from_text = strstr(query, "cursor=");
    const size_t from = from_text ? strtoul(from_text + 7, NULL, 10) : 0;
    const size_t to = s->page && from + s->page < s->n ? from + s->page : s->n;
    if (s->list) {
        answer(c->fd, 200, "", s->list, strlen(s->list));
        return;
    }
    FILE *out = open_memstream(&text, &n);
    fputs("[{\"type\": \"directory\", \"path\": \"some\", \"oid\": \"x\"}", out);
    for (size_t i = from; i < to; i++) {
        const struct hub_file *f = &s->files[i];
        fprintf(out, ",{\"type\":\"file\",\"path\":\"%s\",\"size\":%zu,\"oid\":\"%s\"", f->path,
                f->len, f->large ? "0" : f->blob);
        if (f->large)
            fprintf(out, ",\"lfs\":{\"oid\":\"%s\",\"size\":%zu,\"pointerSize\":9}", f->blob,
                    f->len);
        fputs("}", out);
    }
    fputs("]", out);
    fclose(out);
    if (to < s->n)
        snprintf(headers, sizeof headers,
                 "Link: <%s/%s/%s/tree/%s?recursive=true&cursor=%zu>; rel=\"next\"\r\n", s->next,
                 s->kind, s->id, s->commit, to);
    answer(c->fd, 200, headers, text, n);
    free(text);
}

static void send_file(struct connection *c, const struct hub_file *f, const char *request) {
    struct hub_server *s = c->s;
    const char *range = s->no_ranges ? NULL : header(request, "\r\nRange: bytes=");
    const size_t from = range ? strtoul(range, NULL, 10) : 0;
    char head[1024];
    s->ranges += range != NULL;
    if (from >= f->len && f->len > 0) {
        answer(c->fd, 416, "", "", 0);
        return;
    }
    const size_t back = f->large && s->keep_back < f->len - from ? s->keep_back : 0;
    const size_t n = f->len - from - back;
    char content_range[128] = "";
    if (range)
        snprintf(content_range, sizeof content_range, "Content-Range: bytes %zu-%zu/%zu\r\n", from,
                 f->len - 1, f->len);
    const int k = snprintf(head, sizeof head,
                           "HTTP/1.1 %d OK\r\nConnection: close\r\nContent-Length: %zu\r\n"
                           "ETag: \"%s\"\r\nX-Repo-Commit: %s\r\n%s\r\n",
                           range ? 206 : 200, n, f->blob, s->commit, content_range);
    const size_t send_now = s->cut_every && s->cut_every < n ? s->cut_every : n;
    if (!put(c->fd, head, (size_t)k))
        return;
    s->sent += (long long)send_now;
    if (!s->wrong_bytes || !f->large) {
        (void)put(c->fd, (const char *)f->data + from, send_now);
        return;
    }
    char *copy = malloc(send_now + 1);
    memcpy(copy, (const char *)f->data + from, send_now);
    copy[0] = (char)(copy[0] ^ 1);
    (void)put(c->fd, copy, send_now);
    free(copy);
}

/* ENDPOINT/…/resolve/COMMIT/PATH: small files directly (after a relative redirect), large ones
 * from the CDN. */
static void resolve(struct connection *c, const char *path, const char *request) {
    struct hub_server *s = c->s;
    const struct hub_file *f = find(s, path);
    char headers[1024];
    if (!f) {
        refuse(c->fd, 404, "EntryNotFound", "Entry not found");
    } else if (!f->large) {
        const int n = snprintf(headers, sizeof headers, "Location: /direct/%s\r\n", f->path);
        if (!s->says_no_size)
            snprintf(headers + n, sizeof headers - (size_t)n, "X-Linked-Size: %zu\r\n", f->len);
        answer(c->fd, 307, headers, "redirecting", 11);
    } else if (s->redirect && s->detours != 1) {
        s->detours -= s->detours > 1;
        snprintf(headers, sizeof headers, "Location: %s\r\n", s->redirect);
        answer(c->fd, 302, headers, "", 0);
    } else {
        snprintf(headers, sizeof headers,
                 "Location: http://localhost:%d/cdn/%s\r\nX-Linked-Etag: \"%s\"\r\n"
                 "X-Linked-Size: %zu\r\nX-Repo-Commit: %s\r\n",
                 s->ports[1], f->path, s->linked_etag ? s->linked_etag : f->blob,
                 f->len + s->linked_more, s->says_commit ? s->says_commit : s->commit);
        answer(c->fd, s->moved ? s->moved : 302, headers, "redirecting", 11);
    }
    (void)request;
}

/* Is the request turned down before it is looked at? */
static bool turned_down(struct connection *c, const char *request) {
    struct hub_server *s = c->s;
    const char *token = header(request, "\r\nAuthorization: Bearer ");
    char headers[64] = "";
    s->hub_tokens += token != NULL;
    if (s->fail_times > 0 && s->fail_times-- > 0) {
        if (s->retry_after >= 0)
            snprintf(headers, sizeof headers, "Retry-After: %d\r\n", s->retry_after);
        answer(c->fd, s->fail_status, headers, "busy", 4);
        return true;
    }
    const size_t n = s->token ? strlen(s->token) : 0;
    const bool knows = token && s->token && strncmp(token, s->token, n) == 0 && token[n] == '\r';
    if (s->token && token && !knows)
        refuse(c->fd, 401, "", "Invalid credentials in Authorization header");
    else if (s->token && !token)
        refuse(c->fd, 401, s->gated ? "GatedRepo" : "RepoNotFound", "Repository not found");
    else if (s->gated)
        refuse(c->fd, 403, "GatedRepo", "Access to it is restricted");
    else
        return false;
    return true;
}

static void serve_hub(struct connection *c, const char *path, const char *request) {
    struct hub_server *s = c->s;
    char prefix[256];
    int n;
    if (turned_down(c, request))
        return;
    for (struct hub_server *o = s->also; o; o = o->also) {
        struct connection other = {.s = o, .fd = c->fd};
        if (!strstr(path, o->id))
            continue;
        memcpy(o->ports, s->ports, sizeof s->ports);
        serve_hub(&other, path, request);
        return;
    }
    n = snprintf(prefix, sizeof prefix, "/direct/");
    if (strncmp(path, prefix, (size_t)n) == 0 && find(s, path + n)) {
        send_file(c, find(s, path + n), request);
        return;
    }
    n = snprintf(prefix, sizeof prefix, "/api/%s/%s/revision/", s->kind, s->id);
    if (strncmp(path, prefix, (size_t)n) == 0) {
        const char *known[] = {"main", "v1", "refs%2Fpr%2F1", s->commit};
        for (size_t i = 0; i < 4; i++)
            if (strcmp(path + n, known[i]) == 0) {
                n = snprintf(prefix, sizeof prefix, "{\"id\": \"%s\", \"sha\": \"%s\"}", s->id,
                             s->commit);
                answer(c->fd, 200, "", prefix, (size_t)n);
                return;
            }
        refuse(c->fd, 404, "RevisionNotFound", "Invalid rev id");
        return;
    }
    n = snprintf(prefix, sizeof prefix, "/api/%s/%s/tree/%s", s->kind, s->id, s->commit);
    if (strncmp(path, prefix, (size_t)n) == 0) {
        send_list(c, path + n);
        return;
    }
    n = snprintf(prefix, sizeof prefix, "/%s%s/resolve/%s/",
                 strcmp(s->kind, "datasets") == 0 ? "datasets/" : "", s->id, s->commit);
    if (strncmp(path, prefix, (size_t)n) == 0)
        resolve(c, path + n, request);
    else
        refuse(c->fd, 401, "RepoNotFound", "Repository not found");
}

static void *serve(void *arg) {
    struct connection *c = arg;
    char request[16384], path[4096];
    size_t n = 0;
    ssize_t k = 1;
    while (n + 1 < sizeof request && k > 0) {
        k = recv(c->fd, request + n, sizeof request - 1 - n, 0);
        n += k > 0 ? (size_t)k : 0;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n") || request[0] == 22) /* TLS, which it does not speak */
            break;
    }
    request[n] = '\0';
    if (sscanf(request, "GET %4095s", path) == 1) {
        if (!c->cdn) {
            serve_hub(c, path, request);
        } else {
            c->s->cdn_requests++;
            c->s->cdn_tokens += header(request, "\r\nAuthorization:") != NULL;
            const struct hub_file *f = strncmp(path, "/cdn/", 5) == 0 ? find(c->s, path + 5) : NULL;
            if (f)
                send_file(c, f, request);
            else
                answer(c->fd, 404, "", "", 0);
        }
    } else if (strncmp(request, "CONNECT ", 8) == 0) {
        c->s->proxied++;
        answer(c->fd, 403, "", "", 0);
    }
    shutdown(c->fd, SHUT_WR);
    while (recv(c->fd, request, sizeof request, 0) > 0)
        continue;
    close(c->fd);
    c->s->live--;
    free(c);
    return NULL;
}

struct listener {
    struct hub_server *s;
    int which;
};

static void *listen_on(void *arg) {
    struct listener l = *(struct listener *)arg;
    free(arg);
    for (;;) {
        const int fd = accept(l.s->fds[l.which], NULL, NULL);
        if (fd < 0)
            return NULL;
        l.s->connections++;
        l.s->live++;
        struct connection *c = malloc(sizeof *c);
        *c = (struct connection){.s = l.s, .fd = fd, .cdn = l.which == 1};
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, c) == 0)
            pthread_detach(thread);
    }
}

void hub_start(struct hub_server *s) {
    s->retry_after = -1;
    if (!s->commit)
        s->commit = HUB_COMMIT;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof a;
        s->fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(s->fds[i] >= 0);
        assert_int_equal(bind(s->fds[i], (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(s->fds[i], 64), 0);
        assert_int_equal(getsockname(s->fds[i], (struct sockaddr *)&a, &n), 0);
        s->ports[i] = ntohs(a.sin_port);
        struct listener *l = malloc(sizeof *l);
        *l = (struct listener){s, i};
        assert_int_equal(pthread_create(&s->threads[i], NULL, listen_on, l), 0);
    }
    snprintf(s->endpoint, sizeof s->endpoint, "http://127.0.0.1:%d", s->ports[0]);
}

void hub_stop(struct hub_server *s) {
    for (int i = 0; i < 2; i++) {
        shutdown(s->fds[i], SHUT_RDWR);
        pthread_join(s->threads[i], NULL);
        close(s->fds[i]);
    }
    while (s->live > 0) /* their clients have closed them */
        usleep(1000);
}

struct hub_file *hub_add(struct hub_server *s, const char *path, const void *data, size_t len,
                         bool large) {
    assert_true(s->n < sizeof s->files / sizeof *s->files);
    struct hub_file *f = &s->files[s->n++];
    *f = (struct hub_file){.data = data, .len = len, .large = large};
    snprintf(f->path, sizeof f->path, "%s", path);
    unsigned char digest[32];
    if (large) {
        struct ax_sha256 h;
        ax_sha256_init(&h);
        ax_sha256_update(&h, data, len);
        ax_sha256_final(&h, digest);
    } else {
        char head[40];
        struct ax_sha1 h;
        ax_sha1_init(&h);
        ax_sha1_update(&h, head, (size_t)snprintf(head, sizeof head, "blob %zu", len) + 1);
        ax_sha1_update(&h, data, len);
        ax_sha1_final(&h, digest);
    }
    ax_hex(f->blob, digest, large ? 32 : 20);
    return f;
}
