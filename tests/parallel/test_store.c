/* The rendezvous: who may join, who is named when something is wrong, and what strangers can do. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "parallel/job/store.h"
#include "parallel/job/store_server.h"
#include "parallel/job/token.h"

enum { MAX_RANKS = 8 };

/* ---- a name with two addresses, as one of each family has them ---- */

#define TWO "two.test"

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **list) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &symbol, sizeof real);
    const bool two = name && strcmp(name, TWO) == 0;
    const int first = real(two ? "127.0.0.2" : name, service, hints, list);
    return two && first == 0 ? real("127.0.0.3", service, hints, &(*list)->ai_next) : first;
}

static void address_of(int fd, char *text, socklen_t size) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    assert_non_null(inet_ntop(AF_INET, &a.sin_addr, text, size));
}

/* ---- ranks in processes ---- */

struct rank {
    struct ax_store_options o;
    enum ax_status (*body)(struct ax_store_client *s, int rank);
};
struct result {
    int code;
    char text[2048];
};

static struct ax_store_options base_options(int world, int port) {
    return (struct ax_store_options){.host = "127.0.0.1",
                                     .port = port,
                                     .ports = 1,
                                     .world = world,
                                     .binary = 1,
                                     .config = 2,
                                     .key = "of this job",
                                     .timeout = 20};
}

static pid_t start(const struct rank *r, int *out) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ax_store_client *s = NULL;
        enum ax_status st = ax_store_open(&s, &r->o);
        if (st == AX_OK && r->body)
            st = r->body(s, r->o.rank);
        if (s && st != AX_ERR_DIVERGED)
            ax_store_leave(s, st);
        (void)!write(ends[1], ax_error_text(), strlen(ax_error_text()));
        _exit((int)st);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

static struct result finish(pid_t pid, int out) {
    struct result r = {0};
    int status;
    size_t len = 0;
    for (ssize_t n; (n = read(out, r.text + len, sizeof r.text - 1 - len)) > 0;)
        len += (size_t)n;
    close(out);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return r;
}

/* Starts n ranks against a server for `world`. */
static void run(int world, int n, struct rank *ranks, double server_timeout,
                struct result *results) {
    int fd, port, outs[MAX_RANKS];
    pid_t pids[MAX_RANKS];
    struct ax_store_server *server;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    for (int i = 0; i < n; i++) {
        ranks[i].o.port = port;
        pids[i] = start(&ranks[i], &outs[i]);
    }
    assert_int_equal(ax_store_serve(&server, fd, world, ranks[0].o.key, server_timeout), AX_OK);
    for (int i = 0; i < n; i++)
        results[i] = finish(pids[i], outs[i]);
    ax_store_stop(server, 0);
}

static void has(const struct result *r, int code, const char *part) {
    if (r->code != code || !strstr(r->text, part))
        fail_msg("status %d, \"%s\" lacks \"%s\" (status %d)", r->code, r->text, part, code);
}

/* ---- what ranks do ---- */

static enum ax_status exchange(struct ax_store_client *s, int rank) {
    char key[32], *data;
    size_t n;
    snprintf(key, sizeof key, "from %d", rank);
    AX_TRY(ax_store_set(s, key, key, strlen(key)));
    for (int r = 0; r < ax_store_world(s); r++) {
        snprintf(key, sizeof key, "from %d", r);
        AX_TRY(ax_store_get(s, key, r, 20, &data, &n));
        const bool same = n == strlen(key) && memcmp(data, key, n) == 0;
        ax_free(data);
        if (!same)
            return ax_error(AX_ERR_FAILED, "%s is wrong", key);
    }
    if (strcmp(ax_store_address(s), "127.0.0.1") != 0 || ax_store_rank(s) != rank)
        return ax_error(AX_ERR_FAILED, "I am at %s", ax_store_address(s));
    if (ax_store_set(s, key, "again", 5) != AX_ERR_CONFIG || !strstr(ax_error_text(), "already"))
        return ax_error(AX_ERR_FAILED, "a key was set twice");
    ax_error_clear();
    return AX_OK;
}

