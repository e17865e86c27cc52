/* Every file in configs/ plans, trains two steps and writes what it says it does, on a tiny random
 * model of the architecture that it names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "ckpt/hf/peft.h"
#include "model/convert/base_model.h"
#include "tests/cmd/sft_case.h"
#include "tests/cmd/tiny_base.h"

#define FOLDER "configs"

/* What is laid over a file: "key=value". */
struct overlay {
    int n;
    char text[SFT_ARGS][320];
    const char *args[SFT_ARGS];
};

static void add(struct overlay *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct overlay *o, const char *fmt, ...) {
    va_list ap;
    assert_true(o->n < SFT_ARGS - 2);
    va_start(ap, fmt);
    vsnprintf(o->text[o->n], sizeof o->text[0], fmt, ap);
    va_end(ap);
    o->args[o->n] = o->text[o->n];
    o->n++;
}

/* Every entry of a list of data sets reads rows of our own, whole files of one kind. */
static void make_rows(struct overlay *o, const struct ax_config *cfg, const char *list) {
    static const char *const where[] = {"split", "name", "data_files"};
    char entry[64];
    for (size_t i = 0; i < ax_config_count(cfg, "%s", list); i++) {
        snprintf(entry, sizeof entry, "%s.%zu", list, i);
        add(o, "%s.path=%s", entry, tiny_rows(cfg, entry));
        for (size_t k = 0; k < sizeof where / sizeof *where; k++)
            if (ax_config_is_set(cfg, "%s.%s", entry, where[k]))
                add(o, "%s.%s=null", entry, where[k]);
    }
}

/* A file that names a mesh runs on as many ranks. */
static void start_ranks(struct overlay *o, const struct ax_config *cfg) {
    static const char *const keys[] = {"dp_replicate_size", "tensor_parallel_size",
                                       "context_parallel_size", "pipeline_parallel_size"};
    int64_t ranks = 1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ranks *= ax_config_i64(cfg, "%s", keys[i]);
    sft_command = ranks > 1 ? "launch" : "train";
    if (ranks == 1)
        return;
    add(o, "-n");
    add(o, "%lld", (long long)ranks);
    add(o, "--");
    add(o, "train");
}

/* Tokens that the model has may be new to the stand-in, whose rows an adapter does not train. */
static void drop_roles(struct overlay *o, const struct ax_config *cfg) {
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (ax_config_is_set(cfg, "adapter") &&
            ax_config_is_set(cfg, "special_tokens.%s", roles[i]))
            add(o, "special_tokens.%s=null", roles[i]);
}

/* Sizes and places become small and local; merging needs weights, which the stand-in has not. */
static void make_small(struct overlay *o, const struct ax_config *cfg, const char *path) {
    start_ranks(o, cfg);
    add(o, "%s", path);
    add(o, "base_model=%s", tiny_base(tiny_family(ax_config_str(cfg, "base_model"))));
    add(o, "reinit_weights=true");
    if (ax_config_is_set(cfg, "tokenizer_config"))
        add(o, "tokenizer_config=null"); /* base_model's */
    drop_roles(o, cfg);
    make_rows(o, cfg, "datasets");
    make_rows(o, cfg, "test_datasets");
    make_rows(o, cfg, "pretraining_dataset");
    if (ax_config_has(cfg, "val_set_size") && ax_config_f64(cfg, "val_set_size") > 0)
        add(o, "val_set_size=0.25");
    add(o, "sequence_len=%d", ax_config_bool(cfg, "sample_packing") ? 256 : 512);
    add(o, "gradient_accumulation_steps=2");
    add(o, "num_epochs=40");
    add(o, "max_steps=2");
    if (ax_config_is_set(cfg, "merge_lora"))
        add(o, "merge_lora=null");
    if (ax_config_count(cfg, "trl.reward_funcs") > 0 &&
        strcmp(ax_config_str(cfg, "trl.reward_funcs.0"), "code") == 0)
        add(o, "trl.reward_funcs=['length:8']"); /* the sandbox's parts may be missing */
    if (ax_config_count(cfg, "trl.tools") > 0) { /* likewise */
        add(o, "trl.tools=null");
        add(o, "trl.max_tool_calling_iterations=null");
    }
    add(o, "dataset_prepared_path=%s/cache", scratch);
}

