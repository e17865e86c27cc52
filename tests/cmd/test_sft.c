/* `axtrain sft` from a YAML on a tiny model: everyday errors, each one line with place, remedy and
 * exit code; a run, its files, and going on with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>

#include "cmd/commands.h"
#include "tests/cmd/sft_case.h"

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"two and two\"}, {\"role\": \"assistant\", "
    "\"content\": \"four of them\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say no\"}, {\"role\": \"assistant\", "
    "\"content\": \"no, no, no\"}]}\n";

static const char *put_config(const char *name, const char *data, const char *more) {
    struct ax_buf b = {0};
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s\n    type: chat_template\nchat_template: llama3\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 2\n"
                      "gradient_accumulation_steps: 1\nlogging_steps: 1\n%s",
                      golden_llama(), scratch, scratch, data, more),
        AX_OK);
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

/* The four rows, and a configuration that trains on them; its path goes to config. */
static void configure(char *config, size_t size, const char *more) {
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    snprintf(config, size, "%s", put_config("c.yaml", in_scratch("rows.jsonl"), more));
}

/* The words that evaluate on a file of the scratch folder. */
static void evaluate_on(char *words, size_t size, const char *file) {
    snprintf(words, size, "test_datasets=[{path: %s, type: chat_template, split: train}]",
             in_scratch(file));
}

static void clear(void) {
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

static void test_everyday_errors(void **state) {
    (void)state;
    need_binary();
    char config[128], where[160];
    configure(config, sizeof config, "seed: lots\n");
    snprintf(where, sizeof where, "c.yaml:14:");
    EXPECT(2, "seed: expected an integer", config);
    snprintf(config, sizeof config, "%s", put_config("c.yaml", in_scratch("none.jsonl"), ""));
    EXPECT(3, "datasets.0: ", config);
    EXPECT(3, "none.jsonl: no such file", config);
    put_text("empty.jsonl", "");
    snprintf(config, sizeof config, "%s", put_config("c.yaml", in_scratch("empty.jsonl"), ""));
    EXPECT(3, "empty.jsonl", config);
    put_text("field.jsonl", "{\"text\": \"no messages\"}\n");
    snprintf(config, sizeof config, "%s", put_config("c.yaml", in_scratch("field.jsonl"), ""));
    EXPECT(3, "field.jsonl:1", config);
    snprintf(config, sizeof config, "%s", put_config("c.yaml", in_scratch("rows.jsonl"), ""));
    EXPECT(3, "rows.jsonl:1: no token of this or any other document is trained on", config,
           "datasets.0.roles_to_train=[nobody]", "datasets.0.train_on_eos=none");
    EXPECT(3, "no documents to train on: 4 too long (sequence_len", config, "sequence_len=4");
    EXPECT(3, "rows.jsonl:", config, "sequence_len=4", "excess_length_strategy=raise");
    EXPECT(2, "base_model", config, "base_model=no/such/model");
    EXPECT(2, "chat_template_jinja: ./nope.jinja: no such file, and no template", config,
           "chat_template_jinja=./nope.jinja");
    EXPECT(2, "sft: unknown option --jsn; did you mean --json?", config, "--jsn");
    EXPECT(2, "sft: --no-packing is neither an option nor a key; write sample_packing=false",
           config, "--no-packing");
    EXPECT(2, "sft: --learning-rte is neither an option nor a key; did you mean learning_rate?",
           config, "--learning-rte", "1");
    EXPECT(2, "sft: --foo is neither an option nor a key; see `axtrain sft --help`", config,
           "--foo");
    EXPECT(2, "--seed: expected a value", config, "--seed");
    EXPECT(2, "sft: --foo is neither an option nor a key", config, "--seed", "--foo");
    EXPECT(2, "--type-of-model: expected a value", config, "--type-of-model"); /* an older name */
    setenv("WORLD_SIZE", "2", 1);
    EXPECT(2, "WORLD_SIZE is set, but RANK is not", config);
    unsetenv("WORLD_SIZE");
    EXPECT(2,
           "tensor_parallel_size: the mesh has 2 ranks, and this is one process: start `axtrain "
           "launch -n 2 -- ",
           config, "tensor_parallel_size=2");
    EXPECT(2, "expert_parallel_size: mesh: ep 2 does not divide", config, "expert_parallel_size=2");
    EXPECT(2, "metric_for_best_model: no evaluation records", config,
           "metric_for_best_model=eval_loss");
    EXPECT(2, "master_dtype: an adapter is trained and saved in float32", config, "bf16=true",
           "adapter=lora", "lora_r=2", "lora_alpha=4", "lora_target_linear=true",
           "master_dtype=bf16_sr");
    EXPECT(2, "master_dtype: masters in bfloat16 need bf16: true", config, "float32=true",
           "master_dtype=bf16_sr");
    EXPECT(2, "metric_for_best_model: \"eval_bleu\" is not one of eval_loss, ", config,
           "val_set_size=0.5", "metric_for_best_model=eval_bleu");
    EXPECT(2, "metric_for_best_model: nothing is evaluated; set eval_steps", config,
           "val_set_size=0.5", "eval_strategy=no", "metric_for_best_model=eval_loss");
    EXPECT(2, "lisa_n_layers is not accepted: use adapter: lora, or name what trains in", config,
           "lisa_n_layers=1", "lisa_step_interval=2");
    EXPECT(2, "folder nowhere does not exist", config, "resume_from_checkpoint=nowhere");
    EXPECT(5, "gradient_checkpointing: true saves", config, "micro_batch_size=16777216");
    clear();
}

static void test_unknown_architecture(void **state) {
    (void)state;
    need_binary();
    char config[128], base[200];
    char *text;
    size_t len;
    char *path;
    assert_int_equal(ax_path_join(&path, golden_llama(), "tokenizer.json"), AX_OK);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &len), AX_OK);
    ax_free(path);
    make_folder("odd");
    put_bytes("odd/tokenizer.json", text, len);
    ax_free(text);
    put_text("odd/config.json", "{\"model_type\": \"mamba9\"}");
    configure(config, sizeof config, "");
    snprintf(base, sizeof base, "base_model=%s", in_scratch("odd"));
    EXPECT(2, "mamba9", config, base);
}

