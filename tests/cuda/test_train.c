/* The program with the emulated backend cuda, beside AX_TEST_BIN: a configuration with device: cuda trains,
 * evaluates, answers, saves and resumes as on the cpu; what is missing is said in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda/program_case.h"
#include "tests/skip.h"

#define STEPS 10

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"two and two\"}, {\"role\": \"assistant\", "
    "\"content\": \"four of them\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say no\"}, {\"role\": \"assistant\", "
    "\"content\": \"no, no, no\"}]}\n";

/* Whether the GPU is the emulator, with its variables. */
#ifdef AX_CUDA_EMULATED
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

/* A configuration that trains `base` for STEPS steps; its path. */
static const char *configure(const char *base) {
    static char path[256];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\ntokenizer_config: %s\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s\n    type: chat_template\nchat_template: chatml\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 2\n"
                      "gradient_accumulation_steps: 1\nlogging_steps: 1\nmax_steps: %d\n"
                      "num_epochs: 10\nsave_strategy: \"no\"\neval_steps: 5\n"
                      "test_datasets:\n  - path: %s\n    type: chat_template\n    split: train\n",
                      model(base), golden_llama(), scratch, in_scratch("rows.jsonl"), STEPS,
                      in_scratch("rows.jsonl")),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static const char *in_folder(const char *name) {
    static char key[256];
    snprintf(key, sizeof key, "output_dir=%s/%s", scratch, name);
    return key;
}

static void train(const char *config, const char *out, const char *device, int n,
                  const char *const *more) {
    const char *args[SFT_ARGS] = {config};
    char dev[64], said[8192];
    snprintf(dev, sizeof dev, "device=%s", device);
    args[1] = in_folder(out);
    args[2] = dev;
    for (int i = 0; i < n; i++)
        args[3 + i] = more[i];
    const int code = sft(said, sizeof said, 3 + n, args);
    if (code != 0)
        fail_msg("exit %d on %s: %s", code, device, said);
}

static void compare(const char *base, const char *key, int step, double allowed) {
    const double want = metric_of("cpu", key, step), got = metric_of("cuda", key, step);
    if (fabs(got - want) > allowed * fabs(want))
        fail_msg("%s, step %d: %s %.9g on cuda, %.9g on cpu", base, step, key, got, want);
}

static void compare_all(const char *base, double allowed) {
    for (int step = 1; step <= STEPS; step++)
        compare(base, "loss", step, allowed);
    compare(base, "eval_loss", STEPS, allowed);
}

/* The same on both, and the losses of all steps and of the evaluation are as close as `allowed`, relative. */
static void train_on_both(const char *base, double allowed, int n, const char *const *more) {
    const char *config = configure(base);
    assert_int_equal(ax_remove_tree(in_scratch("cpu")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("cuda")), AX_OK);
    train(config, "cpu", "cpu", n, more);
    train(config, "cuda", "cuda", n, more);
    compare_all(base, allowed);
}
#define TRAIN_ON_BOTH(base, allowed, ...)                                                          \
    do {                                                                                           \
        const char *const more_[] = {__VA_ARGS__};                                                 \
        train_on_both(base, allowed, (int)(sizeof more_ / sizeof *more_), more_);                  \
    } while (0)

static void dense_float32_is_the_cpus(void **state) {
    (void)state;
    TRAIN_ON_BOTH("llama", 1e-5, "float32=true");
    TRAIN_ON_BOTH("llama", 1e-5, "float32=true", "sample_packing=true", "pad_to_sequence_len=true",
                  "gradient_checkpointing=true");
}

static void dense_bf16_is_the_cpus(void **state) {
    (void)state;
    TRAIN_ON_BOTH("llama", 1e-2, "bf16=true");
    TRAIN_ON_BOTH("qwen3", 1e-2, "bf16=true", "adapter=lora", "lora_r=4", "lora_alpha=8",
                  "lora_target_linear=true");
}

