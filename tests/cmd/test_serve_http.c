/* What cmd/serve/microhttpd.h says of libmicrohttpd, against the library's own header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <microhttpd.h>

#include "cmd/serve/microhttpd.h"

#define SAME(name)                                                                                 \
    { #name, (long)AX_##name, (long)(name) }
static const struct {
    const char *name;
    long ours, theirs;
} numbers[] = {
    SAME(MHD_USE_THREAD_PER_CONNECTION),
    SAME(MHD_USE_INTERNAL_POLLING_THREAD),
    SAME(MHD_USE_POLL),
    SAME(MHD_USE_ITC),
    SAME(MHD_OPTION_END),
    SAME(MHD_OPTION_CONNECTION_MEMORY_LIMIT),
    SAME(MHD_OPTION_CONNECTION_LIMIT),
    SAME(MHD_OPTION_CONNECTION_TIMEOUT),
    SAME(MHD_OPTION_NOTIFY_COMPLETED),
    SAME(MHD_OPTION_LISTEN_SOCKET),
    SAME(MHD_OPTION_THREAD_STACK_SIZE),
    SAME(MHD_OPTION_NOTIFY_CONNECTION),
    SAME(MHD_NO),
    SAME(MHD_YES),
    SAME(MHD_HEADER_KIND),
    SAME(MHD_GET_ARGUMENT_KIND),
    SAME(MHD_RESPMEM_MUST_COPY),
    SAME(MHD_CONNECTION_INFO_CONNECTION_FD),
    SAME(MHD_CONNECTION_INFO_SOCKET_CONTEXT),
    SAME(MHD_CONNECTION_NOTIFY_STARTED),
    SAME(MHD_CONNECTION_NOTIFY_CLOSED),
    SAME(MHD_CONNECTION_OPTION_TIMEOUT),
    SAME(MHD_CONTENT_READER_END_OF_STREAM),
    SAME(MHD_CONTENT_READER_END_WITH_ERROR),
};

static void constants(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].ours != numbers[i].theirs)
            fail_msg("%s is %ld, not %ld", numbers[i].name, numbers[i].theirs, numbers[i].ours);
    assert_true(AX_MHD_SIZE_UNKNOWN == MHD_SIZE_UNKNOWN);
    assert_int_equal(sizeof(enum MHD_Result), sizeof(int));
    assert_int_equal(sizeof(enum MHD_ResponseMemoryMode), sizeof(int));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(constants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
