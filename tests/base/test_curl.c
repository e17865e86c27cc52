/* What base/curl.h says of libcurl, against libcurl's own header where there is one; and which file of
 * certificates is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/curl.h"
#include "base/io.h"

#if __has_include(<curl/curl.h>)
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
    SAME(CURLOPT_ERRORBUFFER),
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
#else
static void numbers_are_those_of_the_header(void **state) {
    (void)state;
    print_message("skipped: no curl/curl.h to compare with\n");
    skip();
}
#endif

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_header),
        cmocka_unit_test(certificates_of_another_system_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