static void experts_are_the_cpus(void **state) {
    (void)state;
    TRAIN_ON_BOTH("qwen3_moe", 1e-5, "float32=true");
    /* Adam's first steps are ±learning_rate whatever the gradient: at 1e-3 the cpu's own bf16 is 1.5 %
     * from its float32. */
    TRAIN_ON_BOTH("mixtral", 1e-2, "bf16=true", "learning_rate=1e-4");
}

/* The first pass has the cpu's codes, or its loss would not be the cpu's. A GPU without products of 8-bit floats
 * multiplies their values, with the same gradients as far as codes are the same: those of the first step. Later
 * a number in the middle between two codes goes either way: 8-bit floats differ by an eighth, those of gradients by
 * a fourth. */
static void recipe_is_the_cpus(const char *recipe) {
    const char *config = configure("llama");
    const char *const more[] = {"float32=true",  "fp8=true",           recipe,
                                "optimizer=sgd", "learning_rate=1e-2", "max_steps=3"};
    assert_int_equal(ax_remove_tree(in_scratch("cpu")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("cuda")), AX_OK);
    train(config, "cpu", "cpu", 6, more);
    train(config, "cuda", "cuda", 6, more);
    compare("llama", "loss", 1, 1e-6);
    for (int step = 2; step <= 3; step++)
        compare("llama", "loss", step, 0.02);
    setenv("AXTRAIN_EMULATED_CAPABILITY", "8", 1);
    assert_int_equal(ax_remove_tree(in_scratch("cpu")), AX_OK);
    train(config, "cpu", "cuda", 6, more); /* "cpu": what is compared with */
    unsetenv("AXTRAIN_EMULATED_CAPABILITY");
    compare("llama", "loss", 1, 1e-6);
    compare("llama", "grad_norm", 1, 1e-5);
}

static void fp8_is_the_cpus(void **state) {
    (void)state;
    recipe_is_the_cpus("fp8_recipe=tensorwise");
    recipe_is_the_cpus("fp8_recipe=rowwise");
}

static void qlora_is_the_cpus(void **state) {
    (void)state;
    TRAIN_ON_BOTH("llama", 1e-5, "float32=true", "adapter=qlora", "load_in_4bit=true", "lora_r=4",
                  "lora_alpha=8", "lora_target_linear=true");
}

/* Copies from and to the host's memory beside the step, in another order of streams. */
static void offloading_has_the_same_bits(void **state) {
    (void)state;
    static const char *const keys[] = {"loss", "grad_norm"};
    const char *config = configure("llama");
    const char *const more[] = {"bf16=true",
                                "adapter=lora",
                                "lora_r=4",
                                "lora_alpha=8",
                                "max_steps=4",
                                "lora_target_linear=true",
                                "gradient_checkpointing=true",
                                "layer_offloading=true",
                                "activation_offloading=true",
                                "fsdp_config.offload_params=true"};
    assert_int_equal(ax_remove_tree(in_scratch("cpu")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("cuda")), AX_OK);
    train(config, "cpu", "cuda", 7, more); /* "cpu": what is compared with */
    setenv("AXTRAIN_CUDA_SEED", "3", 1);
    train(config, "cuda", "cuda", 10, more);
    unsetenv("AXTRAIN_CUDA_SEED");
    for (int step = 1; step <= 4; step++)
        for (int k = 0; k < 2; k++)
            compare("llama", keys[k], step, 0);
}

/* Two GPUs, a process each, are one cpu with as many micro-batches; the host waits for the loss, and for the counts
 * of each layer of experts. */
static void compare_ranks(const char *base, int expert_layers, const char *mesh) {
    const char *config = configure(base);
    const char *const one[] = {"float32=true", "gradient_accumulation_steps=2"};
    const char *const two[] = {"float32=true", "dp_shard_size=2", mesh};
    assert_int_equal(ax_remove_tree(in_scratch("cpu")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("cuda")), AX_OK);
    train(config, "cpu", "cpu", 2, one);
    setenv("AXTRAIN_EMULATED_GPUS", "2", 1);
    train(config, "cuda", "cuda", mesh ? 3 : 2, two);
    unsetenv("AXTRAIN_EMULATED_GPUS");
    compare_all(base, 1e-5);
    assert_true(metric_of("cuda", "waits", STEPS - 1) == expert_layers + 1);
}

