/* PEFT folders: what is written reads back bit for bit, which modules a config means, and the
 * errors of folders that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "model/layer.h"
#include "model/adapter/base_note.h"
#include "model/adapter/load.h"
#include "tests/ckpt/folder.h"
#include "tests/golden_files.h"
#include "tests/tiny.h"

static char *four[] = {"q_proj", "v_proj", "mlp.down_proj", "gate_proj"};
static char *saved[] = {"lm_head", "model.norm"};
static int64_t layers[] = {0, 2};
static struct ax_peft_pattern ranks[] = {{"layers.2.self_attn.q_proj", 5}, {"v_proj", 2}};
static struct ax_peft_pattern alphas[] = {{".*v_proj", 3}};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static struct ax_peft_config everything(void) {
    return (struct ax_peft_config){.base = "org/name",
                                   .r = 3,
                                   .alpha = 4.5,
                                   .dropout = 0.25,
                                   .rslora = true,
                                   .dora = true,
                                   .targets = {4, four},
                                   .n_layers = 2,
                                   .layers = layers,
                                   .n_ranks = 2,
                                   .ranks = ranks,
                                   .n_alphas = 1,
                                   .alphas = alphas,
                                   .save = {2, saved}};
}

/* Makes a model, and does `work` with it where there are numbers. */
struct job {
    const struct ax_arch *arch;
    const struct ax_peft_config *config;
    uint64_t seed;
    const struct ax_peft *peft; /* loaded instead of made up */
    const char *save;
    uint64_t hash; /* out: of all that trains */
};

static enum ax_status job_body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_model m;
    const struct ax_model_options o = {
        .dtype = AX_F32, .train = true, .max_positions = 16, .adapter = j->config};
    AX_TRY(ax_model_create(&m, j->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 6), st, done);
    AX_TRY_GOTO(tiny_adapters(&m, j->seed), st, done);
    if (j->peft)
        AX_TRY_GOTO(ax_adapter_load(&m, j->peft), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    if (j->save)
        AX_TRY_GOTO(ax_adapter_save(&m, j->save, AX_F32), st, done);
    j->hash = 0;
    for (int i = 0; i < m.n_params; i++) {
        const struct ax_tensor value = ax_model_value(&m, &m.params[i]);
        if (m.params[i].trainable)
            j->hash = ax_hash64(value.data, ax_tensor_bytes(&value), j->hash);
    }
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status run(struct job *j) {
    return ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, job_body, j,
                          NULL);
}

static void a_written_folder_reads_back(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    const struct ax_peft_config c = everything();
    struct job write = {.arch = &arch, .config = &c, .seed = 5, .save = in_dir("adapter")};
    must(run(&write));
    struct ax_peft peft;
    must(ax_peft_open(&peft, in_dir("adapter")));
    assert_string_equal(peft.config.base, "org/name");
    assert_int_equal(peft.config.r, 3);
    assert_true(peft.config.alpha == 4.5 && peft.config.dropout == 0.25);
    assert_true(peft.config.rslora && peft.config.dora);
    assert_int_equal(peft.config.targets.n, 4);
    assert_string_equal(peft.config.targets.names[2], "mlp.down_proj");
    assert_int_equal(peft.config.n_layers, 2);
    assert_int_equal(peft.config.layers[1], 2);
    assert_int_equal(peft.config.n_ranks, 2);
    assert_true(peft.config.ranks[1].value == 2 && peft.config.alphas[0].value == 3);
    assert_int_equal(peft.config.save.n, 2);
    struct job read = {.arch = &arch, .config = &peft.config, .seed = 77, .peft = &peft};
    must(run(&read));
    assert_true(read.hash == write.hash);
    /* two layers of four modules with three tensors, lm_head and the last norm */
    assert_int_equal(peft.weights.n, 2 * 4 * 3 + 2);
    const struct ax_st_entry *e = ax_safetensors_find(
        &peft.weights, "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight");
    assert_non_null(e);
    assert_int_equal(e->shape[0], 5);
    assert_non_null(ax_safetensors_find(&peft.weights, "base_model.model.lm_head.weight"));
    assert_non_null(ax_safetensors_find(&peft.weights, "base_model.model.model.norm.weight"));
    assert_null(ax_safetensors_find(
        &peft.weights, "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"));
    ax_peft_close(&peft);
    ax_arch_free(&arch);
}

