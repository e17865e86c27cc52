/* What an elastic run resumes from (optim/train/elastic.c): parts that ranks have written alone, checkpoints in memory, the
 * disk's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "optim/train/run.h"
#include "tests/data/scratch.h"

enum { PARTS = 2, EACH = 4 }; /* of one tensor */

static float value_of(int64_t step, int i) {
    return (float)(100 * step + i);
}

/* Part k of the tensor after a step; k = −1: all of it. */
static void write_part(const char *dir, int64_t step, int k) {
    float data[PARTS * EACH];
    const int n = k < 0 ? PARTS * EACH : EACH, first = k < 0 ? 0 : k * EACH;
    struct ax_mesh mesh;
    char *path;
    for (int i = 0; i < n; i++)
        data[i] = value_of(step, first + i);
    assert_int_equal(ax_mesh_create(&mesh, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0), AX_OK);
    mesh.rank = k < 0 ? 0 : k;
    const struct ax_state_part part = {.name = "w",
                                       .slot = "master",
                                       .dtype = AX_F32,
                                       .ndim = 1,
                                       .shape = {PARTS * EACH},
                                       .size = {PARTS * EACH},
                                       .first = first,
                                       .n = n,
                                       .data = data};
    struct ax_st_source source = {.value = ax_tensor_1d(AX_F32, data, n), .dtype = AX_F32};
    const struct ax_st_part piece = {
        .block = ax_block_whole(1, &part.n), .fill = ax_st_fill, .ctx = &source};
    const struct ax_st_output output = {.name = "w:master",
                                        .dtype = AX_F32,
                                        .ndim = 1,
                                        .shape = {n},
                                        .n_parts = 1,
                                        .parts = &piece};
    json_t *run = json_pack("{sI}", "step", (json_int_t)step);
    assert_int_equal(ax_checkpoint_path(&path, dir, step), AX_OK);
    const struct ax_checkpoint_save save = {.dir = path,
                                            .step = step,
                                            .state_only = true,
                                            .mesh = &mesh,
                                            .n_parts = 1,
                                            .parts = &part,
                                            .state = &output,
                                            .run = run};
    assert_int_equal(ax_checkpoint_write(&save), AX_OK);
    ax_free(path);
    json_decref(run);
}

static void rescue(int64_t step, int k) {
    char name[64];
    snprintf(name, sizeof name, "memory/rescue-%lld-%d-of-%d", (long long)step, k, PARTS);
    char *dir = strdup(in_scratch(name));
    assert_int_equal(ax_mkdir(dir), AX_OK);
    write_part(dir, step, k);
    free(dir);
}

static void expect_values(const char *path, int64_t step) {
    struct ax_checkpoint c;
    float data[PARTS * EACH] = {0};
    struct ax_state_part part = {.name = "w",
                                 .slot = "master",
                                 .dtype = AX_F32,
                                 .ndim = 1,
                                 .shape = {PARTS * EACH},
                                 .size = {PARTS * EACH},
                                 .n = PARTS * EACH,
                                 .data = data};
    assert_int_equal(ax_checkpoint_open(&c, path), AX_OK);
    assert_int_equal(ax_checkpoint_verify(&c, NULL), AX_OK);
    assert_int_equal(ax_checkpoint_load(&c, &(struct ax_state_parts){.n = 1, .list = &part}),
                     AX_OK);
    assert_int_equal(json_integer_value(json_object_get(c.run, "step")), step);
    ax_checkpoint_close(&c);
    for (int i = 0; i < PARTS * EACH; i++)
        assert_true(data[i] == value_of(step, i));
}

static const struct {
    int rescued[4][2]; /* step and part; step 0: no more */
    int memory, disk;  /* steps of checkpoints; 0: none */
    int step;          /* that is chosen; 0: none */
    bool joined;
} cases[] = {
    {{{5, 0}, {5, 1}}, 0, 0, 5, true},
    {{{5, 1}, {5, 0}}, 4, 2, 5, true},
    /* one rank had updated, the others not */
    {{{6, 0}, {5, 0}, {5, 1}}, 0, 0, 5, true},
    {{{6, 0}, {6, 1}, {5, 1}}, 0, 0, 6, true},
    /* no step has all parts */
    {{{6, 0}, {5, 1}}, 4, 0, 4, false},
    {{{6, 0}}, 4, 5, 5, false},
    {{{6, 0}}, 0, 0, 0, false},
    {{{0, 0}}, 0, 3, 3, false},
    {{{5, 0}, {5, 1}}, 5, 0, 5, true},
};

