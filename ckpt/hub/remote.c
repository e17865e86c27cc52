/* Requests to the hub, and errors that explain its refusals. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text/json.h"
#include "base/log.h"
#include "ckpt/hub/impl.h"

#define MAX_ANSWER   ((size_t)64 << 20)
#define MAX_PAGES    2000
#define MAX_ATTEMPTS 5
#define MAX_PAUSE    300.0 /* the longest pause that a hub may request */

/* ---- addresses ---- */

static enum ax_status put_encoded(struct ax_buf *b, const char *text, bool keep_slash) {
    enum ax_status st = AX_OK;
    for (; *text && st == AX_OK; text++) {
        const unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-_.~", c) || (keep_slash && c == '/'))
            st = ax_buf_append(b, text, 1);
        else
            st = ax_buf_printf(b, "%%%02X", c);
    }
    return st;
}

/* Passes the text of b to the caller, or frees it after an error. */
static enum ax_status take(char **out, struct ax_buf *b, enum ax_status st) {
    if (st == AX_OK)
        *out = b->data;
    else
        ax_buf_free(b);
    return st;
}

enum ax_status ax_hub_file_url(char **out, const struct ax_hub *h, const struct ax_hub_repo *r,
                               const char *commit, const char *path) {
    struct ax_buf b = {0};
    enum ax_status st = ax_buf_printf(&b, "%s/%s%s/resolve/%s/", h->endpoint,
                                      r->kind == AX_HUB_DATASET ? "datasets/" : "", r->id, commit);
    if (st == AX_OK)
        st = put_encoded(&b, path, true);
    return take(out, &b, st);
}

/* ENDPOINT/api/models/ID/WHAT/REVISION */
static enum ax_status api_url(char **out, const struct ax_hub *h, const struct ax_hub_repo *r,
                              const char *what, const char *revision, const char *query) {
    struct ax_buf b = {0};
    enum ax_status st =
        ax_buf_printf(&b, "%s/api/%s/%s/%s/", h->endpoint,
                      r->kind == AX_HUB_DATASET ? "datasets" : "models", r->id, what);
    if (st == AX_OK)
        st = put_encoded(&b, revision, false);
    if (st == AX_OK)
        st = ax_buf_puts(&b, query);
    return take(out, &b, st);
}

/* ---- refusals ---- */

static const char *page_prefix(const struct ax_hub_repo *r) {
    return r->kind == AX_HUB_DATASET ? "datasets/" : "";
}

static enum ax_status gated(const struct ax_hub *h, const struct ax_hub_repo *r) {
    return ax_error(
        AX_ERR_CONFIG, "%s: access is gated: accept the conditions at %s/%s%s, %s", r->id,
        h->endpoint, page_prefix(r), r->id,
        h->token ? "with the account of your token (which needs read access to gated repositories)"
                 : "then set HF_TOKEN or run `hf auth login`");
}

static enum ax_status not_found(const struct ax_hub *h, const struct ax_hub_repo *r) {
    const char *kind = r->kind == AX_HUB_DATASET ? "data set" : "model";
    if (h->token)
        return ax_error(AX_ERR_CONFIG,
                        "%s: %s has no such %s, or your token may not see it. Check the spelling "
                        "(org/name); if this is a path, write ./ in front of it.",
                        r->id, h->endpoint, kind);
    return ax_error(
        AX_ERR_CONFIG,
        "%s: %s has no such %s, or it is private. Check the spelling (org/name); for a private "
        "one, set HF_TOKEN or run `hf auth login`; if this is a path, write ./ in front of it.",
        r->id, h->endpoint, kind);
}

