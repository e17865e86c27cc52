/* Models with a vision tower: the text model is the golden one, what is trained, and all that changes
 * in what is saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "model/arch/classifier.h"
#include "model/arch/family.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

/* How a folder of the kind spells the names before "model." and "lm_head.", and whether experts are stacked. */
struct kind {
    const char *type, *golden, *body, *head;
    bool stacks;
};
static const struct kind kinds[] = {
    {"gemma3", "gemma3_text", "language_model.", "language_model.", false},
    {"gemma3n", "gemma3n", "model.language_", "", false},
    {"gemma4", "gemma4", "model.language_", "", false},
    {"gemma4", "gemma4_moe", "model.language_", "", false},
    {"llama4", "llama4", "language_model.", "language_model.", false},
    {"llava", "llama", "language_model.", "language_model.", false},
    {"llava_next", "granite", "language_model.", "language_model.", false},
    {"mistral3", "mistral", "language_model.", "language_model.", false},
    {"qwen3_5", "qwen3_5", "model.language_", "", false},
    {"qwen3_5_moe", "qwen3_5_moe", "model.language_", "", true},
    {"qwen3_vl", "qwen3", "model.language_", "", false},
    {"smolvlm", "llama_bias", "model.text_", "", false},
};
#define LLAVA (&kinds[5])

/* Tensors of a tower; the first two have names like those of the text model's layers. */
static const char *const tower[] = {"vision_tower.layers.3.self_attn.q_proj.weight",
                                    "visual.model.layers.0.mlp.up_proj.weight", "image_newline"};
#define N_TOWER 3

static enum ax_status fill_tower(void *ctx, int64_t first, int64_t n, void *out) {
    uint16_t *p = out; /* any bits: those of a NaN, too */
    for (int64_t i = 0; i < n; i++)
        p[i] = (uint16_t)((first + i) * 40503 + *(const char *)ctx);
    return AX_OK;
}

static enum ax_status fill_text(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

/* Matrices of experts, one after the other. */
struct stack {
    int n;
    const struct ax_st_entry *parts[16];
};

static enum ax_status fill_stack(void *ctx, int64_t first, int64_t n, void *out) {
    const struct stack *s = ctx;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t of = s->parts[0]->numel;
        const struct ax_st_entry *e = s->parts[i / of];
        AX_TRY(ax_st_read(e, i % of, 1, e->dtype,
                          (char *)out + (i - first) * (int64_t)ax_dtype_size(e->dtype)));
    }
    return AX_OK;
}

/* Makes the first of a stack's matrices, t, the whole stack; a false answer leaves the others out. */
static bool stack_experts(const struct ax_hf *hf, struct ax_st_output *t, char *name,
                          struct stack *s) {
    char *number = strstr(name, ".experts."), part[200];
    if (!number)
        return true;
    number += strlen(".experts.");
    const bool gate = strncmp(number, "0.gate_proj", 11) == 0;
    const bool down = strncmp(number, "0.down_proj", 11) == 0;
    if (!gate && !down)
        return false;
    const char *const halves[] = {"gate_proj", "up_proj"}, *const whole[] = {"down_proj"};
    const char *own = ((const struct ax_st_entry *)t->ctx)->name;
    int experts = 0;
    for (s->n = 0;; experts++)
        for (int i = 0; i < 1 + gate; i++) {
            snprintf(part, sizeof part, "%.*s%d.%s.weight",
                     (int)(strstr(own, ".experts.") + strlen(".experts.") - own), own, experts,
                     gate ? halves[i] : whole[i]);
            const struct ax_st_entry *e = ax_hf_find(hf, part);
            if (!e)
                goto all;
            s->parts[s->n++] = e;
        }
all:
    snprintf(number, strlen(number) + 1, gate ? "gate_up_proj" : "down_proj");
    t->ndim = 3;
    t->shape[2] = t->shape[1];
    t->shape[1] = t->shape[0] * (1 + gate);
    t->shape[0] = experts;
    t->fill = fill_stack;
    t->ctx = s;
    return true;
}

