/* Log-probs of the reference that are kept between runs: the same bits as computed ones, read where
 * they are those of the model and the data, and never trusted where they are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>

#include "base/hash/hash.h"
#include "ckpt/hf/safetensors.h"
#include "optim/losses/kto.h"
#include "optim/losses/preference.h"
#include "optim/evaluate/refer.h"
#include "parallel/fabric/comm_local.h"
#include "tests/optim/train_runs.h"

enum { STEPS = 5, MAX_FILES = 16 };

/* ---- runs ---- */

static struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};

struct runs {
    struct train_case c;
    struct ax_preference preference;
    struct ax_kto kto;
    struct ax_objective objective;
    char cache[128];
    json_t *model;
};

static struct ax_objective as_dpo(struct runs *r) {
    const struct ax_preference_options o = {
        .beta = 0.3, .reference = true, .weight = {[AX_PREFER_SIGMOID] = 1}};
    return ax_objective_preference(&r->preference, "dpo", &o);
}

static struct ax_objective as_kto(struct runs *r) {
    const struct ax_kto_options o = {.beta = 0.3, .desirable_weight = 1, .undesirable_weight = 1.5};
    return ax_objective_kto(&r->kto, &o);
}

/* Asks to stop in the third step. */
static struct ax_objective trained;

static enum ax_status stop_early(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    static int64_t micro_batches;
    if (!ax_runtime_planning(p->model->rt) && p->recompute != AX_RECOMPUTE_INFERENCE &&
        micro_batches++ == 4)
        assert_int_equal(raise(SIGTERM), 0);
    return trained.head.token_grad(ctx, p, c);
}

static const struct kind {
    const char *name;
    struct ax_objective (*objective)(struct runs *r);
    enum ax_dtype dtype;
    bool packed, adapter;
    int files; /* kept */
} kinds[] = {{"dpo", as_dpo, AX_F32, true, false, 2},
             {"dpo, an adapter", as_dpo, AX_BF16, false, true, 2},
             {"kto", as_kto, AX_F32, true, false, 4}};

static void open_runs(struct runs *r, const struct kind *k) {
    *r = (struct runs){0};
    r->objective = k->objective(r);
    if (train_case_open_for(&r->c, k->dtype, k->packed, &r->objective) != AX_OK)
        fail_msg("%s", ax_error_text());
    r->c.o.max_steps = STEPS;
    r->c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    r->c.o.metrics.logging_steps = 1;
    r->c.o.step.model.adapter = k->adapter ? &lora : NULL;
    r->c.o.save.hf.base_dir = NULL;
    snprintf(r->cache, sizeof r->cache, "%s/cache", r->c.dir);
    r->model = json_pack("{ss}", "model", "tiny");
}

static void close_runs(struct runs *r) {
    json_decref(r->model);
    train_case_close(&r->c);
}

/* The lines of metrics.jsonl that have losses, without times. */
static uint64_t hash_metrics(const struct runs *r) {
    static const char *const keep[] = {
        "step",           "loss", "grad_norm", "rewards/margins",
        "rewards/chosen", "kl",   "eval_loss", "eval_rewards/chosen"};
    char path[160], *text;
    size_t n;
    uint64_t hash = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->c.out);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &n), AX_OK);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const bool counts = json_object_get(v, "loss") || json_object_get(v, "eval_loss");
        for (size_t i = 0; counts && i < sizeof keep / sizeof *keep; i++) {
            const double x = json_number_value(json_object_get(v, keep[i]));
            hash = ax_hash64(&x, sizeof x, hash);
        }
        json_decref(v);
    }
    ax_free(text);
    return hash;
}

/* All that a run with the cache, or without, ends with. */
static uint64_t outcome(struct runs *r, bool kept) {
    struct ax_train_result result;
    assert_int_equal(ax_remove_tree(r->c.out), AX_OK);
    r->c.o.references =
        (struct ax_reference_store){.cache = kept ? r->cache : NULL, .model = r->model};
    run_ok(&r->c, &result);
    assert_int_equal(result.steps, r->c.o.max_steps);
    return train_case_hash(&r->c, "model.safetensors") ^
           train_case_hash(&r->c, "adapter_model.safetensors") ^ hash_metrics(r);
}

/* ---- files ---- */

struct kept {
    int n;
    char paths[MAX_FILES][192];
};

static struct kept find_kept(const struct runs *r) {
    struct kept k = {0};
    DIR *d = opendir(r->cache);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char path[420];
        snprintf(path, sizeof path, "%s/%s/" AX_REFERENCE_FILE, r->cache, e->d_name);
        if (!ax_path_exists(path))
            continue;
        assert_true(k.n < MAX_FILES && strlen(path) < sizeof k.paths[0]);
        memcpy(k.paths[k.n++], path, strlen(path) + 1);
    }
    if (d)
        closedir(d);
    return k;
}