static void test_output_folder(void **state) {
    (void)state;
    need_binary();
    char config[128], out[560];
    configure(config, sizeof config, "max_steps: 1\n");
    /* a file where the folder should be: what a read-only place is to root, who may write anywhere
     */
    put_text("plain", "");
    snprintf(out, sizeof out, "output_dir=%s/out", in_scratch("plain"));
    EXPECT(1, "output_dir: ", config, out);
    EXPECT(1, "output_dir: ", config, "output_dir=/proc/axtrain");
    EXPECT(1, "output_dir: /dev/full", config, "output_dir=/dev/full");
    snprintf(out, sizeof out, "output_dir=%s", golden_llama()); /* never over the base itself */
    EXPECT(2, "already contains a model", config, out);
    clear();
}

/* A config of one step on two short texts, with `more`. */
static void write_one_step(char *config, size_t size, const char *more) {
    char yaml[1024];
    put_text("text.jsonl", "{\"text\": \"one and one are two\"}\n"
                           "{\"text\": \"two and two are four of them\"}\n");
    snprintf(yaml, sizeof yaml,
             "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
             "datasets: [{path: %s/text.jsonl, type: completion}]\nsequence_len: 64\n"
             "learning_rate: 1e-3\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\n"
             "max_steps: 1\nbf16: false\nlogging_steps: 1\n%s\n",
             golden_llama(), scratch, scratch, scratch, more);
    snprintf(config, size, "%s", put_bytes("one-step.yaml", yaml, strlen(yaml)));
}

static void run_one_step(int n, const char *const *args, double *loss, double *norm) {
    char said[2048], *text;
    size_t len;
    clear();
    if (sft(said, sizeof said, n, args) != 0)
        fail_msg("%s", said);
    assert_int_equal(ax_read_file(in_scratch("out/metrics.jsonl"), 1 << 20, &text, &len), AX_OK);
    *loss = strtod(strstr(text, "\"loss\": ") + 8, NULL);
    *norm = strtod(strstr(text, "\"grad_norm\": ") + 13, NULL);
    ax_free(text);
}

/* Loss and gradient norm of a step with EAFT, as PyTorch 2.13 computes them in float64 from the logits
 * of transformers 5.23, with axolotl's weights: tests/peers/token_weights.py. */
static void test_entropy_weights(void **state) {
    (void)state;
    need_binary();
    static const struct {
        const char *k, *alpha;
        double loss, norm;
    } cases[] = {
        {"eaft_k=20", "eaft_alpha=0.5", 12.477274112746299, 16.768847745063738},
        {"eaft_k=5", "eaft_alpha=1.0", 11.308717084742494, 15.157368989159735},
        {"eaft_k=20", "eaft_alpha=0", 7.480950021839623, 10.072404947376985}, /* as without */
    };
    char config[128], said[2048];
    write_one_step(config, sizeof config, "use_eaft: true");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const args[] = {config, cases[i].k, cases[i].alpha};
        double loss, norm;
        run_one_step(3, args, &loss, &norm);
        if (fabs(loss - cases[i].loss) > 1e-6 || fabs(norm - cases[i].norm) > 1e-5)
            fail_msg("%s %s: loss %.9f, norm %.9f", cases[i].k, cases[i].alpha, loss, norm);
    }
    const char *const large[] = {config, "eaft_k=257"};
    assert_int_equal(sft(said, sizeof said, 2, large), 2);
    assert_non_null(strstr(said, "eaft_k: expected at most 256"));
    const char *const both[] = {config, "use_dynamic_finetuning=true"};
    assert_int_equal(sft(said, sizeof said, 2, both), 2);
    assert_non_null(strstr(said, "use_dynamic_finetuning: weights each token, as use_eaft does"));
    clear();
}