static void ranks_are_one_cpu(void **state) {
    (void)state;
    compare_ranks("llama", 0, NULL);
    compare_ranks("mixtral", 2, "expert_parallel_size=2");
}

/* ---- what it leaves ---- */

static bool is_same_model(const char *a, const char *b) {
    char path[512], *x, *y;
    size_t n, m;
    snprintf(path, sizeof path, "%s/%s/model.safetensors", scratch, a);
    assert_int_equal(ax_read_file(path, 1 << 24, &x, &n), AX_OK);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", scratch, b);
    assert_int_equal(ax_read_file(path, 1 << 24, &y, &m), AX_OK);
    const bool same = n == m && memcmp(x, y, n) == 0;
    ax_free(x);
    ax_free(y);
    return same;
}

/* Ten steps are five and five, in another order of streams and warps. */
static void resumed_runs_have_the_same_bits(void **state) {
    (void)state;
    const char *config = configure("llama");
    const char *const half[] = {"save_strategy=steps", "save_steps=5", "bf16=true", "max_steps=5",
                                "lr_scheduler=constant"};
    const char *const whole[] = {"save_strategy=steps", "save_steps=5", "bf16=true",
                                 "lr_scheduler=constant"};
    const char *const rest[] = {
        "save_strategy=steps",         "save_steps=5",          "bf16=true",
        "resume_from_checkpoint=auto", "lr_scheduler=constant", "resume_with_changes=true"};
    assert_int_equal(ax_remove_tree(in_scratch("a")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("b")), AX_OK);
    train(config, "a", "cuda", 4, whole);
    setenv("AXTRAIN_CUDA_SEED", "3", 1);
    train(config, "b", "cuda", 5, half);
    train(config, "b", "cuda", 6, rest);
    unsetenv("AXTRAIN_CUDA_SEED");
    assert_true(is_same_model("a", "b"));
}

/* Steps 1 … 4 on a machine that has measured nothing yet, with the fastest algorithm as named; what it
 * says. */
static void train_alone(const char *config, const char *out, const char *steps, const char *fastest,
                        char *said, size_t size) {
    const char *const args[] = {config,
                                in_folder(out),
                                "device=cuda",
                                "float32=true",
                                "save_strategy=steps",
                                "save_steps=2",
                                "lr_scheduler=constant",
                                "resume_from_checkpoint=auto",
                                "resume_with_changes=true",
                                "logging_steps=1",
                                steps};
    setenv("XDG_CACHE_HOME", in_scratch("fresh"), 1);
    assert_int_equal(ax_remove_tree(in_scratch("fresh")), AX_OK);
    setenv("AXTRAIN_EMULATED_FASTEST", fastest, 1);
    const int code = sft(said, size, 11, args);
    unsetenv("AXTRAIN_EMULATED_FASTEST");
    setenv("XDG_CACHE_HOME", scratch, 1);
    if (code != 0)
        fail_msg("exit %d: %s", code, said);
}

/* Which algorithms compute the products is part of the state: a resumed run has those of the checkpoint,
 * whatever is the fastest now. */
static void resumed_runs_have_the_same_algorithms(void **state) {
    (void)state;
    char said[1 << 14];
    const char *config = configure("llama");
    train_alone(config, "favorite", "max_steps=4", "0", said, sizeof said);
    train_alone(config, "second", "max_steps=4", "1", said, sizeof said);
    assert_false(is_same_model("favorite", "second"));
    train_alone(config, "resumed", "max_steps=2", "1", said, sizeof said);
    train_alone(config, "resumed", "max_steps=4", "2", said, sizeof said);
    assert_true(is_same_model("resumed", "second"));
    assert_null(strstr(said, "measured again"));
    train_alone(config, "moved", "max_steps=2", "1", said, sizeof said);
    setenv("AXTRAIN_EMULATED_GPU", "another GPU", 1);
    train_alone(config, "moved", "max_steps=4", "2", said, sizeof said);
    unsetenv("AXTRAIN_EMULATED_GPU");
    assert_non_null(strstr(said, "the checkpoint: its algorithms"));
    assert_false(is_same_model("moved", "second"));
}

