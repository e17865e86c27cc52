/* Requests. The only file that knows libcurl, which curl.h declares. Read ax_http_get, then perform. */
#include "base/net/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dynlib.h"
#include "base/mem.h"
#include "base/net/curl.h"

#define MAX_HOPS        8
#define CONNECT_SECONDS 20L
#define SILENT_SECONDS  60
#define MAX_REFUSAL     ((size_t)64 << 10)

/* ---- the library ---- */

static struct ax_curl lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct ax_error_record opening; /* the result, for every thread */

static enum ax_status open_library(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so", NULL};
    const struct ax_symbol symbols[] = {
        {"curl_global_init", &lib.global_init},   {"curl_easy_init", &lib.init},
        {"curl_easy_cleanup", &lib.cleanup},      {"curl_easy_setopt", &lib.setopt},
        {"curl_easy_perform", &lib.perform},      {"curl_easy_getinfo", &lib.getinfo},
        {"curl_easy_strerror", &lib.strerror},    {"curl_slist_append", &lib.slist_append},
        {"curl_slist_free_all", &lib.slist_free}, {"curl_url", &lib.url},
        {"curl_url_cleanup", &lib.url_cleanup},   {"curl_url_set", &lib.url_set},
        {"curl_url_get", &lib.url_get},           {"curl_free", &lib.free},
    };
    const enum ax_status st = ax_library_open(names, symbols, sizeof symbols / sizeof *symbols);
    if (st != AX_OK)
        return ax_error_prefix(st, "HTTP needs libcurl 4, which cannot be opened (Debian: "
                                   "`apt-get install libcurl4`; or download on another machine)");
    return lib.global_init(AX_CURL_GLOBAL_DEFAULT) == AX_CURLE_OK
               ? AX_OK
               : ax_error(AX_ERR_FAILED, "libcurl failed to initialize");
}

static void open_once(void) {
    ax_error_save(&opening, open_library());
}

/* ---- addresses ---- */

/* Resolves `location` relative to `base`; only http and https, and never from https to http. */
static enum ax_status resolve(char **out, const char *base, const char *location) {
    void *u = lib.url();
    char *text = NULL;
    *out = NULL;
    if (!u)
        return ax_error(AX_ERR_NOMEM, "out of memory for a URL");
    enum ax_status st = AX_OK;
    if (lib.url_set(u, AX_CURLUPART_URL, base, 0) != AX_CURLUE_OK ||
        lib.url_set(u, AX_CURLUPART_URL, location, 0) != AX_CURLUE_OK ||
        lib.url_get(u, AX_CURLUPART_URL, &text, 0) != AX_CURLUE_OK)
        st = ax_error(AX_ERR_IO, "%s: redirects to \"%.200s\", which is not a valid URL", base,
                      location);
    else if (strncasecmp(text, "https://", 8) != 0 &&
             (strncasecmp(text, "http://", 7) != 0 || strncasecmp(base, "https://", 8) == 0))
        st = ax_error(AX_ERR_IO, "%s: redirects to \"%.200s\", which is not safe to follow", base,
                      text);
    else
        st = ax_strdup(out, text);
    lib.free(text);
    lib.url_cleanup(u);
    return st;
}

/* scheme://host:port of an address. */
static enum ax_status origin(char **out, const char *url) {
    void *u = lib.url();
    char *part[3] = {NULL, NULL, NULL};
    *out = NULL;
    if (!u)
        return ax_error(AX_ERR_NOMEM, "out of memory for a URL");
    enum ax_status st = AX_OK;
    if (lib.url_set(u, AX_CURLUPART_URL, url, 0) != AX_CURLUE_OK ||
        lib.url_get(u, AX_CURLUPART_SCHEME, &part[0], 0) != AX_CURLUE_OK ||
        lib.url_get(u, AX_CURLUPART_HOST, &part[1], 0) != AX_CURLUE_OK ||
        lib.url_get(u, AX_CURLUPART_PORT, &part[2], AX_CURLU_DEFAULT_PORT) != AX_CURLUE_OK)
        st = ax_error(AX_ERR_CONFIG, "%s: not a URL of the form https://host", url);
    else
        st = ax_sprintf(out, "%s://%s:%s", part[0], part[1], part[2]);
    for (int i = 0; i < 3; i++)
        lib.free(part[i]);
    lib.url_cleanup(u);
    return st;
}

