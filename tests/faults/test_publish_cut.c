/* The power goes at any moment while a model is put in its place: a trained one, full or an
 * adapter; a folder that is merged or converted; a GGUF file. What is left is the old one, the new
 * one, or nothing that would be taken for a model, with nothing cleaned by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "base/hash/hash.h"
#include "model/convert/from_gguf.h"
#include "model/convert/merge.h"
#include "cmd/to_gguf.h"
#include "tests/cmd/gguf_tiny.h"
#include "tests/faults/cuts.h"
#include "tests/train_case.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* "BASE/name": what is beside the disk that loses power. */
static const char *beside(const char *name) {
    static char paths[4][160];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", base, name);
    return path;
}

/* ---- what is there ---- */

/* A run's folder holds more than the model. */
static bool is_of_model(const char *name) {
    return strncmp(name, "model", 5) == 0 || strncmp(name, "adapter_", 8) == 0 ||
           strcmp(name, "config.json") == 0;
}

static uint64_t hash_file(const char *path) {
    char *data;
    size_t n;
    must(ax_read_file(path, (size_t)1 << 26, &data, &n));
    const uint64_t hash = ax_hash64(data, n, 1);
    ax_free(data);
    return hash;
}

/* Of names and bytes of all files of a folder, or of a run's those of the model. */
static uint64_t hash_folder(const char *path, bool of_run) {
    uint64_t hash = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char file[512];
        if (e->d_name[0] == '.' || (of_run && !is_of_model(e->d_name)))
            continue;
        snprintf(file, sizeof file, "%.200s/%s", path, e->d_name);
        hash += ax_hash64(e->d_name, strlen(e->d_name), hash_file(file));
    }
    closedir(d);
    return hash;
}

/* ---- scenes ---- */

enum place { RUN, FOLDER, ONE_FILE };

struct scene {
    const char *name, *path; /* below `dir` */
    enum place place;
    void (*make_old)(const char *path); /* NULL: nothing was there */
    void (*make_new)(const char *path);
    int states, spare; /* spare syncs: of ax_write_file_atomic, in a folder that is synced later */
    uint64_t old, new; /* hashes; 0: none */
};

static bool is_there(const struct scene *sc, const char *path) {
    char config[2][300];
    if (sc->place != RUN)
        return ax_path_exists(path);
    snprintf(config[0], sizeof config[0], "%s/config.json", path);
    snprintf(config[1], sizeof config[1], "%s/" AX_PEFT_CONFIG, path);
    return ax_path_exists(config[0]) || ax_path_exists(config[1]);
}

static uint64_t hash_of(const struct scene *sc, const char *path) {
    return sc->place == ONE_FILE ? hash_file(path) : hash_folder(path, sc->place == RUN);
}

static const char *look(void *ctx, bool *is_new) {
    const struct scene *sc = ctx;
    const char *path = in_dir(sc->path);
    if (sc->place == FOLDER && ax_folder_recover(path) != AX_OK)
        return "it cannot be mended";
    /* a run takes its old model away first: it has its checkpoints */
    if (!is_there(sc, path))
        return sc->place == RUN || sc->old == 0 ? NULL
                                                : "neither the old one nor the new one is there";
    const uint64_t hash = hash_of(sc, path);
    *is_new = hash == sc->new;
    return *is_new || (sc->old && hash == sc->old) ? NULL
                                                   : "it is neither the old one nor the new one";
}

static void play(struct scene *sc) {
    use("disk");
    disk_start(dir);
    if (sc->make_old) {
        sc->make_old(in_dir(sc->path));
        sc->old = hash_of(sc, in_dir(sc->path));
    }
    const int first = disk_n_events;
    sc->make_new(in_dir(sc->path));
    disk_recording = false;
    sc->new = hash_of(sc, in_dir(sc->path));
    assert_true(sc->new != sc->old);
    const struct cut_case c = {sc->name, first, disk_n_events, sc->states, sc, look};
    const struct cut_tally t = cut_everywhere(&c, true);
    print_message("%s: %d calls, %d states, %d old or none, %d new\n", sc->name, c.end - first,
                  t.states, t.kept, t.taken);
    assert_true(t.kept > 20 && t.taken > 0);
    assert_int_equal(cut_spare_syncs(&c), sc->spare);
}

/* ---- training ---- */

static char *targets[] = {"q_proj", "v_proj"};
static const struct ax_peft_config lora = {.r = 4, .alpha = 8, .targets = {2, targets}};

static void train(const char *path, void (*change)(struct train_case *c)) {
    struct train_case c;
    struct ax_train_result r;
    must(train_case_open(&c, AX_F32, true));
    snprintf(c.out, sizeof c.out, "%s", path);
    c.o.max_steps = 2;
    if (change)
        change(&c);
    must(train_case_run(&c, &r));
    train_case_close(&c);
}

static void sharding(struct train_case *c) {
    c->o.save.hf.max_shard_bytes = 100000;
}

static void saving(struct train_case *c) {
    sharding(c);
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
}

/* The run once more, which publishes another type: its record of having finished is gone. */
static void resuming(struct train_case *c) {
    saving(c);
    c->o.save.resume = AX_RESUME_NEWEST;
    c->o.save.hf.dtype = AX_BF16;
}

static void adapting(struct train_case *c) {
    c->o.step.model.adapter = &lora;
}