static void ranks_exchange_keys(void **state) {
    (void)state;
    struct rank ranks[5];
    struct result results[5];
    for (int r = 0; r < 5; r++) {
        ranks[r] = (struct rank){base_options(5, 0), exchange};
        ranks[r].o.rank = r;
    }
    run(5, 5, ranks, 20, results);
    for (int r = 0; r < 5; r++)
        has(&results[r], AX_OK, "");
}

/* The way in which rank 1 of 2 differs, and what is said to both. */
static const struct {
    int rank, world;
    uint64_t binary, config;
    const char *text;
} contradictions[] = {
    {1, 2, 9, 2, "another build of axtrain than rank "},
    {1, 2, 1, 9, "another configuration than rank "},
    {1, 3, 1, 2, "rank 1 (host "},
    {0, 2, 1, 2, ": this rank has already joined as rank 0 (host "},
    {7, 2, 1, 2, "the job has ranks 0 to 1"},
};

static void contradictions_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof contradictions / sizeof *contradictions; i++) {
        struct rank ranks[2] = {{base_options(2, 0), NULL}, {base_options(2, 0), NULL}};
        struct result results[2];
        ranks[1].o.rank = contradictions[i].rank;
        ranks[1].o.world = contradictions[i].world;
        ranks[1].o.binary = contradictions[i].binary;
        ranks[1].o.config = contradictions[i].config;
        const double begin = ax_clock_now();
        run(2, 2, ranks, 20, results);
        assert_true(ax_clock_now() - begin < 15); /* nobody waits for the deadline */
        for (int r = 0; r < 2; r++)
            has(&results[r], AX_ERR_CONFIG, contradictions[i].text);
    }
}

static void missing_ranks_are_a_table(void **state) {
    (void)state;
    struct rank ranks[2] = {{base_options(8, 0), NULL}, {base_options(8, 0), NULL}};
    struct result results[2];
    char host[AX_STORE_HOST] = "", expected[256];
    gethostname(host, sizeof host - 1);
    ranks[0].o.rank = 2;
    ranks[1].o.rank = 5;
    run(8, 2, ranks, 1.5, results);
    snprintf(expected, sizeof expected,
             "of 8 ranks, these did not arrive within 1.5 s: 0, 1, 3, 4, 6, 7\n"
             "  arrived on %s: 2, 5",
             host);
    for (int r = 0; r < 2; r++)
        has(&results[r], AX_ERR_PEER, expected);
}

static enum ax_status dies(struct ax_store_client *s, int rank) {
    char *data;
    size_t n;
    if (rank == 1)
        return ax_error(AX_ERR_DIVERGED, "without a word"); /* start() does not leave then */
    return ax_store_get(s, "never", -1, 20, &data, &n);
}

static enum ax_status fails(struct ax_store_client *s, int rank) {
    char *data, words[256];
    size_t n;
    int done;
    if (rank == 1)
        return ax_error(AX_ERR_DATA, "rows.jsonl:7: no such field");
    const enum ax_status st = ax_store_get(s, "never", -1, 20, &data, &n);
    if (ax_store_ask_cause(s, 0, 2, 0, words, sizeof words, &done) != AX_ERR_DATA || done != -1 ||
        strcmp(words, "rank 1 failed: rows.jsonl:7: no such field") != 0)
        return ax_error(AX_ERR_FAILED, "the cause is \"%s\"", words);
    return st;
}

static enum ax_status ends(struct ax_store_client *s, int rank) {
    char *data, words[256];
    size_t n;
    int done;
    if (rank == 1)
        return AX_OK;
    const enum ax_status st = ax_store_get(s, "never", 1, 20, &data, &n);
    if (ax_store_ask_cause(s, 0, 2, 5, words, sizeof words, &done) != AX_OK || done != 1)
        return ax_error(AX_ERR_FAILED, "rank 1 has not ended: %d", done);
    return st;
}