static void unknown_keys_stay(void **state) {
    (void)state;
    struct ax_json_doc doc, again;
    struct ax_peft_config c;
    json_t *out;
    const char text[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16, "
                        "\"target_modules\": \".*_proj\", \"revision\": \"abc\", "
                        "\"init_lora_weights\": \"gaussian\", "
                        "\"some_future_key\": {\"a\": [1]}, \"base_model_name_or_path\": \"o/m\"}";
    must(ax_json_parse(&doc, "adapter_config.json", text, strlen(text)));
    must(ax_peft_config_parse(&c, ax_json_root(&doc)));
    c.r = 8;
    must(ax_peft_config_json(&c, &out));
    again = (struct ax_json_doc){.root = out, .name = doc.name};
    int64_t r;
    const char *s;
    must(ax_json_i64(ax_json_get(ax_json_root(&again), "r"), 0, 99, &r));
    assert_int_equal(r, 8);
    must(ax_json_str(ax_json_get(ax_json_root(&again), "revision"), &s));
    assert_string_equal(s, "abc");
    must(ax_json_str(ax_json_get(ax_json_root(&again), "target_modules"), &s));
    assert_string_equal(s, ".*_proj");
    assert_true(json_equal(json_object_get(out, "some_future_key"),
                           json_object_get(doc.root, "some_future_key")));
    json_decref(out);
    ax_peft_config_free(&c);
    ax_json_free(&doc);
}

static void refused(const char *members, enum ax_status want, const char *mention) {
    struct ax_json_doc doc;
    struct ax_peft_config c;
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16, \"target_modules\": [\"a\"]%s}",
        members);
    if (ax_json_parse(&doc, "adapter_config.json", text, strlen(text)) != AX_OK) {
        snprintf(text, sizeof text, "{%s}", members); /* a whole config of its own */
        must(ax_json_parse(&doc, "adapter_config.json", text, strlen(text)));
    }
    assert_int_equal(ax_peft_config_parse(&c, ax_json_root(&doc)), want);
    assert_mentions(mention);
    ax_json_free(&doc);
}

static void configs_that_are_refused(void **state) {
    (void)state;
    refused(", \"bias\": \"all\"", AX_ERR_UNSUPPORTED, "bias");
    refused(", \"fan_in_fan_out\": true", AX_ERR_UNSUPPORTED, "fan_in_fan_out");
    refused(", \"arrow_config\": {\"top_k\": 2}", AX_ERR_UNSUPPORTED, "arrow_config");
    refused(", \"ensure_weight_tying\": true, \"modules_to_save\": [\"model.embed_tokens\"]",
            AX_ERR_UNSUPPORTED, "ensure_weight_tying");
    refused(
        "\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1, \"target_modules\": [\"lm_head\"], "
        "\"ensure_weight_tying\": true",
        AX_ERR_UNSUPPORTED, "ensure_weight_tying");
    static const char *const moved[] = {"pissa_niter_4", "olora", "OLoRA",
                                        "corda",         "loftq", "lora_ga"};
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        char init[64];
        snprintf(init, sizeof init, ", \"init_lora_weights\": \"%s\"", moved[i]);
        refused(init, AX_ERR_UNSUPPORTED, "init_lora_weights");
    }
    refused(", \"lora_dropout\": 1.0", AX_ERR_DATA, "lora_dropout");
    refused(", \"rank_pattern\": {\"q\": 0}", AX_ERR_DATA, "rank_pattern");
    refused(", \"layers_to_transform\": [-1]", AX_ERR_DATA, "layers_to_transform");
    refused("\"peft_type\": \"IA3\"", AX_ERR_UNSUPPORTED, "peft_type");
    refused("\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1", AX_ERR_DATA, "target_modules");
    refused("\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1", AX_ERR_DATA, "r:");
}

