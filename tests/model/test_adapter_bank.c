/* Several adapters over one base: whichever is in use, and whichever was before, generation gives
 * the bits of a model that has that adapter alone; and what cannot be together is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/adapter/load.h"
#include "model/core/adapters.h"
#include "model/generate/generate.h"
#include "model/save.h"
#include "tests/ckpt/folder.h"
#include "tests/tiny.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { MOST = 6, PROMPTS = 2, LENGTH = 11, NEW = 4 };

static char *seven[] = {"q_proj",  "k_proj",    "v_proj",   "o_proj",
                        "up_proj", "gate_proj", "down_proj"};
static char *two[] = {"v_proj", "gate_proj"};
static char *ends[] = {"q_proj", "embed_tokens", "lm_head"};
static char *saved[] = {"embed_tokens", "norm"}, *matrix[] = {"k_proj"};
static char *down[] = {"experts.down_proj"}, *both[] = {"experts.down_proj", "gate_up_proj"};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* A base in DIR/base, and adapters of it. */
struct set {
    struct ax_arch arch;
    struct ax_hf hf;
    int n;
    struct ax_peft pefts[MOST];
};

/* ---- making them ---- */

struct making {
    const struct ax_arch *arch;
    const struct ax_peft_config *config; /* NULL: the base is written, else the adapter */
    uint64_t seed;
    const char *path;
};

static enum ax_status make_body(struct ax_runtime *rt, void *ctx) {
    const struct making *j = ctx;
    struct ax_model m;
    const struct ax_model_options o = {
        .dtype = AX_F32, .train = j->config != NULL, .max_positions = 8, .adapter = j->config};
    json_t *config = json_object();
    const struct ax_model_save save = {.dir = j->path, .config = config, .dtype = AX_F32};
    AX_TRY(ax_model_create(&m, j->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 6), st, done);
    AX_TRY_GOTO(tiny_adapters(&m, j->seed), st, done);
    for (int i = 0; j->config && !ax_runtime_planning(rt) && i < m.n_params; i++) {
        const struct ax_tensor value = ax_model_value(&m, &m.params[i]);
        for (int64_t k = 0; m.params[i].trainable && k < ax_tensor_numel(&value); k++)
            ax_store(value.dtype, value.data, k, ax_load(value.dtype, value.data, k) * 1.25);
    }
    if (!ax_runtime_planning(rt))
        st = j->config ? ax_adapter_save(&m, j->path, AX_F32) : ax_model_save(&m, &save);
done:
    json_decref(config);
    ax_model_free(&m);
    return st;
}

static void make(struct making j) {
    must(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, make_body, &j,
                        NULL));
}

static enum ax_status copy_tensor(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    memcpy(out, (const float *)e->data + first, (size_t)n * sizeof(float));
    return AX_OK;
}

static enum ax_status ones(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = 0.01f * (float)((first + i) % 7);
    return AX_OK;
}

/* As PEFT: the matrix itself beside the adapter of the embedding; here another than the base's. */
static void add_base_layer(const char *from, const char *to, const struct ax_arch *arch) {
    struct ax_peft p;
    struct ax_st_output t[64];
    must(ax_peft_open(&p, from));
    assert_true(p.weights.n < 64);
    for (int i = 0; i < p.weights.n; i++) {
        struct ax_st_entry *e = &p.weights.entries[i];
        t[i] = (struct ax_st_output){
            .name = e->name, .dtype = AX_F32, .ndim = e->ndim, .fill = copy_tensor, .ctx = e};
        memcpy(t[i].shape, e->shape, sizeof e->shape);
    }
    t[p.weights.n] =
        (struct ax_st_output){.name = AX_PEFT_PREFIX "model.embed_tokens.base_layer.weight",
                              .dtype = AX_F32,
                              .ndim = 2,
                              .shape = {arch->vocab_size, arch->hidden_size},
                              .fill = ones};
    must(ax_peft_write(to, &p.config, p.weights.n + 1, t));
    ax_peft_close(&p);
}

static void set_make(struct set *s, int n, const struct ax_peft_config *configs) {
    char name[32];
    make((struct making){.arch = &s->arch, .path = in_dir("base")});
    must(ax_hf_open(&s->hf, in_dir("base")));
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "adapter-%d", i);
        make((struct making){&s->arch, &configs[i], 10 + (uint64_t)i, in_dir(name)});
        if (configs[i].targets.names == ends) {
            add_base_layer(in_dir(name), in_dir("with-base"), &s->arch);
            snprintf(name, sizeof name, "with-base");
        }
        must(ax_peft_open(&s->pefts[i], in_dir(name)));
    }
    s->n = n;
}