/* Σ −p·log p over the 26 tokens / 26, by the same script. */
static void test_dynamic_finetuning(void **state) {
    (void)state;
    need_binary();
    char config[128];
    double loss, norm;
    write_one_step(config, sizeof config, "use_dynamic_finetuning: true");
    const char *const args[] = {config};
    run_one_step(1, args, &loss, &norm);
    if (fabs(loss - 0.009478347470704) > 1e-8)
        fail_msg("loss %.12f", loss);
    clear();
}

static bool exists(const char *name) {
    return ax_path_exists(in_scratch(name));
}

/* Names, sizes and times of all that lies in out/, but for the lock, which comes and goes. */
static char *picture(void) {
    struct ax_buf b = {0};
    char command[700], line[512];
    snprintf(
        command, sizeof command,
        "cd '%s' && find out -mindepth 1 ! -name .axtrain.lock -printf '%%p %%s %%T@\\n' | sort",
        scratch);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        assert_int_equal(ax_buf_puts(&b, line), AX_OK);
    assert_int_equal(pclose(f), 0);
    return b.data;
}

static void expect_nothing_to_do(const char *text, const char *config, const char *more) {
    char *before = picture();
    EXPECT(0, text, config, more);
    char *after = picture();
    assert_string_equal(before, after);
    ax_free(before);
    ax_free(after);
}

static void remove_last_line(const char *name) {
    char *text;
    size_t n;
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 20, &text, &n), AX_OK);
    assert_true(n > 1);
    for (n--; n > 0 && text[n - 1] != '\n';)
        n--;
    put_bytes(name, text, n);
    ax_free(text);
}

/* Three keys, each by itself and with what it saves, the most first. */
static void what_would_help(const char *config) {
    static const char *const keys[] = {"gradient_checkpointing: true",
                                       "micro_batch_size: ", "sequence_len: ", "bf16: true",
                                       "optimizer: sgd"};
    char said[8192];
    const char *const args[] = {config, "micro_batch_size=16777216", "float32=true"};
    assert_int_equal(sft(said, sizeof said, 3, args), 5);
    const char *at = strstr(said, "What would help: ");
    assert_non_null(at);
    at += strlen("What would help: ");
    int n = 0, seen = 0;
    for (;; n++) {
        int k = 0;
        while (k < 5 && strncmp(at, keys[k], strlen(keys[k])) != 0)
            k++;
        if (k == 5 || (seen >> k & 1))
            fail_msg("\"%.40s\" in %s", at, said);
        seen |= 1 << k;
        const char *saves = strstr(at, " saves ");
        assert_true(saves && strtod(saves + strlen(" saves "), NULL) > 0);
        at = strstr(saves, "; ");
        if (!at)
            break;
        at += 2;
    }
    assert_int_equal(n + 1, 3);
}

/* What is refused leaves no trace, least of all in a folder that is not ours. */
static void test_refused_runs_write_nothing(void **state) {
    (void)state;
    need_binary();
    char config[128], out[160];
    configure(config, sizeof config, "max_steps: 1\n");
    make_folder("theirs");
    put_text("theirs/config.json", "{}");
    snprintf(out, sizeof out, "output_dir=%s/theirs", scratch);
    EXPECT(2, "theirs already contains a model; choose another folder", config, out);
    EXPECT(2, "theirs already contains a model; choose another folder", config, out,
           "resume_from_checkpoint=auto");
    assert_false(exists("theirs/.axtrain.lock"));
    what_would_help(config);
    assert_false(exists("out"));
}

/* Nothing but warnings, and there are none. */
static void test_quiet(void **state) {
    (void)state;
    need_binary();
    char config[128], said[4096];
    configure(config, sizeof config, "max_steps: 1\n");
    assert_int_equal(sft(said, sizeof said, 2, (const char *const[]){config, "--quiet"}), 0);
    assert_string_equal(said, "");
    clear();
    EXPECT(2, "is a folder, and the first argument must be a config file; the model is its key",
           golden_llama(), config);
}