static enum ax_status explain(const struct ax_hub *h, const struct ax_hub_repo *r, const char *what,
                              const struct ax_http_head *a) {
    const char *why = a->error_message[0] ? a->error_message : "no reason given";
    if (strcmp(a->error_code, "GatedRepo") == 0)
        return gated(h, r);
    if (strcmp(a->error_code, "RevisionNotFound") == 0)
        return ax_error(AX_ERR_CONFIG, "%s: no branch, tag or commit \"%s\"", r->id,
                        ax_hub_revision(r));
    if (strcmp(a->error_code, "EntryNotFound") == 0)
        return ax_error(AX_ERR_DATA, "%s: contains no %s", r->id, what);
    if (strcmp(a->error_code, "RepoNotFound") == 0 || a->status == 404)
        return not_found(h, r);
    if (a->status == 401 && h->token)
        return ax_error(AX_ERR_CONFIG,
                        "%s: the hub rejected your token (%s). Check HF_TOKEN, or run `hf "
                        "auth login` again.",
                        r->id, why);
    if (a->status == 401)
        return not_found(h, r);
    if (a->status == 403)
        return ax_error(AX_ERR_CONFIG, "%s: the hub forbids %s: %s", r->id, what, why);
    if (a->status == 429)
        return ax_error(AX_ERR_IO,
                        "%s: the hub's rate limit was reached; try again later, or set HF_TOKEN "
                        "for a higher limit",
                        r->id);
    return ax_error(AX_ERR_IO, "%s: %s: the hub responded with status %d (%s)", r->id, what,
                    a->status, why);
}

/* ---- patience ---- */