static void train_full(const char *path) {
    train(path, sharding);
}

static void train_and_save(const char *path) {
    char metrics[300];
    train(path, saving);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", path);
    must(ax_unlink(metrics));
}

static void train_again(const char *path) {
    train(path, resuming);
}

static void train_adapter(const char *path) {
    train(path, adapting);
}

static void test_trained_models(void **state) {
    (void)state;
    /* the output folder's own parent is new, too */
    struct scene scenes[] = {
        {.name = "a run", .path = "runs/out", .make_new = train_full, .states = 300},
        {.name = "a trained model over an older one",
         .path = "runs/out",
         .make_old = train_and_save,
         .make_new = train_again,
         .states = 300},
        {.name = "an adapter", .path = "runs/out", .make_new = train_adapter, .states = 300},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        play(&scenes[i]);
}

/* ---- merging and converting ---- */

static void merge(const char *path) {
    struct ax_merge m = {
        .base = beside("base"), .adapter = beside("adapter"), .dst = path, .threads = 1};
    must(ax_merge_run(&m));
}

static void convert(const char *path) {
    struct ax_convert c = {.src = beside("m.gguf"), .dst = path};
    must(ax_convert_gguf_to_hf(&c));
}

static void to_gguf(const char *path, const char *quant) {
    struct ax_to_gguf g = {.src = beside("converted"), .dst = path, .threads = 1};
    must(ax_to_gguf_quant(&g.quant, quant));
    must(ax_convert_to_gguf(&g));
}

static void to_f16(const char *path) {
    to_gguf(path, "f16");
}

static void to_q8_0(const char *path) {
    to_gguf(path, "q8_0");
}

static void put_tiny_gguf(void) {
    const struct tiny t = {.arch = "llama", .permuted = true, .matrix_type = TYPE_F16};
    struct gguf_out o = {0};
    tiny_sizes(&o, &t);
    tiny_vocab(&o, &t);
    tiny_tensors(&o, &t);
    gguf_out_finish(&o);
    must(ax_write_file_atomic(beside("m.gguf"), o.file.data, o.file.len));
    gguf_out_free(&o);
}

static void test_merged_and_converted(void **state) {
    (void)state;
    struct scene scenes[] = {
        {.name = "a merged model",
         .path = "out",
         .place = FOLDER,
         .make_new = merge,
         .spare = 2,
         .states = 300},
        {.name = "a converted model",
         .path = "out",
         .place = FOLDER,
         .make_new = convert,
         .spare = 3,
         .states = 300},
        {.name = "a GGUF file",
         .path = "out.gguf",
         .place = ONE_FILE,
         .make_new = to_f16,
         .states = 100},
        {.name = "a GGUF file over another",
         .path = "out.gguf",
         .place = ONE_FILE,
         .make_old = to_f16,
         .make_new = to_q8_0,
         .states = 100},
    };
    train_full(beside("base"));
    train_adapter(beside("adapter"));
    put_tiny_gguf();
    convert(beside("converted"));
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        play(&scenes[i]);
}

/* ---- folders and files ---- */

static void save_folder(const char *path, float value, int64_t shard) {
    float x[64];
    struct ax_tensor value_of = ax_tensor_1d(AX_F32, x, 64);
    struct ax_st_source source = {.value = value_of, .dtype = AX_F32};
    struct ax_st_output t[2];
    for (int i = 0; i < 64; i++)
        x[i] = value;
    for (int i = 0; i < 2; i++)
        t[i] = (struct ax_st_output){.name = i ? "b" : "a",
                                     .dtype = AX_F32,
                                     .ndim = 1,
                                     .shape = {64},
                                     .fill = ax_st_fill,
                                     .ctx = &source};
    must(ax_hf_write(&(struct ax_hf_save){
        .dir = path, .dtype = AX_F32, .max_shard_bytes = shard, .n = 2, .tensors = t}));
}

static void save_one(const char *path) {
    save_folder(path, 1, 0);
}

static void save_shards(const char *path) {
    save_folder(path, 2, 256);
}

/* As a crash between the two renames left it. */
static void save_over_aside(const char *path) {
    char aside[160];
    snprintf(aside, sizeof aside, "%.120s.old-999999999", path);
    must(ax_rename(path, aside));
    save_shards(path);
}

static void put_old(const char *path) {
    must(ax_write_file_atomic(path, "old", 3));
}

static void put_new(const char *path) {
    must(ax_write_file_atomic(path, "the new one", 11));
}

static void test_over_old_ones(void **state) {
    (void)state;
    struct scene scenes[] = {
        {.name = "a folder over another",
         .path = "out",
         .place = FOLDER,
         .make_old = save_one,
         .make_new = save_shards,
         .states = 600},
        {.name = "a folder over one that was moved aside",
         .path = "out",
         .place = FOLDER,
         .make_old = save_one,
         .make_new = save_over_aside,
         .states = 600},
        {.name = "a file over another",
         .path = "out",
         .place = ONE_FILE,
         .make_old = put_old,
         .make_new = put_new,
         .states = 200},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        play(&scenes[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trained_models),
        cmocka_unit_test(test_merged_and_converted),
        cmocka_unit_test(test_over_old_ones),
    };
    return cmocka_run_group_tests(tests, make_disks, remove_disks);
}