static void test_unmoved_tensors_are_told(void **state) {
    (void)state;
    need_binary();
    char config[128], said[16384];
    static const char warning[] = "trained tensors have not changed in 20 steps, first model.";
    configure(config, sizeof config, "max_steps: 20\nfloat32: true\nwarmup_steps: 0\n");
    assert_int_equal(sft(said, sizeof said, 1, (const char *const[]){config}), 0);
    assert_null(strstr(said, "have not changed"));
    clear();
    configure(config, sizeof config, "max_steps: 20\nfloat32: true\nwarmup_steps: 0\n");
    assert_int_equal(
        sft(said, sizeof said, 2, (const char *const[]){config, "learning_rate=1e-30"}), 0);
    if (!strstr(said, warning))
        fail_msg("%s", said);
    clear();
    /* masters stay, their BF16 copy is rounded at random */
    configure(config, sizeof config, "max_steps: 20\nbf16: true\nwarmup_steps: 0\n");
    assert_int_equal(
        sft(said, sizeof said, 2, (const char *const[]){config, "learning_rate=1e-30"}), 0);
    int still = 0, all = -1;
    const char *of = strstr(said, warning);
    while (of && *of != ':')
        of--;
    if (!of || sscanf(of, ": %d of %d", &still, &all) != 2 || still != all)
        fail_msg("%s", said);
    clear();
}

static void test_divergence_is_an_error(void **state) {
    (void)state;
    need_binary();
    char config[128];
    configure(config, sizeof config,
              "max_steps: 30\nnum_epochs: 50\nfloat32: true\nlr_scheduler: constant\n"
              "warmup_steps: 0\n");
    EXPECT(6, "far outside its recent range, in 3 logged steps in a row", config,
           "learning_rate=2");
    assert_false(exists("out/config.json"));
    clear();
    EXPECT(6, "far outside its recent range, in 5 logged steps in a row", config, "learning_rate=2",
           "loss_watchdog_patience=5");
    clear();
    EXPECT(0, "trained 30 of 30 steps", config, "learning_rate=2", "loss_watchdog_threshold=null");
    clear();
    EXPECT(0, "trained 30 of 30 steps", config, "learning_rate=0.01");
    clear();
}

