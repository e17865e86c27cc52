#include "base/net/endpoint.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/net/http.h"
#include "base/threads.h"

#define LOOK_SECONDS    0.1
#define FIRST_WAIT      0.5 /* before a question is asked again; doubled each time, up to … */
#define LONGEST_WAIT    60.0
#define MAX_CONCURRENCY 64
#define MAX_LIST        ((uint64_t)16 << 20)

/* ---- addresses ---- */

bool ax_endpoint_is_url(const char *s) {
    return s && (strncasecmp(s, "http://", 7) == 0 || strncasecmp(s, "https://", 8) == 0);
}

enum ax_status ax_endpoint_open(struct ax_endpoint *e, const struct ax_endpoint_options *o) {
    size_t n = strlen(o->url);
    *e = (struct ax_endpoint){.o = *o};
    if (!ax_endpoint_is_url(o->url) || strpbrk(o->url, "@?#"))
        return ax_error(AX_ERR_CONFIG,
                        "expected a URL such as http://127.0.0.1:8000/v1, without a user or a "
                        "query; keys are in files or the environment");
    while (n > 0 && o->url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(o->url + n - 3, "/v1", 3) == 0)
        n -= 3;
    AX_TRY(ax_sprintf(&e->root, "%.*s", (int)n, o->url));
    if (o->key)
        AX_TRY(ax_strdup(&e->key, o->key));
    e->o.url = e->o.key = NULL;
    e->o.concurrency = o->concurrency < 1                 ? 1
                       : o->concurrency < MAX_CONCURRENCY ? o->concurrency
                                                          : MAX_CONCURRENCY;
    return AX_OK;
}

void ax_endpoint_close(struct ax_endpoint *e) {
    ax_free(e->root);
    ax_free(e->key);
    *e = (struct ax_endpoint){0};
}

/* ---- one question ---- */

struct asking {
    const struct ax_endpoint *e;
    struct ax_endpoint_request *list;
    int64_t n;
    _Atomic int64_t next;
    _Atomic bool stop;
    pthread_mutex_t lock; /* of `running`, the workers that have not ended */
    pthread_cond_t ended;
    int running;
};

static enum ax_status take_piece(void *ctx, const struct ax_http_head *head, const void *data,
                                 size_t n) {
    (void)head;
    return ax_buf_append(ctx, data, n);
}

static bool is_passing(int status) {
    return status == 408 || status == 409 || status == 429 || status >= 500;
}

static bool is_refusal(int status) {
    return status >= 400 && status < 500 && !is_passing(status);
}

/* What a server said instead of an answer, unless the key is in it. */
static enum ax_status explain(const char *url, int status, const struct ax_buf *refusal,
                              const char *key) {
    json_t *v = refusal->len > 0 ? json_loadb(refusal->data, refusal->len, 0, NULL) : NULL;
    const json_t *error = json_object_get(v, "error");
    const char *text =
        json_string_value(json_object_get(json_is_object(error) ? error : v, "message"));
    if (text && key && strstr(text, key))
        text = "it refuses the key";
    const enum ax_status st = ax_error(is_refusal(status) ? AX_ERR_CONFIG : AX_ERR_IO,
                                       "%s: status %d: %.500s", url, status,
                                       text                             ? text
                                       : status == 401 || status == 403 ? "it asks for a key"
                                       : status == 404                  ? "it has no such route"
                                                                        : "without a reason");
    json_decref(v);
    return st;
}

struct attempt {
    enum ax_status st;
    bool again;  /* it failed, and may succeed later */
    double wait; /* seconds that the server wants; −1: it does not say */
};

/* One request; *q's answer is set if that succeeds. */
static struct attempt try_once(struct asking *a, struct ax_endpoint_request *q, const char *url) {
    struct ax_buf text = {0}, refusal = {0};
    struct ax_http_response out = {0};
    const struct ax_http_request r = {.url = url,
                                      .token = a->e->key,
                                      .max_bytes = q->max_bytes,
                                      .stop = &a->stop,
                                      .silent_seconds = ceil(a->e->o.seconds) + 1,
                                      .seconds = a->e->o.seconds,
                                      .post = q->body,
                                      .refusal = &refusal,
                                      .body = take_piece,
                                      .ctx = &text};
    struct attempt t = {.st = q->body ? ax_http_post(&r, &out) : ax_http_get(&r, &out), .wait = -1};
    t.again = t.st != AX_OK && out.again;
    q->status = out.head.status;
    if (t.st == AX_OK && q->status != 200) {
        t.again = is_passing(q->status);
        t.wait = out.head.retry_after;
        t.st = explain(url, q->status, &refusal, a->e->key);
    } else if (t.st == AX_OK) {
        q->answer = json_loadb(text.data ? text.data : "", text.len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(q->answer)) {
            json_decref(q->answer);
            q->answer = NULL;
            t.st = ax_error(AX_ERR_DATA, "%s: the answer is no JSON object: \"%.100s\"", url,
                            text.len > 0 ? text.data : "");
        }
    }
    ax_buf_free(&text);
    ax_buf_free(&refusal);
    return t;
}

