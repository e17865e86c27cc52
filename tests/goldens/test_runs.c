/* replay over recorded training runs, and that it notices what differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "ckpt/hf/safetensors.h"
#include "tests/golden_files.h"
#include "tests/goldens/command.h"
#include "tests/sweep.h"

static char tree[64];      /* models, lora → the goldens; runs/FAMILY */
static char fixtures[512]; /* the goldens */

static void shell(const char *fmt, ...) {
    char command[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static int setup(void **state) {
    (void)state;
    snprintf(fixtures, sizeof fixtures, "%s", golden_path(""));
    snprintf(tree, sizeof tree, "/tmp/axtrain-runs-XXXXXX");
    assert_non_null(mkdtemp(tree));
    shell("ln -s '%s/models' '%s/lora' %s && mkdir %s/runs && ln -s '%s/runs/models' "
          "'%s/runs/data' %s/runs",
          fixtures, fixtures, tree, tree, fixtures, fixtures, tree);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (tree[0])
        shell("rm -rf %s", tree);
    return 0;
}

/* Replaces runs/FAMILY by a copy with these cases alone. */
static void copy_cases(const char *family, const char *cases) {
    shell("cd %s/runs && rm -rf %s && mkdir %s && cd %s && "
          "for f in '%s/runs/%s/'*_adapter '%s/runs/%s/'*.batches.safetensors; do "
          "if [ -e \"$f\" ]; then ln -s \"$f\" .; fi; done && "
          "for c in crosscheck %s; do cp '%s/runs/%s/'$c.json . || exit 1; done && "
          "for c in %s; do cp '%s/runs/%s/'$c.safetensors . || exit 1; done",
          tree, family, family, family, fixtures, family, fixtures, family, cases, fixtures, family,
          cases, fixtures, family);
}

/* Runs the check on tree/DIR; returns what it prints, with the error's text. */
static enum ax_status check(const char *dir, const char *backend, char **text) {
    char out[] = "/tmp/axtrain-runs-out-XXXXXX", path[160];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", tree, dir);
    char *argv[] = {"replay", path, "--backend", (char *)(uintptr_t)backend, NULL};
    const int to = mkstemp(out), old = dup(STDOUT_FILENO);
    assert_true(to >= 0 && old >= 0);
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    const enum ax_status st = golden_replay(4, argv);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    close(to);
    assert_int_equal(ax_read_file(out, 1 << 20, text, &n), AX_OK);
    assert_int_equal(unlink(out), 0);
    return st;
}

static void passes(const char *dir, const char *backend) {
    char *text;
    if (check(dir, backend, &text) != AX_OK)
        fail_msg("%s", text);
    ax_free(text);
}

/* The check fails, and prints this. */
static void fails(const char *dir, const char *what) {
    char *text;
    if (check(dir, "cpu", &text) != AX_ERR_FAILED || !strstr(text, what)) {
        printf("%s", text);
        fail_msg("expected %s", what);
    }
    ax_free(text);
}

/* Sanitized code runs several times as long: it has some of the cases. */
#ifdef __SANITIZE_ADDRESS__
#define EACH 4
#else
#define EACH 1
#endif

/* Walks "steps.2.loss" down to the last key's parent. */
static json_t *parent_of(json_t *v, char *path, const char **key) {
    for (char *next; (next = strchr(path, '.')); path = next + 1) {
        *next = '\0';
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(path)) : json_object_get(v, path);
        assert_non_null(v);
    }
    *key = path;
    return v;
}

/* Sets a number to number·factor + offset (new: to offset), or drops a list's last element. */
static void edit(const char *name, const char *where, double factor, double offset) {
    char file[160], path[128];
    const char *key;
    snprintf(file, sizeof file, "%s/runs/%s.json", tree, name);
    snprintf(path, sizeof path, "%s", where);
    json_t *root = json_load_file(file, 0, NULL);
    assert_non_null(root);
    json_t *parent = parent_of(root, path, &key), *old = json_object_get(parent, key);
    if (json_is_integer(old))
        json_object_set_new(parent, key,
                            json_integer((json_int_t)(json_number_value(old) * factor + offset)));
    else if (json_is_array(old))
        json_array_remove(old, json_array_size(old) - 1);
    else
        json_object_set_new(parent, key,
                            json_real((old ? json_number_value(old) * factor : 0) + offset));
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
}

/* ---- tests ---- */

static void sft_is_repeated(void **state) {
    (void)state;
    copy_cases("sft", sweeping()
                          ? "messages text completion_text completion_chat whole_text assistant "
                            "assistant_qwen3 packed mixtral lora dft"
                          : "completion_chat whole_text assistant_qwen3 packed mixtral lora dft");
    passes("runs/sft", "cpu");
}

/* All losses, a last step of one micro-batch, adapters new and trained, experts' balancing loss. */
static void preferences_are_repeated(void **state) {
    (void)state;
    copy_cases("dpo", sweeping()
                          ? "sigmoid_text ipo hinge robust sigmoid_sft mpo sigmoid_norm apo_zero "
                            "smoothing_ignored cosine tail lora lora_continued mixtral"
                          : "ipo mpo tail lora lora_continued mixtral");
    passes("runs/dpo", "cpu");
    copy_cases("orpo", sweeping() ? "orpo orpo_text orpo_qwen3" : "orpo_qwen3");
    passes("runs/orpo", "cpu");
    copy_cases("cpo", sweeping() ? "cpo simpo cpo_simpo" : "cpo_simpo");
    passes("runs/cpo", "cpu");
    copy_cases("kto",
               sweeping() ? "kto kto_weights apo_zero_unpaired" : "kto_weights apo_zero_unpaired");
    passes("runs/kto", "cpu");
}

static void preferences_are_repeated_in_double_precision(void **state) {
    (void)state;
    copy_cases("dpo", "lora");
    passes("runs/dpo", "ref");
    if (sweeping()) { /* of the arithmetic of dpo, which ref repeats above */
        copy_cases("cpo", "cpo_simpo");
        passes("runs/cpo", "ref");
    }
    copy_cases("kto", "kto_weights");
    passes("runs/kto", "ref");
}

/* Heads that classify, from where they were recorded to start; with margins and centering, and steps
 * labeled alone. */
static void heads_are_repeated(void **state) {
    (void)state;
    copy_cases("reward", "margin plain pad_is_eos");
    passes("runs/reward", "cpu");
    if (sweeping())
        passes("runs/reward", "ref");
    copy_cases("prm", "prm last_step");
    passes("runs/prm", "cpu");
    passes("runs/prm", "ref");
}

/* Each divergence; a temperature, which gkd does not apply. */
static void distillations_are_repeated(void **state) {
    (void)state;
    copy_cases("gkd", sweeping() ? "forward_kl jsd reverse_kl" : "jsd reverse_kl");
    passes("runs/gkd", "cpu");
    copy_cases("distill",
               sweeping() ? "forward_kl jsd_temperature reverse_kl" : "forward_kl jsd_temperature");
    passes("runs/distill", "cpu");
    passes("runs/distill", "ref");
    edit("distill/forward_kl", "settings.beta", 0, 0.01);
    fails("runs/distill", "FAIL  loss of each step");
    copy_cases("distill", "jsd_temperature");
    edit("distill/jsd_temperature", "settings.temperature", 1, 0.01);
    fails("runs/distill", "FAIL  other metrics");
}

/* Settings of a recorded run that nothing here asks for, and some that another family does. */
static void settings_that_are_not_repeated_are_told(void **state) {
    (void)state;
    static const char *const keys[] = {"ld_alpha", "use_weighting", "kl_coef", "reward_weights"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char where[64], says[96], *text;
        copy_cases("dpo", "hinge");
        snprintf(where, sizeof where, "settings.%s", keys[i]);
        snprintf(says, sizeof says, "not repeated here: %s", where);
        edit("dpo/hinge", where, 0, 0.5);
        assert_int_equal(check("runs/dpo", "cpu", &text), AX_OK);
        assert_non_null(strstr(text, says));
        ax_free(text);
    }
}

/* Each loss; completions that were trained on before, masked ones, rewards that are missing; adapters,
 * experts. */
static void completions_are_repeated(void **state) {
    (void)state;
    copy_cases("grpo", sweeping() ? "bnpo cispo_it2 dapo dapo_it2 delta_it2 dr_grpo entropy_bonus "
                                    "entropy_mask gdpo grpo grpo_it2 gspo_it2 kl kl_it2 kl_plain "
                                    "lora_kl luspo_it2 mask_truncated mask_truncated_grpo mixtral "
                                    "none_rewards qwen3 sapo_it2 scale_batch steps4 temperature "
                                    "vespo_it2"
                                  : "bnpo cispo_it2 delta_it2 entropy_bonus entropy_mask gdpo "
                                    "gspo_it2 lora_kl mask_truncated_grpo mixtral none_rewards "
                                    "sapo_it2 scale_batch steps4 temperature vespo_it2");
    passes("runs/grpo", "cpu");
    copy_cases("grpo", sweeping() ? "kl_it2 luspo_it2 temperature" : "luspo_it2");
    passes("runs/grpo", "ref");
}

/* Turns, suffixes, messages and masks; results that are dropped, turns that are cut, calls that fail. */
static void completions_with_tools_are_repeated(void **state) {
    (void)state;
    copy_cases("grpo_tools",
               "calc kl_it2 gspo_it2 entropy_mask one_round fails long long_masked llama "
               "other_token_truncate other_token_mask other_sequence_mask other_off_policy till");
    passes("runs/grpo_tools", "cpu");
    if (sweeping())
        passes("runs/grpo_tools", "ref");
}

static void sft_is_repeated_in_double_precision(void **state) {
    (void)state;
    copy_cases("sft", "text lora");
    passes("runs/sft/", "ref");
}

static void families_are_found_in_the_folder_around_them(void **state) {
    (void)state;
    char *text;
    shell(/* what other tests have left */
          "find %s/runs -mindepth 1 -maxdepth 1 -type d -exec rm -r {} +", tree);
    copy_cases("sft", "text");
    shell("mkdir %s/runs/novel && cp %s/runs/sft/crosscheck.json %s/runs/novel", tree, tree, tree);
    assert_int_equal(check("runs", "cpu", &text), AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "left out others: 1 of them"));
    assert_non_null(strstr(text, "not supported: "));
    assert_non_null(strstr(text, "/runs/novel\n"));
    shell("rm -r %s/runs/novel", tree);
    assert_non_null(strstr(text, "/runs/sft/text backend=cpu dtype=float32\n"));
    ax_free(text);
}