static void test_run_and_go_on(void **state) {
    (void)state;
    need_binary();
    char config[128];
    configure(config, sizeof config,
              "num_epochs: 2\nsave_steps: 2\nval_set_size: 1.0e-3\nfloat32: true\n"
              "resume_from_checkpoint: auto\n");
    EXPECT(0, "trained 4 of 4 steps", config);
    static const char *const files[] = {"out/config.json",
                                        "out/model.safetensors",
                                        "out/tokenizer.json",
                                        "out/generation_config.json",
                                        "out/chat_template.jinja",
                                        "out/metrics.jsonl",
                                        "out/metrics.csv",
                                        "out/checkpoint-2/state/manifest.json",
                                        "out/checkpoint-4/config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!exists(files[i]))
            fail_msg("no %s", files[i]);
    expect_nothing_to_do("nothing to do (4 of 4 steps); raise num_epochs", config, NULL);
    expect_nothing_to_do("nothing to do (4 of 2 steps); raise max_steps", config, "max_steps=2");
    remove_last_line("out/metrics.jsonl"); /* killed before the run said that it was finished */
    assert_ok(ax_write_file_atomic(in_scratch("out/run.json.tmp-1"), "{", 1)); /* process 1 lives */
    assert_ok(ax_write_file_atomic(in_scratch("out/notes.tmp-1.md"), "", 0));
    EXPECT(0, "trained 4 of 4 steps", config);
    assert_false(exists("out/run.json.tmp-1"));
    assert_true(exists("out/notes.tmp-1.md"));
    assert_int_equal(ax_unlink(in_scratch("out/config.json")), AX_OK);
    EXPECT(0, "trained 4 steps in", config, "max_steps=2");
    assert_int_equal(ax_unlink(in_scratch("out/model.safetensors")), AX_OK);
    EXPECT(0, "trained 4 of 4 steps", config);
    assert_true(exists("out/model.safetensors"));
    expect_nothing_to_do("nothing to do (4 of 4 steps)", config, NULL);
    EXPECT(2, "contains the checkpoints of another run", config, "resume_from_checkpoint=null");
    EXPECT(3,
           "seed or the packing differ from those of the checkpoint. Change them back, or set "
           "resume_with_changes: true to begin epoch 1 again",
           config, "seed=8", "num_epochs=3");
    EXPECT(0, "trained 6 of 6 steps", config, "num_epochs=3", "resume_with_changes=true", "seed=8");
    EXPECT(0, "changed since the checkpoint: learning_rate from 0.001 to 0.002", config,
           "num_epochs=4", "seed=8", "learning_rate=2e-3");
    char from[256];
    snprintf(from, sizeof from, "resume_from_checkpoint=%s", in_scratch("out/checkpoint-2"));
    EXPECT(0, "has checkpoints after step 2 (newest: checkpoint-8). If this run stops", config,
           from);
    clear();
}

/* A save did not end: said once, and the run goes on from the one before. */
static void test_incomplete_checkpoint(void **state) {
    (void)state;
    need_binary();
    char config[128], said[8192];
    configure(config, sizeof config,
              "num_epochs: 2\nsave_steps: 2\nsave_total_limit: 3\nresume_from_checkpoint: auto\n");
    EXPECT(0, "trained 4 of 4 steps", config);
    assert_int_equal(ax_unlink(in_scratch("out/checkpoint-4/state/manifest.json")), AX_OK);
    assert_int_equal(sft(said, sizeof said, 1, (const char *const[]){config}), 0);
    const char *at = strstr(said, "skipping checkpoint-4: it has no state/manifest.json");
    if (!at || strstr(at + 1, "skipping") || !strstr(said, "resumed: ") ||
        !strstr(said, "out/checkpoint-2\n"))
        fail_msg("%s", said);
    clear();
}

/* Numbers of "evaluation loss A -> B" or "evaluation loss B", which are metrics.jsonl's. */
static int evaluation_losses(const char *config, const char *more) {
    char said[8192], first[32] = "", last[32] = "";
    double a, b;
    const char *const args[] = {config, more};
    if (sft(said, sizeof said, 2, args) != 0)
        fail_msg("%s", said);
    const char *at = strstr(said, "evaluation loss ");
    assert_non_null(at);
    const int n = sscanf(at, "evaluation loss %lf -> %lf", &a, &b);
    char *text, *rest;
    size_t len;
    assert_ok(ax_read_file(in_scratch("out/metrics.jsonl"), 1 << 20, &text, &len));
    for (rest = text; (rest = strstr(rest, "\"eval_loss\": ")) != NULL; rest++) {
        snprintf(last, sizeof last, "%.4f", strtod(rest + strlen("\"eval_loss\": "), NULL));
        if (!*first)
            snprintf(first, sizeof first, "%s", last);
    }
    ax_free(text);
    assert_true(strncmp(at + strlen("evaluation loss "), n == 2 ? first : last, 6) == 0);
    assert_true(n < 2 || strncmp(strstr(at, " -> ") + 4, last, 6) == 0);
    return n;
}

/* DIR/NAME's field, in the scratch folder's output. */
static void assert_dtype(const char *file, const char *want) {
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "out/%s", file);
    assert_int_equal(ax_read_file(in_scratch(path), 1 << 20, &text, &len), AX_OK);
    char field[64];
    snprintf(field, sizeof field, "\"compute_dtype\": \"%s\"", want);
    if (!strstr(text, field))
        fail_msg("no %s in %s: %s", field, file, text);
    ax_free(text);
}

/* What a machine would choose by itself does not change a run that began on another one. */
static void test_resuming_keeps_the_dtype(void **state) {
    (void)state;
    need_binary();
    char config[128];
    configure(config, sizeof config,
              "num_epochs: 9\nsave_steps: 1\nresume_from_checkpoint: auto\n");
#if defined(__x86_64__) /* others choose float32 by themselves */
    setenv("AXTRAIN_CPU", "avx2", 1);
#endif
    EXPECT(0, "", config, "max_steps=1");
    assert_dtype("run.json", "float32");
    unsetenv("AXTRAIN_CPU");
    EXPECT(0, "resumed", config, "max_steps=2");
    assert_dtype("run.json", "float32");
    assert_dtype("checkpoint-2/state/manifest.json", "float32");
    put_bytes("out/checkpoint-2/state/manifest.json", "{", 1);
    EXPECT(0, "out/checkpoint-1\n", config, "max_steps=2", "resume_from_checkpoint=latest-good");
    assert_dtype("checkpoint-2/state/manifest.json", "float32");
    EXPECT(0, "resumed", config, "max_steps=3", "bf16=true");
    assert_dtype("checkpoint-3/state/manifest.json", "bfloat16");
    EXPECT(0, "resumed", config, "max_steps=4"); /* goes on as the last one did */
    assert_dtype("checkpoint-4/state/manifest.json", "bfloat16");
    clear();
}