static json_t *config_of(const struct kind *k, const char *file) {
    char name[96];
    struct ax_json_doc doc;
    snprintf(name, sizeof name, "models/%s/%s", k->golden, file);
    assert_ok(ax_json_load(&doc, golden_path(name), 1 << 20));
    json_t *text = json_incref(doc.root);
    json_object_del(text, "architectures");
    ax_json_free(&doc);
    const char *architecture = NULL;
    for (size_t i = 0; ax_wrapper_at(i); i++)
        if (strcmp(ax_wrapper_at(i)->model_type, k->type) == 0)
            architecture = ax_wrapper_at(i)->architecture;
    assert_non_null(architecture);
    return json_pack("{s[s] ss so s{si} si}", "architectures", architecture, "model_type", k->type,
                     "text_config", text, "vision_config", "hidden_size", 32, "image_token_id", 7);
}

static void put_config(const struct kind *k, const char *dir, const char *file) {
    char name[96], *text;
    size_t len;
    json_t *v = config_of(k, file);
    snprintf(name, sizeof name, "%s/%s", dir, file);
    assert_ok(ax_json_dump(v, &text, &len)); /* without a newline: nobody else writes it so */
    put_bytes(name, text, len);
    ax_free(text);
    json_decref(v);
}

static void copy_from(const char *golden, const char *dir, const char *name) {
    char rest[96], from[4096], to[96], *text;
    size_t len;
    snprintf(rest, sizeof rest, "models/%s/%s", golden, name);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    if (!golden_find(rest, from, sizeof from))
        return;
    assert_ok(ax_read_file(from, 1 << 24, &text, &len));
    put_bytes(to, text, len);
    ax_free(text);
}

/* SCRATCH/DIR: the golden model in a folder of this kind, in several files if `shard` is not 0. */
static const char *make(const struct kind *k, const char *dir, int64_t shard) {
    char name[300];
    struct ax_st_output tensors[128];
    char *names[128];
    struct ax_hf hf;
    snprintf(name, sizeof name, "models/%s", k->golden);
    make_folder(dir);
    assert_ok(ax_hf_open(&hf, golden_path(name)));
    const int count = ax_hf_count(&hf);
    int n = 0;
    static struct stack stacks[16];
    int n_stacks = 0;
    assert_true(count + N_TOWER <= 128);
    for (int i = 0; i < count; i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        const bool head = strncmp(e->name, "lm_head.", 8) == 0;
        assert_ok(ax_sprintf(&names[n], "%s%s", head ? k->head : k->body, e->name));
        tensors[n] = (struct ax_st_output){.name = names[n],
                                           .dtype = e->dtype,
                                           .ndim = e->ndim,
                                           .fill = fill_text,
                                           .ctx = (void *)(uintptr_t)e};
        memcpy(tensors[n].shape, e->shape, sizeof e->shape);
        if (!k->stacks || stack_experts(&hf, &tensors[n], names[n], &stacks[n_stacks]))
            n_stacks += tensors[n++].fill == fill_stack;
        else
            ax_free(names[n]);
    }
    assert_int_equal(n_stacks, k->stacks ? 4 : 0);
    for (int i = 0; i < N_TOWER; i++)
        tensors[n + i] = (struct ax_st_output){.name = tower[i],
                                               .dtype = AX_BF16,
                                               .ndim = 2,
                                               .shape = {9, 100 + i},
                                               .fill = fill_tower,
                                               .ctx = (void *)(uintptr_t)tower[i]};
    const struct ax_hf_save save = {
        .dir = in_scratch("made"), .max_shard_bytes = shard, .n = n + N_TOWER, .tensors = tensors};
    assert_ok(ax_hf_write(&save)); /* names as given: it has no base */
    snprintf(name, sizeof name, "%s", in_scratch(dir));
    assert_ok(ax_remove_tree(name));
    assert_int_equal(rename(in_scratch("made"), name), 0);
    for (int i = 0; i < n; i++)
        ax_free(names[i]);
    ax_hf_close(&hf);
    put_config(k, dir, "config.json");
    put_config(k, dir, "config.legacy.json");
    char processor[96];
    snprintf(processor, sizeof processor, "%s/preprocessor_config.json", dir);
    put_text(processor, "{\"image_mean\":[0.5]}");
    static const char *const side[] = {"tokenizer.json", "tokenizer_config.json",
                                       "chat_template.jinja", "generation_config.json"};
    for (size_t i = 0; i < sizeof side / sizeof *side; i++)
        copy_from(k->golden, dir, side[i]);
    return in_scratch(dir);
}