static bool is_passing(int status) {
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

static enum ax_status unreachable(const struct ax_hub_repo *r, enum ax_status st, bool network) {
    char why[600];
    if (!network)
        return ax_error_prefix(st, "%s", r->id);
    snprintf(why, sizeof why, "%s", ax_error_text());
    return ax_error(st,
                    "%s: cannot reach the hub: %s. If this machine has no network, run `axtrain "
                    "fetch CONFIG` on one that does; if this is a path, write ./ in front of it.",
                    r->id, why);
}

static void pause_for(double seconds, const _Atomic bool *stop) {
    const struct timespec slice = {.tv_nsec = 20000000};
    for (double left = seconds; left > 0 && !(stop && *stop); left -= 0.02)
        (void)nanosleep(&slice, NULL);
}

/* `busy`: the hub's response; NULL: the error's text says why there was none. The first message
 * also says when it will give up. */
static void say_again(const struct ax_hub *h, const struct ax_hub_repo *r, int attempt,
                      double seconds, const struct ax_http_head *busy) {
    const double most = h->retry_seconds * (double)((1 << (MAX_ATTEMPTS - 1)) - 1);
    char why[640], limit[64] = "";
    if (busy)
        snprintf(why, sizeof why, "the hub is busy (status %d)", busy->status);
    else
        snprintf(why, sizeof why, "%s", ax_error_text());
    if (attempt == 1)
        snprintf(limit, sizeof limit, "; it gives up after %.3g s",
                 seconds > most ? seconds : most);
    ax_log_info("%s: %s; try %d of %d in %.3g s%s", r->id, why, attempt + 1, MAX_ATTEMPTS, seconds,
                limit);
}

enum ax_status ax_hub_again(const struct ax_hub *h, const struct ax_hub_repo *r,
                            struct ax_hub_patience *p, enum ax_status st,
                            const struct ax_http_response *answer, const char *what) {
    const struct ax_http_head *a = &answer->head;
    const bool may = st == AX_OK ? is_passing(a->status) : answer->again;
    if (!may || p->attempt + 1 >= MAX_ATTEMPTS || (st == AX_OK && a->retry_after > MAX_PAUSE) ||
        (p->stop && *p->stop))
        return st == AX_OK ? explain(h, r, what, a) : unreachable(r, st, answer->unreachable);
    double seconds = h->retry_seconds * (double)(1 << p->attempt);
    if (st == AX_OK && a->retry_after >= 0)
        seconds = a->retry_after;
    say_again(h, r, ++p->attempt, seconds, st == AX_OK ? a : NULL);
    pause_for(seconds, p->stop);
    return AX_OK;
}

/* ---- responses in JSON ---- */

static enum ax_status keep(void *ctx, const struct ax_http_head *head, const void *data, size_t n) {
    (void)head;
    return ax_buf_append(ctx, data, n);
}

static enum ax_status ask(const struct ax_hub *h, const struct ax_hub_repo *r, const char *url,
                          const char *what, struct ax_buf *text, struct ax_http_response *a) {
    struct ax_hub_patience p = {0};
    for (;;) {
        const struct ax_http_request q = {
            .url = url, .token = h->token, .max_bytes = MAX_ANSWER, .body = keep, .ctx = text};
        text->len = 0;
        const enum ax_status st = ax_http_get(&q, a);
        if (st == AX_OK && a->head.status == 200)
            return text->len > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: the response is empty", url);
        AX_TRY(ax_hub_again(h, r, &p, st, a, what));
    }
}

static enum ax_status read_commit(char **commit, const char *url, const struct ax_buf *text) {
    struct ax_json_doc doc;
    const char *sha;
    AX_TRY(ax_json_parse(&doc, url, text->data, text->len));
    const struct ax_json at = ax_json_get(ax_json_root(&doc), "sha");
    enum ax_status st = ax_json_str(at, &sha);
    if (st == AX_OK && (strlen(sha) != 40 || strspn(sha, "0123456789abcdef") != 40))
        st = ax_json_error(at, "\"%.100s\" is not a commit", sha);
    if (st == AX_OK)
        st = ax_strdup(commit, sha);
    ax_json_free(&doc);
    return st;
}

static enum ax_status ask_commit(char **commit, const struct ax_hub *h,
                                 const struct ax_hub_repo *r) {
    struct ax_http_response a;
    struct ax_buf text = {0};
    char *url;
    AX_TRY(api_url(&url, h, r, "revision", ax_hub_revision(r), ""));
    enum ax_status st = ask(h, r, url, "its commits", &text, &a);
    if (st == AX_OK)
        st = read_commit(commit, url, &text);
    ax_buf_free(&text);
    ax_free(url);
    return st;
}

/* The next page is on the same hub, whatever host and folder a mirror names before its path. */
static enum ax_status next_page(char **url, const struct ax_hub *h, const struct ax_hub_repo *r,
                                const char *next) {
    const char *path = strstr(next, r->kind == AX_HUB_DATASET ? "/api/datasets/" : "/api/models/");
    ax_free(*url);
    *url = NULL;
    if (path)
        return ax_sprintf(url, "%s%s", h->endpoint, path);
    return !*next ? AX_OK
                  : ax_error(AX_ERR_DATA,
                             "%s: %s gives \"%.200s\" as the next page of its list of files, which "
                             "is no address of a hub; see HF_ENDPOINT",
                             r->id, h->endpoint, next);
}

static enum ax_status ask_list(struct ax_hub_list *l, const struct ax_hub *h,
                               const struct ax_hub_repo *r, const char *commit) {
    struct ax_http_response a;
    struct ax_buf text = {0};
    char *url;
    enum ax_status st = AX_OK;
    AX_TRY(api_url(&url, h, r, "tree", commit, "?recursive=true"));
    for (int page = 0; url && st == AX_OK; page++) {
        if (page == MAX_PAGES)
            st = ax_error(AX_ERR_DATA, "%s: its list of files has more than %d pages", r->id, page);
        if (st == AX_OK)
            st = ask(h, r, url, "its list of files", &text, &a);
        if (st == AX_OK)
            st = ax_hub_list_parse(l, url, text.data, text.len);
        if (st == AX_OK)
            st = next_page(&url, h, r, a.head.next);
    }
    ax_buf_free(&text);
    ax_free(url);
    return st;
}

enum ax_status ax_hub_ask(struct ax_hub_snapshot *s, const struct ax_hub *h,
                          const struct ax_hub_repo *r) {
    char *commit = NULL;
    AX_TRY(ask_commit(&commit, h, r));
    if (s->commit && s->listed && strcmp(s->commit, commit) == 0) {
        ax_free(commit); /* a commit never changes */
        return AX_OK;
    }
    ax_hub_list_free(&s->list);
    ax_free(s->commit);
    ax_free(s->folder);
    s->commit = commit;
    s->folder = NULL;
    s->listed = false;
    AX_TRY(ax_sprintf(&s->folder, "%s/snapshots/%s", s->repo_folder, s->commit));
    AX_TRY(ask_list(&s->list, h, r, s->commit));
    s->listed = true;
    return AX_OK;
}

enum ax_status ax_hub_refuse_offline(const struct ax_hub_repo *r, const char *what) {
    const char *revision = ax_hub_revision(r);
    if (!what)
        what = strcmp(revision, "main") == 0 ? "snapshot" : revision;
    return ax_error(AX_ERR_CONFIG,
                    "%s: no such folder or file, and the local Hugging Face cache has no %s of it; "
                    "HF_HUB_OFFLINE disables the network. Run `axtrain fetch CONFIG` on a machine "
                    "with a network, or unset HF_HUB_OFFLINE.",
                    r->id, what);
}