/* Waits, unless all ends meanwhile. */
static void rest(const struct asking *a, double seconds) {
    for (const double until = ax_clock_now() + seconds; ax_clock_now() < until && !a->stop;)
        nanosleep(&(struct timespec){0, 50000000}, NULL);
}

static enum ax_status ask_again(struct asking *a, struct ax_endpoint_request *q, const char *url) {
    double wait = FIRST_WAIT;
    for (int64_t i = 0;; i++, wait *= 2) {
        const struct attempt t = try_once(a, q, url);
        if (t.st != AX_OK && q->may_refuse && !t.again && is_refusal(q->status)) {
            ax_error_clear();
            return AX_OK;
        }
        if (t.st == AX_OK || !t.again || a->stop)
            return t.st;
        if (i == a->e->o.retries)
            return ax_error_prefix(t.st, "asked %lld times", (long long)i + 1);
        const double pause = fmin(fmax(wait, t.wait), LONGEST_WAIT);
        ax_log_warn("%s; asking again in %.1f s", ax_error_text(), pause);
        ax_error_clear();
        rest(a, pause);
    }
}

/* ---- all ---- */

static enum ax_status ask_next(struct asking *a) {
    for (int64_t i; !a->stop && (i = a->next++) < a->n;) {
        char *url;
        AX_TRY(ax_sprintf(&url, "%s%s", a->e->root, a->list[i].path));
        const enum ax_status st = ask_again(a, &a->list[i], url);
        ax_free(url);
        AX_TRY(st);
    }
    return AX_OK;
}

/* An error ends the others, whose own are then of no interest. */
static enum ax_status work(void *arg) {
    struct asking *a = arg;
    enum ax_status st = ask_next(a);
    if (st != AX_OK && atomic_exchange(&a->stop, true)) {
        ax_error_clear();
        st = AX_OK;
    }
    pthread_mutex_lock(&a->lock);
    a->running--;
    pthread_cond_signal(&a->ended);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* Waits for the workers, and looks meanwhile. */
static enum ax_status await(struct asking *a, const struct ax_endpoint_look *look) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&a->lock);
    while (a->running > 0) {
        (void)ax_cond_wait_until(&a->ended, &a->lock, ax_clock_now() + LOOK_SECONDS);
        if (a->running == 0 || st != AX_OK || !look)
            continue;
        pthread_mutex_unlock(&a->lock);
        st = look->look(look->ctx);
        if (st != AX_OK)
            a->stop = true;
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

enum ax_status ax_endpoint_ask(const struct ax_endpoint *e, int64_t n,
                               struct ax_endpoint_request *list,
                               const struct ax_endpoint_look *look) {
    struct ax_worker workers[MAX_CONCURRENCY] = {0};
    struct asking a = {.e = e, .list = list, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
    const int most = (int)(e->o.concurrency < n ? e->o.concurrency : n);
    int started = 0;
    struct ax_error_record first = {.st = AX_OK};
    for (int64_t i = 0; i < n; i++)
        list[i].answer = NULL;
    ax_cond_init(&a.ended);
    a.running = most;
    enum ax_status st = AX_OK;
    while (started < most && st == AX_OK)
        if ((st = ax_worker_start(&workers[started], work, &a)) == AX_OK)
            started++;
    if (st != AX_OK) {
        a.stop = true;
        pthread_mutex_lock(&a.lock);
        a.running -= most - started;
        pthread_mutex_unlock(&a.lock);
        ax_error_save(&first, st);
    }
    st = await(&a, look);
    if (st != AX_OK && first.st == AX_OK)
        ax_error_save(&first, st);
    for (int i = 0; i < started; i++) {
        st = ax_worker_join(&workers[i]);
        if (st != AX_OK && first.st == AX_OK)
            ax_error_save(&first, st);
    }
    return first.st == AX_OK ? AX_OK : ax_error_restore(&first);
}

/* ---- models ---- */

/* Its entry, or the first if `wanted` is NULL. */
static const json_t *find_model(const json_t *list, const char *wanted) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (id && (!wanted || strcmp(id, wanted) == 0))
            return entry;
    }
    return NULL;
}

enum ax_status ax_endpoint_model(const struct ax_endpoint *e, const char *wanted, char **name,
                                 int64_t *max_len) {
    struct ax_endpoint_request q = {.path = "/v1/models", .max_bytes = MAX_LIST};
    AX_TRY(ax_endpoint_ask(e, 1, &q, NULL));
    const json_t *list = json_object_get(q.answer, "data"), *found = find_model(list, wanted);
    const json_int_t most = json_integer_value(json_object_get(found, "max_model_len"));
    const char *first = json_string_value(json_object_get(find_model(list, NULL), "id"));
    enum ax_status st = AX_OK;
    *max_len = most > 0 ? (int64_t)most : 0;
    if (found)
        st = ax_strdup(name, json_string_value(json_object_get(found, "id")));
    else if (wanted && first)
        st = ax_error(AX_ERR_CONFIG,
                      "%s/v1/models: there is no \"%s\"; the first of its models is \"%s\"",
                      e->root, wanted, first);
    else
        st = ax_error(AX_ERR_DATA, "%s/v1/models: names no model", e->root);
    json_decref(q.answer);
    return st;
}