static void link_golden(const struct kind *k, const char *dir) {
    char name[96], to[300], real[4096];
    snprintf(name, sizeof name, "models/%s/golden", k->golden);
    snprintf(to, sizeof to, "%s/golden", in_scratch(dir));
    assert_non_null(realpath(golden_path(name), real));
    assert_int_equal(symlink(real, to), 0);
}

static void assert_has(const char *out, const char *part) {
    if (!strstr(out, part))
        fail_msg("expected \"%s\" in: %s", part, out);
}

/* Both spellings of the config, all groups: what transformers computed of the text model alone. */
static void the_text_model_is_the_golden_one(void **state) {
    (void)state;
    static char out[1 << 16];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[32];
        snprintf(name, sizeof name, "golden-%zu", i);
        make(&kinds[i], name, i % 2 ? 50000 : 0);
        link_golden(&kinds[i], name);
        if (run_beside(out, sizeof out, "tests/goldens/replay", "%s --backend cpu",
                       in_scratch(name)) != 0)
            fail_msg("%s: %s", kinds[i].type, out);
        assert_has(out, "(config.json)");
        assert_has(out, "(config.legacy.json)");
    }
}

static void assert_file(const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_ok(ax_read_file(a, 1 << 24, &x, &n));
    assert_ok(ax_read_file(b, 1 << 24, &y, &m));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    ax_free(x);
    ax_free(y);
}

/* Everything but the text model's values is the base's; `changed`: those are not. */
static void assert_wrapped(const char *base, const char *saved, bool changed) {
    static const char *const same[] = {"config.json", "preprocessor_config.json"};
    char a[300], b[300];
    struct ax_hf x, y;
    assert_ok(ax_hf_open(&x, base));
    assert_ok(ax_hf_open(&y, saved));
    assert_non_null(y.wrapped);
    assert_ptr_equal(x.wrapped->names, y.wrapped->names);
    assert_int_equal(ax_hf_count(&x), ax_hf_count(&y));
    assert_int_equal(y.wrapped->n_others, N_TOWER);
    for (int i = 0; i < N_TOWER; i++) {
        const struct ax_st_entry *e = &x.wrapped->others[i], *f = &y.wrapped->others[i];
        assert_string_equal(e->name, f->name);
        assert_int_equal(e->dtype, f->dtype);
        assert_memory_equal(e->shape, f->shape, sizeof e->shape);
        assert_memory_equal(e->data, f->data, e->bytes);
    }
    const struct ax_st_entry *e = ax_hf_find(&x, "model.layers.1.mlp.up_proj.weight");
    const struct ax_st_entry *f = ax_hf_find(&y, "model.layers.1.mlp.up_proj.weight");
    assert_int_equal(e->bytes, f->bytes);
    assert_int_equal(memcmp(e->data, f->data, e->bytes) != 0, changed);
    ax_hf_close(&x);
    ax_hf_close(&y);
    for (size_t i = 0; i < 2; i++) {
        snprintf(a, sizeof a, "%s/%s", base, same[i]);
        snprintf(b, sizeof b, "%s/%s", saved, same[i]);
        assert_file(a, b);
    }
}

static const char *config(const char *base, const char *out, const char *more) {
    struct ax_buf b = {0};
    static char path[256];
    put_text("rows.jsonl", "{\"text\": \"one and one is two\"}\n{\"text\": \"two and two\"}\n");
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\noutput_dir: %s/%s\ndataset_prepared_path: %s/cache\n"
                            "datasets:\n  - path: %s/rows.jsonl\n    type: completion\n"
                            "sequence_len: 64\nlearning_rate: 5e-3\nmicro_batch_size: 2\n"
                            "gradient_accumulation_steps: 1\nlr_scheduler: constant\n"
                            "num_epochs: 40\nmax_steps: 2\nfloat32: true\nsave_steps: 1\n%s",
                            base, scratch, out, scratch, scratch, more));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void trained_folders_keep_the_tower(void **state) {
    (void)state;
    static char out[1 << 16];
    for (int64_t shard = 0; shard < 100000; shard += 60000) {
        char base[256];
        snprintf(base, sizeof base, "%s", make(LLAVA, "base", shard));
        assert_int_equal(run(out, sizeof out, "sft %s", config(base, "out", "")), 0);
        assert_has(out, "the text model is trained (llama in llava)");
        assert_wrapped(base, in_scratch("out"), true);
        assert_wrapped(base, in_scratch("out/checkpoint-1"), true);
        assert_ok(ax_remove_tree(in_scratch("out/checkpoint-2")));
        assert_int_equal(run(out, sizeof out, "sft %s resume_from_checkpoint=%s max_steps=3",
                             config(base, "out", ""), in_scratch("out/checkpoint-1")),
                         0);
        assert_wrapped(base, in_scratch("out"), true);
        assert_ok(ax_remove_tree(in_scratch("out")));
        assert_ok(ax_remove_tree(in_scratch("base")));
    }
}

