/* What is said about a configuration, to the key: which of two that contradict, which numbers in
 * quotes are numbers, files that are none, what is missing and how it is listed. */
#include "config_case.h"

/* ---- keys that contradict each other ---- */

static const char *const losses[] = {"cut_cross_entropy", "chunked_cross_entropy",
                                     "liger_cross_entropy", "liger_fused_linear_cross_entropy"};

/* Of each two the later one in the list is named, at its place, and the other one in its words. */
static void losses_that_are_the_same(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int k = i + 1; k < 4; k++) {
            char yaml[160], start[96], place[32];
            snprintf(yaml, sizeof yaml, "%s: true\nseed: 1\n%s: true\n", losses[i], losses[k]);
            snprintf(start, sizeof start, "%s: ", losses[k]);
            snprintf(place, sizeof place, " (c.yaml:3:%zu)", strlen(losses[k]) + 3);
            FAILS(yaml, losses[i], place);
            assert_int_equal(strncmp(ax_error_text(), start, strlen(start)), 0);
        }
    }
    FAILS("cut_cross_entropy: true\nliger_cross_entropy: true\nchunked_cross_entropy: true\n",
          "2 problems", "\n  liger_cross_entropy: ", "(c.yaml:2:22)",
          "\n  chunked_cross_entropy: ", "(c.yaml:3:24)");
    struct ax_config cfg;
    for (int i = 0; i < 4; i++) { /* one alone is none too many */
        char yaml[160];
        snprintf(yaml, sizeof yaml, "%s: true\n%s: false\n", losses[i], losses[(i + 1) % 4]);
        load_ok(&cfg, yaml, NULL);
        ax_config_free(&cfg);
    }
}

static void loads(const char *yaml) {
    struct ax_config cfg;
    load_ok(&cfg, yaml, NULL);
    ax_config_free(&cfg);
}

/* The last that is right before the first that is wrong, or the reverse. */
static void both_sides_of_the_limits(void **state) {
    (void)state;
    loads("batch_size: 8\nmicro_batch_size: 2\n");
    loads("batch_size: 8\nmicro_batch_size: 8\n");
    FAILS("batch_size: 8\nmicro_batch_size: 16\n", "batch_size: ");
    FAILS("batch_size: 9\nmicro_batch_size: 2\n", "batch_size: ");
    FAILS("qat: {weight_dtype: int8}\n", "qat.weight_dtype: int8 is no pair of axolotl's",
          "(c.yaml:1:21)");
    FAILS("qat: {activation_dtype: int8}\n", "qat: weight_dtype would be int8, which is no pair");
    loads("val_set_size: 0\n");
    loads("val_set_size: 0.99\n");
    FAILS("val_set_size: 1\n", "val_set_size: ");
    FAILS("val_set_size: 1.5\n", "val_set_size: ");
    loads("val_set_size: 2\n");
    FAILS("load_best_model_at_end: true\nsave_strategy: \"no\"\n",
          "load_best_model_at_end: nothing is saved whose weights the run could end with");
    loads("load_best_model_at_end: true\nsave_strategy: epoch\n");
    loads("load_best_model_at_end: false\nsave_strategy: \"no\"\n");
    loads("early_stopping_patience: 3\nsave_steps: 12\neval_steps: 3\n");
    loads("early_stopping_patience: 3\nsave_steps: 3\neval_steps: 3\n");
    FAILS("early_stopping_patience: 3\nsave_steps: 3\neval_steps: 6\n", "early_stopping_patience");
    loads("dataset_shard_num: 2\ndataset_shard_idx: 1\n");
    FAILS("dataset_shard_num: 2\ndataset_shard_idx: 2\n", "dataset_shard_idx: ");
    FAILS("dataset_shard_num: 2\n", "dataset_shard_num: ");
    FAILS("dataset_shard_idx: 0\n", "dataset_shard_idx: ");
    loads("datasets: [{path: a, shards: 2, shards_idx: 1}, {path: b, shards: 1, shards_idx: 0}]\n");
    FAILS("datasets: [{path: a, shards: 2, shards_idx: 1}, {path: b, shards: 1, shards_idx: 1}]\n",
          "datasets.1.shards_idx: ");
    FAILS("trl: {num_generations: 4}\n", "trl: without rl");
    FAILS("rl: dpo\nstreaming: true\nmax_steps: 5\n", "rl: answers are not streamed");
    FAILS("reward_model: true\npretraining_dataset: [{path: a}]\nmax_steps: 5\n",
          "rl: answers are not streamed");
    FAILS("rl_beta: 0.2\n", "rl_beta: without rl this would be fine-tuning");
    FAILS("orpo_alpha: 0.2\n", "orpo_alpha: without rl");
    FAILS("simpo_gamma: 1\n", "simpo_gamma: without rl");
    FAILS("center_rewards_coefficient: 0.1\n", "center_rewards_coefficient: is of a reward model");
    FAILS("kto_desirable_weight: 2\n", "kto_desirable_weight: without rl");
    FAILS("kto_undesirable_weight: 2\n", "kto_undesirable_weight: without rl");
    FAILS("cpo_alpha: 1\n", "cpo_alpha: without rl");
    FAILS("dpo_label_smoothing: 0.1\n", "dpo_label_smoothing: without rl");
    FAILS("rl: dpo\nlabel_smoothing: 0.1\n",
          "label_smoothing: is of fine-tuning; here it is called dpo_label_smoothing");
    FAILS("rl: orpo\nlabel_smoothing: 0.1\n", "rl: label_smoothing, z_loss_coef, use_eaft");
    FAILS("rl: kto\nz_loss_coef: 0.1\n", "rl: label_smoothing, z_loss_coef, use_eaft");
    FAILS("rl: dpo\nuse_eaft: true\n", "rl: label_smoothing, z_loss_coef, use_eaft");
    FAILS("rl: simpo\nuse_dynamic_finetuning: true\n",
          "use_dynamic_finetuning are not terms of its loss");
    loads("rl: dpo\nlabel_smoothing: 0\ndpo_label_smoothing: 0.1\n");
    loads("rl: dpo\nrl_beta: 0.2\ntrl: {beta: 0.2}\n");
    FAILS("rl: dpo\nrl_beta: 0.3\ntrl: {beta: 0.2}\n", "rl_beta: ");
    FAILS("rl: dpo\nrl_beta: 0.1\ntrl: {beta: 0.2}\n", "rl_beta: ");
    FAILS("rl: ppo\nrl_beta: 0.1\n", "rl_beta: the weight of the KL divergence is ppo.kl_coef");
    FAILS("rl: ppo\ntrl: {beta: 0.1}\n",
          "trl.beta: the weight of the KL divergence is ppo.kl_coef");
    loads("rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1, 2]\n");
    FAILS("rl: dpo\ndpo_loss_type: [sigmoid]\ndpo_loss_weights: [1, 2]\n", "dpo_loss_weights: ");
    /* a group's answers may be of several data ranks, which are not known here */
    loads("rl: grpo\nmicro_batch_size: 1\ntrl: {num_generations: 8}\n");
}

