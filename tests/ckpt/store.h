/* What the tests of whole checkpoints share: a store of two parameters, saving it, loading it,
 * comparing. Include after cmocka.h. */
#ifndef AX_TESTS_CKPT_STORE_H
#define AX_TESTS_CKPT_STORE_H

#include "ckpt/state/saver.h"
#include "tests/ckpt/folder.h"

#define ROWS 6
#define COLS 10

/* Two parameters in two units: a matrix with two slots and a vector. */
struct store {
    float matrix[ROWS * COLS], moment[ROWS * COLS], vector[7];
    struct ax_state_part list[3];
    struct ax_state_parts parts;
    struct ax_save_weight weights[2];
    struct ax_mesh mesh;
};

static inline struct ax_state_part whole(const char *name, const char *slot, int ndim, int64_t rows,
                                         int64_t cols, void *data, int unit) {
    struct ax_state_part p = {.name = name,
                              .slot = slot,
                              .dtype = AX_F32,
                              .ndim = ndim,
                              .shape = {rows, cols},
                              .size = {rows, cols},
                              .n = rows * (ndim > 1 ? cols : 1),
                              .data = data,
                              .unit = unit};
    return p;
}

static inline void make_store(struct store *s, float seed) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < ROWS * COLS; i++) {
        s->matrix[i] = seed + (float)i;
        s->moment[i] = -seed - (float)i;
    }
    for (int i = 0; i < 7; i++)
        s->vector[i] = seed * (float)i;
    s->list[0] = whole("w", "master", 2, ROWS, COLS, s->matrix, 0);
    s->list[1] = whole("w", "exp_avg", 2, ROWS, COLS, s->moment, 0);
    s->list[2] = whole("b", "master", 1, 7, 0, s->vector, 1);
    s->parts = (struct ax_state_parts){3, s->list, NULL};
    const int64_t shapes[2][2] = {{ROWS, COLS}, {7}};
    for (int i = 0; i < 2; i++) {
        struct ax_save_weight *w = &s->weights[i];
        *w = (struct ax_save_weight){.name = i == 0 ? "w" : "b",
                                     .ndim = 2 - i,
                                     .shape = {shapes[i][0], shapes[i][1]},
                                     .unit = i,
                                     .dtype = AX_BF16,
                                     .n_parts = 1};
        w->parts[0].block = ax_block_whole(w->ndim, w->shape);
        w->parts[0].value =
            ax_tensor_1d(AX_F32, i == 0 ? s->matrix : s->vector, w->parts[0].block.n);
    }
    assert_int_equal(ax_mesh_create(&s->mesh, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0),
                     AX_OK);
}

static inline struct ax_save_job job_of(struct store *s, int64_t step, const json_t *config) {
    return (struct ax_save_job){.output_dir = dir,
                                .step = step,
                                .hf = {.config = config, .dtype = AX_BF16},
                                .n_weights = 2,
                                .weights = s->weights,
                                .parts = &s->parts,
                                .mesh = &s->mesh,
                                .run = json_pack("{sI}", "step", (json_int_t)step)};
}

static inline enum ax_status save_step(struct store *s, int64_t step, int64_t limit) {
    struct ax_saver saver;
    json_t *config = json_pack("{ss}", "model_type", "llama");
    struct ax_save_job job = job_of(s, step, config);
    job.limit = limit;
    enum ax_status st = ax_saver_create(&saver, NULL, NULL, 2);
    if (st == AX_OK && (!config || !job.run)) {
        ax_saver_free(&saver);
        st = ax_error(AX_ERR_NOMEM, "out of memory for the job");
    }
    if (st != AX_OK) {
        json_decref(config);
        json_decref(job.run);
        return st;
    }
    st = ax_saver_start(&saver, &job);
    ax_saver_before_update(&saver, 0);
    ax_saver_before_update(&saver, 1);
    if (st == AX_OK)
        st = ax_saver_finish(&saver);
    ax_saver_free(&saver);
    json_decref(config);
    return st;
}

static inline void save_ok(struct store *s, int64_t step, int64_t limit) {
    if (save_step(s, step, limit) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static inline void remove_all(void) {
    assert_int_equal(ax_remove_tree(dir), AX_OK);
    assert_int_equal(ax_mkdir(dir), AX_OK);
}

static inline enum ax_status load(const char *name, struct store *into) {
    struct ax_checkpoint c;
    AX_TRY(ax_checkpoint_open(&c, in_dir(name)));
    enum ax_status st = ax_checkpoint_verify(&c, NULL);
    if (st == AX_OK)
        st = ax_checkpoint_load(&c, &into->parts);
    ax_checkpoint_close(&c);
    return st;
}

static inline void assert_equal_stores(const struct store *a, const struct store *b) {
    assert_memory_equal(a->matrix, b->matrix, sizeof a->matrix);
    assert_memory_equal(a->moment, b->moment, sizeof a->moment);
    assert_memory_equal(a->vector, b->vector, sizeof a->vector);
}

#endif