/* A rank that waits for a key learns immediately that the key will not come. */
static void losses_end_waits(void **state) {
    (void)state;
    static const struct {
        enum ax_status (*body)(struct ax_store_client *, int);
        const char *text;
    } cases[] = {{dies, ") is gone: its process ended, or its connection broke"},
                 {fails, "rank 1 failed: rows.jsonl:7: no such field"},
                 {ends, ") has ended"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank ranks[2] = {{base_options(2, 0), cases[i].body},
                                {base_options(2, 0), cases[i].body}};
        struct result results[2];
        ranks[1].o.rank = 1;
        const double begin = ax_clock_now();
        run(2, 2, ranks, 20, results);
        assert_true(ax_clock_now() - begin < 15);
        has(&results[0], AX_ERR_PEER, cases[i].text);
    }
}

static int joined[2]; /* a pipe */

static enum ax_status is_left(struct ax_store_client *s, int rank) {
    char *data, words[256] = "before", said[256];
    size_t n;
    int done = rank;
    (void)!write(joined[1], "y", 1);
    const enum ax_status st = ax_store_get(s, "never", -1, 20, &data, &n);
    snprintf(said, sizeof said, "%s", ax_error_text());
    if (st != AX_ERR_PEER || ax_store_ask_cause(s, 0, 1, 5, words, sizeof words, &done) != AX_OK ||
        done != -1 || *words || strcmp(said, ax_error_text()) != 0)
        return ax_error(AX_ERR_FAILED, "%d, \"%s\", %d: %s", (int)st, words, done, said);
    return AX_OK;
}

/* Without the store nobody can say who failed first: that is no failure of its own. */
static void a_store_that_is_gone_knows_no_cause(void **state) {
    (void)state;
    struct rank rank = {base_options(1, 0), is_left};
    struct ax_store_server *server;
    int fd, port, out;
    char byte;
    assert_int_equal(pipe(joined), 0);
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    rank.o.port = port;
    const pid_t pid = start(&rank, &out);
    assert_int_equal(ax_store_serve(&server, fd, 1, rank.o.key, 20), AX_OK);
    assert_int_equal(read(joined[0], &byte, 1), 1);
    ax_store_stop(server, 0);
    const struct result r = finish(pid, out);
    has(&r, AX_OK, "");
    close(joined[0]);
    close(joined[1]);
}

/* ---- strangers ---- */

static int knock(int port) {
    const char *why;
    const int fd = ax_net_connect("127.0.0.1", port, 5, &why);
    assert_true(fd >= 0);
    return fd;
}

/* True if the other end closes within the time; what it sends is ignored. */
static bool is_closed(int fd, double seconds) {
    char buffer[256];
    const double deadline = ax_clock_now() + seconds;
    while (ax_net_ready(fd, false, deadline - ax_clock_now())) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return true;
    }
    return false;
}

#define BYTES(text)                                                                                \
    { text, sizeof(text) - 1 }
