/* The store's parts without processes: who is missing, gone or in the way, as others are told;
 * frames and what is in them; addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "parallel/job/net.h"
#include "parallel/job/store.h"
#include "parallel/job/store_server.h"

static enum ax_status take(struct ax_store_table *t, int rank, const char *host) {
    struct ax_store_member m = {.rank = rank, .world = t->world, .pid = 100 + rank};
    snprintf(m.host, sizeof m.host, "%s", host);
    return ax_store_seat_take(t, &m);
}

/* ---- who is there ---- */

static void missing_ranks_are_ranges(void **state) {
    (void)state;
    static const struct {
        int rank;
        const char *host;
    } there[] = {{2, "a"}, {5, "a"}, {6, "a"}, {8, "b"}, {9, "b"}, {10, "b"}, {11, "a"}, {15, "b"}};
    struct ax_store_table t;
    assert_int_equal(ax_store_table_create(&t, 20), AX_OK);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        assert_int_equal(take(&t, there[i].rank, there[i].host), AX_OK);
    assert_int_equal(t.joined, sizeof there / sizeof *there);
    assert_false(ax_store_complete(&t));
    ax_store_seats_expire(&t, 1.5);
    assert_int_equal(t.failed, AX_ERR_PEER);
    assert_string_equal(t.failure, "of 20 ranks, these did not arrive within 1.5 s: 0, 1, 3, 4, 7, "
                                   "12-14, 16-19\n"
                                   "  arrived on a: 2, 5, 6, 11\n"
                                   "  arrived on b: 8-10, 15");
    ax_store_seat_lose(&t, 2); /* the first failure is the one that counts */
    assert_int_equal(take(&t, 0, "a"), AX_ERR_PEER);
    assert_non_null(strstr(ax_error_text(), "12-14, 16-19"));
    ax_store_table_free(&t);
    assert_null(t.seats);
}

/* What a tick logs, `seconds` after the core began. */
static const char *said_by_tick(struct ax_store_core *core, double seconds) {
    static char out[512];
    FILE *file = tmpfile();
    assert_non_null(file);
    const int saved = dup(STDERR_FILENO);
    const enum ax_log_level level = ax_log_get_level();
    dup2(fileno(file), STDERR_FILENO);
    ax_log_set_level(AX_LOG_INFO);
    ax_store_core_tick(core, core->deadline - core->timeout + seconds);
    ax_log_set_level(level);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    out[fread(out, 1, sizeof out - 1, file)] = '\0';
    fclose(file);
    return out;
}

static void who_is_awaited_is_told_once(void **state) {
    (void)state;
    static const unsigned char key[AX_STORE_KEY_BYTES] = "of this job";
    struct ax_store_core core;
    assert_int_equal(ax_store_core_create(&core, 4, key, 600), AX_OK);
    assert_int_equal(take(&core.table, 1, "a"), AX_OK);
    assert_string_equal(said_by_tick(&core, 14), "");
    assert_string_equal(
        said_by_tick(&core, 16),
        "info of the 4 ranks that the launcher's variables announce, these have not "
        "arrived yet, and are awaited for up to 600 s: 0, 2, 3\n");
    assert_string_equal(said_by_tick(&core, 32), "");
    ax_store_core_free(&core);
    assert_int_equal(ax_store_core_create(&core, 1, key, 20), AX_OK);
    assert_int_equal(take(&core.table, 0, "a"), AX_OK);
    assert_string_equal(said_by_tick(&core, 11), "");
    ax_store_core_free(&core);
}

/* A socket that takes connections and never answers: the error names it, and standard input stays open. */
static void nobody_answers(void **state) {
    (void)state;
    struct ax_store_client *client;
    struct ax_store_options o = {
        .host = "127.0.0.1", .ports = 1, .world = 1, .key = "of this job", .timeout = 0.05};
    int fd;
    const int input = fcntl(STDIN_FILENO, F_GETFD);
    assert_int_equal(ax_net_listen(o.host, 0, 1, &fd, &o.port), AX_OK);
    assert_int_equal(ax_store_open(&client, &o), AX_ERR_PEER);
    assert_non_null(
        strstr(ax_error_text(), "rank 0 found no store of its job at 127.0.0.1, port "));
    close(fd);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), input);
}