static void far_memory_gives_the_figures_of_cpu(void **state) {
    (void)state;
    char *cpu, *far;
    copy_cases("sft", "packed");
    assert_int_equal(check("runs/sft", "cpu", &cpu), AX_OK);
    assert_int_equal(check("runs/sft", "far", &far), AX_OK);
    char *at = strstr(far, "backend=far");
    assert_non_null(at);
    memcpy(at, "backend=cpu", strlen("backend=cpu"));
    assert_string_equal(far, cpu);
    ax_free(far);
    ax_free(cpu);
}

/* Each figure of the fixtures is compared: a change to any is noticed, at its place. */
static void a_changed_figure_is_noticed(void **state) {
    (void)state;
    static const struct {
        const char *where;
        double factor, offset;
        const char *says;
    } cases[] = {
        {"steps.2.loss", 1, 1e-4, "FAIL  loss of each step"},
        {"steps.2.micro.1.loss", 1, 1e-4, "step 3, micro-batch 2\n"},
        {"steps.2.grad_norm", 2, 0, "FAIL  grad norm (relative)"},
        {"steps.2.learning_rate", 1.001, 0, "FAIL  learning rate (relative)"},
        {"steps.2.metrics.entropy", 1, 1e-3, "FAIL  other metrics"},
        {"steps.2.metrics.num_tokens", 1, 1, "FAIL  counts that differ"},
        {"steps.2.metrics.unheard_of", 1, 1, "step 3, unheard_of\n"},
        {"steps.2.micro.0.num_items_in_batch", 1, 1, "FAIL  counts that differ"},
        {"steps.2.micro.0.mean_token_accuracy", 1, 1e-3, "FAIL  accuracies"},
        {"undecayed", 0, 0, "FAIL  decay of parameters that differ"},
        {"final_norm.another", 1, 1, "FAIL  trained tensors more or fewer"},
        {"settings.max_grad_norm", 0.1, 0, "FAIL  final parameters (of their move)"},
        {"settings.learning_rate", 2, 0, "; first step 3\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += EACH) {
        copy_cases("sft", "completion_chat");
        edit("sft/completion_chat", cases[i].where, cases[i].factor, cases[i].offset);
        fails("runs/sft", cases[i].says);
    }
}

/* Changes the exponent of a tensor's first element that is not 0, which stays finite. */
static void change_tensor(const char *file, const char *name) {
    char path[160];
    float x = 0;
    long at = 0;
    snprintf(path, sizeof path, "%s/runs/%s", tree, file);
    struct ax_safetensors st;
    assert_int_equal(ax_safetensors_open(&st, path), AX_OK);
    const struct ax_st_entry *e = ax_safetensors_find(&st, name);
    assert_non_null(e);
    for (const char *p = e->data; x == 0; p += sizeof x) {
        memcpy(&x, p, sizeof x);
        at = (long)(p - (const char *)st.map.data) + 3;
    }
    ax_safetensors_close(&st);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(byte ^ 0x20, f);
    fclose(f);
}

static void a_changed_tensor_is_noticed(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"m00.logps", "FAIL  log-probs"},
        {"m05.logps", "FAIL  later log-probs"},
        {"final64.model.norm.weight", "FAIL  final parameters "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += EACH) {
        copy_cases("sft", "completion_chat");
        change_tensor("sft/completion_chat.safetensors", cases[i][0]);
        fails("runs/sft", cases[i][1]);
    }
}