static const struct {
    const char *text;
    size_t n;
} garbage[] = {
    BYTES("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    BYTES("\xff\xff\xff\x3f\x02 a frame of 1 GiB"),
    BYTES("\x10\x00\x00\x00\x04 a request before joining"),
    BYTES("\x02\x00\x00\x00\x02xx"),
};

/* The job's ranks join while others do what they like, and its own ranks with a wrong token are
 * strangers, too. */
static void strangers_are_refused(void **state) {
    (void)state;
    enum { SILENT = 1000, LOUD = 1000 };
    static int silent[SILENT];
    int fd, port, outs[3];
    pid_t pids[3];
    struct ax_store_server *server;
    struct rank ranks[3];
    struct rlimit files; /* both ends are in this process, and 1024 is a common limit */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    for (int r = 0; r < 3; r++) {
        ranks[r] = (struct rank){base_options(2, port), exchange};
        ranks[r].o.rank = r % 2;
    }
    memcpy(ranks[2].o.key, "of another job", 15);
    ranks[2].o.timeout = 1;
    pids[0] = start(&ranks[0], &outs[0]);
    pids[2] = start(&ranks[2], &outs[2]);
    assert_int_equal(ax_store_serve(&server, fd, 2, ranks[0].o.key, 60), AX_OK);
    const uint64_t before = ax_mem_rss();
    for (int i = 0; i < SILENT; i++)
        silent[i] = knock(port);
    for (int i = 0; i < LOUD; i++) {
        const int loud = knock(port);
        (void)!send(loud, garbage[i % 4].text, garbage[i % 4].n, MSG_NOSIGNAL);
        if (i < 8 && !is_closed(loud, 4))
            fail_msg("garbage %d is not refused", i);
        close(loud);
    }
    /* a rank joins in the middle of it; a byte now and then does not keep a connection */
    pids[1] = start(&ranks[1], &outs[1]);
    const int slow = knock(port);
    const double begin = ax_clock_now();
    while (send(slow, "\x10", 1, MSG_NOSIGNAL) == 1 && !is_closed(slow, 0.3))
        assert_true(ax_clock_now() - begin < 20);
    close(slow);
    assert_true(ax_mem_rss() < before + (16 << 20));
    const struct result one = finish(pids[0], outs[0]), two = finish(pids[1], outs[1]);
    const struct result wrong = finish(pids[2], outs[2]);
    has(&one, AX_OK, "");
    has(&two, AX_OK, "");
    has(&wrong, AX_ERR_PEER, "the store there does not accept this rank's token");
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    ax_store_stop(server, 0);
    ax_log_set_level(AX_LOG_INFO);
}

/* Of Python's: hmac.new(key, b"store".ljust(8, b"\0") + nonce + b"rest", hashlib.sha256) */
static void proofs_are_hmacs(void **state) {
    (void)state;
    static const unsigned char expected[AX_MAC_BYTES] = {
        0x97, 0x49, 0xbe, 0x0b, 0x63, 0xf4, 0x5c, 0x61, 0x7d, 0x55, 0x69,
        0x16, 0x92, 0x68, 0x03, 0xce, 0x32, 0x07, 0x0c, 0xc7, 0x26, 0x9d,
        0xcc, 0x2b, 0x1b, 0x15, 0xe5, 0xd7, 0x34, 0x49, 0xea, 0xa8};
    const unsigned char key[AX_STORE_KEY_BYTES] = "of this job";
    unsigned char nonce[AX_STORE_NONCE], mac[AX_MAC_BYTES];
    for (size_t i = 0; i < sizeof nonce; i++)
        nonce[i] = (unsigned char)(i + 1);
    ax_store_proof(key, "store", nonce, "rest", 4, mac);
    assert_memory_equal(mac, expected, sizeof expected);
}

/* What a rank sent is of no use to another connection, whose challenge differs. */
static void proofs_cannot_be_replayed(void **state) {
    (void)state;
    const unsigned char key[AX_STORE_KEY_BYTES] = "of this job";
    struct ax_store_core core;
    struct ax_store_conn *conns[2];
    struct ax_buf rest = {0}, body = {0}, frame = {0};
    unsigned char nonce[AX_STORE_NONCE] = {0}, mac[AX_MAC_BYTES];
    const struct ax_store_member me = {.rank = 0, .world = 2, .host = "here"};
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(ax_store_core_create(&core, 2, key, 5), AX_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ax_store_core_accept(&core, "here", &conns[i]), AX_OK);
    assert_int_equal(ax_buf_append(&rest, nonce, sizeof nonce), AX_OK);
    assert_int_equal(ax_store_put_member(&rest, &me), AX_OK);
    ax_store_proof(key, "rank", conns[0]->nonce, rest.data, rest.len, mac);
    assert_int_equal(ax_buf_append(&body, mac, sizeof mac), AX_OK);
    assert_int_equal(ax_buf_append(&body, rest.data, rest.len), AX_OK);
    assert_int_equal(ax_store_put_frame(&frame, AX_STORE_JOIN, body.data, body.len), AX_OK);
    ax_store_core_feed(&core, conns[1], frame.data, frame.len);
    assert_true(conns[1]->closing && !conns[1]->member);
    for (size_t i = 0; i < frame.len; i++) { /* byte by byte */
        assert_false(conns[0]->member);
        ax_store_core_feed(&core, conns[0], frame.data + i, 1);
    }
    assert_true(conns[0]->member && !conns[0]->closing);
    assert_int_equal(core.table.joined, 1);
    ax_buf_free(&rest);
    ax_buf_free(&body);
    ax_buf_free(&frame);
    ax_store_core_free(&core);
    ax_log_set_level(AX_LOG_INFO);
}

/* ---- the table ---- */

static void the_first_cause_is_told(void **state) {
    (void)state;
    static const struct {
        enum ax_status left[3];
        const char *told;
    } cases[] = {
        {{AX_OK, AX_ERR_DATA, AX_OK}, "rank 2 failed: words of 2"},
        {{AX_ERR_DATA, AX_ERR_IO, AX_OK}, "rank 1 failed: words of 1"},
        {{AX_ERR_DATA, AX_ERR_PEER, AX_OK}, "rank 1 failed: words of 1"},
        {{AX_ERR_PEER, AX_ERR_PEER, AX_OK}, "words of 1"},
        {{AX_ERR_PEER, AX_ERR_PEER, AX_ERR_DATA}, "rank 3 failed: words of 3"},
        {{AX_OK, AX_OK, AX_OK}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_store_table t;
        char words[256] = "";
        assert_int_equal(ax_store_table_create(&t, 4), AX_OK);
        for (int r = 0; r < 4; r++)
            assert_int_equal(
                ax_store_seat_take(&t, &(struct ax_store_member){.rank = r, .world = 4}), AX_OK);
        for (int r = 1; r < 4; r++) {
            char text[32];
            snprintf(text, sizeof text, "words of %d", r);
            if (cases[i].left[r - 1] != AX_OK)
                ax_store_seat_leave(&t, r, cases[i].left[r - 1], text);
        }
        (void)ax_store_cause(&t, 0, words, sizeof words);
        assert_string_equal(words, cases[i].told);
        ax_store_table_free(&t);
    }
}

static void keys_are_bounded(void **state) {
    (void)state;
    struct ax_store_table t;
    char key[32], *large;
    const size_t n = 64 << 20;
    int set = 0;
    assert_int_equal(ax_store_table_create(&t, 2), AX_OK);
    for (;; set++) {
        snprintf(key, sizeof key, "key %d", set);
        if (ax_store_put(&t, key, "x", 1) != AX_OK)
            break;
    }
    assert_int_equal(set, 1024 + 2 * 256);
    assert_non_null(strstr(ax_error_text(), "no space after 1536 keys with 1536 bytes"));
    ax_store_table_free(&t);
    assert_int_equal(ax_store_table_create(&t, 2), AX_OK);
    assert_int_equal(ax_alloc(&large, n, 1), AX_OK);
    for (set = 0; set < 8; set++) {
        snprintf(key, sizeof key, "key %d", set);
        if (ax_store_put(&t, key, large, n) != AX_OK)
            break;
    }
    assert_int_equal(set, 4);
    ax_free(large);
    ax_store_table_free(&t);
}

/* ---- tokens ---- */

static void tokens_are_found(void **state) {
    (void)state;
    char path[] = "/tmp/axtrain-token-XXXXXX", token[AX_TOKEN_MAX + 1];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0123456789abcdef\n", 17), 17);
    close(fd);
    setenv("AXTRAIN_TOKEN_FILE", path, 1);
    assert_int_equal(ax_token_find(token), AX_OK);
    assert_string_equal(token, "0123456789abcdef");
    static const struct {
        int n;
        enum ax_status st;
    } lengths[] = {{AX_TOKEN_MIN - 1, AX_ERR_CONFIG},
                   {AX_TOKEN_MIN, AX_OK},
                   {AX_TOKEN_MAX, AX_OK},
                   {AX_TOKEN_MAX + 1, AX_ERR_CONFIG}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%0*d", lengths[i].n, 7);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(ax_token_find(token), lengths[i].st);
        if (lengths[i].st == AX_OK)
            assert_int_equal(strlen(token), lengths[i].n);
    }
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ax_token_find(token), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "other users have access"));
    setenv("AXTRAIN_TOKEN", "a token in the environment", 1);
    assert_int_equal(ax_token_find(token), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "both set"));
    unlink(path);
    unsetenv("AXTRAIN_TOKEN");
    for (int folder = 0; folder < 2; folder++) {
        setenv("AXTRAIN_TOKEN_FILE", folder ? "/tmp" : path, 1);
        assert_int_equal(ax_token_find(token), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), folder ? "is not a file" : "No such file"));
    }
    setenv("AXTRAIN_TOKEN", "a token in the environment", 1);
    unsetenv("AXTRAIN_TOKEN_FILE");
    for (int again = 0; again < 2; again++) { /* it is removed, and remembered */
        assert_int_equal(ax_token_find(token), AX_OK);
        assert_string_equal(token, "a token in the environment");
        assert_null(getenv("AXTRAIN_TOKEN"));
    }
    setenv("AXTRAIN_TOKEN", "short", 1);
    assert_int_equal(ax_token_find(token), AX_ERR_CONFIG);
    assert_null(strstr(ax_error_text(), "short"));
    unsetenv("AXTRAIN_TOKEN");
    setenv("AXTRAIN_TOKEN_FD", "77", 1);
    assert_int_equal(ax_token_find(token), AX_ERR_CONFIG);
    unsetenv("AXTRAIN_TOKEN_FD");
    assert_int_equal(ax_token_needed("10.0.0.1"), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "export AXTRAIN_TOKEN_FILE="));
}

