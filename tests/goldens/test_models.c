/* replay over the golden files of the reference implementations, and its own checks: a changed weight, a changed golden and an empty folder have to fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/golden_files.h"
#include "tests/goldens/command.h"
#include "tests/goldens/golden.h"

static enum ax_status check(const char *dir, const char *backend) {
    char *argv[] = {"replay", (char *)(uintptr_t)dir, "--backend", (char *)(uintptr_t)backend,
                    NULL};
    return golden_replay(4, argv);
}

/* Its status, and what the command writes to stdout. */
static enum ax_status run_check(const char *dir, const char *backend, char **text) {
    char out[] = "/tmp/axtrain-golden-XXXXXX";
    size_t n;
    const int to = mkstemp(out), old = dup(STDOUT_FILENO);
    assert_true(to >= 0 && old >= 0);
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    const enum ax_status st = check(dir, backend);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    close(to);
    struct ax_error_record error;
    ax_error_save(&error, st);
    assert_int_equal(ax_read_file(out, 1 << 20, text, &n), AX_OK);
    assert_int_equal(unlink(out), 0);
    return ax_error_restore(&error);
}

static void check_out(const char *dir, const char *backend, char **text) {
    if (run_check(dir, backend, text) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Appends the checks with their tolerances: everything but what was measured, and where. */
static void put_checks(struct ax_buf *b, const char *root, char *text) {
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *worst = strstr(line, " worst "), *at = strstr(line, root);
        const char *tolerance = worst ? strstr(worst, " tolerance ") : NULL;
        enum ax_status st;
        /* the hard bound or the digest's half of it: which one is nearer depends on the processor's sums */
        if (tolerance && strstr(line, "  parameters after step ")) {
            st = ax_buf_printf(b, "%.*s\n", (int)(worst - line), line);
        } else if (tolerance) {
            tolerance += 1 + strlen(" tolerance");
            st = ax_buf_printf(b, "%.*s%.*s\n", (int)(worst - line), line,
                               (int)strcspn(tolerance, " "), tolerance);
        } else if (at) {
            st = ax_buf_printf(b, "%.*s%s\n", (int)(at - line), line, at + strlen(root));
        } else {
            st = ax_buf_printf(b, "%s\n", line);
        }
        assert_int_equal(st, AX_OK);
    }
}

/* The checks made are those of golden_checks.txt, which AX_UPDATE=1 writes anew. */
#define CHECKS "tests/goldens/checks.txt"
static struct ax_buf all_checks;

static void holds(const char *rest, const char *backend) {
    char root[PATH_MAX], *text, *known;
    size_t n;
    snprintf(root, sizeof root, "%s/", golden_path(""));
    check_out(golden_path(rest), backend, &text);
    struct ax_buf got = {0};
    assert_int_equal(ax_buf_printf(&got, "== %s %s\n", rest, backend), AX_OK);
    put_checks(&got, root, text);
    assert_int_equal(ax_buf_append(&all_checks, got.data, got.len), AX_OK);
    if (!getenv("AX_UPDATE")) {
        assert_int_equal(ax_read_file(CHECKS, 1 << 20, &known, &n), AX_OK);
        if (!strstr(known, got.data))
            fail_msg(CHECKS " has other checks than\n%s", got.data);
        ax_free(known);
    }
    ax_buf_free(&got);
    ax_free(text);
}

static void llama(void **state) {
    (void)state;
    holds("models/llama", "cpu");
    holds("models/llama", "ref");
}

static void number_formats(void **state) {
    (void)state;
    holds("quant", "cpu");
    holds("quant", "ref");
}

static void qwen3(void **state) {
    (void)state;
    holds("models/qwen3", "cpu");
    holds("models/qwen3", "ref");
}

static void mistral(void **state) {
    (void)state;
    holds("models/mistral", "cpu");
    holds("models/mistral", "ref");
}

static void mixtral(void **state) {
    (void)state;
    holds("models/mixtral", "cpu");
    holds("models/mixtral", "ref");
}

static void qwen3_moe(void **state) {
    (void)state;
    holds("models/qwen3_moe", "cpu");
    holds("models/qwen3_moe", "ref");
    holds("models/qwen3_moe_nonorm", "cpu");
    holds("models/qwen3_moe_nonorm", "ref");
}

static void deepseek(void **state) {
    (void)state;
    static const char *const dirs[] = {"models/deepseek_v2",  "models/deepseek_v2_group",
                                       "models/deepseek_v3",  "models/deepseek_v3_mtp",
                                       "models/deepseek_v32", "models/glm_moe_dsa"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        holds(dirs[i], "cpu");
        holds(dirs[i], "ref");
    }
}

static void glm4_moe(void **state) {
    (void)state;
    holds("models/glm4_moe", "cpu");
    holds("models/glm4_moe", "ref");
}

static void qwen2_moe(void **state) {
    (void)state;
    holds("models/qwen2_moe", "cpu");
    holds("models/qwen2_moe", "ref");
}

static void olmo2(void **state) {
    (void)state;
    holds("models/olmo2", "cpu");
    holds("models/olmo2", "ref");
}

static void families(void **state) {
    (void)state;
    static const char *const dirs[] = {
        "models/llama_bias",    "models/granite",          "models/smollm3",
        "models/gemma2",        "models/gemma3_text",      "models/phi3",
        "models/glm4",          "models/gpt_oss",          "models/seed_oss",
        "models/ernie4_5",      "models/ernie4_5_moe",     "models/exaone4",
        "models/minimax_m2",    "models/hunyuan_v1_dense", "models/ministral3",
        "models/cohere",        "models/cohere2",          "models/lfm2",
        "models/lfm2_moe",      "models/qwen3_next",       "models/qwen3_5",
        "models/qwen3_5_moe",   "models/olmo_hybrid",      "models/granite4_dense",
        "models/granite4",      "models/llama4",           "models/mimo_v2_flash",
        "models/kimi_linear",   "models/falcon_h1",        "models/gemma4",
        "models/gemma4_moe",    "models/gemma3n",          "models/nemotron_h",
        "models/nemotron_h_moe"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        holds(dirs[i], "cpu");
        holds(dirs[i], "ref");
    }
}

/* What tests/peers/check_families.py --write has made of transformers' models. */
static void further_families(void **state) {
    (void)state;
    static const char *const dirs[] = {"olmo3",
                                       "qwen2_moe_windows",
                                       "qwen3_moe_windows",
                                       "afmoe",
                                       "arcee",
                                       "cwm",
                                       "dots1",
                                       "exaone_moe",
                                       "flex_olmo",
                                       "gemma",
                                       "glm",
                                       "glm4_moe_lite",
                                       "granitemoe",
                                       "granitemoeshared",
                                       "helium",
                                       "hunyuan_v1_moe",
                                       "hyperclovax",
                                       "internlm3",
                                       "iquestcoder",
                                       "mellum",
                                       "minicpm3",
                                       "ministral",
                                       "mistral4",
                                       "olmoe",
                                       "solar_open",
                                       "vaultgemma",
                                       "youtu"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char path[64];
        snprintf(path, sizeof path, "tests/cmd/models/%s", dirs[i]);
        if (check(path, "cpu") != AX_OK || check(path, "ref") != AX_OK)
            fail_msg("%s: %s", dirs[i], ax_error_text());
    }
}

static void adapters(void **state) {
    (void)state;
    holds("lora/llama_r4", "cpu");
    holds("lora/llama_r4", "ref");
    holds("lora/llama_r4_rslora", "cpu");
    holds("lora/llama_r4_dora", "cpu");
    holds("lora/llama_r4_dora", "ref");
}

/* Without --dtype the reference kernels compute in double precision, the others in single. */
static void the_reference_is_in_double_precision(void **state) {
    (void)state;
    static const char *const backends[][2] = {{"ref", "dtype=float64"}, {"cpu", "dtype=float32"}};
    for (size_t i = 0; i < 2; i++) {
        struct ax_golden_report r = {0};
        const struct ax_golden_options o = {.backend = backends[i][0], .threads = 1};
        assert_true(ax_golden_lora(&r, golden_path("lora/llama_r4_rslora"), &o));
        assert_int_equal(r.failed, 0);
        assert_non_null(strstr(r.title, backends[i][1]));
    }
}

static void optimizers_and_clipping(void **state) {
    (void)state;
    holds("optim", "cpu");
    holds("optim", "ref");
}

static void entropy_and_logprob(void **state) {
    (void)state;
    holds("objectives", "cpu");
    holds("objectives", "ref");
}

static void rope_and_schedules(void **state) {
    (void)state;
    holds("rope.json", "cpu");
    holds("schedules.json", "cpu");
}

/* What is printed of far memory (tests/doubles/far.c) is what is printed of cpu. */
static void far_memory_gives_the_figures_of_cpu(void **state) {
    (void)state;
    static const char *const dirs[] = {"models/qwen3", "models/mixtral", "lora/llama_r4_dora",
                                       "optim", "objectives"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char *cpu, *far;
        check_out(golden_path(dirs[i]), "cpu", &cpu);
        check_out(golden_path(dirs[i]), "far", &far);
        int titles = 0;
        for (char *at = far; (at = strstr(at, "backend=far")) != NULL; titles++)
            memcpy(at, "backend=cpu", strlen("backend=cpu"));
        assert_true(titles > 0);
        assert_string_equal(far, cpu);
        ax_free(far);
        ax_free(cpu);
    }
}

/* A copy of a model in a fresh folder, with `bits` of one byte of `file` changed, `from_end` bytes
 * from its end. */
static void damaged_copy(char *dir, size_t size, const char *model, const char *file, long from_end,
                         int bits) {
    char command[3 * PATH_MAX];
    snprintf(dir, size, "%s/axtrain-golden-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "cp -r '%s/.' '%s'", golden_path(model), dir);
    assert_int_equal(system(command), 0);
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    fputc(byte ^ bits, f);
    fclose(f);
}

/* The last byte of a float32 tensor is its sign and exponent: ^0x40 changes its size by 2^±64 or
 * so. */
static void damage_is_seen(void **state) {
    (void)state;
    /* forward.safetensors ends with integers; its logits stand in the middle */
    static const struct {
        const char *model, *file;
        long from_end;
        int bits; /* of the byte */
    } cases[] = {{"models/llama", "model.safetensors", 1, 0x40},
                 {"models/llama", "golden/forward.safetensors", 100001, 0x40},
                 {"models/llama", "golden/grads.safetensors", 1, 0x40},
                 {"models/llama", "golden/params_step5.safetensors", 1, 0x40},
                 {"models/mixtral", "golden/aux_loss_router_grads.safetensors", 1, 0x40},
                 {"models/deepseek_v32", "golden/grads_indexers_sparse.safetensors", 1, 0x40},
                 {"models/glm_moe_dsa", "golden/grads_indexers_warm_up.safetensors", 1, 0x40},
                 {"models/deepseek_v3_mtp", "golden/grads_mtp.safetensors", 1, 0x40},
                 {"models/deepseek_v3_mtp", "golden/mtp.safetensors", 5001, 0x40},
                 /* a token of the last answer: 18 for 19 */
                 {"models/llama", "golden/generate.json", 83, 1},
                 /* the last share of the first case and of the last one */
                 {"objectives", "sampling.safetensors", 5497, 0x40},
                 {"objectives", "sampling.safetensors", 889, 0x40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[512], path[1024];
        damaged_copy(dir, sizeof dir, cases[i].model, cases[i].file, cases[i].from_end,
                     cases[i].bits);
        if (check(dir, "ref") == AX_OK)
            fail_msg("a changed %s was not noticed", cases[i].file);
        snprintf(path, sizeof path, "%s", dir);
        ax_remove_tree(path);
    }
}

/* The exponent of the first value of each tensor of floats, in the file. */
static void damage_tensors(const char *path) {
    struct ax_safetensors st;
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(ax_safetensors_open(&st, path), AX_OK);
    for (int i = 0; i < st.n; i++) {
        const struct ax_st_entry *e = &st.entries[i];
        const bool ints = e->dtype != AX_F32 && e->dtype != AX_F64 && e->dtype != AX_BF16;
        const long at =
            (const unsigned char *)e->data - st.map.data + (long)ax_dtype_size(e->dtype) - 1;
        if (ints || e->numel == 0)
            continue;
        const int byte = st.map.data[at];
        assert_true(fseek(f, at, SEEK_SET) == 0 && fputc(byte ^ 0x40, f) != EOF);
    }
    assert_int_equal(fclose(f), 0);
    ax_safetensors_close(&st);
}

/* Every number that is not a setting, and of lists the last one. */
static json_t *damage_numbers(json_t *v, const char *key) {
    static const char settings[] = " lr eps beta1 beta2 weight_decay max_grad_norm ";
    char word[64];
    const char *name;
    json_t *item;
    void *next;
    snprintf(word, sizeof word, " %.60s ", key);
    const size_t n = json_array_size(v);
    const bool reals = n > 0 && json_is_real(json_array_get(v, n - 1));
    for (size_t i = reals ? n - 1 : 0; i < n; i++)
        json_array_set_new(v, i, damage_numbers(json_array_get(v, i), ""));
    json_object_foreach_safe(v, next, name, item)
        json_object_set_new(v, name, damage_numbers(item, name));
    return json_is_real(v) && !strstr(settings, word) ? json_real(json_real_value(v) * 1.5 + 1)
                                                      : json_incref(v);
}

static void damage_json(const char *path) {
    json_t *v = json_load_file(path, 0, NULL);
    json_t *damaged = damage_numbers(v, "");
    assert_int_equal(json_dump_file(damaged, path, 0), 0);
    json_decref(damaged);
    json_decref(v);
}

static void damage_each(const char *command, void (*damage)(const char *path)) {
    char path[1024];
    FILE *list = popen(command, "r");
    assert_non_null(list);
    while (fgets(path, sizeof path, list)) {
        path[strcspn(path, "\n")] = '\0';
        damage(path);
    }
    assert_int_equal(pclose(list), 0);
}

/* Of checks that compare with damaged figures none holds but those of whole numbers, and the share of
 * parameters, of which one is damaged in each tensor. */
static void every_check_can_fail(void **state) {
    (void)state;
    static const char *const what[] = {"rope.json",      "schedules.json",     "optim",
                                       "models/llama",   "models/mixtral",     "models/gemma2",
                                       "models/gpt_oss", "models/deepseek_v3", "models/qwen2_moe"};
    static const char *const hold[] = {"greedy tokens", "share >", "batch router experts"};
    int failed = 0;
    setenv("AXTRAIN_NONFINITE", "allow", 1); /* damage may be an infinity */
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        char dir[] = "/tmp/axtrain-golden-XXXXXX", source[512], command[2 * PATH_MAX], *text;
        assert_non_null(mkdtemp(dir));
        snprintf(command, sizeof command,
                 "cp -r '%s' %s && find %s -name '*.safetensors' ! -name 'model.safetensors'",
                 golden_path(what[i]), dir, dir);
        damage_each(command, damage_tensors);
        snprintf(command, sizeof command, "find %s -name '*.json' ! -name '*config*'", dir);
        damage_each(command, damage_json);
        snprintf(source, sizeof source, "%s/%s", dir,
                 strrchr(what[i], '/') ? strrchr(what[i], '/') + 1 : what[i]);
        assert_int_not_equal(run_check(source, "cpu", &text), AX_OK);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            bool may = strncmp(line, "  ok    ", 8) != 0;
            failed += strncmp(line, "  FAIL  ", 8) == 0;
            for (size_t k = 0; k < sizeof hold / sizeof *hold; k++)
                may = may || strncmp(line + 8, hold[k], strlen(hold[k])) == 0;
            if (!may || strstr(line, "cannot") || strstr(line, "expected"))
                fail_msg("%s: %s", what[i], line);
        }
        ax_free(text);
        assert_int_equal(ax_remove_tree(dir), AX_OK);
    }
    unsetenv("AXTRAIN_NONFINITE");
    print_message("%d checks failed\n", failed);
    assert_true(failed > 250);
}

static void nothing_is_a_failure(void **state) {
    (void)state;
    char dir[] = "/tmp/axtrain-empty-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(check(dir, "cpu"), AX_ERR_DATA);
    static const struct {
        const char *rates;
        enum ax_status status;
    } schedules[] = {{"", AX_ERR_FAILED}, {"0.5", AX_OK}, {"0.5, 0.25", AX_ERR_FAILED}};
    char file[64];
    snprintf(file, sizeof file, "%s/schedules.json", dir);
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fprintf(f, "{\"base_lr\": 0.5, \"cases\": [{\"kind\": \"constant\", \"lr\": [%s]}]}",
                schedules[i].rates);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(check(dir, "cpu"), schedules[i].status);
    }
    assert_int_equal(unlink(file), 0);
    rmdir(dir);
    assert_int_equal(check("/nonexistent", "cpu"), AX_ERR_CONFIG);
    assert_int_equal(check(".", "gpu"), AX_ERR_CONFIG);
}

