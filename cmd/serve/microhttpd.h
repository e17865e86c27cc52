/* The part of libmicrohttpd's binary interface that http.c uses, so that building does not need the
 * library. Names and numbers are those of microhttpd.h without AX_; they hold for every
 * libmicrohttpd.so.12 (tests/cmd/test_serve_http.c compares them with the header if it is
 * installed). */
#ifndef AX_CMD_SERVE_MICROHTTPD_H
#define AX_CMD_SERVE_MICROHTTPD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    AX_MHD_USE_THREAD_PER_CONNECTION = 4,
    AX_MHD_USE_INTERNAL_POLLING_THREAD = 8,
    AX_MHD_USE_POLL = 64,
    AX_MHD_USE_ITC = 1024,
};
enum {
    AX_MHD_OPTION_END = 0,
    AX_MHD_OPTION_CONNECTION_MEMORY_LIMIT = 1, /* size_t */
    AX_MHD_OPTION_CONNECTION_LIMIT = 2,        /* unsigned */
    AX_MHD_OPTION_CONNECTION_TIMEOUT = 3,      /* unsigned, seconds */
    AX_MHD_OPTION_NOTIFY_COMPLETED = 4,        /* function, context */
    AX_MHD_OPTION_LISTEN_SOCKET = 12,          /* int */
    AX_MHD_OPTION_THREAD_STACK_SIZE = 19,      /* size_t */
    AX_MHD_OPTION_NOTIFY_CONNECTION = 27,      /* function, context */
};
enum { AX_MHD_NO = 0, AX_MHD_YES = 1 };
enum { AX_MHD_HEADER_KIND = 1, AX_MHD_GET_ARGUMENT_KIND = 8 };
enum { AX_MHD_RESPMEM_MUST_COPY = 2 };
enum { AX_MHD_CONNECTION_INFO_CONNECTION_FD = 6, AX_MHD_CONNECTION_INFO_SOCKET_CONTEXT = 7 };
enum { AX_MHD_CONNECTION_NOTIFY_STARTED = 0, AX_MHD_CONNECTION_NOTIFY_CLOSED = 1 };
enum { AX_MHD_CONNECTION_OPTION_TIMEOUT = 0 };
enum { AX_MHD_CONTENT_READER_END_OF_STREAM = -1, AX_MHD_CONTENT_READER_END_WITH_ERROR = -2 };
#define AX_MHD_SIZE_UNKNOWN UINT64_MAX

struct MHD_Daemon;
struct MHD_Connection;
struct MHD_Response;

/* The functions: MHD_start_daemon and so on. Enums of the library are ints here. */
struct ax_microhttpd {
    struct MHD_Daemon *(*start_daemon)(unsigned flags, uint16_t port, void *accept,
                                       void *accept_ctx, void *handler, void *handler_ctx, ...);
    void (*stop_daemon)(struct MHD_Daemon *d);
    struct MHD_Response *(*response_from_buffer)(size_t size, void *data, int mode);
    struct MHD_Response *(*response_from_callback)(uint64_t size, size_t block,
                                                   ssize_t (*read)(void *ctx, uint64_t at, char *to,
                                                                   size_t most),
                                                   void *ctx, void (*free)(void *ctx));
    int (*add_header)(struct MHD_Response *r, const char *name, const char *value);
    int (*queue_response)(struct MHD_Connection *c, unsigned status, struct MHD_Response *r);
    void (*destroy_response)(struct MHD_Response *r);
    const char *(*lookup)(struct MHD_Connection *c, int kind, const char *key);
    const void *(*connection_info)(struct MHD_Connection *c, int what, ...);
    int (*set_connection_option)(struct MHD_Connection *c, int option, ...);
};

#endif