/* RFC 4231, cases 2 and 6. */
static void macs_are_those_of_the_rfc(void **state) {
    (void)state;
    unsigned char mac[AX_MAC_BYTES], key[131];
    char hex[65];
    ax_hmac((const unsigned char *)"Jefe", 4, "what do ya ", 11, "want for nothing?", 17, mac);
    for (int i = 0; i < AX_MAC_BYTES; i++)
        snprintf(hex + (size_t)2 * (size_t)i, 3, "%02x", mac[i]);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    ax_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, NULL, 0,
            mac);
    for (int i = 0; i < AX_MAC_BYTES; i++)
        snprintf(hex + (size_t)2 * (size_t)i, 3, "%02x", mac[i]);
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    for (int i = 0; i < AX_MAC_BYTES; i++) {
        unsigned char other[AX_MAC_BYTES];
        memcpy(other, mac, sizeof other);
        assert_true(ax_mac_equal(mac, other));
        other[i] ^= 1;
        assert_false(ax_mac_equal(mac, other));
    }
}

/* ---- sockets ---- */

static void a_port_that_is_taken_is_passed(void **state) {
    (void)state;
    int first, second, port, next;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &first, &port), AX_OK);
    assert_int_equal(ax_net_listen("127.0.0.1", port, 1, &second, &next), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "Set AXTRAIN_PORT"));
    assert_int_equal(ax_net_listen("127.0.0.1", port, 8, &second, &next), AX_OK);
    assert_true(next > port && next < port + 8);
    close(second);
    assert_int_equal(ax_net_listen("203.0.113.7", 0, 1, &second, &next), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "is not the address of one interface of this host"));
    close(first);
    static const char *const any[] = {"0.0.0.0", "0", "::", "0:0::0"};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        assert_true(ax_net_is_any(any[i]));
        assert_int_equal(ax_net_listen(any[i], 0, 1, &second, &next), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "is not the address of one interface"));
    }
    assert_false(ax_net_is_any("127.0.0.1") || ax_net_is_any("::1") || ax_net_is_any("node-0"));
}