static void set_close(struct set *s) {
    for (int i = 0; i < s->n; i++)
        ax_peft_close(&s->pefts[i]);
    ax_hf_close(&s->hf);
    ax_arch_free(&s->arch);
    must(ax_remove_tree(dir));
    must(ax_mkdir(dir));
}

/* ---- what a model says ---- */

struct saying {
    const struct set *s;
    enum ax_dtype dtype;
    enum ax_storage store;
    int alone; /* the one adapter, or AX_ADAPTER_NONE; unused with a bank */
    bool bank;
    bool together; /* turn i is adapter i − 1, and all are asked together */
    int n;         /* turns */
    int turns[16];
    uint64_t out[16]; /* hashes of the tokens and their log-probs */
};

/* What an adapter says. */
struct said {
    int32_t tokens[PROMPTS][NEW];
    double logprobs[PROMPTS][NEW];
};

/* The prompts, for each of n adapters from `first` on, one prompt after the other. */
static enum ax_status say(struct ax_generator *g, int first, int n, uint64_t *out) {
    static struct said said[MOST + 1];
    int32_t prompts[PROMPTS][LENGTH];
    struct ax_sequence seqs[PROMPTS * (MOST + 1)];
    memset(said, 0, sizeof said);
    for (int i = 0; i < PROMPTS; i++) {
        for (int k = 0; k < LENGTH; k++)
            prompts[i][k] =
                (int32_t)ax_rng_below((struct ax_rng_key){3, 1, 0}, (uint64_t)(i * LENGTH + k), 97);
        for (int a = 0; a < n; a++)
            seqs[i * n + a] = (struct ax_sequence){.n_prompt = LENGTH,
                                                   .prompt = prompts[i],
                                                   .adapter = first + a,
                                                   .tokens = said[a].tokens[i],
                                                   .logprobs = said[a].logprobs[i]};
    }
    AX_TRY(ax_generate(g, (int64_t)PROMPTS * n, seqs));
    for (int a = 0; a < n; a++)
        out[a] = ax_hash64(&said[a], sizeof said[a], 0);
    return AX_OK;
}

static enum ax_status say_body(struct ax_runtime *rt, void *ctx) {
    struct saying *j = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct set *s = j->s;
    const struct ax_peft *one = j->bank || j->alone < 0 ? NULL : &s->pefts[j->alone];
    struct ax_adapter_bank bank = {.n = s->n, .pefts = s->pefts};
    const struct ax_model_options o = {.dtype = j->dtype,
                                       .max_positions = LENGTH + NEW,
                                       .base_store = j->store,
                                       .adapter = one ? &one->config : NULL,
                                       .bank = j->bank ? &bank : NULL};
    const struct ax_generate_options go = {.n_seqs = j->together ? 5 : 2,
                                           .max_prompt = LENGTH,
                                           .max_new = NEW,
                                           .adapters = j->together};
    AX_TRY(ax_model_create(&m, &s->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &s->hf), st, done);
    if (one)
        AX_TRY_GOTO(ax_adapter_load(&m, one), st, done);
    if (j->bank)
        AX_TRY_GOTO(ax_adapter_bank_load(&m, &s->hf), st, done);
    AX_TRY_GOTO(ax_generator_create(&g, &m, &go), st, done);
    if (j->together)
        AX_TRY_GOTO(say(&g, AX_ADAPTER_NONE, j->n, j->out), st, done);
    for (int i = 0; i < j->n && !j->together; i++) {
        if (j->bank)
            AX_TRY_GOTO(ax_adapter_bank_use(&m, j->turns[i]), st, done);
        ax_generator_forget(&g);
        AX_TRY_GOTO(say(&g, j->turns[i], 1, &j->out[i]), st, done);
    }
done:
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static enum ax_status run(struct saying *j) {
    return ax_runtime_run(&(struct ax_runtime_options){.backend = "cpu", .threads = 1}, say_body, j,
                          NULL);
}

/* Every adapter after every other one, after the base, and after itself. */
static void compare(const struct set *s, enum ax_dtype dtype, enum ax_storage store) {
    uint64_t want[MOST + 1];
    struct saying j = {.s = s, .dtype = dtype, .store = store, .n = 1};
    for (int i = -1; i < s->n; i++) {
        j.alone = i;
        must(run(&j));
        want[i + 1] = j.out[0];
        for (int k = -1; k < i; k++)
            assert_true(want[i + 1] != want[k + 1]);
    }
    j.bank = true;
    for (int i = -1; i < s->n; i++) {
        j.n = 0;
        for (int k = -1; k < s->n; k++) {
            j.turns[j.n++] = i;
            j.turns[j.n++] = k;
        }
        must(run(&j));
        for (int k = 0; k < j.n; k++)
            if (j.out[k] != want[j.turns[k] + 1])
                fail_msg("turn %d: adapter %d is not what it is alone (%s, %s)", k, j.turns[k],
                         ax_dtype_info(dtype)->name, ax_storage_name(store));
    }
    j.together = true;
    j.n = s->n + 1;
    must(run(&j));
    for (int k = 0; k < j.n; k++)
        if (j.out[k] != want[k])
            fail_msg("among others, adapter %d is not what it is alone (%s, %s)", k - 1,
                     ax_dtype_info(dtype)->name, ax_storage_name(store));
}

/* ---- tests ---- */

static const struct ax_peft_config dense[] = {
    {.r = 3, .alpha = 6, .targets = {2, two}},
    {.r = 5, .alpha = 3, .rslora = true, .targets = {7, seven}},
    {.r = 2, .alpha = 4, .dora = true, .targets = {2, two}},
    {.r = 1, .alpha = 2, .targets = {1, seven}, .save = {2, saved}},
    {.r = 4, .alpha = 4, .targets = {3, ends}},
};

static void one_after_the_other(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct set s = {0};
        must(tiny_arch(&s.arch, tied ? "llama" : "qwen2", tied != 0, ""));
        set_make(&s, COUNT(dense), dense);
        compare(&s, AX_F32, AX_STORAGE_PLAIN);
        compare(&s, AX_BF16, AX_STORAGE_NF4);
        compare(&s, AX_F32, tied ? AX_STORAGE_NF4_DOUBLE : AX_STORAGE_INT8);
        set_close(&s);
    }
}