/* Of two that contradict each other, one would have no effect without a word. */
static void one_of_two_would_not_act(void **state) {
    (void)state;
    static const char *const never[] = {"no", "epoch", "best\nmetric_for_best_model: eval_loss"};
    char yaml[160];
    for (int i = 0; i < 3; i++) {
        snprintf(yaml, sizeof yaml, "saves_per_epoch: 1\nsave_strategy: %s\n", never[i]);
        FAILS(yaml, "save_strategy: saves_per_epoch needs save_strategy: steps", "(c.yaml:2:16)");
    }
    loads("saves_per_epoch: 1\nsave_strategy: steps\n");
    loads("saves_per_epoch: 0\nsave_strategy: epoch\n");
    FAILS("float32: true\nbf16: true\n", "float32: contradicts bf16, bfloat16, fp16 or float16");
    FAILS("float32: true\nfp16: true\n", "float32: contradicts ");
    FAILS("float32: true\nbfloat16: true\n", "float32: contradicts ");
    loads("float32: true\nbf16: auto\n");
    loads("float32: true\nbf16: false\nfp16: false\n");
    loads("float32: false\nbf16: true\n");
    FAILS("pretraining_dataset: [{path: a}]\ndatasets: [{path: b}]\nmax_steps: 1\n",
          "datasets: only pretraining_dataset would be trained on", "(c.yaml:2:11)");
    FAILS("streaming: true\nmax_steps: 1\ndataset_shard_num: 2\ndataset_shard_idx: 1\n",
          "dataset_shard_num: streamed records are not counted");
    FAILS("datasets: [{path: a, shards_idx: 1}]\n", "datasets.0.shards_idx: set shards");
    loads("datasets: [{path: a, shards_idx: 0}]\n");
    FAILS("test_datasets: [{path: a, shards: 2, shards_idx: 2}]\n",
          "test_datasets.0.shards_idx: must be below shards");
    struct ax_config cfg;
    load_ok(&cfg, "sample_packing: true\ngroup_by_length: true\ninclude_tkps: false\n", NULL);
    expect_note(&cfg, "group_by_length", AX_NOTE_UNUSED, "with no sample_packing");
    expect_note(&cfg, "include_tkps", AX_NOTE_NO_EFFECT, "always logged");
    ax_config_free(&cfg);
    load_ok(&cfg, "rl: dpo\ndatasets: [{path: a, type: {field_instruction: q, field_prompt: p}}]\n",
            NULL);
    expect_note(&cfg, "datasets.0.type.field_instruction", AX_NOTE_UNUSED, "with no rl");
    assert_null(note_of(&cfg, "datasets.0.type.field_prompt"));
    ax_config_free(&cfg);
    load_ok(&cfg, "qat: {weight_dtype: fp8, activation_dtype: fp8, group_size: 16}\n", NULL);
    expect_note(&cfg, "qat.group_size", AX_NOTE_UNUSED, "weight_dtype other than fp8");
    ax_config_free(&cfg);
    load_ok(&cfg, "quantization: {weight_dtype: nvfp4, activation_dtype: int8}\n", NULL);
    expect_note(&cfg, "quantization.activation_dtype", AX_NOTE_UNUSED, "other than nvfp4");
    ax_config_free(&cfg);
    load_ok(&cfg, "qat: {scheme: int4, group_size: 16}\n", NULL);
    assert_null(note_of(&cfg, "qat.group_size"));
    ax_config_free(&cfg);
    FAILS("datasets: [{path: a, roles_to_train: user}]\n", "write [\"user\"]");
    FAILS("pretraining_dataset: a.jsonl\nmax_steps: 1\n", "write [{path: \"a.jsonl\"}]");
    load_ok(&cfg, "pretraining_dataset: [{path: a}]\nmax_steps: 1\nnum_epochs: 2\n", NULL);
    expect_note(&cfg, "num_epochs", AX_NOTE_UNUSED, "with no streaming and no pretraining_dataset");
    ax_config_free(&cfg);
    load_ok(&cfg, "lr_scheduler: constant\nwarmup_steps: 5\n", NULL);
    expect_note(&cfg, "warmup_steps", AX_NOTE_UNUSED, "with lr_scheduler other than constant");
    ax_config_free(&cfg);
    load_ok(&cfg, "streaming: true\nmax_steps: 1\nshuffle_before_merging_datasets: true\n", NULL);
    expect_note(&cfg, "shuffle_before_merging_datasets", AX_NOTE_UNUSED, "streaming");
    ax_config_free(&cfg);
}

