/* Checkpoints on disk: what was written comes back, on any cut of the tensors; every damaged byte
 * is found and named; nothing a hostile manifest says is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/state/checkpoint_load.h"
#include "tests/ckpt/store.h"
#include "tests/doubles/far.h"

static void expect_text(const char *part) {
    if (!strstr(ax_error_text(), part))
        fail_msg("expected \"%s\" in: %s", part, ax_error_text());
}

static void test_round_trip(void **state) {
    (void)state;
    struct store s, back;
    struct ax_checkpoint c;
    remove_all();
    make_store(&s, 3.25F);
    make_store(&back, 99);
    save_ok(&s, 20, 0);
    if (load("checkpoint-20", &back) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_equal_stores(&s, &back);
    assert_int_equal(ax_checkpoint_open(&c, in_dir("checkpoint-20")), AX_OK);
    assert_int_equal(c.step, 20);
    assert_int_equal(json_integer_value(json_object_get(c.run, "step")), 20);
    ax_checkpoint_close(&c);
    struct ax_hf hf;
    assert_int_equal(ax_hf_open(&hf, in_dir("checkpoint-20")), AX_OK);
    assert_int_equal(ax_hf_find(&hf, "w")->dtype, AX_BF16);
    ax_hf_close(&hf);
}

/* What training would go on with: weights, or what the optimizer remembers. The checksums are right. */
static void test_no_numbers(void **state) {
    (void)state;
    struct store s, back;
    for (int k = 0; k < 4; k++) {
        remove_all();
        make_store(&s, 3.25F);
        make_store(&back, 99);
        (k % 2 ? s.moment : s.matrix)[17] = k < 2 ? NAN : -INFINITY;
        save_ok(&s, 20, 0);
        assert_int_equal(load("checkpoint-20", &back), AX_ERR_DATA);
        expect_text("/checkpoint-20/state/");
        expect_text(k % 2 ? "tensor w:exp_avg" : "tensor w:master");
        expect_text(k < 2 ? "element 17 is nan;" : "element 17 is -inf;");
    }
}

/* A rank checks what it reads; others check theirs. */
static void test_checks_what_it_reads(void **state) {
    (void)state;
    struct store s;
    struct ax_checkpoint c;
    float data[ROWS * COLS];
    struct ax_state_part p = whole("w", "master", 2, ROWS, COLS, data, 0);
    remove_all();
    make_store(&s, 3.25F);
    s.matrix[17] = NAN;
    save_ok(&s, 20, 0);
    assert_int_equal(ax_checkpoint_open(&c, in_dir("checkpoint-20")), AX_OK);
    for (p.first = 0; p.first < ROWS * COLS; p.first++)
        for (p.n = 1; p.n <= ROWS * COLS - p.first; p.n += 7) {
            const bool has = p.first <= 17 && 17 < p.first + p.n;
            const enum ax_status st = ax_checkpoint_load(&c, &(struct ax_state_parts){1, &p, NULL});
            assert_int_equal(st, has ? AX_ERR_DATA : AX_OK);
            if (has)
                expect_text("tensor w:master: element 17 is nan;");
            else
                assert_memory_equal(data, s.matrix + p.first, (size_t)p.n * sizeof *data);
        }
    ax_checkpoint_close(&c);
}

/* ---- tensors that are read in pieces ---- */

#define MANY (300 << 10) /* elements: five pieces */

static size_t dropped; /* bytes of mappings */

int madvise(void *at, size_t len, int advice) {
    dropped += advice == MADV_DONTNEED ? len : 0;
    return (int)syscall(SYS_madvise, at, len, advice);
}

/* Values, or codes and their scales. */
static float many_values[MANY], many_scales[MANY / AX_8BIT_BLOCK];
static uint8_t many_codes[MANY];