/* A teacher has weights: those of a run without one. */
static void make_teacher(const struct ax_config *cfg, const char *path) {
    struct overlay o = {0};
    char said[16384];
    make_small(&o, cfg, path);
    add(&o, "kd_teacher=null");
    if (ax_config_is_set(cfg, "rl")) {
        add(&o, "rl=null");
        add(&o, "trl=null");
    }
    add(&o, "output_dir=%s/teacher", scratch);
    if (sft(said, sizeof said, o.n, o.args) != 0)
        fail_msg("%s, without its teacher: %s", path, said);
}

static void check_adapter(const struct ax_config *cfg, const char *base) {
    struct ax_peft p;
    assert_ok(ax_peft_open(&p, in_scratch("out")));
    assert_string_equal(p.config.base, base);
    assert_int_equal(p.config.r, ax_config_i64(cfg, "lora_r"));
    assert_true(p.weights.n > 0);
    ax_peft_close(&p);
}

static void check_said(const struct ax_config *cfg, const char *said) {
    const bool adapter = ax_config_is_set(cfg, "adapter");
    const bool packed = ax_config_bool(cfg, "load_in_4bit");
    const bool evaluates = strstr(said, "eval: step=2") != NULL;
    assert_non_null(strstr(said, "trained 2 of 2 steps"));
    const bool frozen = adapter || ax_config_is_set(cfg, "kd_teacher");
    assert_true(frozen == (strstr(said, packed ? "packed weights" : "frozen weights") != NULL));
    assert_true(evaluates == (ax_config_f64(cfg, "val_set_size") > 0 ||
                              ax_config_count(cfg, "test_datasets") > 0));
}

static void try_file(const char *path) {
    struct ax_config cfg;
    struct overlay o = {0};
    char said[16384];
    char base[320];
    print_message("%s\n", path);
    assert_ok(ax_config_load(&cfg, path, 0, NULL));
    assert_ok(ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING));
    make_small(&o, &cfg, path);
    add(&o, "output_dir=%s/out", scratch);
    if (ax_config_is_set(&cfg, "kd_teacher")) {
        make_teacher(&cfg, path);
        add(&o, "kd_teacher=%s/teacher", scratch);
    }
    assert_ok(ax_base_model_check_name(ax_config_str(&cfg, "base_model")));
    snprintf(base, sizeof base, "%s", tiny_base(tiny_family(ax_config_str(&cfg, "base_model"))));
    const int code = sft(said, sizeof said, o.n, o.args);
    if (code != 0)
        fail_msg("%s: exit %d: %s", path, code, said);
    check_said(&cfg, said);
    assert_true(ax_path_is_dir(in_scratch("out/checkpoint-2")));
    if (ax_config_is_set(&cfg, "adapter"))
        check_adapter(&cfg, base);
    else
        assert_true(ax_path_exists(in_scratch("out/model.safetensors")));
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    if (ax_config_is_set(&cfg, "kd_teacher"))
        assert_int_equal(ax_remove_tree(in_scratch("teacher")), AX_OK);
    ax_config_free(&cfg);
}

static int by_name(const struct dirent *e) {
    const char *end = strrchr(e->d_name, '.');
    return end && strcmp(end, ".yml") == 0;
}

static void test_all_files(void **state) {
    (void)state;
    struct dirent **list;
    need_binary();
    const int n = scandir(FOLDER, &list, by_name, alphasort);
    assert_true(n >= 40);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "/%s", list[i]->d_name);
        try_file(path);
        free(list[i]);
    }
    free(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_files)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
