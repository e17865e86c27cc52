/* Connections between ranks: who is let in, who is not, and that strangers change nothing. This process
 * has the store, the rank that is called, and by hand what others send to it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "parallel/job/peer.h"

enum { WORLD = 3 };

static const int all[WORLD] = {0, 1, 2};
static const unsigned char job_key[AX_STORE_KEY_BYTES] = "of this job";

static struct ax_store_server *server;
static struct ax_store_client *clients[WORLD];
static int store_port;

static void *join(void *arg) {
    const int rank = *(const int *)arg;
    struct ax_store_options o = {
        .host = "127.0.0.1", .port = store_port, .ports = 1, .world = WORLD, .timeout = 20};
    o.rank = rank;
    memcpy(o.key, job_key, sizeof o.key);
    AX_ASSERT(ax_store_open(&clients[rank], &o) == AX_OK);
    return NULL;
}

static int open_store(void **state) {
    pthread_t threads[WORLD];
    int fd;
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &store_port), AX_OK);
    assert_int_equal(ax_store_serve(&server, fd, WORLD, job_key, 20), AX_OK);
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, join, (void *)(uintptr_t)&all[r]), 0);
    for (int r = 0; r < WORLD; r++)
        pthread_join(threads[r], NULL);
    return 0;
}

static int close_store(void **state) {
    (void)state;
    for (int r = 0; r < WORLD; r++)
        ax_store_close(clients[r]);
    ax_store_stop(server, 0);
    return 0;
}

static struct ax_peer_group group_of(int rank, int n) {
    return (struct ax_peer_group){.store = clients[rank],
                                  .key = job_key,
                                  .name = "gloo/fsdp/0/0",
                                  .ranks = all,
                                  .n = n,
                                  .rank = rank};
}

/* ---- what is said ---- */

