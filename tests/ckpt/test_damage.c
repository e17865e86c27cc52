/* Damage to a checkpoint of several pieces and shards: flipped bits, cut and grown files, shards
 * that are missing, doubled, swapped, or of another step or run. All of it is found, and the file
 * is named. Files of a few hundred bytes, bit by bit: test_checkpoint.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/direct_io.h"
#include "base/rng.h"
#include "ckpt/state/checkpoint.h"
#include "tests/ckpt/folder.h"

#define NAME_LEN 20
#define TENSORS  56     /* enough for 4 KiB of header */
#define BIG      270000 /* elements of one more: the file has several pieces */
#define FLIPS    10000
#define CUTS     1000

/* ---- a checkpoint of made-up numbers ---- */

struct contents {
    char names[TENSORS + 1][NAME_LEN], keys[TENSORS + 1][NAME_LEN + 8];
    struct ax_st_output weights[TENSORS + 1], state[TENSORS + 1];
    struct ax_state_part parts[TENSORS + 1];
};

/* `run` changes every number; the sizes are the same. */
static void make_contents(struct contents *c, const char *run) {
    for (int i = 0; i <= TENSORS; i++) {
        const int64_t n = i < TENSORS ? 8 : BIG;
        snprintf(c->names[i], NAME_LEN, "tensor.%02d", i);
        snprintf(c->keys[i], sizeof c->keys[i], "%s:master", c->names[i]);
        c->weights[i] = output(c->names[i], AX_F32, 1, &n);
        c->state[i] = output(c->keys[i], AX_F32, 1, &n);
        c->weights[i].ctx = c->state[i].ctx = (void *)(uintptr_t)run;
        c->parts[i] = (struct ax_state_part){.name = c->names[i],
                                             .slot = "master",
                                             .dtype = AX_F32,
                                             .ndim = 1,
                                             .shape = {n},
                                             .size = {n},
                                             .n = n};
    }
}

/* Writes a checkpoint in shards of at most `shard_bytes`; 0: one shard, with the big tensor. */
static void write_one(const char *name, int64_t step, const char *run, int64_t shard_bytes) {
    static struct contents c;
    struct ax_mesh mesh;
    json_t *config = json_object();
    make_contents(&c, run);
    assert_int_equal(ax_mesh_create(&mesh, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0), AX_OK);
    const struct ax_checkpoint_save save = {
        .dir = in_dir(name),
        .step = step,
        .hf = {.config = config,
               .dtype = AX_F32,
               .max_shard_bytes = shard_bytes,
               .n = shard_bytes ? TENSORS : TENSORS + 1,
               .tensors = c.weights},
        .mesh = &mesh,
        .n_parts = shard_bytes ? TENSORS : TENSORS + 1,
        .parts = c.parts,
        .state = c.state,
    };
    if (ax_checkpoint_write(&save) != AX_OK)
        fail_msg("%s", ax_error_text());
    json_decref(config);
}

static enum ax_status verify(const char *name) {
    struct ax_checkpoint c;
    AX_TRY(ax_checkpoint_open(&c, in_dir(name)));
    const enum ax_status st = ax_checkpoint_verify(&c, NULL);
    ax_checkpoint_close(&c);
    return st;
}