/* All ranks write into one folder: the bytes of one rank's run, whose text model nothing has changed. */
static void several_ranks_write_the_same_folder(void **state) {
    (void)state;
    static char out[1 << 16];
    static const char *const files[] = {"model.safetensors", "config.json",
                                        "preprocessor_config.json"};
    static const char *const meshes[] = {"dp_shard_size: 2\n", "tensor_parallel_size: 2\n"};
    char base[256], a[300], b[300];
    snprintf(base, sizeof base, "%s", make(LLAVA, "base", 0));
    if (run(out, sizeof out, "sft %s learning_rate=1e-30", config(base, "one", "")) != 0)
        fail_msg("%s", out);
    assert_wrapped(base, in_scratch("one"), false);
    for (size_t i = 0; i < 2; i++) {
        const char *path = config(base, "two", meshes[i]);
        if (run(out, sizeof out, "launch -n 2 -- sft %s learning_rate=1e-30", path) != 0)
            fail_msg("%s", out);
        assert_wrapped(base, in_scratch("two"), false);
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            snprintf(a, sizeof a, "%s/%s", in_scratch("one"), files[k]);
            snprintf(b, sizeof b, "%s/%s", in_scratch("two"), files[k]);
            assert_file(a, b);
            snprintf(a, sizeof a, "%s/%s", in_scratch("one/checkpoint-1"), files[k]);
            snprintf(b, sizeof b, "%s/%s", in_scratch("two/checkpoint-1"), files[k]);
            assert_file(a, b);
        }
        assert_ok(ax_remove_tree(in_scratch("two")));
    }
}

/* Its modules have the names that transformers gives them, and PEFT finds no others. */
static void check_adapter(const char *dir, const char *regex) {
    struct ax_safetensors st;
    struct ax_json_doc doc;
    char path[300];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    assert_ok(ax_safetensors_open(&st, path));
    for (int i = 0; i < st.n; i++)
        assert_int_equal(
            strncmp(st.entries[i].name, "base_model.model.model.language_model.layers.", 45), 0);
    ax_safetensors_close(&st);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    assert_ok(ax_json_load(&doc, path, 1 << 20));
    const json_t *not = json_object_get(doc.root, "exclude_modules");
    if (regex)
        assert_null(not );
    else
        assert_string_equal(json_string_value(not ), "(?!model.language_model\\.)(?!lm_head$).*");
    ax_json_free(&doc);
}

static void adapters_name_the_text_model(void **state) {
    (void)state;
    static char out[1 << 16];
    static const char *const targets[] = {
        "lora_target_linear: true\n",
        "lora_target_modules: 'model.language_model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n"};
    char base[256], more[400];
    snprintf(base, sizeof base, "%s", make(LLAVA, "base", 0));
    for (size_t i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "adapter: lora\nlora_r: 4\nlora_alpha: 8\n%s", targets[i]);
        if (run(out, sizeof out, "sft %s", config(base, "out", more)) != 0)
            fail_msg("%s", out);
        check_adapter(in_scratch("out"), i == 1 ? targets[i] : NULL);
        snprintf(more, sizeof more, "%s", config(base, "more", more)); /* goes on from it */
        assert_int_equal(run(out, sizeof out, "sft %s lora_model_dir=%s", more, in_scratch("out")),
                         0);
        check_adapter(in_scratch("more"), i == 1 ? targets[i] : NULL);
        if (run(out, sizeof out, "merge %s %s %s", base, in_scratch("out"), in_scratch("m")) != 0)
            fail_msg("%s", out);
        assert_wrapped(base, in_scratch("m"), true);
        assert_ok(ax_remove_tree(in_scratch("m")));
        assert_ok(ax_remove_tree(in_scratch("out")));
        assert_ok(ax_remove_tree(in_scratch("more")));
    }
}