/* Ranks connect to a name's first address, so the store of another job there is not passed by the next address, but by
 * the next port. */
static void the_first_address_counts(void **state) {
    (void)state;
    int other, own, port, bound;
    char text[INET_ADDRSTRLEN];
    assert_int_equal(ax_net_listen("127.0.0.2", 0, 1, &other, &port), AX_OK);
    assert_int_equal(ax_net_listen(TWO, port, 1, &own, &bound), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "Set AXTRAIN_PORT"));
    assert_int_equal(ax_net_listen(TWO, port, 8, &own, &bound), AX_OK);
    address_of(own, text, sizeof text);
    assert_string_equal(text, "127.0.0.2");
    assert_true(bound > port && bound < port + 8);
    close(own);
    close(other);
}

/* Rank 0's store is behind a service that says nothing, as torchrun's is. */
static void other_services_are_passed(void **state) {
    (void)state;
    int silent, fd, port, bound, outs[2];
    pid_t pids[2];
    struct rank ranks[2];
    struct ax_store_server *server;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &silent, &port), AX_OK);
    assert_int_equal(ax_net_listen("127.0.0.1", port, 8, &fd, &bound), AX_OK);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (struct rank){base_options(2, port), exchange};
        ranks[r].o.rank = r;
        ranks[r].o.ports = 8;
        pids[r] = start(&ranks[r], &outs[r]);
    }
    assert_int_equal(ax_store_serve(&server, fd, 2, ranks[0].o.key, 20), AX_OK);
    for (int r = 0; r < 2; r++) {
        const struct result result = finish(pids[r], outs[r]);
        has(&result, AX_OK, "");
    }
    ax_store_stop(server, 0);
    close(silent);
}

