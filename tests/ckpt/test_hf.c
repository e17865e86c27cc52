/* Model folders: one file, shards with an index, links as the hub's cache has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tests/ckpt/folder.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define N 5

static void make_tensors(struct ax_st_output *t) {
    t[0] = output("model.embed_tokens.weight", AX_F32, 2, SHAPE(10, 4));        /* 160 bytes */
    t[1] = output("model.layers.0.mlp.up_proj.weight", AX_F32, 2, SHAPE(5, 4)); /* 80 */
    t[2] = output("none", AX_F32, 1, SHAPE(0));
    t[3] = output("model.norm.weight", AX_BF16, 1, SHAPE(4)); /* 8 */
    t[4] = output("lm_head.weight", AX_F32, 2, SHAPE(10, 4)); /* 160 */
}

static void write_model(const char *name, int64_t max_shard, int n, const struct ax_st_output *t) {
    const struct ax_hf_save save = {
        .dir = in_dir(name), .dtype = AX_F32, .max_shard_bytes = max_shard, .n = n, .tensors = t};
    if (ax_hf_write(&save) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void assert_model(const char *name, int files, int n, const struct ax_st_output *t) {
    struct ax_hf hf;
    const uint64_t live = ax_mem_live_blocks();
    if (ax_hf_open(&hf, in_dir(name)) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(hf.n_files, files);
    assert_int_equal(ax_hf_count(&hf), n);
    for (int i = 0; i < n; i++) {
        assert_tensor(ax_hf_find(&hf, t[i].name), &t[i]);
        bool listed = false;
        for (int k = 0; k < n; k++)
            listed = listed || ax_hf_at(&hf, k) == ax_hf_find(&hf, t[i].name);
        assert_true(listed);
    }
    assert_null(ax_hf_find(&hf, "model.layers.1.mlp.up_proj.weight"));
    ax_hf_close(&hf);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void one_file_comes_back(void **state) {
    (void)state;
    struct ax_st_output t[N];
    make_tensors(t);
    write_model("one", 0, N, t);
    assert_model("one", 1, N, t);
    assert_model("one/model.safetensors", 1, N, t);
    assert_false(ax_path_exists(in_dir("one/model.safetensors.index.json")));
    write_model("none", 0, 0, NULL);
    assert_model("none", 1, 0, NULL);
}

/* Shards fill in order up to the limit; a tensor larger than it stands alone. */
static void shards_come_back_at_every_limit(void **state) {
    (void)state;
    struct ax_st_output t[N];
    make_tensors(t);
    static const int expected[] = {[1] = 4,   [79] = 4,  [80] = 4,  [87] = 4,  [88] = 3,  [239] = 3,
                                   [240] = 2, [248] = 2, [407] = 2, [408] = 1, [1000] = 1};
    int swept = 0;
    for (int limit = 1; limit < (int)(sizeof expected / sizeof *expected); limit++) {
        if (expected[limit] == 0)
            continue;
        char name[64];
        write_model("shards", limit, N, t);
        assert_model("shards", expected[limit], N, t);
        snprintf(name, sizeof name, "shards/model-%05d-of-%05d.safetensors", expected[limit],
                 expected[limit]);
        assert_int_equal(ax_path_exists(in_dir(name)), expected[limit] > 1);
        assert_int_equal(ax_path_exists(in_dir("shards/model.safetensors")), expected[limit] == 1);
        swept++;
    }
    print_message("%d shard limits\n", swept);
}

static void the_index_says_where_everything_is(void **state) {
    (void)state;
    struct ax_st_output t[N];
    make_tensors(t);
    write_model("indexed", 248, N, t);
    char *text = get_text("indexed/model.safetensors.index.json");
    assert_string_equal(
        text, "{\n"
              "  \"metadata\": {\n"
              "    \"total_size\": 408\n"
              "  },\n"
              "  \"weight_map\": {\n"
              "    \"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\",\n"
              "    \"model.layers.0.mlp.up_proj.weight\": \"model-00001-of-00002.safetensors\",\n"
              "    \"none\": \"model-00001-of-00002.safetensors\",\n"
              "    \"model.norm.weight\": \"model-00001-of-00002.safetensors\",\n"
              "    \"lm_head.weight\": \"model-00002-of-00002.safetensors\"\n"
              "  }\n"
              "}\n");
    ax_free(text);
}

static void bare_names_are_found(void **state) {
    (void)state;
    const struct ax_st_output t[] = {
        output("layers.0.x", AX_U8, 1, SHAPE(3)),
        output("norm.weight", AX_U8, 1, SHAPE(2)),
        output("model.norm.weight", AX_U8, 1, SHAPE(2)),
    };
    struct ax_hf hf;
    for (int64_t limit = 0; limit <= 1; limit++) {
        write_model("bare", limit, 3, t);
        assert_int_equal(ax_hf_open(&hf, in_dir("bare")), AX_OK);
        assert_tensor(ax_hf_find(&hf, "model.layers.0.x"), &t[0]);
        assert_tensor(ax_hf_find(&hf, "model.norm.weight"), &t[2]); /* the exact name wins */
        assert_null(ax_hf_find(&hf, "other.layers.0.x"));
        ax_hf_close(&hf);
    }
}

/* models--org--name/snapshots/REVISION/FILE → ../../blobs/SHA, as the hub's cache lays it out. */
static void the_links_of_a_hub_cache_are_followed(void **state) {
    (void)state;
    struct ax_st_output t[N];
    make_tensors(t);
    write_model("real", 248, N, t);
    assert_int_equal(ax_mkdir_parents(in_dir("hub/snapshots/0123abc")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("hub/blobs")), AX_OK);
    static const char *const files[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < 3; i++) {
        char from[64], blob[64], link[64], to[64];
        snprintf(from, sizeof from, "real/%s", files[i]);
        snprintf(blob, sizeof blob, "hub/blobs/sha%d", i);
        snprintf(link, sizeof link, "hub/snapshots/0123abc/%s", files[i]);
        snprintf(to, sizeof to, "../../blobs/sha%d", i);
        assert_int_equal(rename(in_dir(from), in_dir(blob)), 0);
        assert_int_equal(symlink(to, in_dir(link)), 0);
    }
    assert_model("hub/snapshots/0123abc", 2, N, t);
    assert_int_equal(symlink("hub/snapshots/0123abc", in_dir("main")), 0);
    assert_model("main", 2, N, t);
    assert_model("main/", 2, N, t);
}

static void a_link_to_no_file_is_refused(void **state) {
    (void)state;
    struct ax_hf hf;
    static const char *const targets[] = {"/dev/zero", "fifo", "..", "/dev/null"};
    assert_int_equal(ax_mkdir(in_dir("links")), AX_OK);
    assert_int_equal(mkfifo(in_dir("links/fifo"), 0600), 0);
    for (int i = 0; i < 4; i++) {
        const char *link = in_dir("links/model.safetensors");
        assert_int_equal(symlink(targets[i], link), 0);
        assert_int_equal(ax_hf_open(&hf, in_dir("links")), AX_ERR_DATA);
        assert_mentions("links/model.safetensors: not a regular file");
        assert_int_equal(ax_unlink(link), AX_OK);
    }
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    struct ax_hf hf;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(ax_hf_open(&hf, in_dir("absent")), AX_ERR_IO);
    assert_mentions("absent: cannot open: No such file");
    assert_int_equal(ax_mkdir(in_dir("void")), AX_OK);
    assert_int_equal(ax_hf_open(&hf, in_dir("void")), AX_ERR_DATA);
    assert_mentions(
        "void: no weights: found neither model.safetensors nor model.safetensors.index.json "
        "nor model.gguf");
    put_text("void/pytorch_model.bin", "\x80\x02}q");
    assert_int_equal(ax_hf_open(&hf, in_dir("void")), AX_ERR_DATA);
    assert_mentions("contains pytorch_model.bin, a format that can execute code");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Killed between the two renames of an overwriting save, the folder has another name. */
static void a_folder_that_a_crash_moved_aside_is_found(void **state) {
    (void)state;
    struct ax_st_output t[N];
    make_tensors(t);
    write_model("crashed", 248, N, t);
    assert_int_equal(rename(in_dir("crashed"), in_dir("crashed.old-999999999")), 0);
    assert_int_equal(ax_mkdir(in_dir("crashed.tmp-999999999")), AX_OK);
    assert_model("crashed", 2, N, t);
    assert_false(ax_path_exists(in_dir("crashed.tmp-999999999")));
}

/* What is tied is one tensor, under the name that safetensors.torch.save_model kept. */
static void a_head_alone_is_the_embedding(void **state) {
    (void)state;
    struct ax_hf hf;
    struct ax_st_output t[N];
    bool unties = true;
    make_tensors(t);
    write_model("head", 0, N - 1, t + 1); /* without the embedding */
    assert_int_equal(ax_hf_open(&hf, in_dir("head")), AX_OK);
    assert_int_equal(ax_hf_count(&hf), N - 1);
    assert_null(ax_hf_find(&hf, "lm_head.weight"));
    const struct ax_st_entry *e = ax_hf_find(&hf, "model.embed_tokens.weight");
    t[4].name = "model.embed_tokens.weight";
    assert_tensor(e, &t[4]);
    assert_tensor(ax_hf_find(&hf, "model.norm.weight"), &t[3]);
    assert_int_equal(ax_hf_unties(&hf, &unties), AX_OK);
    assert_false(unties);
    ax_hf_close(&hf);
}

/* n elements, of which the last is not 0. */
struct values {
    enum ax_dtype dtype;
    int64_t n;
    double last;
};

static enum ax_status fill_last(void *ctx, int64_t first, int64_t n, void *out) {
    const struct values *v = ctx;
    for (int64_t i = 0; i < n; i++)
        ax_store(v->dtype, out, i, first + i == v->n - 1 ? v->last : 0);
    return AX_OK;
}

static void values_decide_what_is_tied(void **state) {
    (void)state;
    static const struct {
        enum ax_dtype dtype;
        double last;
        int64_t rows;
        bool unties;
    } heads[] = {{AX_BF16, 1, 5000, false},
                 {AX_BF16, 2, 5000, true},
                 {AX_F32, 1, 5000, false},
                 {AX_F32, 2, 5000, true},
                 {AX_BF16, 1, 5001, true}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct values of[2] = {{AX_BF16, 20000, 1},
                               {heads[i].dtype, 4 * heads[i].rows, heads[i].last}};
        const struct ax_st_output t[] = {{.name = "model.embed_tokens.weight",
                                          .dtype = AX_BF16,
                                          .ndim = 2,
                                          .shape = {5000, 4},
                                          .fill = fill_last,
                                          .ctx = &of[0]},
                                         {.name = "lm_head.weight",
                                          .dtype = heads[i].dtype,
                                          .ndim = 2,
                                          .shape = {heads[i].rows, 4},
                                          .fill = fill_last,
                                          .ctx = &of[1]}};
        struct ax_hf hf;
        bool unties = !heads[i].unties;
        write_model("heads", 0, 2, t);
        assert_int_equal(ax_hf_open(&hf, in_dir("heads")), AX_OK);
        assert_int_equal(ax_hf_unties(&hf, &unties), AX_OK);
        assert_int_equal(unties, heads[i].unties);
        ax_hf_close(&hf);
        assert_int_equal(ax_remove_tree(in_dir("heads")), AX_OK);
    }
}

static const struct ax_st_entry *expert(const struct ax_hf *hf, const char *name, int64_t rows,
                                        int64_t cols) {
    const struct ax_st_entry *e = ax_hf_find(hf, name);
    assert_non_null(e);
    assert_int_equal(e->ndim, 2);
    assert_int_equal(e->shape[0], rows);
    assert_int_equal(e->shape[1], cols);
    assert_int_equal(e->numel, rows * cols);
    assert_int_equal(e->bytes, 2 * e->numel);
    return e;
}

/* The bytes of a matrix are those of the stack from element `first` on. */
static void assert_piece(const struct ax_st_entry *e, const char *stack, int64_t first) {
    const unsigned char *p = e->data;
    for (int64_t i = 0; i < (int64_t)e->bytes; i++)
        assert_int_equal(p[i], made_up(stack, 2 * first + i));
}

/* As transformers 5 saves Kimi Linear's dense layers. */
static void saved_names_are_the_published_ones(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"model.layers.0.block_sparse_moe.down_proj.weight", "model.layers.0.mlp.down_proj.weight"},
        {"model.layers.0.block_sparse_moe.gate_proj.weight", "model.layers.0.mlp.gate_proj.weight"},
        {"model.layers.0.block_sparse_moe.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        /* experts and routers have the name in any case, and no layer has one twice */
        {"model.layers.1.block_sparse_moe.experts.0.up_proj.weight", NULL},
        {"model.layers.1.block_sparse_moe.gate.weight", NULL},
        {"model.layers.2.block_sparse_moe.up_proj.weight", NULL},
        {"model.layers.2.mlp.up_proj.weight", NULL},
    };
    enum { GIVEN = sizeof names / sizeof *names };
    struct ax_st_output t[GIVEN];
    for (int i = 0; i < GIVEN; i++)
        t[i] = output(names[i][0], AX_BF16, 2, SHAPE(2, 3 + i));
    for (int64_t shard = 0; shard <= 60; shard += 60) {
        struct ax_hf hf;
        const uint64_t live = ax_mem_live_blocks();
        write_model("saved", shard, GIVEN, t);
        assert_int_equal(ax_hf_open(&hf, in_dir("saved")), AX_OK);
        assert_int_equal(ax_hf_count(&hf), GIVEN);
        for (int i = 0; i < GIVEN; i++) {
            const struct ax_st_entry *e = ax_hf_find(&hf, names[i][1] ? names[i][1] : names[i][0]);
            assert_non_null(e);
            assert_int_equal(e->shape[1], 3 + i);
            assert_piece(e, t[i].name, 0);
            assert_true(!names[i][1] || !ax_hf_find(&hf, names[i][0]));
        }
        for (int i = 1; i < GIVEN; i++)
            assert_true(strcmp(ax_hf_at(&hf, i - 1)->name, ax_hf_at(&hf, i)->name) < 0);
        ax_hf_close(&hf);
        assert_int_equal(ax_mem_live_blocks(), live);
        assert_int_equal(ax_remove_tree(in_dir("saved")), AX_OK);
    }
}

/* Gate rows come first; what is transposed, of no layer, right below one, or lacks its other half is no stack. */
static void stacked_experts_are_read_one_by_one(void **state) {
    (void)state;
#define OF(layer, tail) "model.layers." layer ".mlp.experts." tail
    enum { E = 3, I = 4, H = 5, GIVEN = 10 };
    const struct ax_st_output t[GIVEN] = {
        output("model.embed_tokens.weight", AX_BF16, 2, SHAPE(9, H)),
        output(OF("0", "gate_up_proj"), AX_BF16, 3, SHAPE(E, 2 * I, H)),
        output(OF("0", "down_proj"), AX_BF16, 3, SHAPE(E, H, I)),
        output(OF("1", "gate_up_proj"), AX_BF16, 3, SHAPE(E, H, 2 * I)), /* as gpt-oss has them */
        output(OF("1", "down_proj"), AX_BF16, 3, SHAPE(E, I, H)),
        output(OF("2", "gate_up_proj"), AX_BF16, 3, SHAPE(E, 2 * I, H)),
        output("mtp.layers.0.mlp.experts.gate_up_proj", AX_BF16, 3, SHAPE(E, 2 * I, H)),
        output("mtp.layers.0.mlp.experts.down_proj", AX_BF16, 3, SHAPE(E, H, I)),
        output("model.layers.0.experts.gate_up_proj", AX_BF16, 3, SHAPE(E, 2 * I, H)),
        output("model.layers.0.experts.down_proj", AX_BF16, 3, SHAPE(E, H, I)),
    };
    for (int64_t shard = 0; shard <= 300; shard += 300) {
        struct ax_hf hf;
        const uint64_t live = ax_mem_live_blocks();
        write_model("stacks", shard, GIVEN, t);
        assert_int_equal(ax_hf_open(&hf, in_dir("stacks")), AX_OK);
        assert_int_equal(ax_hf_count(&hf), GIVEN - 2 + 3 * E);
        assert_null(ax_hf_find(&hf, t[1].name));
        assert_null(ax_hf_find(&hf, t[2].name));
        for (int i = 0; i < GIVEN; i++)
            if (i != 1 && i != 2)
                assert_tensor(ax_hf_find(&hf, t[i].name), &t[i]);
        for (int e = 0; e < E; e++) {
            char name[3][64];
            static const char *const what[] = {"gate_proj", "up_proj", "down_proj"};
            for (int i = 0; i < 3; i++)
                snprintf(name[i], sizeof name[i], OF("0", "%d.%s.weight"), e, what[i]);
            assert_piece(expert(&hf, name[0], I, H), t[1].name, (int64_t)e * 2 * I * H);
            assert_piece(expert(&hf, name[1], I, H), t[1].name, ((int64_t)e * 2 + 1) * I * H);
            assert_piece(expert(&hf, name[2], H, I), t[2].name, (int64_t)e * H * I);
        }
        for (int i = 1; i < ax_hf_count(&hf); i++)
            assert_true(strcmp(ax_hf_at(&hf, i - 1)->name, ax_hf_at(&hf, i)->name) < 0);
        ax_hf_close(&hf);
        assert_int_equal(ax_mem_live_blocks(), live);
        assert_int_equal(ax_remove_tree(in_dir("stacks")), AX_OK);
    }
}

static void layers_have_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int layer;
    } all[] = {{"model.layers.0.x", 0},   {"backbone.layers.17.norm.weight", 17},
               {"model.layers..x", -1},   {"model.layers.-1.x", -1},
               {"model.layers. 1.x", -1}, {"model.layers.+1.x", -1},
               {"model.layers.1x.x", -1}, {"model.layers.99999999999.x", -1},
               {"model.norm.weight", -1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(ax_hf_layer_of(all[i].name), all[i].layer);
}

/* Time must grow with the stacks, not with their square: it would be minutes. */
static void many_stacks_are_taken_apart_quickly(void **state) {
    (void)state;
    enum { STACKS = 60000 };
    static const float numbers[2];
    static char names[2 * STACKS][64];
    static struct ax_st_entry entries[2 * STACKS];
    static const struct ax_st_entry *given[2 * STACKS];
    struct ax_hf_experts x;
    for (int i = 0; i < 2 * STACKS; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.0.x%d.experts.%s_proj", i / 2,
                 i % 2 ? "down" : "gate_up");
        entries[i] = (struct ax_st_entry){.name = names[i],
                                          .dtype = AX_F32,
                                          .ndim = 3,
                                          .shape = {1, i % 2 ? 1 : 2, 1},
                                          .numel = i % 2 ? 1 : 2,
                                          .data = numbers};
        given[2 * STACKS - 1 - i] = &entries[i]; /* in any order */
    }
    const double start = ax_clock_now();
    assert_int_equal(ax_hf_experts_open(&x, 2 * STACKS, given), AX_OK);
    assert_true(ax_clock_now() - start < 10);
    assert_int_equal(x.n, 3 * STACKS);
    assert_non_null(ax_st_find(x.entries, x.n, "model.layers.0.x59999.experts.0.down_proj.weight"));
    ax_hf_experts_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_comes_back),
        cmocka_unit_test(shards_come_back_at_every_limit),
        cmocka_unit_test(the_index_says_where_everything_is),
        cmocka_unit_test(bare_names_are_found),
        cmocka_unit_test(a_head_alone_is_the_embedding),
        cmocka_unit_test(values_decide_what_is_tied),
        cmocka_unit_test(stacked_experts_are_read_one_by_one),
        cmocka_unit_test(saved_names_are_the_published_ones),
        cmocka_unit_test(many_stacks_are_taken_apart_quickly),
        cmocka_unit_test(the_links_of_a_hub_cache_are_followed),
        cmocka_unit_test(a_link_to_no_file_is_refused),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(a_folder_that_a_crash_moved_aside_is_found),
        cmocka_unit_test(layers_have_numbers),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