static void hosts_are_counted(void **state) {
    (void)state;
    for (int hosts = 16; hosts <= 18; hosts++) {
        struct ax_store_table t;
        char host[16], expected[64];
        assert_int_equal(ax_store_table_create(&t, 2 * hosts + 1), AX_OK);
        for (int r = 0; r < 2 * hosts; r++) {
            snprintf(host, sizeof host, "h%d", r / 2);
            assert_int_equal(take(&t, r, host), AX_OK);
        }
        ax_store_seats_expire(&t, 60);
        snprintf(expected, sizeof expected, "within 60 s: %d\n  arrived on h0: 0, 1\n", 2 * hosts);
        assert_non_null(strstr(t.failure, expected));
        assert_non_null(strstr(t.failure, "\n  arrived on h15: 30, 31"));
        assert_null(strstr(t.failure, "on h16"));
        snprintf(expected, sizeof expected, "\n  and on %d more hosts", hosts - 16);
        const char *more = strstr(t.failure, "\n  and on");
        if (hosts > 16)
            assert_string_equal(more, expected);
        else
            assert_null(more);
        ax_store_table_free(&t);
    }
}

/* Once all have joined, nobody can be missing. */
static void a_complete_table_does_not_expire(void **state) {
    (void)state;
    struct ax_store_table t;
    assert_int_equal(ax_store_table_create(&t, 2), AX_OK);
    assert_int_equal(take(&t, 1, "a"), AX_OK);
    assert_int_equal(take(&t, 0, "a"), AX_OK);
    assert_true(ax_store_complete(&t));
    ax_store_seats_expire(&t, 1);
    assert_int_equal(t.failed, AX_OK);
    assert_int_equal(take(&t, 0, "c"), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(), "rank 0 (host c, process 100): this rank has already "
                                         "joined as rank 0 (host a, process 100). Give each "
                                         "process a rank of its own, from 0 to 1");
    assert_int_equal(t.failed, AX_OK);
    ax_store_table_free(&t);
}

/* What contradicts a rank that is there ends all. */
static void contradictions_are_worded(void **state) {
    (void)state;
    static const struct {
        struct ax_store_member second;
        const char *text;
    } cases[] = {
        {{.rank = 1, .world = 3, .binary = 1, .config = 2, .pid = 8, .host = "b"},
         "rank 1 (host b, process 8) was started as one of 3 ranks, but the job has 2"},
        {{.rank = 2, .world = 2, .binary = 1, .config = 2, .pid = 8, .host = "b"},
         "rank 2 (host b, process 8): the job has ranks 0 to 1"},
        {{.rank = 0, .world = 2, .binary = 1, .config = 2, .pid = 8, .host = "b"},
         "rank 0 (host b, process 8): this rank has already joined as rank 0 (host a, process 7)"
         ". Give each process a rank of its own, from 0 to 1"},
        {{.rank = 1, .world = 2, .binary = 2, .config = 2, .pid = 8, .host = "b"},
         "rank 1 (host b, process 8) runs another build of axtrain than rank 0 (host a, process "
         "7): install the same one on all hosts"},
        {{.rank = 1, .world = 2, .binary = 1, .config = 1, .pid = 8, .host = "b"},
         "rank 1 (host b, process 8) was started with another configuration than rank 0 (host a, "
         "process 7): give all ranks the same file and the same key=value words"},
    };
    const struct ax_store_member first = {
        .rank = 0, .world = 2, .binary = 1, .config = 2, .pid = 7, .host = "a"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_store_table t;
        assert_int_equal(ax_store_table_create(&t, 2), AX_OK);
        assert_int_equal(ax_store_seat_take(&t, &first), AX_OK);
        assert_int_equal(ax_store_seat_take(&t, &cases[i].second), AX_ERR_CONFIG);
        assert_string_equal(ax_error_text(), cases[i].text);
        assert_int_equal(t.failed, AX_ERR_CONFIG);
        assert_string_equal(t.failure, cases[i].text);
        assert_int_equal(t.joined, 1);
        ax_store_table_free(&t);
    }
}

