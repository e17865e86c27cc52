/* What base/net/curl.h says of libcurl, against libcurl's own header; and which file of
 * certificates is taken; what header lines say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/net/curl.h"
#include "base/net/http.h"
#include "base/io.h"

#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#define SAME(name)                                                                                 \
    { #name, (long)AX_##name, (long)(name) }
static const struct {
    const char *name;
    long ours, theirs;
} numbers[] = {
    SAME(CURLOPT_WRITEDATA),
    SAME(CURLOPT_URL),
    SAME(CURLOPT_PROXY),
    SAME(CURLOPT_ERRORBUFFER),
    SAME(CURLOPT_POSTFIELDS),
    SAME(CURLOPT_USERAGENT),
    SAME(CURLOPT_HTTPHEADER),
    SAME(CURLOPT_HEADERDATA),
    SAME(CURLOPT_XFERINFODATA),
    SAME(CURLOPT_CAINFO),
    SAME(CURLOPT_CAPATH),
    SAME(CURLOPT_WRITEFUNCTION),
    SAME(CURLOPT_HEADERFUNCTION),
    SAME(CURLOPT_XFERINFOFUNCTION),
    SAME(CURLOPT_LOW_SPEED_LIMIT),
    SAME(CURLOPT_LOW_SPEED_TIME),
    SAME(CURLOPT_NOPROGRESS),
    SAME(CURLOPT_POSTFIELDSIZE),
    SAME(CURLOPT_CONNECTTIMEOUT),
    SAME(CURLOPT_NOSIGNAL),
    SAME(CURLOPT_PROTOCOLS),
    SAME(CURLINFO_CAINFO),
    SAME(CURL_GLOBAL_DEFAULT),
    SAME(CURL_ERROR_SIZE),
    SAME(CURLPROTO_HTTP),
    SAME(CURLPROTO_HTTPS),
    SAME(CURLE_OK),
    SAME(CURLE_COULDNT_RESOLVE_HOST),
    SAME(CURLE_COULDNT_CONNECT),
    SAME(CURLE_HTTP2),
    SAME(CURLE_PARTIAL_FILE),
    SAME(CURLE_OPERATION_TIMEDOUT),
    SAME(CURLE_SSL_CONNECT_ERROR),
    SAME(CURLE_ABORTED_BY_CALLBACK),
    SAME(CURLE_GOT_NOTHING),
    SAME(CURLE_SEND_ERROR),
    SAME(CURLE_RECV_ERROR),
    SAME(CURLE_PEER_FAILED_VERIFICATION),
    SAME(CURLE_SSL_CACERT_BADFILE),
    SAME(CURLE_HTTP2_STREAM),
    SAME(CURLUE_OK),
    SAME(CURLUPART_URL),
    SAME(CURLUPART_SCHEME),
    SAME(CURLUPART_HOST),
    SAME(CURLUPART_PORT),
    SAME(CURLU_DEFAULT_PORT),
};
_Static_assert(sizeof(curl_off_t) == sizeof(int64_t), "as the progress callback has it");

static void numbers_are_those_of_the_header(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].ours != numbers[i].theirs)
            fail_msg("AX_%s is %ld, and %s is %ld", numbers[i].name, numbers[i].ours,
                     numbers[i].name, numbers[i].theirs);
}

static void certificates_of_another_system_are_found(void **state) {
    (void)state;
    char folder[] = "/tmp/axtrain-curl-XXXXXX", own[64], first[64], second[64];
    assert_non_null(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/own.pem", folder);
    snprintf(first, sizeof first, "%s/first.pem", folder);
    snprintf(second, sizeof second, "%s/second.pem", folder);
    const char *const known[] = {first, second, NULL};
    assert_null(ax_curl_bundle(own, known));
    assert_null(ax_curl_bundle(NULL, known));
    assert_int_equal(ax_write_file_atomic(second, "", 0), AX_OK);
    assert_string_equal(ax_curl_bundle(own, known), second);
    assert_string_equal(ax_curl_bundle(NULL, known), second);
    assert_int_equal(ax_write_file_atomic(first, "", 0), AX_OK);
    assert_string_equal(ax_curl_bundle(own, known), first);
    assert_int_equal(ax_write_file_atomic(own, "", 0), AX_OK);
    assert_null(ax_curl_bundle(own, known)); /* libcurl's own will do */
    assert_int_equal(ax_remove_tree(folder), AX_OK);
}