static void adapters_of_experts(void **state) {
    (void)state;
    const struct ax_peft_config configs[] = {
        {.r = 2, .alpha = 4, .targets = {1, two}, .parameters = {2, both}},
        {.r = 3, .alpha = 3, .rslora = true, .parameters = {1, down}},
        {.r = 3, .alpha = 3, .targets = {1, two}},
    };
    struct set s = {0};
    must(tiny_arch(&s.arch, "mixtral", false,
                   ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2"));
    set_make(&s, COUNT(configs), configs);
    compare(&s, AX_F32, AX_STORAGE_PLAIN);
    compare(&s, AX_F32, AX_STORAGE_NF4);
    set_close(&s);
}

static void saved_matrices(void **state) {
    (void)state;
    const struct ax_peft_config configs[] = {
        {.r = 2, .alpha = 4, .targets = {1, two}, .save = {1, matrix}},
        {.r = 3, .alpha = 3, .targets = {2, seven}}, /* adapts what the other one replaces */
    };
    struct set s = {0};
    must(tiny_arch(&s.arch, "llama", false, ""));
    set_make(&s, COUNT(configs), configs);
    compare(&s, AX_F32, AX_STORAGE_PLAIN);
    struct saying j = {.s = &s, .dtype = AX_F32, .store = AX_STORAGE_NF4, .bank = true, .n = 1};
    assert_int_equal(run(&j), AX_ERR_UNSUPPORTED);
    assert_mentions("/adapter-0: modules_to_save: the adapter contains a full "
                    "model.layers.0.self_attn.k_proj.weight");
    set_close(&s);
}

static void the_one_that_does_not_fit_is_named(void **state) {
    (void)state;
    struct set s = {0};
    struct ax_arch other;
    must(tiny_arch(&s.arch, "llama", false, ""));
    must(tiny_arch(&other, "llama", false, ""));
    other.n_kv_heads = 4;
    set_make(&s, 2, dense);
    make((struct making){&other, &dense[0], 3, in_dir("other")});
    ax_peft_close(&s.pefts[1]);
    must(ax_peft_open(&s.pefts[1], in_dir("other")));
    struct saying j = {.s = &s, .dtype = AX_F32, .bank = true, .n = 1};
    assert_int_equal(run(&j), AX_ERR_DATA);
    assert_mentions("/other: base_model.model.");
    assert_mentions("the adapter is for another model");
    s.pefts[1].config.targets.n = 1;
    s.pefts[1].config.targets.names[0][0] = 'w';
    assert_int_equal(run(&j), AX_ERR_CONFIG);
    assert_mentions("/other: target_modules: \"w_proj\" matches no module");
    s.pefts[1].config.targets.n = 2;
    ax_arch_free(&other);
    set_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(adapters_of_experts),
        cmocka_unit_test(saved_matrices),
        cmocka_unit_test(the_one_that_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