/* ---- who is no longer there ---- */

static void those_who_go_are_named(void **state) {
    (void)state;
    struct ax_store_table t;
    char words[256] = "";
    assert_int_equal(ax_store_table_create(&t, 3), AX_OK);
    assert_int_equal(take(&t, 1, "a"), AX_OK);
    ax_store_seat_lose(&t, 0); /* has not joined */
    assert_int_equal(t.failed, AX_OK);
    ax_store_seat_lose(&t, 1);
    assert_int_equal(t.failed, AX_ERR_PEER);
    assert_string_equal(t.failure,
                        "rank 1 (host a, process 101) is gone: its process ended, or its "
                        "connection broke, before all ranks had joined");
    assert_true(ax_store_hopeless(&t, 0, 2, words, sizeof words)); /* whoever it waits for */
    assert_string_equal(words, "rank 1 (host a, process 101) is gone: its process ended, or its "
                               "connection broke");
    ax_store_table_free(&t);

    assert_int_equal(ax_store_table_create(&t, 3), AX_OK);
    assert_int_equal(take(&t, 1, "a"), AX_OK);
    ax_store_seat_leave(&t, 1, AX_OK, "");
    assert_string_equal(t.failure, "rank 1 ended before all ranks had joined");
    ax_store_table_free(&t);

    assert_int_equal(ax_store_table_create(&t, 3), AX_OK);
    assert_int_equal(take(&t, 1, "a"), AX_OK);
    ax_store_seat_leave(&t, 1, AX_ERR_IO, "disk full");
    assert_string_equal(t.failure, "rank 1 failed: disk full");
    ax_store_seat_leave(&t, 1, AX_ERR_DATA, "again"); /* leaves once */
    assert_int_equal(ax_store_cause(&t, 0, words, sizeof words), AX_ERR_IO);
    assert_string_equal(words, "rank 1 failed: disk full");
    assert_int_equal(ax_store_cause(&t, 1, words, sizeof words), AX_OK); /* not its own */
    ax_store_table_free(&t);
}

static void those_who_ended_are_found(void **state) {
    (void)state;
    struct ax_store_table t;
    char words[256] = "";
    assert_int_equal(ax_store_table_create(&t, 4), AX_OK);
    for (int r = 0; r < 4; r++)
        assert_int_equal(take(&t, r, "a"), AX_OK);
    assert_int_equal(ax_store_done(&t, 0, 0, 4, words, sizeof words), -1);
    assert_false(ax_store_hopeless(&t, 0, 2, words, sizeof words));
    ax_store_seat_leave(&t, 2, AX_OK, "");
    ax_store_seat_lose(&t, 2); /* its connection closes after it has ended */
    assert_int_equal(t.failed, AX_OK);
    for (int first = -1; first < 4; first++)
        for (int end = 0; end <= 5; end++)
            for (int own = 0; own < 4; own++)
                assert_int_equal(ax_store_done(&t, own, first, end, words, sizeof words),
                                 own != 2 && first <= 2 && end > 2 ? 2 : -1);
    assert_true(ax_store_hopeless(&t, 0, 2, words, sizeof words));
    assert_string_equal(words, "rank 2 (host a, process 102) has ended");
    assert_false(ax_store_hopeless(&t, 0, 1, words, sizeof words));
    assert_false(ax_store_hopeless(&t, 0, -1, words, sizeof words));
    ax_store_seat_leave(&t, 3, AX_ERR_DATA, "bad row");
    assert_int_equal(ax_store_done(&t, 0, 3, 4, words, sizeof words), -1);
    assert_true(ax_store_hopeless(&t, 0, 1, words, sizeof words));
    assert_string_equal(words, "rank 3 failed: bad row");
    ax_store_table_free(&t);
}