static void policies_with_values_are_repeated(void **state) {
    (void)state;
    copy_cases("ppo", "ppo ppo_k3");
    shell("mkdir -p %s/runs/reward && ln -sf '%s/runs/reward/margin_trained' %s/runs/reward", tree,
          fixtures, tree);
    passes("runs/ppo", "cpu");
    copy_cases("ppo", sweeping() ? "ppo ppo_k3" : "ppo_k3");
    passes("runs/ppo", "ref");
    static const char *const tensors[][2] = {
        {"b1.values", "FAIL  values"},
        {"b1.scores", "FAIL  scores"},
        {"b0.returns", "FAIL  returns"},
        {"b1.advantages", "FAIL  advantages"},
        {"b1.ref_logprobs", "FAIL  ref_logprobs"},
        {"final64.value.score.weight", "FAIL  final parameters "}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i += EACH) {
        copy_cases("ppo", "ppo");
        change_tensor("ppo/ppo.safetensors", tensors[i][0]);
        fails("runs/ppo", tensors[i][1]);
    }
    static const struct {
        const char *where;
        double factor;
        const char *says;
    } cases[] = {
        {"defaults.vf_coef", 2, "FAIL  loss of each micro-batch"},
        {"defaults.cliprange", 0.5, "FAIL  clipped"},
        {"defaults.lam", 0.9, "FAIL  advantages_raw"},
        {"updates.1.micro_losses", 0, "FAIL  "},
        {"updates.1.metrics.objective/kl", 1.01, "FAIL  log-prob metrics"},
        {"updates.1.metrics.val/num_eos_tokens", 2, "FAIL  counts that differ"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += EACH) {
        copy_cases("ppo", "ppo_k3");
        edit("ppo/ppo_k3", cases[i].where, cases[i].factor, 0);
        fails("runs/ppo", cases[i].says);
    }
    shell("rm -r %s/runs/reward", tree);
}

static void a_change_of_completions_is_noticed(void **state) {
    (void)state;
    static const struct {
        const char *name, *where;
        double factor, offset;
        const char *says;
    } cases[] = {
        {"kl_it2", "settings.beta", 1.1, 0, "FAIL  loss of each micro-batch"},
        {"kl_it2", "settings.epsilon_high", 0.5, 0, "FAIL  clipped"},
        {"kl_it2", "steps.1.micro.0.kl", 1, 1e-4, "FAIL  other metrics"},
        {"kl_it2", "steps.1.metrics.clip_ratio/high_max", 1, 1e-3, "FAIL  clipped"},
        {"kl_it2", "steps.2.metrics.completions/mean_length", 1, 1, "FAIL  other metrics"},
        {"kl_it2", "steps.2.metrics.rewards/form/std", 1, 1e-3, "FAIL  other metrics"},
        {"kl_it2", "steps.2.metrics.num_tokens", 1, 1, "FAIL  counts that differ"},
        {"kl_it2", "steps.1.micro.0.num_items_in_batch", 1, 1, "FAIL  counts that differ"},
        {"scale_batch", "settings.reward_weights", 0, 0,
         "expected a weight of each of 2 functions"},
        {"entropy_mask", "settings.top_entropy_quantile", 2, 0, "FAIL  grad norm (relative)"},
        {"temperature", "settings.temperature", 1.01, 0, "FAIL  log-probs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += EACH) {
        char name[64];
        copy_cases("grpo", cases[i].name);
        snprintf(name, sizeof name, "grpo/%s", cases[i].name);
        edit(name, cases[i].where, cases[i].factor, cases[i].offset);
        fails("runs/grpo", cases[i].says);
    }
    static const char *const tensors[][2] = {
        {"m01.advantages", "FAIL  advantages"},
        {"m02.old_per_token_logps", "FAIL  later log-probs"},
        {"m00.ref_per_token_logps", "FAIL  reference log-probs"}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i += EACH) {
        copy_cases("grpo", "kl_it2");
        change_tensor("grpo/kl_it2.safetensors", tensors[i][0]);
        fails("runs/grpo", tensors[i][1]);
    }
}

/* Of heads, what other families have not. */
static void a_change_of_a_head_is_noticed(void **state) {
    (void)state;
    static const char *const cases[][4] = {
        {"reward", "margin", "m00.scores", "FAIL  logits of labels"},
        {"reward", "margin", "start.score.weight", "FAIL  logits of labels"},
        {"reward", "margin", "final.score.weight", "FAIL  final parameters "},
        {"prm", "prm", "start.score.weight", "FAIL  logits of labels"},
        {"prm", "prm", "final.score.bias", "FAIL  final parameters "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char file[64], dir[64];
        copy_cases(cases[i][0], cases[i][1]);
        snprintf(file, sizeof file, "%s/%s.safetensors", cases[i][0], cases[i][1]);
        snprintf(dir, sizeof dir, "runs/%s", cases[i][0]);
        change_tensor(file, cases[i][2]);
        fails(dir, cases[i][3]);
    }
    copy_cases("reward", "margin");
    edit("reward/margin", "settings.center_rewards_coefficient", 2, 0);
    fails("runs/reward", "FAIL  loss of each micro-batch");
    copy_cases("reward", "margin");
    edit("reward/margin", "steps.1.micro.0.min_reward", 1, 1e-3);
    fails("runs/reward", "FAIL  other metrics");
}

static void packing_is_repeated(void **state) {
    (void)state;
    copy_cases("sft", "text");
    shell("mkdir -p %s/runs/packing && cp '%s/runs/packing/packing.json' %s/runs/packing", tree,
          fixtures, tree);
    passes("runs/packing", "cpu");
    shell("cd %s/runs/packing && sed -i '0,/\"lengths\": \\[/s//&1, /' packing.json", tree);
    fails("runs", "FAIL  packed ids that differ");
    shell("rm -r %s/runs/packing", tree);
}

/* Packing and settings of the data are read, not only what was fed. */
static void changed_data_are_noticed(void **state) {
    (void)state;
    static const struct {
        const char *name, *where;
        double offset;
        const char *says;
    } cases[] = {
        {"text", "settings.max_length", -1, "FAIL  tokens of the data that differ"},
        {"packed", "settings.max_length", -64, "FAIL  tokens of the data that differ"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        copy_cases("sft", cases[i].name);
        snprintf(name, sizeof name, "sft/%s", cases[i].name);
        edit(name, cases[i].where, 1, cases[i].offset);
        fails("runs/sft", cases[i].says);
    }
}

static void missing_files(void **state) {
    (void)state;
    char *text;
    copy_cases("sft", "text");
    shell("rm %s/runs/sft/text.safetensors", tree);
    assert_int_equal(check("runs/sft", "cpu", &text), AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "left out others: 1 of them"));
    assert_non_null(strstr(text, "absent: "));
    assert_non_null(strstr(text, ", 0 failed, 1 files absent"));
    ax_free(text);
    shell("rm %s/runs/sft/text.batches.safetensors", tree);
    fails("runs/sft", "text.batches.safetensors");
    copy_cases("sft", "");
    fails("runs/sft", "has no recorded run");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sft_is_repeated),
        cmocka_unit_test(sft_is_repeated_in_double_precision),
        cmocka_unit_test(preferences_are_repeated),
        cmocka_unit_test(preferences_are_repeated_in_double_precision),
        cmocka_unit_test(heads_are_repeated),
        cmocka_unit_test(distillations_are_repeated),
        cmocka_unit_test(settings_that_are_not_repeated_are_told),
        cmocka_unit_test(completions_are_repeated),
        cmocka_unit_test(completions_with_tools_are_repeated),
        cmocka_unit_test(a_change_of_completions_is_noticed),
        cmocka_unit_test(policies_with_values_are_repeated),
        cmocka_unit_test(a_change_of_a_head_is_noticed),
        cmocka_unit_test(families_are_found_in_the_folder_around_them),
        cmocka_unit_test(far_memory_gives_the_figures_of_cpu),
        cmocka_unit_test(a_changed_figure_is_noticed),
        cmocka_unit_test(a_changed_tensor_is_noticed),
        cmocka_unit_test(packing_is_repeated),
        cmocka_unit_test(changed_data_are_noticed),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
