/* A hub on this machine, for tests: threads that answer HTTP as the real one does, and misbehave on
 * request. Large files are served by a second server under another host name, as its CDN is. */
#ifndef AX_TESTS_HUB_SERVER_H
#define AX_TESTS_HUB_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"

struct hub_file {
    char path[128];
    const void *data; /* borrowed */
    size_t len;
    bool large;    /* named by SHA-256, redirected to the CDN */
    char blob[65]; /* filled in by hub_add */
};

struct hub_server {
    int fds[2], ports[2]; /* the hub's and the CDN's */
    pthread_t threads[2];
    char endpoint[64];
    /* what it holds: one repository */
    const char *id, *kind; /* "org/name"; "models" or "datasets" */
    const char *commit;
    struct hub_file files[64];
    size_t n;
    struct hub_server *also; /* another repository, not started, whose files only are looked at */
    /* how it behaves; set between requests */
    const char *list;        /* the answer to a request for the list, instead of the real one */
    size_t page;             /* files on each page of the list; 0 = all */
    const char *next;        /* what the address of the next page begins with */
    const char *token;       /* asked for; NULL = public */
    bool gated;              /* refuses even those who have the token */
    size_t cut_every;        /* ends the connection after that many bytes of a body; 0 = never */
    size_t keep_back;        /* last bytes of a large file that it never sends */
    int fail_status;         /* a status to answer with */
    _Atomic int fail_times;  /* how many times it answers with fail_status */
    int retry_after;         /* with this header; -1 = without */
    bool no_ranges;          /* always sends from the start */
    bool wrong_bytes;        /* flips a bit of every large file */
    const char *linked_etag; /* says another checksum than the list */
    size_t linked_more;      /* bytes that it adds to a large file's size */
    bool says_no_size;       /* of small files */
    const char *redirect;    /* sends large files there */
    int detours;             /* 1 + how often, 0 = always */
    int moved;               /* status of redirects to the CDN; 0 = 302 */
    const char *says_commit; /* another than it serves */
    _Atomic int live;        /* connections under way */
    /* what it saw */
    _Atomic int connections, cdn_requests, ranges, cdn_tokens, hub_tokens, proxied;
    _Atomic long long sent; /* bytes of bodies of files */
};

/* Asserts. `s` is zeroed but for id, kind and behavior. */
void hub_start(struct hub_server *s);
void hub_stop(struct hub_server *s);
struct hub_file *hub_add(struct hub_server *s, const char *path, const void *data, size_t len,
                         bool large);

#endif