/* The loss before and after; of a run that goes on, which has none from before, the last one. */
static void test_evaluations_are_told(void **state) {
    (void)state;
    need_binary();
    char config[128];
    configure(config, sizeof config,
              "num_epochs: 9\nsave_steps: 2\neval_steps: 1\nval_set_size: 0.25\n"
              "float32: true\nresume_from_checkpoint: auto\n");
    assert_int_equal(evaluation_losses(config, "max_steps=2"), 2);
    assert_int_equal(evaluation_losses(config, "max_steps=4"), 1);
    clear();
}

/* A run in two parts is the run in one, byte for byte, and its proportions may not change. */
static void check_parts(const char *config, const char *weights, const char *others) {
    static const char *const lost[] = {"out/checkpoint-4", "out/checkpoint-6",
                                       "out/model.safetensors"};
    char *straight;
    char *parts;
    size_t n, m;
    EXPECT(0, "trained 6 of 6 steps", config, weights);
    assert_int_equal(ax_read_file(in_scratch("out/model.safetensors"), 1 << 24, &straight, &n),
                     AX_OK);
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        assert_int_equal(ax_remove_tree(in_scratch(lost[i])), AX_OK);
    EXPECT(3, "differ from those of the checkpoint", config, others);
    EXPECT(0, "trained 6 of 6 steps", config, weights);
    assert_int_equal(ax_read_file(in_scratch("out/model.safetensors"), 1 << 24, &parts, &m), AX_OK);
    assert_int_equal(n, m);
    assert_memory_equal(straight, parts, n);
    ax_free(straight);
    ax_free(parts);
    clear();
}

static void test_proportions_resume(void **state) {
    (void)state;
    need_binary();
    char config[128];
    char two[512];
    configure(config, sizeof config,
              "num_epochs: 2\nfloat32: true\nresume_from_checkpoint: auto\n"
              "save_steps: 2\n");
    check_parts(config, "datasets.0.weight=1.5", "datasets.0.weight=1.75");
    snprintf(two, sizeof two, "%s\n    type: chat_template\n  - path: %s", in_scratch("rows.jsonl"),
             in_scratch("rows.jsonl"));
    snprintf(config, sizeof config, "%s",
             put_config("m.yaml", two,
                        "max_steps: 6\nfloat32: true\nresume_from_checkpoint: auto\n"
                        "save_steps: 2\nstreaming: true\n"));
    check_parts(config, "mixing_weights=[2, 1]", "mixing_weights=[3, 1]");
}

/* An epoch's end is read again where it has an incomplete batch: a row there is unusable once. */
static void test_rows_read_again(void **state) {
    (void)state;
    need_binary();
    char config[128];
    struct ax_buf b = {0};
    assert_int_equal(ax_buf_printf(&b, "%s%s{\"messages\": 5}\n", rows, strchr(rows, '\n') + 1),
                     AX_OK);
    put_bytes("odd.jsonl", b.data, b.len);
    ax_buf_free(&b);
    snprintf(config, sizeof config, "%s",
             put_config("o.yaml", in_scratch("odd.jsonl"),
                        "max_steps: 6\nfloat32: true\nsave_strategy: 'no'\nstreaming: true\n"
                        "streaming_multipack_buffer_size: 2\ndataloader_drop_last: true\n"));
    EXPECT(3, "messages: expected a list", config);
    EXPECT(0, "step=6/6", config, "gradient_accumulation_steps=2", "max_bad_rows=1");
    clear();
}

/* Without packing a step is as long as its longest row; an evaluation may have longer ones. */
static void test_longer_evaluation_rows(void **state) {
    (void)state;
    need_binary();
    char config[128], data[160];
    configure(config, sizeof config, "max_steps: 1\nsave_strategy: 'no'\n");
    put_text("long.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one and two and two and "
             "yes and no\"}, {\"role\": \"assistant\", \"content\": \"four of them and no, no, "
             "no\"}]}\n");
    evaluate_on(data, sizeof data, "long.jsonl");
    EXPECT(0, "evaluation loss", config, data);
    clear();
}

/* ---- what a metric and a cadence mean ---- */

/* A loss that falls gets better, unless the key says that a greater one is: then the first evaluation after a step
 * stays the best. */
static void test_what_is_better(void **state) {
    (void)state;
    need_binary();
    char config[128], eval[200];
    configure(config, sizeof config,
              "float32: true\nmax_steps: 6\nnum_epochs: 9\neval_steps: 1\nsave_steps: 1\n"
              "metric_for_best_model: eval_loss\nearly_stopping_patience: 2\nwarmup_steps: 0\n");
    evaluate_on(eval, sizeof eval, "rows.jsonl");
    EXPECT(0, "trained 6 of 6 steps", config, eval);
    clear();
    EXPECT(0, "has the weights of checkpoint-1, whose eval_loss is ", config, eval,
           "greater_is_better=true");
    assert_true(metric_of("out", "loss", 3) > 0 && !ax_path_exists(in_scratch("out/checkpoint-4")));
    clear();
    EXPECT(0, "trained 6 of 6 steps", config, eval, "greater_is_better=false");
    clear();
    EXPECT(0, "the best evaluation was that of step 1, which was not saved in ", config, eval,
           "greater_is_better=true", "save_steps=2", "early_stopping_patience=null",
           "load_best_model_at_end=true");
    clear();
}