/* A number of a command's --json. */
static double number(const char *command, const char *key, int n, const char *const *args) {
    char said[1 << 14], quoted[64];
    sft_command = command;
    const int code = sft(said, sizeof said, n, args);
    sft_command = "sft";
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(said, quoted);
    if (code != 0 || !at)
        fail_msg("%s: exit %d: %s", command, code, said);
    return strtod(at + strlen(quoted), NULL);
}

static double evaluated(const char *config, const char *device) {
    const char *const args[] = {"--model", model("llama"), "--config", config,  "--device",
                                device,    "--dtype",      "float32",  "--json"};
    return number("eval", "mean_nll", 9, args);
}

static void evaluations_are_the_cpus(void **state) {
    (void)state;
    const char *config = configure("llama");
    const double cpu = evaluated(config, "cpu"), cuda = evaluated(config, "cuda");
    if (!(cpu > 1) || fabs(cuda - cpu) > 1e-6 * cpu)
        fail_msg("%.9g on cuda, %.9g on cpu", cuda, cpu);
}

static void answers_are_the_cpus(void **state) {
    (void)state;
    char cpu[8192], cuda[8192];
    need_binary();
    const char *const on_cpu[] = {"--model",          model("llama"), "--prompt", "one and one",
                                  "--max-new-tokens", "12",           "--device", "cpu",
                                  "--dtype",          "float32"};
    const char *const on_cuda[] = {"--model",          model("llama"), "--prompt", "one and one",
                                   "--max-new-tokens", "12",           "--device", "cuda",
                                   "--dtype",          "float32"};
    sft_command = "generate";
    assert_int_equal(sft(cpu, sizeof cpu, 10, on_cpu), 0);
    const int code = sft(cuda, sizeof cuda, 10, on_cuda);
    if (code != 0)
        fail_msg("exit %d: %s", code, cuda);
    *strstr(cuda, "info generated") = '\0'; /* and how fast */
    *strstr(cpu, "info generated") = '\0';
    assert_string_equal(cuda, cpu);
    sft_command = "sft";
}

/* ---- memory ---- */

static double planned(const char *config, const char *gpus) {
    const char *const args[] = {config, "device=cuda", "--json"};
    setenv("AXTRAIN_EMULATED_GPUS", gpus, 1);
    const double bytes = number("plan", "arena_bytes", 3, args);
    unsetenv("AXTRAIN_EMULATED_GPUS");
    return bytes;
}

static void plans_need_no_gpu(void **state) {
    (void)state;
    const char *config = configure("llama");
    const double without = planned(config, "0");
    assert_true(without > 0);
    assert_true(without == planned(config, "1"));
}

static void too_little_memory_is_refused(void **state) {
    (void)state;
    const char *config = configure("llama");
    setenv("AXTRAIN_EMULATED_MEMORY", "67108864", 1);
    EXPECT(5, "memory: training needs", config, "device=cuda", in_folder("small"));
    unsetenv("AXTRAIN_EMULATED_MEMORY");
    setenv("AXTRAIN_EMULATED_USED", "68652367872", 1); /* by others: all but 64 MiB of 64 GiB */
    EXPECT(5, "What would help: ", config, "device=cuda", in_folder("small"));
    unsetenv("AXTRAIN_EMULATED_USED");
}

/* Of `ranks` GPUs: beside the plan. */
static double beside(const char *config, const char *ranks) {
    const char *const args[] = {config, "device=cuda", "--json", "--world", ranks};
    return number("plan", "other_bytes", 5, args);
}