static void the_newest_that_is_complete(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ax_remove_tree(in_scratch("memory")), AX_OK);
        assert_int_equal(ax_remove_tree(in_scratch("disk")), AX_OK);
        assert_int_equal(ax_mkdir(in_scratch("memory")), AX_OK);
        assert_int_equal(ax_mkdir(in_scratch("disk")), AX_OK);
        char *memory = strdup(in_scratch("memory")), *disk = strdup(in_scratch("disk"));
        for (int k = 0; k < 4 && cases[i].rescued[k][0] > 0; k++)
            rescue(cases[i].rescued[k][0], cases[i].rescued[k][1]);
        if (cases[i].memory > 0)
            write_part(memory, cases[i].memory, -1);
        char *resume = NULL;
        if (cases[i].disk > 0) {
            write_part(disk, cases[i].disk, -1);
            assert_int_equal(ax_checkpoint_path(&resume, disk, cases[i].disk), AX_OK);
        }
        const struct ax_train_options o = {.elastic = {.dir = memory, .steps = 1}};
        const struct ax_train t = {.o = &o};
        assert_int_equal(ax_train_elastic_choose(&t, &resume), AX_OK);
        assert_int_equal(resume != NULL, cases[i].step > 0);
        if (resume)
            expect_values(resume, cases[i].step);
        if (cases[i].joined)
            assert_non_null(strstr(resume, "/memory/checkpoint-"));
        for (int k = 0; k < 4 && cases[i].rescued[k][0] > 0; k++) {
            char name[64];
            snprintf(name, sizeof name, "memory/rescue-%d-%d-of-%d", cases[i].rescued[k][0],
                     cases[i].rescued[k][1], PARTS);
            assert_false(ax_path_exists(in_scratch(name)));
        }
        ax_free(resume);
        free(memory);
        free(disk);
    }
}

/* A flipped bit of a part is found when the run resumes. */
static void a_damaged_part_is_refused(void **state) {
    (void)state;
    char *path, *data;
    size_t n;
    struct ax_checkpoint c;
    assert_int_equal(ax_remove_tree(in_scratch("memory")), AX_OK);
    assert_int_equal(ax_mkdir(in_scratch("memory")), AX_OK);
    rescue(5, 0);
    rescue(5, 1);
    const char *file = "memory/rescue-5-1-of-2/checkpoint-5/state/rank-00001.safetensors";
    assert_int_equal(ax_read_file(in_scratch(file), 1 << 20, &data, &n), AX_OK);
    data[n - 1] ^= 1;
    put_bytes(file, data, n);
    ax_free(data);
    char *memory = strdup(in_scratch("memory"));
    const struct ax_train_options o = {.elastic = {.dir = memory, .steps = 1}};
    const struct ax_train t = {.o = &o};
    path = NULL;
    assert_int_equal(ax_train_elastic_choose(&t, &path), AX_OK);
    assert_int_equal(ax_checkpoint_open(&c, path), AX_OK);
    assert_int_equal(ax_checkpoint_verify(&c, NULL), AX_ERR_DATA);
    ax_error_clear();
    ax_checkpoint_close(&c);
    ax_free(path);
    free(memory);
}