/* ---- one request without redirects ---- */

struct exchange {
    const struct ax_http_request *request;
    struct ax_http_head head;
    uint64_t received;
    double until; /* when it has taken too long; 0: never */
    bool late;    /* it has */
    enum ax_status body_status;
};

static size_t on_header(char *line, size_t size, size_t n, void *ctx) {
    struct exchange *x = ctx;
    ax_http_head_line(&x->head, line, size * n);
    return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    struct exchange *x = ctx;
    const struct ax_http_request *r = x->request;
    if (r->refusal && x->head.status >= 400 && r->refusal->len + n <= MAX_REFUSAL) {
        x->body_status = ax_buf_append(r->refusal, data, n);
        return x->body_status == AX_OK ? n : 0;
    }
    if (x->head.status != 200 && x->head.status != 206)
        return n; /* an HTML page */
    x->received += n;
    if (x->received > r->max_bytes)
        x->body_status = ax_error(AX_ERR_DATA, "%s: sent more than the expected %llu bytes", r->url,
                                  (unsigned long long)r->max_bytes);
    else
        x->body_status = r->body(r->ctx, &x->head, data, size * n);
    return x->body_status == AX_OK ? n : 0;
}

static int on_progress(void *ctx, int64_t a, int64_t b, int64_t c, int64_t d) {
    (void)a, (void)b, (void)c, (void)d;
    struct exchange *x = ctx;
    x->late = x->until > 0 && ax_clock_now() > x->until;
    return x->late || (x->request->stop && *x->request->stop);
}