/* The driver, its libraries and NCCL's buffers take memory that no plan has. */
static void memory_beside_the_plan_is_counted(void **state) {
    (void)state;
    const char *config = configure("llama");
    const double gib = 1073741824;
    assert_true(beside(config, "1") == gib);
    assert_true(beside(config, "2") == 3 * gib); /* fsdp and three others */
    setenv("AXTRAIN_EMULATED_MEMORY", "1073741824", 1);
    EXPECT(5, "but only 1.00 GiB are free", config, "device=cuda", in_folder("small"));
    unsetenv("AXTRAIN_EMULATED_MEMORY");
}

/* Ranks of a host do not share a GPU's memory: half of it would be too little. */
static void each_rank_has_all_of_its_gpu(void **state) {
    (void)state;
    const char *const two[] = {"max_steps=1", "dp_shard_size=2"};
    const char *config = configure("llama");
    setenv("AXTRAIN_EMULATED_GPUS", "2", 1);
    setenv("AXTRAIN_EMULATED_MEMORY", "4294967296", 1); /* 4 GiB */
    train(config, "own", "cuda", 2, two);
    setenv("AXTRAIN_EMULATED_MEMORY", "2147483648", 1);
    EXPECT(5, "only 2.00 GiB are free", config, "device=cuda", in_folder("small"),
           "dp_shard_size=2");
    unsetenv("AXTRAIN_EMULATED_MEMORY");
    unsetenv("AXTRAIN_EMULATED_GPUS");
}

/* ---- what is missing ---- */

/* `device: cuda` ends for the reason; auto trains on the cpu, and says it where a GPU is on the bus. */
static void expect_missing(const char *config, const char *variable, const char *value,
                           const char *reason) {
    char said[8192];
    const char *const automatic[] = {config, "max_steps=1", in_folder("auto")};
    setenv(variable, value, 1);
    EXPECT(2, reason, config, "device=cuda", in_folder("auto"));
    assert_int_equal(ax_remove_tree(in_scratch("auto")), AX_OK);
    setenv("AX_PCI_DEVICES", in_scratch("bus"), 1);
    assert_int_equal(sft(said, sizeof said, 3, automatic), 0);
    if (!strstr(said, "device: cpu. device cuda: ") || !strstr(said, reason))
        fail_msg("%s=%s: %s", variable, value, said);
    setenv("AX_PCI_DEVICES", "/nowhere", 1);
    assert_int_equal(ax_remove_tree(in_scratch("auto")), AX_OK);
    assert_int_equal(sft(said, sizeof said, 3, automatic), 0);
    if (strstr(said, "device cuda"))
        fail_msg("%s=%s: %s", variable, value, said);
    unsetenv("AX_PCI_DEVICES");
    unsetenv(variable);
}

static void what_is_missing_is_said(void **state) {
    (void)state;
    const char *config = configure("llama");
    assert_int_equal(ax_mkdir_parents(in_scratch("bus/gpu")), AX_OK);
    assert_int_equal(ax_write_file_atomic(in_scratch("bus/gpu/vendor"), "0x10de", 6), AX_OK);
    assert_int_equal(ax_write_file_atomic(in_scratch("bus/gpu/class"), "0x030200", 8), AX_OK);
    EXPECT(2, "device: ", config, "device=gpu");
    expect_missing(config, "AXTRAIN_EMULATED_DRIVER", "0", "there is no NVIDIA driver");
    expect_missing(config, "AXTRAIN_EMULATED_DRIVER", "12080",
                   "the NVIDIA driver is for CUDA 12.8");
    expect_missing(config, "AXTRAIN_EMULATED_GPUS", "0", "no GPU is visible");
    expect_missing(config, "AXTRAIN_EMULATED_CAPABILITY", "7", "has compute capability 7.0");
    expect_missing(config, "AXTRAIN_EMULATED_MISSING", "libcublasLt.so.13", "libcublasLt.so.13");
    expect_missing(config, "AXTRAIN_EMULATED_CUBLASLT", "120900",
                   "libcublasLt.so.13 is cuBLASLt 12.9. Install CUDA 13's libraries");
}