/* PEFT with transformers before 4.52 named them in another way. */
static void older_adapters_are_read(void **state) {
    (void)state;
    static const struct {
        const char *name, *own;
    } all[] = {{"language_model.model.layers.0.mlp.up_proj.lora_A.weight",
                "model.layers.0.mlp.up_proj.lora_A.weight"},
               {"language_model.lm_head.lora_A.weight", "lm_head.lora_A.weight"},
               {"model.text_model.layers.1.mlp.up_proj.lora_A.weight",
                "model.layers.1.mlp.up_proj.lora_A.weight"},
               {"model.language_model.layers.2.mlp.up_proj.lora_A.weight",
                "model.layers.2.mlp.up_proj.lora_A.weight"}};
    struct ax_st_output tensors[4];
    char names[4][128];
    struct ax_peft p;
    make_folder("old");
    put_text("old/adapter_config.json", "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, "
                                        "\"target_modules\": [\"up_proj\"]}");
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], AX_PEFT_PREFIX "%s", all[i].name);
        tensors[i] = (struct ax_st_output){.name = names[i],
                                           .dtype = AX_BF16,
                                           .ndim = 2,
                                           .shape = {1, 8},
                                           .fill = fill_tower,
                                           .ctx = (void *)(uintptr_t)tower[0]};
    }
    assert_ok(ax_safetensors_write(in_scratch("old/adapter_model.safetensors"), 4, tensors));
    assert_ok(ax_peft_open(&p, in_scratch("old")));
    for (int i = 0; i < 4; i++) {
        char name[160];
        snprintf(name, sizeof name, AX_PEFT_PREFIX "%s", all[i].own);
        if (!ax_safetensors_find(&p.weights, name))
            fail_msg("%s is not %s", all[i].name, name);
    }
    ax_peft_close(&p);
}

/* What is beside the text model is the base's, and other programs read that it is not quantized. */
static void assert_quantized(const char *base, const char *saved) {
    char path[300];
    struct ax_json_doc doc;
    struct ax_hf x, y;
    bool tower_is_ignored = false;
    assert_ok(ax_hf_open(&x, base));
    assert_ok(ax_hf_open(&y, saved));
    assert_non_null(y.compressed);
    assert_int_equal(x.wrapped->n_others, y.wrapped->n_others);
    for (int i = 0; i < x.wrapped->n_others; i++)
        assert_memory_equal(x.wrapped->others[i].data, y.wrapped->others[i].data,
                            x.wrapped->others[i].bytes);
    ax_hf_close(&x);
    ax_hf_close(&y);
    snprintf(path, sizeof path, "%s/config.json", saved);
    assert_ok(ax_json_load(&doc, path, 1 << 20));
    const json_t *q = json_object_get(doc.root, "quantization_config");
    assert_null(json_object_get(json_object_get(doc.root, "text_config"), "quantization_config"));
    const json_t *list = json_object_get(q, "ignore");
    for (size_t i = 0; i < json_array_size(list); i++)
        tower_is_ignored |= strcmp(json_string_value(json_array_get(list, i)),
                                   "re:(.*\\.)?vision_tower(\\..*)?$") == 0;
    assert_true(tower_is_ignored);
    ax_json_free(&doc);
}

static void same_config(const char *a, const char *b) {
    struct ax_json_doc docs[2];
    char path[300];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/config.json", i ? b : a);
        assert_ok(ax_json_load(&docs[i], path, 1 << 20));
    }
    assert_true(json_equal(docs[0].root, docs[1].root));
    ax_json_free(&docs[0]);
    ax_json_free(&docs[1]);
}