static struct ax_state_part many(void) {
    return whole("w", "master", 1, MANY, 0, many_values, 0);
}
static struct ax_state_part codes_of(int64_t first, int64_t n, uint8_t *data) {
    struct ax_state_part p = whole("w", "exp_avg", 1, MANY, 0, data, 0);
    p.dtype = AX_U8;
    p.layout = AX_STATE_SIGNED_CODES;
    p.first = first;
    p.n = n;
    return p;
}
static struct ax_state_part scales_of(int64_t first, int64_t n, float *data) {
    return (struct ax_state_part){.name = "w",
                                  .slot = "exp_avg_scale",
                                  .dtype = AX_F32,
                                  .ndim = 3,
                                  .shape = {1, AX_8BIT_BLOCK, MANY / AX_8BIT_BLOCK + 2},
                                  .size = {1, 1, MANY / AX_8BIT_BLOCK},
                                  .first = first,
                                  .n = n,
                                  .data = data,
                                  .layout = AX_STATE_BLOCKS};
}

static void save_many(struct store *s, bool codes) {
    for (int i = 0; i < MANY; i++) {
        many_values[i] = (float)i;
        many_codes[i] = (uint8_t)(i % 251);
    }
    for (int i = 0; i < MANY / AX_8BIT_BLOCK; i++)
        many_scales[i] = 1.0F + (float)i;
    remove_all();
    make_store(s, 1);
    s->list[0] = codes ? codes_of(0, MANY, many_codes) : many();
    s->list[1] = scales_of(0, MANY / AX_8BIT_BLOCK, many_scales);
    s->parts.n = codes ? 2 : 1;
}

static enum ax_status reshard(void) {
    struct ax_checkpoint c;
    assert_int_equal(ax_checkpoint_open(&c, in_dir("checkpoint-1")), AX_OK);
    dropped = 0;
    const enum ax_status st = ax_checkpoint_reshard(&c, in_dir("whole"));
    ax_checkpoint_close(&c);
    return st;
}

