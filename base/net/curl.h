/* The part of libcurl's binary interface that http.c uses, so that building does not need
 * libcurl. Names and numbers are those of curl/curl.h without AX_; they hold for every
 * libcurl.so.4 (tests/base/test_curl.c compares them with the header if it is installed). */
#ifndef AX_BASE_NET_CURL_H
#define AX_BASE_NET_CURL_H

#include <stddef.h>

enum {
    AX_CURLOPT_WRITEDATA = 10001,
    AX_CURLOPT_URL = 10002,
    AX_CURLOPT_PROXY = 10004,
    AX_CURLOPT_ERRORBUFFER = 10010,
    AX_CURLOPT_POSTFIELDS = 10015,
    AX_CURLOPT_USERAGENT = 10018,
    AX_CURLOPT_HTTPHEADER = 10023,
    AX_CURLOPT_HEADERDATA = 10029,
    AX_CURLOPT_XFERINFODATA = 10057,
    AX_CURLOPT_CAINFO = 10065,
    AX_CURLOPT_CAPATH = 10097,
    AX_CURLOPT_WRITEFUNCTION = 20011,
    AX_CURLOPT_HEADERFUNCTION = 20079,
    AX_CURLOPT_XFERINFOFUNCTION = 20219,
    AX_CURLOPT_LOW_SPEED_LIMIT = 19, /* from here on the values are long */
    AX_CURLOPT_LOW_SPEED_TIME = 20,
    AX_CURLOPT_NOPROGRESS = 43,
    AX_CURLOPT_POSTFIELDSIZE = 60,
    AX_CURLOPT_CONNECTTIMEOUT = 78,
    AX_CURLOPT_NOSIGNAL = 99,
    AX_CURLOPT_PROTOCOLS = 181,
    AX_CURLINFO_CAINFO = 0x100000 + 61, /* const char *; since 7.84 */
};

enum { AX_CURL_GLOBAL_DEFAULT = 3, AX_CURL_ERROR_SIZE = 256 };
enum { AX_CURLPROTO_HTTP = 1, AX_CURLPROTO_HTTPS = 2 };

/* CURLcode; all values but the first are failures. */
enum {
    AX_CURLE_OK = 0,
    AX_CURLE_COULDNT_RESOLVE_HOST = 6,
    AX_CURLE_COULDNT_CONNECT = 7,
    AX_CURLE_HTTP2 = 16,
    AX_CURLE_PARTIAL_FILE = 18,
    AX_CURLE_OPERATION_TIMEDOUT = 28,
    AX_CURLE_SSL_CONNECT_ERROR = 35,
    AX_CURLE_ABORTED_BY_CALLBACK = 42,
    AX_CURLE_GOT_NOTHING = 52,
    AX_CURLE_SEND_ERROR = 55,
    AX_CURLE_RECV_ERROR = 56,
    AX_CURLE_PEER_FAILED_VERIFICATION = 60,
    AX_CURLE_SSL_CACERT_BADFILE = 77,
    AX_CURLE_HTTP2_STREAM = 92,
};

enum {
    AX_CURLUE_OK = 0,
    AX_CURLUPART_URL = 0,
    AX_CURLUPART_SCHEME = 1,
    AX_CURLUPART_HOST = 5,
    AX_CURLUPART_PORT = 6,
    AX_CURLU_DEFAULT_PORT = 1,
};

/* The functions: curl_global_init, curl_easy_init and so on. Handles are CURL and CURLU. */
struct curl_slist;
struct ax_curl {
    int (*global_init)(long flags);
    void *(*init)(void);
    void (*cleanup)(void *handle);
    int (*setopt)(void *handle, int option, ...);
    int (*perform)(void *handle);
    int (*getinfo)(void *handle, int info, ...);
    const char *(*strerror)(int code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free)(struct curl_slist *list);
    void *(*url)(void);
    void (*url_cleanup)(void *url);
    int (*url_set)(void *url, int part, const char *text, unsigned flags);
    int (*url_get)(const void *url, int part, char **text, unsigned flags);
    void (*free)(void *p);
};

/* The first readable file of the NULL-terminated list. NULL if there is none, or if libcurl's
 * default bundle `own` (may be NULL) is readable. */
const char *ax_curl_bundle(const char *own, const char *const *known);

#endif