/* ---- a slow store ---- */

struct relay {
    int listening, port; /* its own socket, and the store's port */
};

/* Waits for bytes and passes on at most n of them; false when the sender has closed. */
static bool pass(int from, int to, size_t n) {
    char bytes[4096];
    assert_true(n <= sizeof bytes && ax_net_ready(from, false, 20));
    const ssize_t got = recv(from, bytes, n, 0);
    if (got > 0)
        assert_int_equal(send(to, bytes, (size_t)got, MSG_NOSIGNAL), got);
    return got > 0;
}

/* One connection of a rank: the store's answer to JOIN takes longer than a greeting may. */
static void *slow_relay(void *arg) {
    const struct relay *r = arg;
    char from[AX_NET_ADDRESS];
    assert_true(ax_net_ready(r->listening, false, 20));
    const int rank = ax_net_accept(r->listening, from), store = knock(r->port);
    assert_true(pass(store, rank, AX_STORE_HEADER + AX_STORE_NONCE) && pass(rank, store, 4096));
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 500 * 1000 * 1000}, NULL);
    for (bool open = true; open;) {
        if (ax_net_ready(store, false, 0.001))
            open = pass(store, rank, 4096);
        if (open && ax_net_ready(rank, false, 0.001))
            open = pass(rank, store, 4096);
    }
    close(store);
    close(rank);
    return NULL;
}

static void a_slow_welcome_is_waited_for(void **state) {
    (void)state;
    struct rank rank = {base_options(1, 0), exchange};
    struct relay relay;
    struct ax_store_server *server;
    pthread_t thread;
    int fd, out;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &relay.port), AX_OK);
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &relay.listening, &rank.o.port), AX_OK);
    const pid_t pid = start(&rank, &out);
    assert_int_equal(ax_store_serve(&server, fd, 1, rank.o.key, 20), AX_OK);
    assert_int_equal(pthread_create(&thread, NULL, slow_relay, &relay), 0);
    const struct result result = finish(pid, out);
    assert_int_equal(pthread_join(thread, NULL), 0);
    has(&result, AX_OK, "");
    close(relay.listening);
    ax_store_stop(server, 0);
}