/* Tied embedding and head have no adapter here, so it does not matter whether they would have one. */
static void tying_without_adapters_of_the_ends(void **state) {
    (void)state;
    static const char text[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16, "
                               "\"target_modules\": [\"q_proj\"], \"modules_to_save\": [\"norm\"], "
                               "\"ensure_weight_tying\": true}";
    struct ax_json_doc doc;
    struct ax_peft_config c;
    must(ax_json_parse(&doc, "adapter_config.json", text, sizeof text - 1));
    must(ax_peft_config_parse(&c, ax_json_root(&doc)));
    assert_int_equal(c.targets.n, 1);
    ax_peft_config_free(&c);
    ax_json_free(&doc);
}

/* Modules, parameters, or both, as many of one as of the other or not. */
static void names_of_either_kind(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int modules, parameters;
    } cases[] = {
        {"\"target_modules\": [\"a\"]", 1, 0},
        {"\"target_parameters\": [\"b\"]", 0, 1},
        {"\"target_modules\": [\"a\"], \"target_parameters\": [\"b\"]", 1, 1},
        {"\"target_modules\": [\"a\", \"b\"], \"target_parameters\": [\"c\", \"d\"]", 2, 2},
        {"\"target_modules\": [], \"target_parameters\": [\"b\"]", 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct ax_json_doc doc;
        struct ax_peft_config c;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1, %s}",
                 cases[i].text);
        must(ax_json_parse(&doc, "adapter_config.json", text, strlen(text)));
        must(ax_peft_config_parse(&c, ax_json_root(&doc)));
        assert_int_equal(c.targets.n, cases[i].modules);
        assert_int_equal(c.parameters.n, cases[i].parameters);
        ax_peft_config_free(&c);
        ax_json_free(&doc);
    }
}

static bool meant(const struct ax_peft_config *c, const char *module, int layer) {
    struct ax_adapter_target t;
    must(ax_adapter_match(c, module, layer, &t));
    return t.on;
}

static void modules_that_a_config_means(void **state) {
    (void)state;
    const char *q0 = "model.layers.0.self_attn.q_proj", *q1 = "model.layers.1.self_attn.q_proj";
    const char *v2 = "model.layers.2.self_attn.v_proj", *up = "model.layers.0.mlp.up_proj";
    struct ax_peft_config c = everything();
    struct ax_adapter_target t;
    assert_true(meant(&c, q0, 0) && !meant(&c, q1, 1) && meant(&c, v2, 2) && !meant(&c, up, 0));
    must(ax_adapter_match(&c, v2, 2, &t));
    assert_int_equal(t.r, 2);
    assert_true(fabs(t.scale - 3 / sqrt(2)) < 1e-15);
    must(ax_adapter_match(&c, q0, 0, &t));
    assert_int_equal(t.r, 3);
    c.rslora = false;
    must(ax_adapter_match(&c, q0, 0, &t));
    assert_true(t.scale == 1.5);
    static char *whole[] = {"lm_head", "model.layers.1.self_attn.q_proj"};
    c.targets = (struct ax_peft_names){2, whole}; /* layers 0 and 2 are for ends of names */
    assert_true(meant(&c, "lm_head", -1) && meant(&c, q1, 1));
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .target_regex = "model\\.layers\\.0\\..*_proj"};
    assert_true(meant(&c, q0, 0) && !meant(&c, q1, 1) && meant(&c, up, 0));
    c.target_regex = "layers.0.self_attn.q_proj"; /* a regex is for the whole name */
    assert_false(meant(&c, q0, 0));
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .all_linear = true, .exclude = {1, four}};
    assert_true(!meant(&c, q0, 0) && meant(&c, v2, 2));
    c.exclude_regex = ".*mlp.*";
    assert_false(meant(&c, up, 0));
    static char *proj[] = {"proj"};
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .targets = {1, proj}};
    assert_false(meant(&c, q0, 0)); /* names end behind a dot */
}