static void quantized_folders_are_models(void **state) {
    (void)state;
    static char out[1 << 16];
    char base[256], q[256];
    snprintf(q, sizeof q, "%s", in_scratch("q"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(base, sizeof base, "%s", make(&kinds[i], "base", 0));
        assert_ok(ax_remove_tree(q));
        if (run(out, sizeof out, "quantize %s %s --scheme int8-int8", base, q) != 0)
            fail_msg("%s: %s", kinds[i].type, out);
        assert_quantized(base, q);
        assert_int_equal(run(out, sizeof out, "plan %s", config(q, "out", "")), 0);
        assert_ok(ax_remove_tree(base));
    }
    snprintf(base, sizeof base, "%s", make(LLAVA, "base", 0));
    assert_ok(ax_remove_tree(q));
    config(base, "out", "");
    assert_int_equal(run(out, sizeof out,
                         "quantize %s %s --scheme int4 --gptq --calibrate %s/rows.jsonl --type "
                         "completion",
                         base, q, scratch),
                     0);
    assert_quantized(base, q);
    const char *after = strstr(out, " before, ");
    assert_non_null(after);
    const double measured = strtod(after + strlen(" before, "), NULL);
    assert_int_equal(
        run(out, sizeof out, "eval %s --data %s/rows.jsonl --type completion", q, scratch), 0);
    assert_true(strtod(strstr(out, "perplexity") + strlen("perplexity"), NULL) == measured);
    assert_int_equal(run(out, sizeof out,
                         "sft %s adapter=lora lora_r=4 lora_alpha=8 lora_target_modules='[q_proj]'",
                         config(q, "lora", "")),
                     0);
    /* training in full makes numbers of the codes again: the config is the first one's */
    assert_int_equal(run(out, sizeof out, "sft %s", config(q, "full", "")), 0);
    same_config(base, in_scratch("full"));
    assert_ok(ax_remove_tree(base));
}

/* A tower whose matrices are codes could not be kept beside a text model that has numbers again. */
static void quantized_towers_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"language_model.model.embed_tokens.weight",
                                        "vision_tower.layers.0.fc1.weight_packed"};
    struct ax_st_output tensors[2];
    struct ax_hf hf;
    for (int i = 0; i < 2; i++)
        tensors[i] = (struct ax_st_output){.name = names[i],
                                           .dtype = AX_BF16,
                                           .ndim = 2,
                                           .shape = {8, 8},
                                           .fill = fill_tower,
                                           .ctx = (void *)(uintptr_t)tower[0]};
    make_folder("codes");
    assert_ok(ax_safetensors_write(in_scratch("codes/model.safetensors"), 2, tensors));
    put_text("codes/config.json",
             "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\"}, "
             "\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}");
    assert_int_equal(ax_hf_open(&hf, in_scratch("codes")), AX_ERR_UNSUPPORTED);
    assert_has(ax_error_text(), "codes: vision_tower.layers.0.fc1.weight_packed is not of the text "
                                "model, and is quantized. Use the original weights");
}

static void what_cannot_be_done_is_refused(void **state) {
    (void)state;
    static char out[1 << 16];
    char base[256], path[300], *text;
    size_t len;
    snprintf(base, sizeof base, "%s", make(LLAVA, "base", 0));
    assert_int_equal(run(out, sizeof out, "sft %s reinit_weights=true", config(base, "out", "")),
                     2);
    assert_has(out, "reinit_weights");
    snprintf(path, sizeof path, "%s/config.json", base);
    struct ax_json_doc doc;
    assert_ok(ax_json_load(&doc, path, 1 << 20));
    json_object_set_new(doc.root, "quantization_config", json_pack("{ss}", "quant_method", "hqq"));
    assert_ok(ax_json_dump(doc.root, &text, &len));
    ax_json_free(&doc);
    put_bytes("base/config.json", text, len);
    ax_free(text);
    assert_int_not_equal(run(out, sizeof out, "plan %s", config(base, "out", "")), 0);
    assert_has(out, "quantized checkpoints (hqq) are not supported");
    put_text("base/config.json", "{\"model_type\": \"llava_video\", \"text_config\": {}}");
    assert_int_not_equal(run(out, sizeof out, "plan %s", config(base, "out", "")), 0);
    assert_has(out, "\"llava_video\" is not supported; the nearest is llava");
    assert_has(out, "the nearest is llava; `axtrain config models`");
    put_text("base/config.json", "{\"model_type\": \"gemma3\"}");
    assert_int_not_equal(run(out, sizeof out, "plan %s", config(base, "out", "")), 0);
    assert_has(out, "a gemma3 without text_config");
    put_config(LLAVA, "base", "config.json");
    struct ax_hf hf;
    const struct ax_st_output t = {.name = tower[0],
                                   .dtype = AX_BF16,
                                   .ndim = 1,
                                   .shape = {4},
                                   .fill = fill_tower,
                                   .ctx = (void *)(uintptr_t)tower[0]};
    assert_ok(ax_safetensors_write(in_scratch("base/model.safetensors"), 1, &t));
    assert_error(ax_hf_open(&hf, base), AX_ERR_DATA, "have no tensor that ends in model.embed");
}