/* All fields, "-" for numbers that are not given. */
static const char *fields(const struct ax_http_head *h) {
    static char text[2048];
    const double given[] = {(double)h->length, (double)h->linked_size, (double)h->range_from,
                            (double)h->range_total, h->retry_after};
    static const char *const names[] = {"length", "linked", "from", "total", "retry"};
    int n = snprintf(text, sizeof text, "%d", h->status);
    const char *const texts[][2] = {
        {"location", h->location},       {"next", h->next},          {"etag", h->etag},
        {"linked_etag", h->linked_etag}, {"commit", h->repo_commit}, {"code", h->error_code},
        {"message", h->error_message}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i][1][0])
            n += snprintf(text + n, sizeof text - (size_t)n, " %s=%s", texts[i][0], texts[i][1]);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i] != -1)
            n += snprintf(text + n, sizeof text - (size_t)n, " %s=%g", names[i], given[i]);
    return text;
}

static void header_lines(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"HTTP/2 200\r\n", "200"},
        {"HTTP/1.1 1000 Long\r\n", "0"},
        {"HTTP/1.1\r\n", "0"},
        {"etag: W/\"a\"\r\n", "206 etag=a"},
        {"ETag: \"a\"\r\n", "206 etag=a"},
        {"ETag:\t a \r\n", "206 etag=a"},
        {"ETag: W/\r\n", "206 etag=W/"},
        {"ETag: \"\"\n", "206"},
        {"ETag: \"\n", "206 etag=\""},
        {"Etag : a\r\n", "206"},
        {"X-Linked-ETag: \"b\"\r\n", "206 linked_etag=b"},
        {"X-Linked-Size: 12\r\n", "206 linked=12"},
        {"X-Linked-Size: 12a\r\n", "206"},
        {"X-Linked-Size:\r\n", "206"},
        {"X-Repo-Commit: c0\r\n", "206 commit=c0"},
        {"X-Error-Code: E\r\n", "206 code=E"},
        {"X-Error-Message: no: no\r\n", "206 message=no: no"},
        {"X-Error-Message: a\x7f\r\n", "206"},
        {"X-Error-Message: a\x1f\r\n", "206"},
        {"X-Error-Message: \x1b[31ma\r\n", "206"},
        {"X-Error-Message: a b\r\n", "206 message=a b"},
        {"Location: /a?b#c\r\n", "206 location=/a?b#c"},
        {"Content-Length: 0\r\n", "206 length=0"},
        {"Content-Length: 99999999999999999999\r\n", "206"},
        {"Retry-After: 7\r\n", "206 retry=7"},
        {"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "206"},
        {"Content-Range: bytes 3-9/10\r\n", "206 from=3 total=10"},
        {"Content-Range: BYTES 0-9/*\r\n", "206 from=0"},
        {"Content-Range: bytes -9/10\r\n", "206 total=10"},
        {"Content-Range: bytes */10\r\n", "206"},
        {"Content-Range: bytes 3/9-10\r\n", "206"},
        {"Content-Range: lines 3-9/10\r\n", "206"},
        {"Link: <u>; rel=\"next\"\r\n", "206 next=u"},
        {"Link: <p>; rel=\"prev\", <u>; rel=next\r\n", "206 next=u"},
        {"Link: <u>; rel=\"next\", <l>; rel=\"last\"\r\n", "206 next=u"},
        {"Link: <u>; rel=\"last\"\r\n", "206"},
        {"Link: <u; rel=\"next\"\r\n", "206"},
        {"no colon\r\n", "206"},
        {"", "206"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct ax_http_head h;
        static const char begin[] = "HTTP/1.1 206 Partial Content\r\n", noise[] = "ETag: old\r\n";
        ax_http_head_line(&h, noise, strlen(noise));
        ax_http_head_line(&h, begin, strlen(begin));
        ax_http_head_line(&h, cases[i][0], strlen(cases[i][0]));
        if (strcmp(fields(&h), cases[i][1]) != 0)
            fail_msg("%s: %s, expected %s", cases[i][0], fields(&h), cases[i][1]);
    }
}

/* A text fills its field, or counts as absent. */
static void long_headers_count_as_absent(void **state) {
    (void)state;
    static struct ax_http_head h;
    char line[256];
    const size_t most = sizeof h.repo_commit - 1;
    for (size_t n = most - 1; n <= most + 1; n++) {
        const int k = snprintf(line, sizeof line, "X-Repo-Commit: ");
        memset(line + k, 'c', n);
        ax_http_head_line(&h, line, (size_t)k + n);
        assert_int_equal(strlen(h.repo_commit), n > most ? 0 : n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_header),
        cmocka_unit_test(certificates_of_another_system_are_found),
        cmocka_unit_test(header_lines),
        cmocka_unit_test(long_headers_count_as_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