/* How servers are asked is nothing where no server is. */
static void servers_that_are_not_asked(void **state) {
    (void)state;
    loads("rl: distill\nkd_teacher: http://h:1\nkd_server: {retries: 1}\n");
    loads("rl: distill\nkd_teacher: HTTPS://h/v1\nkd_server: {retries: 1}\n");
    FAILS("rl: distill\nkd_teacher: folder/http\nkd_server: {retries: 1}\n",
          "kd_server: says how a server is asked", "(c.yaml:3:");
    FAILS("kd_server: {retries: 1}\n", "kd_server: says how a server is asked");
    loads("rl: grpo\ntrl: {reward_funcs: ['format:e', http://h:1/v1]}\njudge: {retries: 1}\n");
    FAILS("rl: grpo\ntrl: {reward_funcs: ['format:http://']}\njudge: {retries: 1}\n",
          "judge: says how judges are asked", "(c.yaml:3:");
    FAILS("rl: ppo\njudge: {retries: 1}\n", "judge: says how judges are asked");
    loads("rl: grpo\nmax_staleness: 1024\n");
    FAILS("rl: grpo\nmax_staleness: 1025\n", "max_staleness: expected at most 1024");
}

/* ---- numbers in quotes ---- */

static void numbers_in_quotes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value; /* of weight_decay; −1: none */
    } cases[] = {
        {"0.5", 0.5}, {"5e-1", 0.5}, {"+.5", 0.5}, {"5E-1", 0.5}, {"1_0.5", 10.5}, {"1__0", 10},
        {"1_", 1},    {"0", 0},      {"", -1},     {"_1", -1},    {"1.2.3", -1},   {"1-2", -1},
        {"1e", -1},   {"e5", -1},    {"-", -1},    {".", -1},     {"1e999", -1},   {"0x10", -1},
        {"1 ", -1},   {" 1", -1},    {"nan", -1},  {"inf", -1},   {"1,5", -1},     {"1/2", -1},
        {"5%", -1},   {"1e5e5", -1},
    };
    char yaml[160];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_config cfg;
        snprintf(yaml, sizeof yaml, "weight_decay: '%s'\n", cases[i].text);
        if (cases[i].value < 0) {
            FAILS(yaml, "weight_decay: ", "(c.yaml:1:15)");
            continue;
        }
        load_ok(&cfg, yaml, NULL);
        const double got = ax_config_f64(&cfg, "weight_decay");
        if (!(got == cases[i].value))
            fail_msg("'%s' is %g", cases[i].text, got);
        ax_config_free(&cfg);
    }
    /* digits without end are no number */
    for (int digits = 61; digits <= 66; digits++) {
        snprintf(yaml, sizeof yaml, "weight_decay: '0.%0*d'\n", digits - 2, 5);
        if (digits <= 63)
            loads(yaml);
        else
            FAILS(yaml, "weight_decay: ");
    }
    /* where an integer is expected */
    FAILS("max_steps: '1.5'\n", "max_steps: ");
    FAILS("max_steps: '1e19'\n", "max_steps: ");
    struct ax_config cfg;
    load_ok(&cfg, "max_steps: '1_5e1'\nseed: '3.0'\n", NULL);
    assert_int_equal(ax_config_i64(&cfg, "max_steps"), 150);
    assert_int_equal(ax_config_i64(&cfg, "seed"), 3);
    ax_config_free(&cfg);
}