/* ---- keys ---- */

static void a_key_is_set_once(void **state) {
    (void)state;
    struct ax_store_table t;
    assert_int_equal(ax_store_table_create(&t, 1), AX_OK);
    assert_int_equal(take(&t, 0, "a"), AX_OK);
    for (int i = 0; i < 1200; i++) { /* more than there are buckets */
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        assert_null(ax_store_find(&t, key));
        assert_int_equal(ax_store_put(&t, key, &i, sizeof i), AX_OK);
    }
    for (int i = 0; i < 1200; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        const struct ax_store_entry *e = ax_store_find(&t, key);
        assert_non_null(e);
        assert_int_equal(e->n, sizeof i);
        assert_memory_equal(e->data, &i, sizeof i);
    }
    assert_int_equal(t.entries, 1200);
    assert_int_equal(t.bytes, 1200 * sizeof(int));
    assert_int_equal(ax_store_put(&t, "key 7", "", 0), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(), "store: key 7 is set already");
    assert_int_equal(ax_store_put(&t, "empty", "", 0), AX_OK);
    assert_int_equal(ax_store_find(&t, "empty")->n, 0);
    ax_store_seat_leave(&t, 0, AX_ERR_IO, "words of the last rank"); /* freed with the table */
    ax_store_table_free(&t);
}

/* ---- frames ---- */

static void frames_have_limits(void **state) {
    (void)state;
    enum { N = 300 };
    struct ax_buf b = {0};
    struct ax_store_frame f = {.len = 1};
    char body[N];
    for (int i = 0; i < N; i++)
        body[i] = (char)i;
    assert_int_equal(ax_store_put_frame(&b, AX_STORE_SET, body, N), AX_OK);
    assert_int_equal(ax_store_put_frame(&b, AX_STORE_REPLY, NULL, 0), AX_OK);
    assert_int_equal(b.len, AX_STORE_HEADER + N + AX_STORE_HEADER);
    for (size_t n = 0; n < AX_STORE_HEADER + N; n++)
        assert_int_equal(ax_store_frame_next(b.data, n, N, &f), 0);
    assert_int_equal(ax_store_frame_next(b.data, b.len, N - 1, &f), -1);
    assert_int_equal(ax_store_frame_next(b.data, AX_STORE_HEADER + N, N, &f), AX_STORE_HEADER + N);
    assert_int_equal(f.type, AX_STORE_SET);
    assert_int_equal(f.len, N);
    assert_memory_equal(f.body, body, N);
    assert_int_equal(ax_store_frame_next(b.data + AX_STORE_HEADER + N, AX_STORE_HEADER, 0, &f),
                     AX_STORE_HEADER);
    assert_int_equal(f.type, AX_STORE_REPLY);
    assert_int_equal(f.len, 0);
    for (int type = 0; type <= 255; type++) {
        const char head[AX_STORE_HEADER] = {0, 0, 0, 0, (char)type};
        const bool known = type >= AX_STORE_CHALLENGE && type <= AX_STORE_REPLY;
        assert_int_equal(ax_store_frame_next(head, sizeof head, 10, &f),
                         known ? AX_STORE_HEADER : -1);
    }
    ax_buf_free(&b);
}

static struct ax_store_reader reader_of(const struct ax_buf *b, size_t n) {
    const unsigned char *bytes = (const unsigned char *)b->data;
    return (struct ax_store_reader){bytes, bytes + n, false};
}