/* True for transient errors, not errors of this machine's settings. */
static bool is_passing(int code) {
    switch (code) {
    case AX_CURLE_COULDNT_CONNECT:
    case AX_CURLE_PARTIAL_FILE:
    case AX_CURLE_OPERATION_TIMEDOUT:
    case AX_CURLE_SSL_CONNECT_ERROR: /* also a connection that is reset during the handshake */
    case AX_CURLE_GOT_NOTHING:
    case AX_CURLE_SEND_ERROR:
    case AX_CURLE_RECV_ERROR:
    case AX_CURLE_HTTP2:
    case AX_CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

static const char *variable(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *ax_curl_bundle(const char *own, const char *const *known) {
    if (own && access(own, R_OK) == 0)
        return NULL;
    while (*known && access(*known, R_OK) != 0)
        known++;
    return *known;
}

/* The certificates of this system, if they are not where libcurl was built to look. */
static const char *system_bundle(void *c) {
    static const char *const known[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Red Hat */
        "/etc/ssl/cert.pem",                                 /* Alpine */
        NULL,
    };
    const char *own = NULL;
    if (lib.getinfo(c, AX_CURLINFO_CAINFO, &own) != AX_CURLE_OK)
        return NULL; /* libcurl before 7.84 cannot tell */
    return ax_curl_bundle(own, known);
}

/* libcurl reads the variables of proxies, but this one only in lower case: where a web server runs
 * programs, a client sets the other. NULL: as libcurl does. */
static const char *proxy_of(const char *url) {
    const bool plain = strncasecmp(url, "http://", 7) == 0;
    return plain && !getenv("http_proxy") ? variable("HTTP_PROXY") : NULL;
}

static void set_options(void *c, struct exchange *x, const char *url, char *error) {
    const char *bundle = variable("SSL_CERT_FILE"), *folder = variable("SSL_CERT_DIR"),
               *proxy = proxy_of(url);
    lib.setopt(c, AX_CURLOPT_URL, url);
    lib.setopt(c, AX_CURLOPT_PROTOCOLS, (long)(AX_CURLPROTO_HTTP | AX_CURLPROTO_HTTPS));
    lib.setopt(c, AX_CURLOPT_NOSIGNAL, 1L);
    lib.setopt(c, AX_CURLOPT_ERRORBUFFER, error);
    lib.setopt(c, AX_CURLOPT_USERAGENT, "axtrain/" AX_VERSION);
    lib.setopt(c, AX_CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    lib.setopt(c, AX_CURLOPT_LOW_SPEED_LIMIT, 1L);
    const double silent = x->request->silent_seconds;
    lib.setopt(c, AX_CURLOPT_LOW_SPEED_TIME, silent > 0 ? (long)silent : (long)SILENT_SECONDS);
    if (x->request->post) {
        lib.setopt(c, AX_CURLOPT_POSTFIELDS, x->request->post);
        lib.setopt(c, AX_CURLOPT_POSTFIELDSIZE, (long)strlen(x->request->post));
    }
    lib.setopt(c, AX_CURLOPT_HEADERFUNCTION, on_header);
    lib.setopt(c, AX_CURLOPT_HEADERDATA, x);
    lib.setopt(c, AX_CURLOPT_WRITEFUNCTION, on_body);
    lib.setopt(c, AX_CURLOPT_WRITEDATA, x);
    lib.setopt(c, AX_CURLOPT_XFERINFOFUNCTION, on_progress);
    lib.setopt(c, AX_CURLOPT_XFERINFODATA, x);
    lib.setopt(c, AX_CURLOPT_NOPROGRESS, 0L);
    if (proxy)
        lib.setopt(c, AX_CURLOPT_PROXY, proxy);
    if (!bundle && !folder)
        bundle = system_bundle(c);
    if (bundle)
        lib.setopt(c, AX_CURLOPT_CAINFO, bundle);
    if (folder)
        lib.setopt(c, AX_CURLOPT_CAPATH, folder);
}

static enum ax_status add_header(struct curl_slist **list, const char *format, const char *value) {
    char *line;
    AX_TRY(ax_sprintf(&line, format, value));
    struct curl_slist *longer = lib.slist_append(*list, line);
    ax_free(line);
    if (!longer)
        return ax_error(AX_ERR_NOMEM, "out of memory for a request");
    *list = longer;
    return AX_OK;
}

static enum ax_status headers(struct curl_slist **list, const struct ax_http_request *r,
                              bool with_token) {
    char from[32];
    if (with_token)
        AX_TRY(add_header(list, "Authorization: Bearer %s", r->token));
    if (r->post) {
        AX_TRY(add_header(list, "Content-Type: %s", "application/json"));
        AX_TRY(add_header(list, "Expect:%s", "")); /* the body comes without being asked for */
    }
    snprintf(from, sizeof from, "%llu", (unsigned long long)r->from);
    return r->from > 0 ? add_header(list, "Range: bytes=%s-", from) : AX_OK;
}

static enum ax_status explain(const struct exchange *x, int code, const char *url,
                              const char *detail, struct ax_http_response *out) {
    if (x->body_status != AX_OK)
        return x->body_status;
    if (code == AX_CURLE_ABORTED_BY_CALLBACK && !x->late)
        return ax_error(AX_ERR_IO, "%s: canceled", url);
    out->again = x->late || is_passing(code);
    if (x->late)
        return ax_error(AX_ERR_IO, "%s: no answer in %g seconds", url, x->request->seconds);
    out->unreachable = out->again || code == AX_CURLE_COULDNT_RESOLVE_HOST;
    if (code == AX_CURLE_SSL_CACERT_BADFILE)
        return ax_error(AX_ERR_IO,
                        "%s: cannot read the certificates that it is checked with: %s. Install "
                        "ca-certificates, or set SSL_CERT_FILE to a file of certificates.",
                        url, detail);
    if (code == AX_CURLE_PEER_FAILED_VERIFICATION)
        return ax_error(AX_ERR_IO,
                        "%s: its certificate is not trusted: %s. Behind a proxy that inspects "
                        "traffic, set SSL_CERT_FILE to the proxy's certificate.",
                        url, detail);
    return ax_error(AX_ERR_IO, "%s: %s", url, detail);
}

static enum ax_status perform(struct exchange *x, const char *url, bool with_token,
                              struct ax_http_response *out) {
    char error[AX_CURL_ERROR_SIZE] = "";
    struct curl_slist *list = NULL;
    void *c = lib.init();
    if (!c)
        return ax_error(AX_ERR_NOMEM, "out of memory for a request");
    enum ax_status st;
    AX_TRY_GOTO(headers(&list, x->request, with_token), st, done);
    set_options(c, x, url, error);
    lib.setopt(c, AX_CURLOPT_HTTPHEADER, list);
    x->until = x->request->seconds > 0 ? ax_clock_now() + x->request->seconds : 0;
    const int code = lib.perform(c);
    if (code != AX_CURLE_OK)
        st = explain(x, code, url, *error ? error : lib.strerror(code), out);
done:
    lib.cleanup(c);
    lib.slist_free(list);
    return st;
}

/* ---- redirects ---- */

static void join(struct ax_http_head *first, const struct ax_http_head *h) {
    if (h->linked_etag[0])
        memcpy(first->linked_etag, h->linked_etag, sizeof h->linked_etag);
    if (h->repo_commit[0])
        memcpy(first->repo_commit, h->repo_commit, sizeof h->repo_commit);
    if (h->linked_size >= 0)
        first->linked_size = h->linked_size;
}

static bool is_redirect(const struct ax_http_head *h) {
    return h->status >= 301 && h->status <= 308 && h->status != 304 && h->status != 305 &&
           h->location[0];
}

enum ax_status ax_http_post(const struct ax_http_request *r, struct ax_http_response *out) {
    struct exchange x = {.request = r};
    *out = (struct ax_http_response){.first = {.linked_size = -1}};
    (void)pthread_once(&once, open_once);
    if (opening.st != AX_OK)
        return ax_error_restore(&opening);
    AX_TRY(perform(&x, r->url, r->token != NULL, out));
    out->head = x.head;
    return AX_OK;
}

enum ax_status ax_http_get(const struct ax_http_request *r, struct ax_http_response *out) {
    struct exchange x = {.request = r};
    char *url = NULL, *home = NULL, *here = NULL;
    enum ax_status st = AX_OK;
    *out = (struct ax_http_response){.first = {.linked_size = -1}};
    (void)pthread_once(&once, open_once);
    if (opening.st != AX_OK)
        return ax_error_restore(&opening);
    AX_TRY(origin(&home, r->url));
    AX_TRY_GOTO(ax_strdup(&url, r->url), st, done);
    for (int hop = 0; hop <= MAX_HOPS; hop++) {
        ax_free(here);
        here = NULL;
        AX_TRY_GOTO(origin(&here, url), st, done);
        const bool at_home = strcmp(home, here) == 0;
        x.head = (struct ax_http_head){0};
        AX_TRY_GOTO(perform(&x, url, at_home && r->token, out), st, done);
        if (at_home)
            join(&out->first, &x.head);
        if (!is_redirect(&x.head))
            break;
        char *next;
        AX_TRY_GOTO(resolve(&next, url, x.head.location), st, done);
        ax_free(url);
        url = next;
    }
    out->head = x.head;
    if (is_redirect(&x.head))
        st = ax_error(AX_ERR_IO, "%s: redirected more than %d times", r->url, MAX_HOPS);
done:
    ax_free(here);
    ax_free(home);
    ax_free(url);
    return st;
}