/* Each figure that a model's fixtures give is there, at its place, once for each way to write the
 * config. */
static void every_figure_is_told(void **state) {
    (void)state;
    static const struct {
        const char *name, *where;
    } figures[] = {{"batch logits", "logits"},
                   {"batch token nll", "token_nll"},
                   {"packed logits", "logits"},
                   {"batch loss", "loss_mean"},
                   {"packed grad norm (relative)", "grad_norm"},
                   {"loss of each step", "step "},
                   {"grad norm (relative)", "step 1\n"},
                   {"parameters after step 1", "model."},
                   {"parameters after step 5", "model."},
                   {"loss after the steps", "loss_after\n"},
                   {"greedy log-probs", "case "}};
    char *text;
    check_out(golden_path("models/llama"), "cpu", &text);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        char start[64];
        int found = 0;
        snprintf(start, sizeof start, "\n  ok    %s ", figures[i].name);
        for (const char *at = text; (at = strstr(at, start)) != NULL; found++) {
            at += strlen(start);
            const char *tolerance = strstr(at, " tolerance ");
            assert_non_null(tolerance);
            const char *where = tolerance + strlen(" tolerance ");
            where += strcspn(where, " ");
            where += strspn(where, " ");
            if (strncmp(where, figures[i].where, strlen(figures[i].where)) != 0)
                fail_msg("%s: %.40s", figures[i].name, where);
        }
        if (found != 2)
            fail_msg("%d times: %s", found, figures[i].name);
    }
    ax_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_told),
        cmocka_unit_test(llama),
        cmocka_unit_test(number_formats),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(mistral),
        cmocka_unit_test(mixtral),
        cmocka_unit_test(qwen3_moe),
        cmocka_unit_test(deepseek),
        cmocka_unit_test(glm4_moe),
        cmocka_unit_test(qwen2_moe),
        cmocka_unit_test(olmo2),
        cmocka_unit_test(families),
        cmocka_unit_test(further_families),
        cmocka_unit_test(adapters),
        cmocka_unit_test(the_reference_is_in_double_precision),
        cmocka_unit_test(optimizers_and_clipping),
        cmocka_unit_test(entropy_and_logprob),
        cmocka_unit_test(rope_and_schedules),
        cmocka_unit_test(far_memory_gives_the_figures_of_cpu),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(every_check_can_fail),
        cmocka_unit_test(nothing_is_a_failure),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("AX_UPDATE") && all_checks.data)
        assert_int_equal(ax_write_file_atomic(CHECKS, all_checks.data, all_checks.len), AX_OK);
    ax_buf_free(&all_checks);
    return failed;
}