/* ---- files that are something else ---- */

/* Three keys of a launcher's and no base_model; anything else is a config with mistakes. */
static void launchers_and_mistakes(void **state) {
    (void)state;
    FAILS("provider: modal\ngpu: h100\ntimeout: 3\n", "a cloud launch");
    FAILS("gpu_count: 1\nmemory: 128\nbranch: main\nsecrets: [A]\n", "a cloud launch");
    static const char *const mistakes[] = {"gpu: h100\n", "gpu: h100\nmemory: 128\n",
                                           "base_model: m\ngpu: h100\nmemory: 128\nvolumes: [a]\n",
                                           "learning_rate: 1e-4\nbranch: b\n"};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        FAILS(mistakes[i], "unknown key");
        assert_null(strstr(ax_error_text(), "cloud"));
    }
}

/* ---- what is missing ---- */

static void expect_missing(const char *yaml, bool text_only, const char *want) {
    struct ax_config cfg;
    struct ax_buf out = {0};
    load_ok(&cfg, yaml, NULL);
    assert_int_equal(ax_config_put_not_yet(&cfg, text_only, "<", ">", &out), AX_OK);
    assert_string_equal(out.data ? out.data : "", want);
    ax_buf_free(&out);
    ax_config_free(&cfg);
}

/* A line for each missing capability, with the place of its first key. Up to six keys are named,
 * then how many more there are. */
static void missing_capabilities(void **state) {
    (void)state;
    expect_missing("base_model: m\n", false, "");
    expect_missing("image_size: 512\nuse_otel_metrics: true\n"
                   "image_resize_algorithm: bilinear\n"
                   "processor_type: P\n",
                   false,
                   "<multimodal: image_size (c.yaml:1:13), image_resize_algorithm, processor_type>"
                   "<opentelemetry: use_otel_metrics (c.yaml:2:19)>");
    static const char *const keys[] = {"rank",       "update_proj_gap", "scale",
                                       "proj_bits",  "proj_group_size", "cos_threshold",
                                       "gamma_proj", "queue_size"};
    static const char *const rest[] = {"", " and 1 more", " and 2 more", " and 3 more"};
    char yaml[512] = "optimizer: q_galore_adamw8bit\n";
    char want[512] = "<other-optimizers: optimizer (c.yaml:1:12)";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char whole[512 + 16];
        snprintf(yaml + strlen(yaml), sizeof yaml - strlen(yaml), "qgalore_%s: 3\n", keys[i]);
        if (i < 5)
            snprintf(want + strlen(want), sizeof want - strlen(want), ", qgalore_%s", keys[i]);
        snprintf(whole, sizeof whole, "%s%s>", want, rest[i < 5 ? 0 : i - 4]);
        expect_missing(yaml, false, whole);
    }
    /* what matters to text, by itself */
    expect_missing("image_size: 512\nchat_template: command_a\nuse_otel_metrics: true\n", true,
                   "<command-a-templates: chat_template (c.yaml:2:16)>");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_that_are_the_same),   cmocka_unit_test(both_sides_of_the_limits),
        cmocka_unit_test(one_of_two_would_not_act),   cmocka_unit_test(numbers_in_quotes),
        cmocka_unit_test(servers_that_are_not_asked), cmocka_unit_test(launchers_and_mistakes),
        cmocka_unit_test(missing_capabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