static void expect_good(const char *name) {
    if (verify(name) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- one file of it ---- */

struct target {
    int fd;
    char *bytes;
    size_t len;
    const char *folder, *name;
    struct ax_checkpoint c;
    const struct ax_file_sums *sums;
    void *heap, *buffer;
};

static void open_target(struct target *t, const char *folder, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *t = (struct target){.fd = open(in_dir(path), O_RDWR), .folder = folder, .name = name};
    assert_true(t->fd >= 0);
    assert_int_equal(ax_read_file(in_dir(path), 1 << 26, &t->bytes, &t->len), AX_OK);
    assert_int_equal(ax_checkpoint_open(&t->c, in_dir(folder)), AX_OK);
    for (size_t i = 0; i < t->c.files.n; i++)
        if (strcmp(t->c.files.files[i].name, name) == 0)
            t->sums = &t->c.files.files[i];
    assert_int_equal(ax_alloc_direct(&t->heap, &t->buffer, AX_SUM_PIECE), AX_OK);
}

static void close_target(struct target *t) {
    close(t->fd);
    ax_free(t->bytes);
    ax_free(t->heap);
    ax_checkpoint_close(&t->c);
}

static void put_byte(const struct target *t, size_t at, char v) {
    assert_int_equal(pwrite(t->fd, &v, 1, (off_t)at), 1);
}

static void expect_found(const struct target *t) {
    assert_int_equal(ax_file_sums_check(t->c.dir, t->sums, 0, 1, t->buffer), AX_ERR_DATA);
    assert_mentions(t->name);
}

static void resize(const struct target *t, size_t len) {
    assert_int_equal(ftruncate(t->fd, (off_t)len), 0);
}

/* ---- bits ---- */

static size_t header_bytes(const struct target *t) {
    uint64_t n;
    memcpy(&n, t->bytes, sizeof n);
    return sizeof n + (size_t)n;
}

/* Every bit of the header, as a load finds it: before anything in it is believed. */
static void test_every_bit_of_a_header(void **state) {
    (void)state;
    struct target t;
    write_one("a", 1, "run", 1 << 20);
    open_target(&t, "a", "state/rank-00000.safetensors");
    const size_t n = header_bytes(&t);
    const double begin = ax_clock_now();
    for (size_t bit = 0; bit < 8 * n; bit++) {
        put_byte(&t, bit / 8, (char)(t.bytes[bit / 8] ^ (1 << bit % 8)));
        expect_found(&t);
        put_byte(&t, bit / 8, t.bytes[bit / 8]);
    }
    print_message("header of %zu bytes: %zu flips found in %.2f s\n", n, 8 * n,
                  ax_clock_now() - begin);
    assert_true(8 * n >= 32768);
    close_target(&t);
    expect_good("a");
}

static void test_every_bit_of_a_manifest(void **state) {
    (void)state;
    char *text;
    size_t n;
    write_one("a", 1, "run", 0);
    assert_int_equal(ax_read_file(in_dir("a/" AX_CHECKPOINT_MANIFEST), 1 << 20, &text, &n), AX_OK);
    const double begin = ax_clock_now();
    for (size_t bit = 0; bit < 8 * n + n; bit++) { /* flips, then lengths */
        struct ax_checkpoint c = {0};
        const bool flip = bit < 8 * n;
        if (flip)
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(ax_manifest_parse(&c, "m.json", text, flip ? n : bit - 8 * n),
                         AX_ERR_DATA);
        assert_mentions("m.json");
        assert_true(c.n_shards == 0 && c.files.n == 0);
        ax_checkpoint_close(&c);
        if (flip)
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    print_message("manifest of %zu bytes: %zu flips and %zu lengths found in %.2f s\n", n, 8 * n, n,
                  ax_clock_now() - begin);
    assert_true(8 * n >= 32768);
    ax_free(text);
}

static void test_flips_of_a_payload(void **state) {
    (void)state;
    static const char *const names[] = {"model.safetensors", "state/rank-00000.safetensors"};
    const struct ax_rng_key key = {2024, 1, 1};
    write_one("a", 1, "run", 0);
    for (int f = 0; f < 2; f++) {
        struct target t;
        open_target(&t, "a", names[f]);
        assert_true(t.sums->sums.n > 1);
        const size_t first = header_bytes(&t);
        for (uint64_t i = 0; i < FLIPS / 2; i++) {
            const size_t at = first + ax_rng_below(key, 2 * i, t.len - first);
            const uint64_t bit = ax_rng_below(key, 2 * i + 1, 8);
            put_byte(&t, at, (char)(t.bytes[at] ^ (1 << bit)));
            expect_found(&t);
            put_byte(&t, at, t.bytes[at]);
        }
        close_target(&t);
    }
    print_message("%d flips of payloads found\n", FLIPS);
    expect_good("a");
}

/* ---- lengths ---- */

/* From the whole file down to nothing. */
static void test_lengths(void **state) {
    (void)state;
    const struct ax_rng_key key = {2025, 1, 1};
    struct target t;
    write_one("a", 1, "run", 0);
    open_target(&t, "a", "state/rank-00000.safetensors");
    const size_t first = header_bytes(&t), step = (t.len - first) / CUTS;
    resize(&t, t.len + 1);
    expect_found(&t);
    for (size_t n = first + CUTS; n-- > 0;) {
        const size_t in = n < first ? 0 : (n - first) * step + ax_rng_below(key, n, step);
        resize(&t, n < first ? n : first + in);
        expect_found(&t);
    }
    print_message("%zu lengths of the header, %d of the payload, and one byte more found\n", first,
                  CUTS);
    close_target(&t);
}

/* ---- whole shards ---- */

static void replace(const char *path, const char *from) {
    char *bytes;
    size_t n;
    assert_int_equal(ax_read_file(in_dir(from), 1 << 26, &bytes, &n), AX_OK);
    put_file(path, bytes, n);
    ax_free(bytes);
}

static void expect_refused(enum ax_status st, const char *what) {
    assert_int_equal(verify("a"), st);
    assert_mentions(what);
    write_one("a", 1, "run", 640); /* put right again */
    expect_good("a");
}

static void test_foreign_shards(void **state) {
    (void)state;
    static const char one[] = "a/model-00001-of-00003.safetensors";
    static const char two[] = "a/model-00002-of-00003.safetensors";
    static const char rank[] = "a/state/rank-00000.safetensors";
    char *a, *b;
    size_t n, m;
    write_one("a", 1, "run", 640);
    write_one("step", 2, "later", 640);
    write_one("run", 1, "other", 640);
    assert_int_equal(ax_unlink(in_dir(one)), AX_OK);
    expect_refused(AX_ERR_DATA, one + 2);
    assert_int_equal(ax_unlink(in_dir(rank)), AX_OK);
    expect_refused(AX_ERR_DATA, rank + 2);
    replace(two, one); /* doubled: the same size, other tensors */
    expect_refused(AX_ERR_DATA, two + 2);
    assert_int_equal(ax_read_file(in_dir(one), 1 << 20, &a, &n), AX_OK);
    assert_int_equal(ax_read_file(in_dir(two), 1 << 20, &b, &m), AX_OK);
    assert_int_equal(n, m);
    put_file(one, b, m); /* swapped */
    put_file(two, a, n);
    ax_free(a);
    ax_free(b);
    expect_refused(AX_ERR_DATA, one + 2);
    static const char *const others[] = {"step", "run"};
    for (int i = 0; i < 2; i++) {
        char from[96];
        snprintf(from, sizeof from, "%s/state/rank-00000.safetensors", others[i]);
        replace(rank, from);
        expect_refused(AX_ERR_DATA, rank + 2);
        snprintf(from, sizeof from, "%s/model-00002-of-00003.safetensors", others[i]);
        replace(two, from);
        expect_refused(AX_ERR_DATA, two + 2);
        snprintf(from, sizeof from, "%s/" AX_CHECKPOINT_MANIFEST, others[i]);
        replace("a/" AX_CHECKPOINT_MANIFEST, from);
        expect_refused(AX_ERR_DATA, ".safetensors: corrupted");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_of_a_header),
        cmocka_unit_test(test_every_bit_of_a_manifest),
        cmocka_unit_test(test_flips_of_a_payload),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_foreign_shards),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