/* Trains a step whose attention, or a part of it, is ours, and says once why. */
static void expect_own(const char *config, const char *variable, const char *value,
                       const char *part, const char *reason) {
    char said[8192], slow[64];
    snprintf(slow, sizeof slow, "cuda: attention %s: ", part);
    const char *const args[] = {config, "max_steps=1", "bf16=true", "device=cuda",
                                in_folder("slow")};
    assert_int_equal(ax_remove_tree(in_scratch("slow")), AX_OK);
    setenv(variable, value, 1);
    assert_int_equal(sft(said, sizeof said, 5, args), 0);
    unsetenv(variable);
    const char *at = strstr(said, slow);
    if (!at || strstr(said, "cuda: attention") != at ||
        strncmp(at + strlen(slow), reason, strlen(reason)) != 0 || strstr(at + 1, slow))
        fail_msg("%s=%s: %s", variable, value, said);
}
static void expect_slow(const char *config, const char *variable, const char *value,
                        const char *reason) {
    expect_own(config, variable, value, "by our own kernels", reason);
}

static void slow_attention_is_said(void **state) {
    (void)state;
    const char *config = configure("llama");
    expect_slow(config, "AXTRAIN_EMULATED_CUDNN", "91002",
                "libcudnn.so.9 is cuDNN 9.10. Install 9.12 or later");
    expect_slow(config, "AXTRAIN_EMULATED_MISSING", "libcudnn.so.9", "device cuda: no stand-in");
    expect_slow(config, "AXTRAIN_EMULATED_MISSING", "libaxtrain-cudnn.so",
                "device cuda: no stand-in");
    expect_slow(config, "AXTRAIN_EMULATED_MISSING", "libcudart.so.13", "device cuda: no stand-in");
    expect_own(config, "AXTRAIN_EMULATED_CUDNN", "91400", "backward by our own kernel",
               "cuDNN: backward by 9.14 can be wrong. Install 9.19 or later");
}

/* Before 9.25, cuDNN wants memory for backward of long documents, but not for one whose bits may vary. */
static void attention_varies_where_it_may(void **state) {
    (void)state;
    const char *config = configure("llama");
    static const char *const keys[] = {"attention_deterministic=true",
                                       "attention_deterministic=false"};
    setenv("AXTRAIN_EMULATED_CUDNN", "91900", 1);
    for (int varies = 0; varies < 2; varies++) {
        char said[8192];
        const char *const args[] = {config,
                                    "max_steps=1",
                                    "bf16=true",
                                    "device=cuda",
                                    "sequence_len=2048",
                                    "sample_packing=true",
                                    keys[varies],
                                    in_folder("deterministic")};
        assert_int_equal(ax_remove_tree(in_scratch("deterministic")), AX_OK);
        assert_int_equal(sft(said, sizeof said, 8, args), 0);
        if ((strstr(said, "backward by our own kernel: cuDNN: it needs more workspace") == NULL) !=
            varies)
            fail_msg("%s: %s", keys[varies], said);
    }
    unsetenv("AXTRAIN_EMULATED_CUDNN");
}

/* `axtrain env`, whose lines are a word and what it says. */
static void expect_fact(const char *said, const char *key, const char *fact) {
    const char *at = strstr(said, key);
    while (at && at > said && at[-1] != '\n')
        at = strstr(at + 1, key);
    const char *value = at ? at + strcspn(at, " ") : "";
    value += strspn(value, " ");
    if (strncmp(value, fact, strlen(fact)) != 0)
        fail_msg("no %s \"%s\" in: %s", key, fact, said);
}