static void fails(struct job *j, enum ax_status want, const char *mention) {
    assert_int_equal(run(j), want);
    assert_mentions(mention);
}

static void folders_that_do_not_fit(void **state) {
    (void)state;
    struct ax_arch arch, other;
    must(tiny_arch(&arch, "llama", false, ""));
    must(tiny_arch(&other, "llama", false, ""));
    other.n_kv_heads = 4;
    struct ax_peft_config c = everything();
    c.dora = false;
    struct job write = {.arch = &arch, .config = &c, .seed = 5, .save = in_dir("fits")};
    must(run(&write));
    struct ax_peft peft;
    must(ax_peft_open(&peft, in_dir("fits")));
    struct job j = {.arch = &arch, .config = &c, .peft = &peft};
    must(run(&j));
    c.n_ranks = 1; /* v_proj has rank 3 then */
    fails(&j, AX_ERR_DATA, "has rank 2, but adapter_config.json says 3");
    c = everything();
    fails(&j, AX_ERR_DATA, "lora_magnitude_vector is missing");
    c.dora = false;
    c.n_layers = 1;
    fails(&j, AX_ERR_DATA,
          "unexpected tensor base_model.model.model.layers.2.mlp.down_proj.lora_A.weight");
    c.n_layers = 0;
    fails(&j, AX_ERR_DATA, "model.layers.1.");
    c = everything();
    c.dora = false;
    j.arch = &other;
    fails(&j, AX_ERR_DATA, "the adapter is for another model (its config says org/name)");
    ax_peft_close(&peft);
    ax_arch_free(&arch);
    ax_arch_free(&other);
}

static void targets_that_are_not_there(void **state) {
    (void)state;
    static char *wrong[] = {"q_proj", "qproj"}, *norm[] = {"norm"}, *nothing[] = {"nothing"};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    struct ax_peft_config c = {.r = 1, .alpha = 1, .targets = {2, wrong}};
    struct job j = {.arch = &arch, .config = &c};
    fails(&j, AX_ERR_CONFIG, "\"qproj\" matches no module");
    c.targets = (struct ax_peft_names){1, norm};
    fails(&j, AX_ERR_CONFIG, "\"norm\" matches no module");
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .target_regex = "nothing"};
    fails(&j, AX_ERR_CONFIG, "by the expression nothing");
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .targets = {1, wrong}, .save = {1, nothing}};
    fails(&j, AX_ERR_CONFIG, "modules_to_save: \"nothing\" matches no module");
    c = (struct ax_peft_config){.r = 1, .alpha = 1, .targets = {1, wrong}, .save = {1, wrong}};
    fails(&j, AX_ERR_CONFIG, "both a target module and in modules_to_save");
    ax_arch_free(&arch);
}

static void folders_without_an_adapter(void **state) {
    (void)state;
    struct ax_peft p;
    must(ax_mkdir(in_dir("empty")));
    assert_int_equal(ax_peft_open(&p, in_dir("empty")), AX_ERR_DATA);
    assert_mentions("adapter_config.json is missing");
    put_text("empty/adapter_config.json", "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, "
                                          "\"target_modules\": \"all-linear\"}");
    assert_int_equal(ax_peft_open(&p, in_dir("empty")), AX_ERR_DATA);
    assert_mentions("adapter_model.safetensors is missing");
    put_text("empty/adapter_model.bin", "x");
    assert_int_equal(ax_peft_open(&p, in_dir("empty")), AX_ERR_DATA);
    assert_mentions("can execute code");
}