static void numbers_and_texts_are_read_back(void **state) {
    (void)state;
    struct ax_buf b = {0};
    char text[6];
    size_t n = 1;
    assert_int_equal(ax_store_put_int(&b, 0x0102030405060708, 8), AX_OK);
    assert_int_equal(ax_store_put_int(&b, 0xFFFEFDFC, 3), AX_OK);
    assert_int_equal(ax_store_put_blob(&b, "12345", 5), AX_OK);
    assert_int_equal(ax_store_put_blob(&b, "123456", 6), AX_OK);
    assert_memory_equal(b.data, "\x08\x07\x06\x05\x04\x03\x02\x01\xFC\xFD\xFE\x05\0\0\0001", 16);
    struct ax_store_reader r = reader_of(&b, b.len);
    assert_true(ax_store_read_int(&r, 8) == 0x0102030405060708);
    assert_true(ax_store_read_int(&r, 3) == 0xFEFDFC);
    ax_store_read_text(&r, text, sizeof text); /* with its NUL it just fits */
    assert_string_equal(text, "12345");
    assert_false(r.bad || ax_store_read_end(&r));
    struct ax_store_reader other = r;
    ax_store_read_text(&r, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(r.bad && !ax_store_read_end(&r));
    assert_memory_equal(ax_store_read_blob(&other, &n), "123456", 6);
    assert_int_equal(n, 6);
    assert_true(ax_store_read_end(&other));
    assert_true(ax_store_read_int(&other, 1) == 0);
    assert_true(other.bad && !ax_store_read_end(&other));
    b.len = 0;
    assert_int_equal(ax_store_put_blob(&b, "1\0002", 3), AX_OK);
    r = reader_of(&b, b.len);
    ax_store_read_text(&r, text, sizeof text);
    assert_true(r.bad && text[0] == '\0');
    r = reader_of(&b, b.len - 1);
    assert_null(ax_store_read_blob(&r, &n));
    assert_int_equal(n, 0);
    ax_buf_free(&b);
}

static void members_are_read_back(void **state) {
    (void)state;
    struct ax_buf b = {0};
    struct ax_store_member back;
    const struct ax_store_member me = {.rank = 0x01020304,
                                       .world = 0x05060708,
                                       .binary = 0x1112131415161718,
                                       .config = 0x2122232425262728,
                                       .pid = 0x31323334,
                                       .host = "a.example"};
    assert_int_equal(ax_store_put_member(&b, &me), AX_OK);
    struct ax_store_reader r = reader_of(&b, b.len);
    assert_true(ax_store_read_member(&r, &back));
    assert_int_equal(back.rank, me.rank);
    assert_int_equal(back.world, me.world);
    assert_true(back.binary == me.binary && back.config == me.config);
    assert_int_equal(back.pid, me.pid);
    assert_string_equal(back.host, me.host);
    for (size_t n = 0; n < b.len; n++) {
        r = reader_of(&b, n);
        assert_false(ax_store_read_member(&r, &back));
    }
    assert_int_equal(ax_buf_append(&b, "", 1), AX_OK);
    r = reader_of(&b, b.len);
    assert_false(ax_store_read_member(&r, &back)); /* nothing may follow */
    ax_buf_free(&b);
}

/* ---- addresses ---- */

static void loopback_addresses_are_known(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool loopback;
    } cases[] = {{"127.0.0.1", true},  {"127.255.255.254", true}, {"126.255.255.255", false},
                 {"128.0.0.1", false}, {"10.0.0.127", false},     {"::1", true},
                 {"::2", false},       {"fe80::1", false},        {"::ffff:10.0.0.1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool known = false;
        assert_int_equal(ax_net_is_loopback(cases[i].host, &known), cases[i].loopback);
        assert_true(known);
    }
    bool known = true;
    char label[80]; /* longer than a name may be: no server is asked */
    memset(label, 'x', sizeof label);
    label[sizeof label - 1] = '\0';
    assert_false(ax_net_is_loopback(label, &known));
    assert_false(known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_ranks_are_ranges),
        cmocka_unit_test(who_is_awaited_is_told_once),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(hosts_are_counted),
        cmocka_unit_test(a_complete_table_does_not_expire),
        cmocka_unit_test(contradictions_are_worded),
        cmocka_unit_test(those_who_go_are_named),
        cmocka_unit_test(those_who_ended_are_found),
        cmocka_unit_test(a_key_is_set_once),
        cmocka_unit_test(frames_have_limits),
        cmocka_unit_test(numbers_and_texts_are_read_back),
        cmocka_unit_test(members_are_read_back),
        cmocka_unit_test(loopback_addresses_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