static const void *tensor(const struct ax_safetensors *st, const char *name, size_t *bytes) {
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    assert_non_null(e);
    *bytes = e->bytes;
    return e->data;
}

/* Adds 1 to every value, as another model would: the checksum is right. */
static void shift(const char *path) {
    static const char *const names[] = {"description", "documents", "logprobs"};
    struct ax_safetensors st;
    char *data;
    size_t len, n, sums;
    assert_int_equal(ax_read_file(path, 1 << 24, &data, &len), AX_OK);
    assert_int_equal(ax_safetensors_parse(&st, path, data, len), AX_OK);
    char *at = (char *)(uintptr_t)tensor(&st, "logprobs", &n);
    for (size_t i = 0; i < n; i += sizeof(float)) {
        float x;
        memcpy(&x, at + i, sizeof x);
        assert_true(isfinite(x));
        x += (float)(i % 3);
        memcpy(at + i, &x, sizeof x);
    }
    uint32_t crc = 0;
    for (int i = 0; i < 3; i++) {
        const void *p = tensor(&st, names[i], &n);
        crc = ax_crc32c(crc, p, n);
    }
    const int64_t sum = crc;
    memcpy((void *)(uintptr_t)tensor(&st, "crc32c", &sums), &sum, sizeof sum);
    ax_safetensors_close(&st);
    assert_int_equal(ax_write_file_atomic(path, data, len), AX_OK);
    ax_free(data);
}

static void shift_all(const struct runs *r) {
    const struct kept k = find_kept(r);
    for (int i = 0; i < k.n; i++)
        shift(k.paths[i]);
}

/* ---- tests ---- */

/* The same numbers, computed or read; and that they are read, not computed again. */
static void a_second_run_reads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct runs r;
        open_runs(&r, &kinds[i]);
        const uint64_t plain = outcome(&r, false);
        assert_int_equal(find_kept(&r).n, 0);
        assert_true(outcome(&r, true) == plain);
        assert_int_equal(find_kept(&r).n, kinds[i].files);
        assert_true(outcome(&r, true) == plain);
        shift_all(&r);
        assert_true(outcome(&r, true) != plain);
        assert_int_equal(find_kept(&r).n, kinds[i].files);
        close_runs(&r);
    }
}

static void change_model(struct runs *r) {
    assert_int_equal(json_object_set_new(r->model, "model", json_string("tinier")), 0);
}

static void change_dtype(struct runs *r) {
    r->c.o.step.model.dtype = AX_BF16;
}

static void change_steps(struct runs *r) {
    r->c.o.max_steps = 3;
}

/* One answer is a token shorter. */
static void change_data(struct runs *r) {
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_FIT, .capacity = 64, .max_docs = 8, .group = 2, .chunk = 1000}};
    ax_loader_free(r->c.loader);
    ax_corpus_source_free(&r->c.source);
    r->c.train.refs[0].n--;
    ax_corpus_source_init(&r->c.source, &r->c.train, &r->c.doc_source);
    assert_int_equal(ax_loader_new(&r->c.loader, &r->c.doc_source, &lo), AX_OK);
    r->c.o.data.train = r->c.loader;
}

static void change_passes(struct runs *r) {
    r->c.o.data.sequence_docs = 10;
}

/* What the values depend on: none but the same is read. */
static void another_run_does_not(void **state) {
    (void)state;
    static void (*const changes[])(struct runs *r) = {change_model, change_dtype, change_steps,
                                                      change_data, change_passes};
    struct runs r;
    open_runs(&r, &kinds[0]);
    r.c.o.data.eval = NULL;
    r.c.o.eval.when.when = AX_NEVER;
    (void)outcome(&r, true);
    for (int i = 0; i < 5; i++) {
        shift_all(&r); /* who reads them, shows it */
        changes[i](&r);
        const uint64_t plain = outcome(&r, false);
        assert_true(outcome(&r, true) == plain);
        assert_int_equal(find_kept(&r).n, 2 + i);
    }
    close_runs(&r);
}

/* A damaged file, or one that is another's, is computed again and replaced. */
static void what_is_not_right_is_replaced(void **state) {
    (void)state;
    struct runs r;
    open_runs(&r, &kinds[0]);
    const uint64_t plain = outcome(&r, true);
    const struct kept k = find_kept(&r);
    char *good[2], *bad;
    size_t len[2];
    assert_int_equal(k.n, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ax_read_file(k.paths[i], 1 << 24, &good[i], &len[i]), AX_OK);
    for (int way = 0; way < 12; way++) {
        size_t n = len[0];
        assert_int_equal(ax_alloc(&bad, n, 1), AX_OK);
        memcpy(bad, good[0], n);
        if (way == 0)
            n = 0; /* an empty file */
        else if (way == 1)
            n -= 3; /* one that ends early */
        else if (way > 2)
            bad[n - 1 - (size_t)(way - 3) * (n / 12)] ^= 4;
        assert_int_equal(
            ax_write_file_atomic(k.paths[0], way == 2 ? good[1] : bad, way == 2 ? len[1] : n),
            AX_OK);
        ax_free(bad);
        assert_true(outcome(&r, true) == plain);
        assert_int_equal(ax_read_file(k.paths[0], 1 << 24, &bad, &n), AX_OK);
        assert_int_equal(n, len[0]);
        assert_memory_equal(bad, good[0], n);
        ax_free(bad);
    }
    for (int i = 0; i < 2; i++)
        ax_free(good[i]);
    close_runs(&r);
}