/* Each piece is read, checked and released alone, not with all others of its shard. */
static void test_pieces_are_read_alone(void **state) {
    (void)state;
    for (int codes = 0; codes < 2; codes++) {
        /* codes and scales are read together, once for either */
        const size_t once = codes ? sizeof many_codes + sizeof many_scales : sizeof many_values;
        struct store s;
        save_many(&s, codes);
        save_ok(&s, 1, 0);
        if (reshard() != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_true(dropped <= (codes ? 2 : 1) * once);
        assert_true(dropped > once / 2);
        many_values[MANY - 1] = INFINITY;
        many_scales[MANY / AX_8BIT_BLOCK - 1] = INFINITY;
        save_ok(&s, 1, 0);
        assert_int_equal(reshard(), AX_ERR_DATA);
        expect_text(codes ? "w:exp_avg_scale: element 1199 is inf;"
                          : "w:master: element 307199 is inf;");
    }
}

/* What a copy with the layout of one rank has is what was there, also where the first block is cut: `phase` of its
 * elements are another tensor's. */
static void test_a_copy_has_the_same_codes(void **state) {
    (void)state;
    enum { BLOCKS = MANY / AX_8BIT_BLOCK + 1 };
    static float scales[BLOCKS], got_scales[BLOCKS];
    static uint8_t got[MANY];
    for (int64_t phase = 0; phase < AX_8BIT_BLOCK; phase += 101) {
        const int64_t blocks = (phase + MANY + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
        struct store s;
        struct ax_checkpoint c;
        save_many(&s, true);
        for (int i = 0; i < BLOCKS; i++)
            scales[i] = 1 + (float)i;
        s.list[1].data = scales;
        s.list[1].start[1] = phase;
        s.list[1].shape[2] = blocks + 2;
        s.list[1].size[2] = s.list[1].n = blocks;
        save_ok(&s, 1, 0);
        if (reshard() != AX_OK)
            fail_msg("%s", ax_error_text());
        struct ax_state_part to[] = {s.list[0], s.list[1]};
        to[0].data = got;
        to[1].data = got_scales;
        to[1].shape[2] = blocks;
        memset(got, 0, sizeof got);
        memset(got_scales, 0, sizeof got_scales);
        assert_int_equal(ax_checkpoint_open(&c, in_dir("whole")), AX_OK);
        if (ax_checkpoint_load(&c, &(struct ax_state_parts){2, to, NULL}) != AX_OK)
            fail_msg("%s", ax_error_text());
        ax_checkpoint_close(&c);
        assert_memory_equal(got, many_codes, sizeof got);
        assert_memory_equal(got_scales, scales, (size_t)blocks * sizeof *scales);
    }
}

/* Codes come with their own scales, of which those are checked that are read. */
static void test_codes_and_scales(void **state) {
    (void)state;
    static uint8_t codes[MANY];
    static float scales[MANY / AX_8BIT_BLOCK];
    struct store s;
    struct ax_checkpoint c;
    const int64_t skipped = 3, first = skipped * AX_8BIT_BLOCK;
    save_many(&s, true);
    many_scales[skipped - 1] = NAN;
    save_ok(&s, 1, 0);
    assert_int_equal(ax_checkpoint_open(&c, in_dir("checkpoint-1")), AX_OK);
    struct ax_state_part p[] = {
        codes_of(first, MANY - first, codes),
        scales_of(skipped, MANY / AX_8BIT_BLOCK - skipped, scales),
    };
    const struct ax_state_parts both = {2, p, NULL}, alone = {1, p, NULL};
    if (ax_checkpoint_load(&c, &both) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_memory_equal(codes, many_codes + first, (size_t)p[0].n);
    assert_memory_equal(scales, many_scales + skipped, (size_t)p[1].n * sizeof *scales);
    p[0] = codes_of(first - 1, MANY - first + 1, codes);
    p[1] = scales_of(skipped - 1, MANY / AX_8BIT_BLOCK - skipped + 1, scales);
    assert_int_equal(ax_checkpoint_load(&c, &both), AX_ERR_DATA);
    expect_text("w:exp_avg_scale: element 2 is nan;");
    /* a list without them, and one with those of another parameter */
    assert_int_equal(ax_checkpoint_load(&c, &alone), AX_ERR_FAILED);
    expect_text("exp_avg of w: this run lists codes without exp_avg_scale;");
    p[1].name = "x";
    assert_int_equal(ax_checkpoint_load(&c, &both), AX_ERR_FAILED);
    ax_checkpoint_close(&c);
}

/* Memory that the host cannot touch. */
struct far_memory {
    struct ax_arena arena;
    struct ax_queue *q;
    void *data;
};

static void open_far(struct far_memory *m, size_t bytes) {
    const struct ax_arena_plan plan = {.persistent = (bytes + 63) / 64 * 64, .host = AX_QUEUE_RING};
    assert_int_equal(ax_arena_create(&m->arena, &plan, &ax_device_far), AX_OK);
    assert_int_equal(ax_queue_create(&m->q, "far", NULL, 1, &m->arena.scratch), AX_OK);
    assert_int_equal(ax_queue_open_ring(m->q), AX_OK);
    m->data = ax_stack_push(&m->arena.persistent, "cut", bytes);
}

static void close_far(struct far_memory *m) {
    ax_queue_free(m->q);
    ax_arena_free(&m->arena);
}

/* Any cut of the matrix into a block and a run of it reads what a whole one wrote, wherever it is
 * needed. */
static void test_other_cuts(void **state) {
    (void)state;
    struct store s;
    struct ax_checkpoint c;
    struct far_memory far;
    int cuts = 0;
    open_far(&far, sizeof s.matrix);
    remove_all();
    make_store(&s, 1);
    save_ok(&s, 1, 0);
    assert_int_equal(ax_checkpoint_open(&c, in_dir("checkpoint-1")), AX_OK);
    for (int64_t row = 0; row < ROWS; row += 2) {
        for (int64_t rows = 1; row + rows <= ROWS; rows += 2) {
            for (int64_t col = 0; col < COLS; col += 2) {
                for (int64_t cols = 1; col + cols <= COLS; cols += 3) {
                    float data[ROWS * COLS] = {0};
                    const int64_t first = rows * cols / 3, n = rows * cols - first - rows / 2;
                    struct ax_state_part p = whole("w", "exp_avg", 2, ROWS, COLS, data, 0);
                    p.start[0] = row;
                    p.start[1] = col;
                    p.size[0] = rows;
                    p.size[1] = cols;
                    p.first = first;
                    p.n = n;
                    const struct ax_state_parts parts = {1, &p, cuts % 2 ? far.q : NULL};
                    if (n <= 0)
                        continue;
                    if (parts.q)
                        p.data = far.data;
                    if (ax_checkpoint_load(&c, &parts) != AX_OK)
                        fail_msg("%s", ax_error_text());
                    if (parts.q)
                        assert_int_equal(
                            ax_queue_read(far.q, far.data, data, (size_t)n * sizeof *data, NULL),
                            AX_OK);
                    for (int64_t i = 0; i < n; i++) {
                        const int64_t r = row + (first + i) / cols, k = col + (first + i) % cols;
                        assert_true(data[i] == s.moment[r * COLS + k]);
                    }
                    cuts++;
                }
            }
        }
    }
    ax_checkpoint_close(&c);
    close_far(&far);
    print_message("%d cuts\n", cuts);
    assert_true(cuts > 50);
}

/* Four shards: two column blocks, each cut once more; put together again into a whole. */
static void test_puts_shards_together(void **state) {
    (void)state;
    float whole_data[ROWS * COLS], out[ROWS * COLS] = {0};
    struct ax_state_part to = whole("w", "master", 2, ROWS, COLS, out, 0);
    int64_t copied = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        whole_data[i] = (float)i;
    for (int block = 0; block < 2; block++) {
        const int64_t col = block ? 4 : 0, cols = block ? 6 : 4;
        for (int half = 0; half < 2; half++) {
            float data[ROWS * COLS];
            struct ax_state_part from = whole("w", "master", 2, ROWS, COLS, NULL, 0);
            from.start[1] = col;
            from.size[1] = cols;
            from.first = half ? 11 : 0;
            from.n = half ? ROWS * cols - 11 : 11;
            for (int64_t i = 0; i < from.n; i++)
                data[i] =
                    whole_data[(from.first + i) / cols * COLS + col + (from.first + i) % cols];
            assert_int_equal(ax_state_part_copy(NULL, &to, &from, data, &copied), AX_OK);
        }
    }
    assert_int_equal(copied, ROWS * COLS);
    assert_memory_equal(out, whole_data, sizeof out);
}

/* ---- damage ---- */

static void assert_damaged(const char *name) {
    struct store back;
    make_store(&back, 99);
    assert_int_equal(load("checkpoint-5", &back), AX_ERR_DATA);
    expect_text(name);
    assert_true(back.matrix[0] == 99); /* not a number was used */
}

static void flip_all_bits(const char *name) {
    char *bytes;
    size_t n;
    char path[128];
    snprintf(path, sizeof path, "checkpoint-5/%s", name);
    assert_int_equal(ax_read_file(in_dir(path), 1 << 20, &bytes, &n), AX_OK);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        put_file(path, bytes, n);
        assert_damaged(name);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t len = 0; len < n; len++) {
        put_file(path, bytes, len);
        assert_damaged(name);
    }
    put_file(path, bytes, n + 1); /* ax_read_file adds a NUL */
    assert_damaged(name);
    put_file(path, bytes, n);
    print_message("%s: %zu flips, %zu lengths\n", name, 8 * n, n + 1);
    ax_free(bytes);
}

static void test_every_bit_flip(void **state) {
    (void)state;
    struct store s, back;
    remove_all();
    make_store(&s, 5);
    save_ok(&s, 5, 0);
    flip_all_bits("state/manifest.json");
    flip_all_bits("state/rank-00000.safetensors");
    flip_all_bits("model.safetensors");
    flip_all_bits("config.json");
    make_store(&back, 99);
    assert_int_equal(load("checkpoint-5", &back), AX_OK);
}

static void test_foreign_files(void **state) {
    (void)state;
    struct store s, back;
    char *bytes;
    size_t n;
    remove_all();
    make_store(&s, 5);
    save_ok(&s, 5, 0);
    make_store(&s, 6);
    save_ok(&s, 6, 0);
    assert_int_equal(
        ax_read_file(in_dir("checkpoint-6/state/rank-00000.safetensors"), 1 << 20, &bytes, &n),
        AX_OK);
    put_file("checkpoint-5/state/rank-00000.safetensors", bytes, n);
    ax_free(bytes);
    assert_damaged("rank-00000.safetensors");
    assert_int_equal(ax_unlink(in_dir("checkpoint-5/state/rank-00000.safetensors")), AX_OK);
    make_store(&back, 99);
    assert_int_equal(load("checkpoint-5", &back), AX_ERR_DATA);
    expect_text("rank-00000.safetensors");
}

/* A manifest with its own checksum right, whatever else is wrong. */
static enum ax_status parse_manifest(const json_t *manifest) {
    struct ax_checkpoint c = {0};
    char *text = json_dumps(manifest, JSON_COMPACT);
    struct ax_buf b = {0};
    const uint32_t crc = ax_crc32c(0, text + 1, strlen(text + 1));
    assert_int_equal(ax_buf_printf(&b, "{\"crc32c\": \"%08x\",%s", crc, text + 1), AX_OK);
    const enum ax_status st = ax_manifest_parse(&c, "m", b.data, b.len);
    ax_checkpoint_close(&c);
    ax_buf_free(&b);
    ax_free(text);
    return st;
}

static void expect_refused(const json_t *manifest, const char *why) {
    assert_int_not_equal(parse_manifest(manifest), AX_OK);
    expect_text(why);
}

#define SHARD(row, rows, first, n)                                                                 \
    "{\"file\": \"f\", \"start\": [" #row ", 0], \"size\": [" #rows ", 10], \"first\": " #first    \
    ", \"n\": " #n "}"
#define TENSOR(shape, start, size)                                                                 \
    "{\"name\": \"w\", \"slot\": \"master\", \"dtype\": \"F32\", \"shape\": " shape                \
    ", \"shards\": [{\"file\": \"f\", \"start\": " start ", \"size\": " size                       \
    ", \"first\": 0, \"n\": 2}]}"

static const char good_manifest[] =
    "{\"format\": \"axtrain checkpoint\", \"version\": 1, \"step\": 3, \"files\": [{\"name\": "
    "\"f\", \"bytes\": 3, \"crc32c\": \"00000000\"}], \"tensors\": [{\"name\": \"w\", "
    "\"slot\": \"master\", \"dtype\": \"F32\", \"shape\": [6, 10], \"shards\": [{\"file\": "
    "\"f\", \"start\": [0, 0], \"size\": [6, 10], \"first\": 0, \"n\": 60}]}]}";

static void test_hostile_manifests(void **state) {
    (void)state;
    static const struct {
        const char *at, *value, *why;
    } cases[] = {
        {"format", "\"other\"", "format \"other\""},
        {"version", "2", "version 2"},
        {"step", "-1", "step"},
        {"files.0.name", "\"../../etc/passwd\"", "is not the name of a file"},
        {"files.0.name", "\"state/..\"", "is not the name of a file"},
        {"files.0.bytes", "9000000000000000000", "checksums"},
        {"files.0.crc32c", "\"zz\"", "checksums"},
        {"tensors.0.shape", "[]", "dimensions"},
        {"tensors.0.shape", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "dimensions"},
        {"tensors.0.dtype", "\"F7\"", "unknown dtype \"F7\""},
        {"tensors.0.shards.0.start", "[7, 0]", "beyond the tensor"},
        {"tensors.0.shards.0.start", "[0]", "expected 2 numbers"},
        {"tensors.0.shards.0.size", "[0, 10]", "size"},
        {"tensors.0.shards.0.n", "0", "at least 1"},
        {"version", "0", "version"},
        {"tensors.0.shape", "[9223372036854775807, 9223372036854775807]", "overflow"},
        {"tensors.0.shards.0.start", "[1, 0]", "beyond the tensor"},
        {"tensors.0.shards.0.n", "61", "61"},
        {"tensors.0.shards.0.first", "1", "60"},
        {"tensors.0.shards.0.file", "\"none\"", "not in the list"},
        {"tensors.0.shards", "[" SHARD(0, 6, 0, 30) "," SHARD(0, 6, 0, 30) "]", "same elements"},
        {"tensors.0.shards", "[" SHARD(0, 6, 30, 30) "," SHARD(0, 6, 0, 31) "]", "same elements"},
        {"tensors.0.shards", "[" SHARD(2, 4, 0, 40) "," SHARD(0, 3, 0, 20) "]", "same elements"},
        {"tensors.0.shards",
         "[" SHARD(0, 3, 20, 10) "," SHARD(2, 4, 0, 40) "," SHARD(0, 3, 0, 10) "]",
         "same elements"},
        {"tensors",
         "[" TENSOR("[4, 2]", "[0, 0]", "[2, 2]") "," TENSOR("[6, 2]", "[2, 0]", "[2, 2]") "]",
         "master of w is listed with two shapes"},
        {"tensors", "[" TENSOR("[4, 2]", "[0, 0]", "[2, 2]") "," TENSOR("[8]", "[2]", "[2]") "]",
         "two shapes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_loads(good_manifest, 0, NULL), *node = root;
        char path[64], *last = path;
        snprintf(path, sizeof path, "%s", cases[i].at);
        for (char *dot; (dot = strchr(last, '.')) != NULL; last = dot + 1) {
            *dot = '\0';
            node = json_is_array(node) ? json_array_get(node, (size_t)strtoul(last, NULL, 10))
                                       : json_object_get(node, last);
        }
        json_object_set_new(node, last, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        if (strcmp(cases[i].why, "overflow") == 0) { /* the block is made as large */
            json_t *shard = json_array_get(json_object_get(node, "shards"), 0);
            json_object_set(shard, "size", json_object_get(node, "shape"));
            expect_refused(root, "");
        } else {
            expect_refused(root, cases[i].why);
        }
        json_decref(root);
    }
}

/* The next of a row of random numbers, below n. */
static int64_t below(uint64_t *i, int64_t n) {
    return ax_rng_u32((struct ax_rng_key){.seed = 3}, (*i)++) % n;
}

struct cut {
    int64_t row, rows, col, cols, first, n;
};

/* The matrix as blocks, cut at up to two rows and two columns, each block as up to three runs. */
static int cut_at_random(struct cut *out, uint64_t *rng) {
    int64_t row[4] = {0}, col[4] = {0};
    int n = 0, rows = 0, cols = 0;
    for (; row[rows] < ROWS; rows++)
        row[rows + 1] = rows < 2 ? row[rows] + 1 + below(rng, ROWS - row[rows]) : ROWS;
    for (; col[cols] < COLS; cols++)
        col[cols + 1] = cols < 2 ? col[cols] + 1 + below(rng, COLS - col[cols]) : COLS;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            struct cut b = {row[r], row[r + 1] - row[r], col[c], col[c + 1] - col[c], 0, 0};
            const int64_t all = b.rows * b.cols;
            for (int runs = 1; b.first < all; b.first += b.n, runs++) {
                b.n = runs < 3 ? 1 + below(rng, all - b.first) : all - b.first;
                out[n++] = b;
            }
        }
    for (int i = n - 1; i > 0; i--) {
        const int64_t k = below(rng, i + 1);
        const struct cut other = out[i];
        out[i] = out[k];
        out[k] = other;
    }
    return n;
}

/* Does every element occur once? */
static bool covers(const struct cut *cuts, int n) {
    int seen[ROWS * COLS] = {0};
    for (int i = 0; i < n; i++)
        for (int64_t k = cuts[i].first; k < cuts[i].first + cuts[i].n; k++)
            seen[(cuts[i].row + k / cuts[i].cols) * COLS + cuts[i].col + k % cuts[i].cols]++;
    for (int i = 0; i < ROWS * COLS; i++)
        if (seen[i] != 1)
            return false;
    return true;
}

/* Shards that cover a tensor are taken in any order; those that do not are refused, also where
 * their elements add up. */
static void test_random_shards(void **state) {
    (void)state;
    uint64_t rng = 0;
    int taken = 0, refused = 0;
    for (int i = 0; i < 4000; i++) {
        struct cut cuts[32];
        const int n = cut_at_random(cuts, &rng);
        if (i % 2) { /* one moves, within the matrix or within its block */
            struct cut *c = &cuts[below(&rng, n)];
            if (i % 4 == 1) {
                c->row = below(&rng, ROWS - c->rows + 1);
                c->col = below(&rng, COLS - c->cols + 1);
            } else {
                c->first = below(&rng, c->rows * c->cols - c->n + 1);
            }
        }
        json_t *root = json_loads(good_manifest, 0, NULL), *shards = json_array();
        for (int k = 0; k < n; k++)
            json_array_append_new(shards,
                                  json_pack("{ss s[II] s[II] sI sI}", "file", "f", "start",
                                            cuts[k].row, cuts[k].col, "size", cuts[k].rows,
                                            cuts[k].cols, "first", cuts[k].first, "n", cuts[k].n));
        json_object_set_new(json_array_get(json_object_get(root, "tensors"), 0), "shards", shards);
        const bool good = covers(cuts, n);
        const enum ax_status st = parse_manifest(root);
        if ((st == AX_OK) != good)
            fail_msg("%s: %s", st == AX_OK ? "taken" : ax_error_text(),
                     json_dumps(shards, JSON_COMPACT));
        taken += good;
        refused += !good;
        json_decref(root);
    }
    print_message("%d taken, %d refused\n", taken, refused);
    assert_true(taken > 1000 && refused > 1000);
}

/* ---- which there are ---- */

static void test_lists_and_prunes(void **state) {
    (void)state;
    struct store s;
    struct ax_checkpoint_list l;
    remove_all();
    make_store(&s, 1);
    assert_int_equal(ax_checkpoint_list(&l, in_dir("nowhere")), AX_OK);
    assert_int_equal(l.n, 0);
    for (int64_t step = 10; step <= 50; step += 10)
        save_ok(&s, step, 0);
    assert_int_equal(ax_mkdir(in_dir("checkpoint-99")), AX_OK); /* torn */
    assert_int_equal(ax_mkdir(in_dir("checkpoint-060")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("checkpoint-40.tmp-1")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("checkpoint-40.tmp-999999999")), AX_OK);
    assert_int_equal(ax_checkpoint_sweep(dir), AX_OK);
    assert_false(ax_path_exists(in_dir("checkpoint-40.tmp-1"))); /* whoever has its number now */
    assert_false(ax_path_exists(in_dir("checkpoint-40.tmp-999999999")));
    ax_checkpoint_prune(dir, 2, 2, (const int64_t[]){50, 20});
    assert_int_equal(ax_checkpoint_list(&l, dir), AX_OK);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.steps[0], 20);
    assert_int_equal(l.steps[1], 50);
    ax_checkpoint_list_free(&l);
}

/* The newest is damaged and the run went on from the one before: what is kept is good. */
static void test_prunes_around_damage(void **state) {
    (void)state;
    struct store s, back;
    for (int64_t limit = 1; limit <= 3; limit++) {
        remove_all();
        make_store(&s, 1);
        save_ok(&s, 10, 0);
        save_ok(&s, 20, 0);
        put_text("checkpoint-20/model.safetensors", "not what was written");
        for (int64_t step = 15; step <= 18; step++) {
            char name[64];
            make_store(&s, (float)step);
            save_ok(&s, step, limit);
            make_store(&back, 99);
            snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
            if (load(name, &back) != AX_OK)
                fail_msg("limit %lld: %s", (long long)limit, ax_error_text());
            assert_equal_stores(&s, &back);
            assert_true(count_entries(dir) <= (limit > 2 ? limit : 2));
        }
        assert_int_equal(count_entries(dir), limit);
    }
}

/* ---- faults ---- */

static bool has_good(int64_t step) {
    struct store back;
    char name[64];
    make_store(&back, 99);
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return load(name, &back) == AX_OK && back.matrix[1] == (float)step + 1;
}

/* A save killed, or failing, at every call: the one before is whole, and so is the new one or it is
 * not listed. */
static void sweep(const char *kind) {
    static const enum ax_fault_op ops[] = {AX_FAULT_OPEN,   AX_FAULT_WRITE, AX_FAULT_FSYNC,
                                           AX_FAULT_RENAME, AX_FAULT_CLOSE, AX_FAULT_MKDIR,
                                           AX_FAULT_UNLINK};
    const bool kill = strcmp(kind, "kill") == 0;
    int points = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (int k = 1, reached = 1; reached; k++) {
            struct store old, new;
            char fault[64];
            remove_all();
            make_store(&old, 1);
            make_store(&new, 2);
            save_ok(&old, 1, 0);
            snprintf(fault, sizeof fault, "%s:%d:%s", ax_fault_op_name(ops[i]), k, kind);
            const pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                if (ax_fault_configure(fault) != AX_OK)
                    _exit(9);
                const enum ax_status st = save_step(&new, 2, 1);
                _exit(st == AX_OK ? ax_fault_fired() ? 2 : 0 : ax_error_text()[0] ? 1 : 8);
            }
            int status;
            waitpid(child, &status, 0);
            reached = kill ? WIFSIGNALED(status) : WEXITSTATUS(status) != 0;
            assert_true(WIFSIGNALED(status) ? kill : WEXITSTATUS(status) <= 2);
            assert_true(has_good(2) || has_good(1));
            assert_int_equal(ax_checkpoint_sweep(dir), AX_OK);
            save_ok(&new, 2, 1);
            assert_true(has_good(2));
            points += reached;
        }
    }
    print_message("%s at %d calls\n", kind, points);
    assert_true(points > 30);
}

static void test_killed_at_every_call(void **state) {
    (void)state;
    sweep("kill");
}

static void test_failing_at_every_call(void **state) {
    (void)state;
    sweep("eio");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_numbers),
        cmocka_unit_test(test_checks_what_it_reads),
        cmocka_unit_test(test_pieces_are_read_alone),
        cmocka_unit_test(test_a_copy_has_the_same_codes),
        cmocka_unit_test(test_codes_and_scales),
        cmocka_unit_test(test_other_cuts),
        cmocka_unit_test(test_puts_shards_together),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_hostile_manifests),
        cmocka_unit_test(test_random_shards),
        cmocka_unit_test(test_lists_and_prunes),
        cmocka_unit_test(test_prunes_around_damage),
        cmocka_unit_test(test_killed_at_every_call),
        cmocka_unit_test(test_failing_at_every_call),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