/* Whichever copy of the weights survives, its ranks write all parts. */
static void a_copy_has_all_parts(void **state) {
    (void)state;
    /* pp, dp_replicate, dp_shard, cp, tp, ep */
    static const struct ax_mesh_sizes meshes[] = {
        {1, 2, 1, 1, 1, 1}, {1, 2, 2, 1, 1, 1}, {2, 2, 1, 1, 2, 1},
        {2, 2, 2, 2, 1, 2}, {3, 2, 1, 1, 1, 1}, {2, 3, 3, 1, 2, 1},
    };
    struct ax_stack none = {0};
    struct ax_runtime rt = {0};
    assert_int_equal(ax_queue_create(&rt.q, "ref", NULL, 1, &none), AX_OK);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const struct ax_mesh_sizes *s = &meshes[i];
        const int n = s->pp * s->dp_shard * s->cp * s->tp, copies = s->dp_replicate;
        for (int copy = 0; copy < copies; copy++) {
            assert_int_equal(ax_remove_tree(in_scratch("memory")), AX_OK);
            assert_int_equal(ax_mkdir(in_scratch("memory")), AX_OK);
            const struct ax_train_options o = {.elastic.dir = in_scratch("memory")};
            for (int r = 0; r < n * copies; r++) {
                struct ax_train t = {.o = &o, .rt = &rt, .done = 7, .elastic.run = json_object()};
                assert_int_equal(ax_mesh_create(&t.mesh, *s, n * copies, r), AX_OK);
                if (t.mesh.coord[AX_ROLE_DP_REPLICATE] == copy)
                    ax_train_elastic_rescue(&t, ax_error(AX_ERR_PEER, "lost"));
                json_decref(t.elastic.run);
            }
            int found = 0;
            for (int part = 0; part < n; part++) {
                char name[80];
                snprintf(name, sizeof name, "memory/rescue-7-%d-of-%d/checkpoint-7", part, n);
                found += ax_path_exists(in_scratch(name));
            }
            assert_int_equal(found, n);
        }
    }
    ax_queue_free(rt.q);
    ax_error_clear();
}

/* The record of the last step, which its main rank may not have written before it ended. */
static void the_record_of_the_last_step(void **state) {
    (void)state;
    static const char run[] =
        "{\"after\": 2, \"last\": {\"step\": 5, \"skipped\": true, \"window_steps\": 2, "
        "\"window_loss\": 3.5, \"epoch\": 0.25, \"loss\": 1.5, \"learning_rate\": 0.125, "
        "\"seconds\": 2, \"flops\": 8, \"tokens\": 7, \"trained_tokens\": 6, "
        "\"computed_tokens\": 9, \"measure_0\": 0.5, \"measure_2\": 4}}";
    struct ax_json_doc doc;
    assert_int_equal(ax_write_file_atomic(in_scratch("run.json"), run, strlen(run)), AX_OK);
    assert_int_equal(ax_json_load(&doc, in_scratch("run.json"), 1 << 20), AX_OK);
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        const struct ax_train_options o = {.elastic = {.dir = "memory", .steps = 1}};
        struct ax_train t = {.o = &o, .done = 5, .saved = 3};
        const char *from = in_memory ? "memory/checkpoint-5" : "disk/checkpoint-5";
        assert_int_equal(ax_train_elastic_read(&t, from, ax_json_root(&doc)), AX_OK);
        const struct ax_step_figures *f = &t.elastic.last;
        assert_int_equal(t.elastic.after, AX_AFTER_EVALUATION);
        assert_int_equal(t.elastic.resumed, in_memory);
        assert_int_equal(t.elastic.saved, in_memory ? 5 : 0);
        assert_true(t.elastic.before.steps == 2 && t.elastic.before.loss == 3.5);
        assert_true(f->step == 5 && f->skipped && f->epoch == 0.25 && f->loss == 1.5);
        assert_true(isnan(f->grad_norm) && f->learning_rate == 0.125 && f->seconds == 2);
        assert_true(f->flops == 8 && f->tokens == 7 && f->trained_tokens == 6);
        assert_true(f->computed_tokens == 9 && f->measures[0] == 0.5 && f->measures[2] == 4);
        assert_true(isnan(f->measures[1]) && isnan(f->measures[AX_MEASURES - 1]));
    }
    ax_json_free(&doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_that_is_complete),
        cmocka_unit_test(a_damaged_part_is_refused),
        cmocka_unit_test(a_copy_has_all_parts),
        cmocka_unit_test(the_record_of_the_last_step),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