/* As in transformers' Trainer: as often as the log, unless a key says how often. */
static void test_evaluates_as_often_as_it_logs(void **state) {
    (void)state;
    need_binary();
    char config[128], eval[200];
    configure(config, sizeof config, "float32: true\nmax_steps: 4\neval_strategy: steps\n");
    evaluate_on(eval, sizeof eval, "rows.jsonl");
    EXPECT(0, "trained 4 of 4 steps", config, eval, "logging_steps=2");
    assert_true(metric_of("out", "eval_loss", 2) > 0 && metric_of("out", "eval_loss", 4) > 0);
    clear();
    EXPECT(0, "trained 4 of 4 steps", config, eval, "logging_steps=2", "eval_steps=3");
    assert_true(metric_of("out", "eval_loss", 3) > 0);
    clear();
}

/* The plan counts steps, and those of before may have had more records. */
static void test_other_steps_end_elsewhere(void **state) {
    (void)state;
    need_binary();
    char config[128], said[16384];
    configure(config, sizeof config,
              "float32: true\nnum_epochs: 8\nsave_strategy: steps\nresume_from_checkpoint: auto\n");
    const char *const same[] = {config, "max_steps=6", "gradient_accumulation_steps=2"};
    EXPECT(0, "trained 5 of 5 steps", config, "max_steps=5", "gradient_accumulation_steps=2");
    assert_int_equal(sft(said, sizeof said, 3, same), 0);
    assert_null(strstr(said, "training ends at epoch"));
    EXPECT(0, "num_epochs: training ends at epoch 11.00 instead of 8: it counts steps as", config,
           "gradient_accumulation_steps=1");
    clear();
}

/* 0 per epoch is never. */
static void test_never_in_an_epoch(void **state) {
    (void)state;
    need_binary();
    char config[128], eval[200];
    configure(config, sizeof config, "float32: true\nnum_epochs: 2\n");
    evaluate_on(eval, sizeof eval, "rows.jsonl");
    EXPECT(0, "trained 4 of 4 steps", config, eval, "saves_per_epoch=1", "evals_per_epoch=1");
    assert_true(exists("out/checkpoint-2/config.json") && exists("out/checkpoint-4/config.json"));
    assert_true(metric_of("out", "eval_loss", 2) > 0);
    clear();
    EXPECT(0, "trained 4 of 4 steps", config, eval, "saves_per_epoch=0", "evals_per_epoch=0");
    assert_false(exists("out/checkpoint-2") || exists("out/checkpoint-4"));
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch("out/metrics.jsonl"), 1 << 20, &text, &len), AX_OK);
    assert_null(strstr(text, "eval_loss"));
    ax_free(text);
    clear();
}

/* ---- what is said of the data ---- */

/* n conversations that differ, and how many digits their answers have. */
static void put_answers(struct ax_buf *b, int first, int n, int digits) {
    for (int i = first; i < first + n; i++) {
        assert_ok(ax_buf_printf(b,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"%d\"}, "
                                "{\"role\": \"assistant\", \"content\": \"",
                                i));
        for (int k = 0; k < digits; k++)
            assert_ok(ax_buf_printf(b, "%d ", (7 * i + k * k) % 10));
        assert_ok(ax_buf_puts(b, ".\"}]}\n"));
    }
}

/* Conversations of each kind, from number `first` on; those that are there twice are of the usual ones. */
static void put_kinds(const char *name, int first, int usual, int twice, int longer, int shorter) {
    struct ax_buf b = {0};
    put_answers(&b, first, usual, 12);
    put_answers(&b, first, twice, 12);
    put_answers(&b, first + 20, longer, 100);
    put_answers(&b, first + 40, shorter, 0);
    put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
}

static void check_said(const char *said, const char *const *parts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strstr(said, parts[i]))
            fail_msg("no \"%s\" in: %s", parts[i], said);
}