static void versions_are_listed(void **state) {
    (void)state;
    char said[8192];
    need_binary();
    sft_command = "env";
    setenv("AXTRAIN_EMULATED_NCCL", "22605", 1);
    const int code = sft(said, sizeof said, 0, NULL);
    unsetenv("AXTRAIN_EMULATED_NCCL");
    sft_command = "sft";
    assert_int_equal(code, 0);
    expect_fact(said, "cuda_driver", "13.0\n");
    expect_fact(said, "cuda_runtime", "13.0\n");
    expect_fact(said, "cublaslt", "13.1.0\n");
    expect_fact(said, "cudnn", "9.28.1\n");
    expect_fact(said, "nccl", "none, for one GPU only: device cuda: libnccl.so.2 is NCCL 2.26.");
}

/* A rank for each GPU; that there were two is what their launcher says. */
static void hosts_with_several_gpus_use_all(void **state) {
    (void)state;
    const char *config = configure("llama");
    char said[8192];
    const char *const on_cpu[] = {config, "max_steps=1", in_folder("one"), "device=cpu"};
    const char *const on_cuda[] = {config, "max_steps=1", in_folder("one"), "device=cuda"};
    setenv("AXTRAIN_EMULATED_GPUS", "2", 1);
    setenv("AXTRAIN_EMULATED_NCCL", "22603", 1);
    EXPECT(2, "libnccl.so.2 is NCCL 2.26. Install NCCL 2.27 or later", config, "device=cuda",
           in_folder("one"));
    unsetenv("AXTRAIN_EMULATED_NCCL");
    setenv("AXTRAIN_EMULATED_MISSING", "libnccl.so.2", 1);
    EXPECT(2, "2 GPUs: one rank each", config, "max_steps=1", in_folder("one"));
    EXPECT(2, "libnccl.so.2", config, "device=cuda", in_folder("one"));
    assert_int_equal(ax_remove_tree(in_scratch("one")), AX_OK);
    assert_int_equal(sft(said, sizeof said, 4, on_cpu), 0);
    assert_null(strstr(said, "one rank each"));
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    assert_int_equal(ax_remove_tree(in_scratch("one")), AX_OK);
    assert_int_equal(sft(said, sizeof said, 4, on_cuda), 0);
    assert_null(strstr(said, "one rank each"));
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    setenv("AXTRAIN_EMULATED_GPUS", "1", 1);
    assert_int_equal(ax_remove_tree(in_scratch("one")), AX_OK);
    assert_int_equal(sft(said, sizeof said, 4, on_cuda), 0);
    assert_null(strstr(said, "one rank each"));
    unsetenv("AXTRAIN_EMULATED_GPUS");
    unsetenv("AXTRAIN_EMULATED_MISSING");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        unit_test_if(EMULATED, what_is_missing_is_said),
        unit_test_if(EMULATED, slow_attention_is_said),
        unit_test_if(EMULATED, attention_varies_where_it_may),
        unit_test_if(EMULATED, versions_are_listed),
        unit_test_if(EMULATED, hosts_with_several_gpus_use_all),
        unit_test_if(EMULATED, too_little_memory_is_refused),
        unit_test_if(EMULATED, memory_beside_the_plan_is_counted),
        unit_test_if(EMULATED, each_rank_has_all_of_its_gpu),
        unit_test_if(EMULATED, plans_need_no_gpu),
        cmocka_unit_test(dense_float32_is_the_cpus),
        cmocka_unit_test(dense_bf16_is_the_cpus),
        cmocka_unit_test(experts_are_the_cpus),
        unit_test_if(EMULATED, fp8_is_the_cpus),
        cmocka_unit_test(qlora_is_the_cpus),
        unit_test_if(EMULATED, ranks_are_one_cpu),
        cmocka_unit_test(offloading_has_the_same_bits),
        cmocka_unit_test(resumed_runs_have_the_same_bits),
        unit_test_if(EMULATED, resumed_runs_have_the_same_algorithms),
        cmocka_unit_test(evaluations_are_the_cpus),
        cmocka_unit_test(answers_are_the_cpus),
    };
    return cmocka_run_group_tests_name("cuda training", tests, program_begin, scratch_remove);
}