/* Nothing that happens to the cache stops a run. */
static void a_cache_that_fails_is_left(void **state) {
    (void)state;
    struct runs r;
    open_runs(&r, &kinds[0]);
    const uint64_t plain = outcome(&r, false);
    assert_int_equal(ax_write_file_atomic(r.cache, "a file", 6), AX_OK);
    assert_true(outcome(&r, true) == plain);
    close_runs(&r);
}

/* A run that is stopped, and goes on, reads what it computed before. */
static void resuming_reads(void **state) {
    (void)state;
    struct runs r;
    struct ax_train_result result;
    for (int shifted = 0; shifted < 2; shifted++) {
        open_runs(&r, &kinds[1]);
        const uint64_t plain = outcome(&r, false);
        assert_int_equal(ax_remove_tree(r.c.out), AX_OK);
        r.c.o.references.cache = r.cache;
        r.c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
        trained = r.objective;
        r.objective.head.token_grad = stop_early;
        const int status = run_in_child(&r.c, NULL);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
        r.objective = trained;
        assert_int_equal(find_kept(&r).n, 2);
        if (shifted)
            shift_all(&r);
        r.c.o.save.resume = AX_RESUME_NEWEST;
        run_ok(&r.c, &result);
        assert_int_equal(result.resumed_from, 3);
        const uint64_t now = train_case_hash(&r.c, "adapter_model.safetensors") ^ hash_metrics(&r);
        assert_true((now == plain) == !shifted);
        close_runs(&r);
    }
}

/* Two ranks, each with a folder of its own as on two hosts, and one output folder. */
struct hosts {
    const char *out, *caches[2]; /* NULL: none */
};

static enum ax_status train_host(struct ax_fabric *fabric, void *ctx) {
    const struct hosts *h = ctx;
    struct runs r;
    struct ax_train_result result;
    open_runs(&r, &kinds[0]);
    r.c.o.runtime.fabric = fabric;
    r.c.o.runtime.sizes = (struct ax_mesh_sizes){1, 1, 2, 1, 1, 1};
    r.c.o.step.n_microbatches = 1;
    r.c.o.save.output_dir = h->out;
    r.c.o.references =
        (struct ax_reference_store){.cache = h->caches[fabric->rank], .model = r.model};
    ax_loader_start_epoch(r.c.loader, 0);
    const enum ax_status st = ax_train(&r.c.o, &result);
    close_runs(&r);
    return st;
}

static uint64_t train_hosts(struct runs *r, const char *first, const char *second) {
    struct hosts h = {r->c.out, {first, second}};
    assert_int_equal(ax_remove_tree(r->c.out), AX_OK);
    if (ax_local_run(2, NULL, train_host, &h) != AX_OK)
        fail_msg("%s", ax_error_text());
    return train_case_hash(&r->c, "model.safetensors") ^ hash_metrics(r);
}

/* If one of them has no values, all compute: who has some does not use them. */
static void hosts_agree(void **state) {
    (void)state;
    struct runs r;
    char one[128], other[128];
    open_runs(&r, &kinds[0]); /* for its folder */
    snprintf(one, sizeof one, "%s/one", r.c.dir);
    snprintf(other, sizeof other, "%s/other", r.c.dir);
    const uint64_t plain = train_hosts(&r, NULL, NULL);
    assert_true(train_hosts(&r, one, one) == plain);
    memcpy(r.cache, one, sizeof one);
    assert_int_equal(find_kept(&r).n, 2);
    assert_true(train_hosts(&r, one, one) == plain);
    shift_all(&r);
    assert_true(train_hosts(&r, one, other) == plain);
    memcpy(r.cache, other, sizeof other);
    assert_int_equal(find_kept(&r).n, 2);
    shift_all(&r);
    assert_true(train_hosts(&r, one, other) != plain);
    close_runs(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_run_reads),
        cmocka_unit_test(another_run_does_not),
        cmocka_unit_test(what_is_not_right_is_replaced),
        cmocka_unit_test(a_cache_that_fails_is_left),
        cmocka_unit_test(resuming_reads),
        cmocka_unit_test(hosts_agree),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