/* How many records of each set were left out and why, and what is left, in run.json. */
static void test_records_that_are_left_out(void **state) {
    (void)state;
    need_binary();
    static const char *const told[] = {
        "warn training data: 3 records skipped: longer than sequence_len (see excess",
        "warn training data: 2 records skipped: shorter than min_sample_len\n",
        "warn training data: 4 records skipped: equal to another one\n",
        "warn evaluation data: 1 record skipped: longer than sequence_len (see excess",
        "warn evaluation data: 8 records skipped: shorter than min_sample_len\n",
        "warn evaluation data: 2 records skipped: equal to another one\n"};
    static const char *const cut[] = {"warn training data: 3 records truncated to sequence_len\n",
                                      "warn evaluation data: 1 record truncated to sequence_len\n"};
    char config[128], sets[400], eval[300], said[16384];
    configure(config, sizeof config,
              "min_sample_len: 34\ndataset_exact_deduplication: true\nfloat32: true\n"
              "save_strategy: \"no\"\n");
    put_kinds("kinds.jsonl", 100, 7, 4, 3, 2);
    put_kinds("others.jsonl", 200, 9, 2, 1, 8);
    snprintf(sets, sizeof sets, "datasets=[{path: %s/kinds.jsonl, type: chat_template}]", scratch);
    snprintf(eval, sizeof eval,
             "test_datasets=[{path: %s/others.jsonl, type: chat_template, split: train}]", scratch);
    const char *const args[] = {config, sets, eval, "max_steps=1", "gradient_accumulation_steps=3"};
    if (sft(said, sizeof said, 5, args) != 0)
        fail_msg("%s", said);
    check_said(said, told, sizeof told / sizeof *told);
    assert_null(strstr(said, "truncated"));
    json_t *about = json_load_file(in_scratch("out/run.json"), 0, NULL);
    const json_t *data = json_object_get(about, "data");
    static const struct {
        const char *key;
        json_int_t value;
    } facts[] = {{"documents", 7},     {"rows", 7},           {"row_tokens", 64},
                 {"rows_per_step", 6}, {"rows_per_batch", 2}, {"eval_documents", 9}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (json_integer_value(json_object_get(data, facts[i].key)) != facts[i].value)
            fail_msg("%s: %lld", facts[i].key,
                     (long long)json_integer_value(json_object_get(data, facts[i].key)));
    assert_true(json_is_false(json_object_get(data, "packing")));
    json_decref(about);
    clear();
    const char *const truncating[] = {config, sets, eval, "max_steps=1",
                                      "excess_length_strategy=truncate"};
    if (sft(said, sizeof said, 5, truncating) != 0)
        fail_msg("%s", said);
    check_said(said, cut, 2);
    assert_null(strstr(said, "longer than sequence_len"));
    clear();
}

/* The file that requests a save is in output_dir, as in axolotl, unless its path is absolute. */
static void test_saves_on_request(void **state) {
    (void)state;
    need_binary();
    char config[128], absolute[256];
    snprintf(absolute, sizeof absolute, "%s/now", scratch);
    const struct {
        const char *path, *file; /* of the key, and in the scratch folder */
    } cases[] = {{"null", "out/axolotl_checkpoint.save"},
                 {"\"\"", "out/axolotl_checkpoint.save"},
                 {"save.now", "out/save.now"},
                 {absolute, "now"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char key[300];
        configure(config, sizeof config,
                  "max_steps: 4\nfloat32: true\nsave_steps: 100\n"
                  "dynamic_checkpoint: {enabled: true, check_interval: 3}\n");
        snprintf(key, sizeof key, "dynamic_checkpoint.trigger_file_path=%s", cases[i].path);
        assert_int_equal(ax_mkdir_parents(in_scratch("out")), AX_OK);
        put_bytes(cases[i].file, "", 0);
        EXPECT(0, "/out/checkpoint-3\n", config, key);
        assert_false(ax_path_exists(in_scratch(cases[i].file)));
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everyday_errors),
        cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_entropy_weights),
        cmocka_unit_test(test_dynamic_finetuning),
        cmocka_unit_test(test_output_folder),
        cmocka_unit_test(test_refused_runs_write_nothing),
        cmocka_unit_test(test_unmoved_tensors_are_told),
        cmocka_unit_test(test_divergence_is_an_error),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_run_and_go_on),
        cmocka_unit_test(test_incomplete_checkpoint),
        cmocka_unit_test(test_resuming_keeps_the_dtype),
        cmocka_unit_test(test_longer_evaluation_rows),
        cmocka_unit_test(test_evaluations_are_told),
        cmocka_unit_test(test_proportions_resume),
        cmocka_unit_test(test_rows_read_again),
        cmocka_unit_test(test_what_is_better),
        cmocka_unit_test(test_evaluates_as_often_as_it_logs),
        cmocka_unit_test(test_other_steps_end_elsewhere),
        cmocka_unit_test(test_never_in_an_epoch),
        cmocka_unit_test(test_records_that_are_left_out),
        cmocka_unit_test(test_saves_on_request),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