/* A GGUF file has the text model: the file of one that is alone. */
static void the_text_model_becomes_gguf(void **state) {
    (void)state;
    static char out[1 << 16];
    char base[256], plain[600], to[2][64] = {"a/x.gguf", "b/x.gguf"};
    snprintf(base, sizeof base, "%s", make(LLAVA, "base", 0));
    snprintf(plain, sizeof plain, "%s", golden_path("models/llama"));
    for (int i = 0; i < 2; i++) {
        make_folder(i == 0 ? "a" : "b");
        if (run(out, sizeof out, "convert %s %s --to gguf", i == 0 ? plain : base,
                in_scratch(to[i])) != 0)
            fail_msg("%s", out);
    }
    char first[300];
    snprintf(first, sizeof first, "%s", in_scratch(to[0]));
    assert_file(first, in_scratch(to[1]));
}

/* Sizes that published files leave to the defaults of transformers. */
static void published_configs_are_filled_in(void **state) {
    (void)state;
    static const struct {
        const char *text, *name;
        int64_t parameters;
        double eps, theta;
        bool tied;
    } all[] = {
        /* llava-1.5-7b-hf, gemma-3-4b-it, and Qwen2.5-VL-7B-Instruct without text_config */
        {"{\"model_type\": \"llava\", \"text_config\": {\"max_position_embeddings\": 4096, "
         "\"model_type\": \"llama\", \"rms_norm_eps\": 1e-05, \"torch_dtype\": \"float16\", "
         "\"vocab_size\": 32064}, \"vision_config\": {}}",
         "LlavaForConditionalGeneration", 6738939904, 1e-5, 1e4, false},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 2560, "
         "\"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", \"num_hidden_layers\": "
         "34, \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
         "\"sliding_window\": 1024}, \"vision_config\": {}}",
         "Gemma3ForConditionalGeneration", 3880263168, 1e-6, 1e6, true},
        {"{\"model_type\": \"qwen2_5_vl\", \"hidden_size\": 3584, \"intermediate_size\": 18944, "
         "\"num_attention_heads\": 28, \"num_hidden_layers\": 28, \"num_key_value_heads\": 4, "
         "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"rope_scaling\": {\"type\": "
         "\"mrope\", \"mrope_section\": [16, 24, 24]}, \"vocab_size\": 152064, "
         "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"vision_config\": {}}",
         "Qwen2_5_VLForConditionalGeneration", 7615616512, 1e-6, 1e6, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_json_doc doc;
        struct ax_arch a;
        char name[96];
        assert_ok(ax_json_parse(&doc, "config.json", all[i].text, strlen(all[i].text)));
        assert_ok(ax_arch_parse_file(&a, &doc, NULL));
        assert_string_equal(ax_arch_name(&a, name, sizeof name), all[i].name);
        assert_int_equal(ax_arch_parameters(&a), all[i].parameters);
        assert_true(a.norm_eps == all[i].eps && a.rope.theta == all[i].theta);
        assert_int_equal(a.tied, all[i].tied);
        ax_arch_free(&a);
        ax_json_free(&doc);
    }
}

int main(void) {
    setenv("AXTRAIN_NONFINITE", "allow", 1); /* the towers are bytes of any kind */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_configs_are_filled_in),
        cmocka_unit_test(the_text_model_is_the_golden_one),
        cmocka_unit_test(trained_folders_keep_the_tower),
        cmocka_unit_test(several_ranks_write_the_same_folder),
        cmocka_unit_test(adapters_name_the_text_model),
        cmocka_unit_test(older_adapters_are_read),
        cmocka_unit_test(quantized_folders_are_models),
        cmocka_unit_test(quantized_towers_are_refused),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(the_text_model_becomes_gguf),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