static enum ax_status fill_zeros(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    (void)first;
    memset(out, 0, (size_t)n * sizeof(float));
    return AX_OK;
}

/* What PEFT 0.21 writes once the vocabulary has grown: the parts of wrappers are not read, and the embedding
 * and the head are modules that are saved, whether or not the config says so. */
static void vocabularies_that_have_grown(void **state) {
    (void)state;
    static const char *const names[] = {
        "lm_head.modules_to_save.weight",
        "lm_head.original_module.weight",
        "lm_head.weight",
        "model.embed_tokens.modules_to_save.weight",
        "model.embed_tokens.original_module.weight",
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
    };
    static char *one[] = {"embed_tokens"};
    enum { N = sizeof names / sizeof *names };
    for (int with = 0; with < 2; with++) {
        struct ax_st_output tensors[N];
        char text[N][96];
        struct ax_peft peft;
        const struct ax_peft_config c = {
            .r = 1, .alpha = 1, .targets = {1, four}, .save = {with, one}};
        for (int i = 0; i < N; i++) {
            snprintf(text[i], sizeof text[i], AX_PEFT_PREFIX "%s", names[i]);
            tensors[i] = (struct ax_st_output){
                .name = text[i], .dtype = AX_F32, .ndim = 2, .shape = {1, 4}, .fill = fill_zeros};
        }
        must(ax_peft_write(in_dir(with ? "grown1" : "grown0"), &c, N, tensors));
        must(ax_peft_open(&peft, in_dir(with ? "grown1" : "grown0")));
        assert_int_equal(peft.weights.n, 3);
        assert_non_null(ax_safetensors_find(&peft.weights, AX_PEFT_PREFIX "lm_head.weight"));
        assert_int_equal(peft.config.save.n, 2);
        assert_string_equal(peft.config.save.names[0], "embed_tokens");
        assert_string_equal(peft.config.save.names[1], "lm_head");
        ax_peft_close(&peft);
    }
}

/* An adapter's note of the weights that it was trained on. */
static void bases_are_told_apart(void **state) {
    (void)state;
    static const char *const names[] = {"models/llama", "models/mistral"};
    char bases[2][512], noted[512];
    const struct ax_peft peft = {.dir = noted};
    snprintf(noted, sizeof noted, "%s", in_dir("noted"));
    must(ax_mkdir(noted));
    for (int i = 0; i < 2; i++)
        snprintf(bases[i], sizeof bases[i], "%s", golden_path(names[i]));
    for (int i = 0; i < 2; i++) {
        struct ax_hf hf;
        char *text;
        must(ax_hf_open(&hf, bases[i]));
        must(ax_base_note_text(&hf, "org/name", i == 0 ? -1 : 504, &text));
        ax_hf_close(&hf);
        put_text("noted/" AX_BASE_NOTE, text);
        ax_free(text);
        must(ax_base_note_check(bases[i], &peft));
        int32_t pad = 7; /* where scores are, if the note says so */
        must(ax_base_note_score_pad(&peft, &pad));
        assert_int_equal(pad, i == 0 ? 7 : 504);
        assert_int_equal(ax_base_note_check(bases[1 - i], &peft), AX_ERR_CONFIG);
        assert_mentions("was trained on org/name, whose weights are others than those of ");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_folder_reads_back),
        cmocka_unit_test(unknown_keys_stay),
        cmocka_unit_test(configs_that_are_refused),
        cmocka_unit_test(tying_without_adapters_of_the_ends),
        cmocka_unit_test(names_of_either_kind),
        cmocka_unit_test(modules_that_a_config_means),
        cmocka_unit_test(folders_that_do_not_fit),
        cmocka_unit_test(targets_that_are_not_there),
        cmocka_unit_test(folders_without_an_adapter),
        cmocka_unit_test(bases_are_told_apart),
        cmocka_unit_test(vocabularies_that_have_grown),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