static void only_a_member_is_let_in(void **state) {
    (void)state;
    unsigned char key[AX_STORE_KEY_BYTES] = "of another job", hello[AX_PEER_HELLO];
    unsigned char called[AX_PEER_NONCE] = "fresh", caller[AX_PEER_NONCE] = "also fresh";
    unsigned char answer[AX_MAC_BYTES], expected[AX_MAC_BYTES];
    const struct ax_peer_group own = group_of(0, WORLD);
    struct ax_peer_group other = group_of(2, WORLD);
    ax_peer_say_hello(&other, 0, called, caller, hello);
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), 2);
    ax_peer_expect_answer(&other, 0, called, caller, expected);
    assert_memory_equal(answer, expected, sizeof answer);
    ax_peer_expect_answer(&other, 1, called, caller, expected);
    assert_memory_not_equal(answer, expected, sizeof answer);
    for (int i = 0; i < 8 * AX_PEER_HELLO; i++) {
        hello[i / 8] ^= (unsigned char)(1 << i % 8);
        assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
        hello[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    called[0] ^= 1; /* said again to a later question */
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
    called[0] ^= 1;
    ax_peer_say_hello(&other, 1, called, caller, hello); /* to somebody else */
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
    other.name = "gloo/tp/0/0"; /* for another group */
    ax_peer_say_hello(&other, 0, called, caller, hello);
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
    other = group_of(2, WORLD);
    other.key = key;
    ax_peer_say_hello(&other, 0, called, caller, hello);
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
    other = group_of(0, WORLD); /* by who does not call, but is called */
    ax_peer_say_hello(&other, 0, called, caller, hello);
    assert_int_equal(ax_peer_hear_hello(&own, called, hello, answer), -1);
}

/* ---- rank 0, which is called ---- */

struct called {
    pthread_t thread;
    int n, listening, fds[WORLD];
    struct ax_peer_address address;
    double timeout;
    enum ax_status st;
    char text[512];
};

static void *be_called(void *arg) {
    struct called *c = arg;
    const struct ax_peer_group g = group_of(0, c->n);
    c->st = ax_peer_connect(&g, c->listening, &c->address, c->timeout, c->fds);
    snprintf(c->text, sizeof c->text, "%s", c->st == AX_OK ? "" : ax_error_text());
    return NULL;
}

static void start_called(struct called *c, double timeout, int n) {
    *c = (struct called){.timeout = timeout, .n = n};
    assert_int_equal(ax_peer_listen(clients[0], &c->listening, &c->address), AX_OK);
    assert_int_equal(pthread_create(&c->thread, NULL, be_called, c), 0);
}

static void end_called(struct called *c, enum ax_status st, const char *text) {
    pthread_join(c->thread, NULL);
    close(c->listening);
    if (c->st != st || !strstr(c->text, text))
        fail_msg("%d: %s", c->st, c->text);
    assert_int_equal(c->fds[0], -1);
    if (st == AX_OK)
        close(c->fds[1]);
    else
        assert_int_equal(c->fds[1], -1);
}

static int call(const struct called *c) {
    const char *why;
    const int fd = ax_net_connect(c->address.host, c->address.port, 5, &why);
    assert_true(fd >= 0);
    return fd;
}

/* What comes within five seconds; less than n: the connection was closed. */
static size_t receive(int fd, void *out, size_t n) {
    size_t got = 0;
    while (got < n && ax_net_ready(fd, false, 5)) {
        const ssize_t r = recv(fd, (char *)out + got, n - got, 0);
        if (r <= 0)
            break;
        got += (size_t)r;
    }
    return got;
}

/* Rank 1 by hand. */
static void call_rightly(int fd, int n) {
    const struct ax_peer_group g = group_of(1, n);
    unsigned char theirs[AX_PEER_NONCE], own[AX_PEER_NONCE] = "own", hello[AX_PEER_HELLO];
    unsigned char answer[AX_MAC_BYTES], expected[AX_MAC_BYTES];
    assert_int_equal(receive(fd, theirs, sizeof theirs), sizeof theirs);
    ax_peer_say_hello(&g, 0, theirs, own, hello);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(receive(fd, answer, sizeof answer), sizeof answer);
    ax_peer_expect_answer(&g, 0, theirs, own, expected);
    assert_memory_equal(answer, expected, sizeof answer);
}

static void what_was_overheard_is_of_no_use(void **state) {
    (void)state;
    const struct ax_peer_group g = group_of(1, 2);
    struct called c;
    unsigned char theirs[AX_PEER_NONCE], other[AX_PEER_NONCE], hello[AX_PEER_HELLO], byte;
    start_called(&c, 20, 2);
    const int first = call(&c), again = call(&c);
    assert_int_equal(receive(first, theirs, sizeof theirs), sizeof theirs);
    assert_int_equal(receive(again, other, sizeof other), sizeof other);
    assert_memory_not_equal(theirs, other, sizeof theirs);
    ax_peer_say_hello(&g, 0, theirs, theirs, hello);
    assert_int_equal(send(again, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(receive(again, &byte, 1), 0);
    close(again);
    const int real = call(&c);
    call_rightly(real, 2);
    end_called(&c, AX_OK, "");
    close(first);
    close(real);
}

/* More than are kept, who say nothing; and one that never stops. */
static void many_strangers_delay_nobody(void **state) {
    (void)state;
    static char garbage[1 << 20];
    struct called c;
    int silent[AX_STORE_STRANGERS + 64];
    const double begin = ax_clock_now();
    start_called(&c, 20, 2);
    for (int i = 0; i < AX_STORE_STRANGERS + 64; i++)
        silent[i] = call(&c);
    const int loud = call(&c), real = call(&c);
    while (send(loud, garbage, sizeof garbage, MSG_NOSIGNAL) > 0) {
    }
    call_rightly(real, 2);
    end_called(&c, AX_OK, "");
    assert_true(ax_clock_now() - begin < 3);
    for (int i = 0; i < AX_STORE_STRANGERS + 64; i++)
        close(silent[i]);
    close(loud);
    close(real);
}

/* Not a byte of what follows is read with it. */
static void data_follow_the_answer(void **state) {
    (void)state;
    struct called c;
    char text[6] = "";
    start_called(&c, 20, 2);
    const int real = call(&c);
    call_rightly(real, 2);
    assert_int_equal(send(real, "hello", 5, MSG_NOSIGNAL), 5);
    pthread_join(c.thread, NULL);
    assert_int_equal(receive(c.fds[1], text, 5), 5);
    assert_string_equal(text, "hello");
    close(c.fds[1]);
    close(c.listening);
    close(real);
}

/* ---- who is called ---- */

/* A port at which something answers every call as a rank would that has another key. */
struct impostor {
    pthread_t thread;
    int listening, answered;
};

static void *answer_wrongly(void *arg) {
    struct impostor *i = arg;
    unsigned char nonce[AX_PEER_NONCE] = "any", hello[AX_PEER_HELLO], mac[AX_MAC_BYTES] = "wrong";
    char from[AX_NET_ADDRESS];
    for (bool ended = false; !ended && ax_net_ready(i->listening, false, 5);) {
        const int fd = ax_net_accept(i->listening, from);
        if (fd < 0)
            continue;
        send(fd, nonce, sizeof nonce, MSG_NOSIGNAL);
        ended = receive(fd, hello, sizeof hello) == 1; /* of the test, which needs no more */
        send(fd, mac, sizeof mac, MSG_NOSIGNAL);
        i->answered += !ended;
        close(fd);
    }
    return NULL;
}

/* Lines on stderr from here on, until `end_lines`. */
static FILE *begin_lines(int *saved) {
    FILE *file = tmpfile();
    assert_non_null(file);
    *saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    ax_log_set_level(AX_LOG_WARN);
    return file;
}
static void end_lines(FILE *file, int saved, char *out, size_t size) {
    ax_log_set_level(AX_LOG_ERROR);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* It is called again until the time is over, and said once what is wrong there. */
static void who_answers_wrongly_is_named(void **state) {
    (void)state;
    const struct ax_peer_group g = group_of(1, 2);
    struct ax_peer_address address[2];
    struct impostor i = {0};
    char lines[4096], expected[160];
    int listening, fds[2], saved;
    assert_int_equal(ax_peer_listen(clients[0], &i.listening, &address[0]), AX_OK);
    assert_int_equal(ax_peer_listen(clients[1], &listening, &address[1]), AX_OK);
    assert_int_equal(pthread_create(&i.thread, NULL, answer_wrongly, &i), 0);
    FILE *file = begin_lines(&saved);
    const enum ax_status st = ax_peer_connect(&g, listening, address, 0.3, fds);
    end_lines(file, saved, lines, sizeof lines);
    assert_int_equal(st, AX_ERR_PEER);
    assert_non_null(strstr(ax_error_text(), "rank 0 did not connect within 0.3 s"));
    struct called c = {.address = address[0]};
    const int last = call(&c);
    assert_int_equal(send(last, "", 1, MSG_NOSIGNAL), 1);
    shutdown(last, SHUT_WR);
    pthread_join(i.thread, NULL);
    assert_true(i.answered > 1);
    snprintf(expected, sizeof expected,
             "rank 0, at 127.0.0.1, port %d: the answer is not that of a rank of this job",
             address[0].port);
    const char *line = strstr(lines, expected);
    if (!line)
        fail_msg("%s", lines);
    assert_null(strstr(line + 1, expected));
    close(last);
    close(i.listening);
    close(listening);
}

/* ---- no room ---- */

enum { MOST_FILES = 512 }; /* more than a poll has: the limit holds for it, too */

/* As many open files as there may be. */
struct full {
    struct rlimit was;
    int n, files[MOST_FILES];
};

static void fill_files(struct full *f) {
    f->n = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->was), 0);
    const struct rlimit now = {MOST_FILES, f->was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    while ((f->files[f->n] = dup(STDERR_FILENO)) >= 0)
        f->n++;
}

static void close_files(struct full *f) {
    while (f->n > 0)
        close(f->files[--f->n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->was), 0);
}

/* What fails is named, long before the time is over. */
static void a_port_without_room_is_named(void **state) {
    (void)state;
    const struct ax_peer_group g = group_of(0, 2);
    struct called c = {0};
    int fds[2], other;
    struct ax_peer_address none;
    assert_int_equal(ax_peer_listen(clients[0], &c.listening, &c.address), AX_OK);
    const int caller = call(&c);
    static struct full full;
    fill_files(&full);
    const enum ax_status st = ax_peer_connect(&g, c.listening, &c.address, 1, fds);
    char text[256];
    snprintf(text, sizeof text, "%s", ax_error_text());
    const enum ax_status listens = ax_peer_listen(clients[0], &other, &none);
    close_files(&full);
    if (st != AX_ERR_IO || !strstr(text, "cannot take a connection at the port of rank 0: Too many "
                                         "open files. Raise the limit"))
        fail_msg("%d: %s", st, text);
    assert_int_equal(listens, AX_ERR_CONFIG);
    if (!strstr(ax_error_text(), "cannot listen on a port of the system's choice: Too many open") ||
        strstr(ax_error_text(), "AXTRAIN_PORT"))
        fail_msg("%s", ax_error_text());
    close(caller);
    close(c.listening);
}

/* With a limit of open files below the number of strangers who might come, as long as none do. */
static void few_open_files_are_enough(void **state) {
    (void)state;
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    const struct rlimit few = {.rlim_cur = AX_STORE_STRANGERS / 2, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct called c;
    start_called(&c, 2, 2);
    const int real = call(&c);
    call_rightly(real, 2);
    end_called(&c, AX_OK, "");
    close(real);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

/* ---- who does not come ---- */

static void who_is_late_is_named(void **state) {
    (void)state;
    struct called c;
    start_called(&c, 0.3, 2);
    end_called(&c, AX_ERR_PEER, "rank 1 did not connect within 0.3 s");
}

/* Of three, one connects, and goes while the other is missing. */
static void who_has_closed_is_named(void **state) {
    (void)state;
    struct called c;
    start_called(&c, 20, WORLD);
    const int gone = call(&c);
    call_rightly(gone, WORLD);
    close(gone);
    end_called(&c, AX_ERR_PEER, "rank 1 closed its connection");
}

/* Rank 2 is lost without a word: the store knows, long before the time is over. */
static void who_is_gone_is_named(void **state) {
    (void)state;
    const struct ax_peer_group g = group_of(0, WORLD);
    struct ax_peer_address address;
    const double begin = ax_clock_now();
    int listening, fds[WORLD];
    ax_store_close(clients[2]);
    clients[2] = NULL;
    assert_int_equal(ax_peer_listen(clients[0], &listening, &address), AX_OK);
    assert_int_equal(ax_peer_connect(&g, listening, &address, 20, fds), AX_ERR_PEER);
    assert_non_null(strstr(ax_error_text(), "rank 2 (host "));
    assert_non_null(strstr(ax_error_text(), " is gone"));
    assert_true(ax_clock_now() - begin < 5);
    close(listening);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_member_is_let_in),
        cmocka_unit_test(what_was_overheard_is_of_no_use),
        cmocka_unit_test(many_strangers_delay_nobody),
        cmocka_unit_test(data_follow_the_answer),
        cmocka_unit_test(who_answers_wrongly_is_named),
        cmocka_unit_test(a_port_without_room_is_named),
        cmocka_unit_test(few_open_files_are_enough),
        cmocka_unit_test(who_is_late_is_named),
        cmocka_unit_test(who_has_closed_is_named),
        cmocka_unit_test(who_is_gone_is_named),
    };
    return cmocka_run_group_tests(tests, open_store, close_store);
}