static void the_ports_without_a_store_are_named(void **state) {
    (void)state;
    struct rank rank = {base_options(1, 0), NULL};
    int fd, out;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &rank.o.port), AX_OK);
    close(fd);
    rank.o.ports = 1;
    rank.o.timeout = 0.1;
    const pid_t pid = start(&rank, &out);
    const struct result result = finish(pid, out);
    char expected[128];
    snprintf(expected, sizeof expected, "at 127.0.0.1, port %d, within 0.1 s: Connection refused",
             rank.o.port);
    has(&result, AX_ERR_PEER, expected);
    rank.o.port = 9;
    rank.o.ports = 3;
    const pid_t other = start(&rank, &out);
    const struct result named = finish(other, out);
    has(&named, AX_ERR_PEER, "at 127.0.0.1, ports 9 to 11, within 0.1 s");
}

/* The store has room for one rank of two. */
static void a_store_without_room_says_so(void **state) {
    (void)state;
    struct rank ranks[2] = {{base_options(2, 0), NULL}, {base_options(2, 0), NULL}};
    struct ax_store_server *server;
    struct rlimit found, few;
    int fd, port, outs[2];
    pid_t pids[2];
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    for (int r = 0; r < 2; r++) {
        ranks[r].o.rank = r;
        ranks[r].o.port = port;
        pids[r] = start(&ranks[r], &outs[r]);
    }
    const int next = dup(fd);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &found), 0);
    few = (struct rlimit){(rlim_t)next + 2, found.rlim_max}; /* one is the server's own */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const double begin = ax_clock_now();
    assert_int_equal(ax_store_serve(&server, fd, 2, ranks[0].o.key, 15), AX_OK);
    struct result results[2];
    for (int r = 0; r < 2; r++)
        results[r] = finish(pids[r], outs[r]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &found), 0);
    for (int r = 0; r < 2; r++)
        has(&results[r], AX_ERR_CONFIG,
            "the store of the job cannot take a connection: Too many open files. Raise the limit");
    assert_true(ax_clock_now() - begin < 10); /* long before the deadline */
    ax_store_stop(server, 0);
}

static void a_server_needs_one_more_descriptor(void **state) {
    (void)state;
    static const unsigned char key[AX_STORE_KEY_BYTES] = {1};
    struct ax_store_server *server;
    struct rlimit found, none;
    int fd, port;
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    const int next = dup(fd);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &found), 0);
    none = (struct rlimit){(rlim_t)next, found.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const enum ax_status st = ax_store_serve(&server, fd, 2, key, 20);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &found), 0);
    assert_int_equal(st, AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "store: no event descriptor"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_exchange_keys),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(missing_ranks_are_a_table),
        cmocka_unit_test(losses_end_waits),
        cmocka_unit_test(a_store_that_is_gone_knows_no_cause),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(proofs_are_hmacs),
        cmocka_unit_test(proofs_cannot_be_replayed),
        cmocka_unit_test(the_first_cause_is_told),
        cmocka_unit_test(keys_are_bounded),
        cmocka_unit_test(tokens_are_found),
        cmocka_unit_test(macs_are_those_of_the_rfc),
        cmocka_unit_test(a_port_that_is_taken_is_passed),
        cmocka_unit_test(the_first_address_counts),
        cmocka_unit_test(other_services_are_passed),
        cmocka_unit_test(a_slow_welcome_is_waited_for),
        cmocka_unit_test(the_ports_without_a_store_are_named),
        cmocka_unit_test(a_store_without_room_says_so),
        cmocka_unit_test(a_server_needs_one_more_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
