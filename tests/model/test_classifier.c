/* Heads that classify: what config.json says of them, new ones in place of a language model's, the
 * scores of trained ones against transformers', and as part of an adapter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "model/arch/classifier.h"
#include "model/parts/head.h"
#include "model/pass.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"
#include "tests/tiny.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

#define SEQUENCES ", \"architectures\": [\"LlamaForSequenceClassification\"]"
#define TOKENS    ", \"architectures\": [\"LlamaForTokenClassification\"]"
#define ONE_LABEL ", \"id2label\": {\"0\": \"LABEL_0\"}"

static void config_says_what_the_head_is(void **state) {
    (void)state;
    static const struct {
        const char *extra;
        const struct ax_classifier *kind;
        int64_t n_labels;
    } cases[] = {
        {"", NULL, 0},
        {", \"architectures\": [\"LlamaForCausalLM\"], \"num_labels\": 3", NULL, 0},
        {SEQUENCES ONE_LABEL, &ax_classifier_reward, 1},
        {SEQUENCES ", \"num_labels\": 1", &ax_classifier_reward, 1},
        {SEQUENCES ONE_LABEL ", \"num_labels\": 7", &ax_classifier_reward, 1},
        {TOKENS, &ax_classifier_prm, 2}, /* transformers leaves 2 out */
        {TOKENS ", \"num_labels\": 4", &ax_classifier_prm, 4},
    };
    const int64_t backbone = 97 * 48 + 3 * (48 * 16 * (4 + 2 + 2 + 4) + 3 * 48 * 80 + 2 * 48) + 48;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        must(tiny_arch(&a, "llama", true, cases[i].extra));
        const bool bias = cases[i].kind == &ax_classifier_prm;
        assert_ptr_equal(a.classifier, cases[i].kind);
        assert_int_equal(a.n_labels, cases[i].n_labels);
        assert_false(a.new_head);
        assert_true(a.tied == !cases[i].kind);
        assert_int_equal(ax_arch_head_rows(&a), cases[i].kind ? cases[i].n_labels : 97);
        assert_int_equal(ax_arch_parameters(&a), backbone + cases[i].n_labels * (48 + bias));
        ax_arch_free(&a);
    }
    struct ax_arch a;
    assert_int_equal(tiny_arch(&a, "llama", true, TOKENS ", \"num_labels\": 65537"), AX_ERR_DATA);
}

static void a_run_chooses_the_head(void **state) {
    (void)state;
    struct ax_arch a;
    json_t *fields = json_object();
    must(tiny_arch(&a, "qwen3", true, ""));
    must(ax_classifier_choose(&a, &ax_classifier_prm));
    assert_true(a.new_head && !a.tied && a.n_labels == 2);
    must(ax_classifier_fields(&a, fields));
    char *text = json_dumps(fields, JSON_SORT_KEYS | JSON_COMPACT);
    assert_string_equal(text, "{\"architectures\":[\"Qwen3ForTokenClassification\"],"
                              "\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\"},"
                              "\"label2id\":{\"LABEL_0\":0,\"LABEL_1\":1}}");
    ax_free(text);
    ax_arch_free(&a);
    json_object_clear(fields);
    must(tiny_arch(&a, "gemma3_text", true, "")); /* Gemma3ForSequenceClassification sees images */
    must(ax_classifier_choose(&a, &ax_classifier_reward));
    must(ax_classifier_fields(&a, fields));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(fields, "architectures"), 0)),
        "Gemma3TextForSequenceClassification");
    ax_arch_free(&a);
    json_object_clear(fields);
    must(tiny_arch(&a, "llama", false, TOKENS));
    must(ax_classifier_choose(&a, &ax_classifier_prm));
    assert_false(a.new_head);
    must(ax_classifier_fields(&a, fields));
    assert_int_equal(json_object_size(fields), 0);
    assert_int_equal(ax_classifier_choose(&a, &ax_classifier_reward), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "the base is a process reward model with 2 labels, but the run trains a "
                        "reward model with 1. Start from the language model instead.");
    json_decref(fields);
    ax_arch_free(&a);
}

/* ---- folders ---- */

/* A model of a folder, in double; and its logits at some tokens of a document. */
struct probe {
    const struct ax_arch *arch;
    const struct ax_hf *hf;
    const struct ax_peft *peft;
    const int32_t *ids;
    int64_t n, n_at;
    int64_t at[32];
    double *logits; /* out [n_at][n_labels] */
    double *score;  /* out [n_labels][D]; or NULL */
    double bias[2];
};

static enum ax_status look(struct ax_pass *p, struct probe *o) {
    struct ax_model *m = p->model;
    const int64_t labels = m->arch.n_labels;
    AX_TRY(ax_pass_begin(p));
    AX_TRY(ax_pass_forward_all(p));
    struct ax_tensor logits = ax_tensor_2d(m->accum, NULL, p->batch->T, labels);
    logits.data = ax_stack_push(&m->rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(p, 0, p->batch->T, &logits));
    for (int64_t i = 0; i < o->n_at && !ax_runtime_planning(m->rt); i++)
        for (int64_t k = 0; k < labels; k++)
            o->logits[i * labels + k] = ax_load(m->accum, logits.data, o->at[i] * labels + k);
    ax_stack_release(&m->rt->arena.scratch, 0);
    ax_pass_end(p);
    if (ax_runtime_planning(m->rt) || !o->score)
        return AX_OK;
    const struct ax_tensor w = ax_model_value(m, m->lm_head);
    AX_TRY(ax_tensor_read(m->rt->q, &w, AX_F64, o->score));
    if (!m->head.bias[0])
        return AX_OK;
    const struct ax_tensor b = ax_model_value(m, m->head.bias[0]);
    return ax_tensor_read(m->rt->q, &b, AX_F64, o->bias);
}

static enum ax_status probe_body(struct ax_runtime *rt, void *ctx) {
    struct probe *o = ctx;
    struct ax_model m;
    struct ax_batch batch;
    struct ax_slot slot = {0};
    const struct ax_document doc = {.n = o->n, .tokens = o->ids};
    const struct ax_model_options mo = {
        .dtype = AX_F64, .max_positions = o->n, .adapter = o->peft ? &o->peft->config : NULL};
    AX_TRY(ax_model_create(&m, o->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, o->hf), st, done);
    if (o->peft)
        AX_TRY_GOTO(ax_adapter_load(&m, o->peft), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    ax_batch_allocate(&batch, &rt->arena.persistent, o->n, 1, o->n, 1, 0);
    AX_TRY_GOTO(ax_batch_fill(&batch, rt->q, m.arch.vocab_size, 1, &doc), st, done);
    ax_arena_enter(&rt->arena, AX_PHASE_EVAL);
    struct ax_pass p = {.model = &m,
                        .batch = &batch,
                        .slot = &slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    st = look(&p, o);
done:
    ax_slot_free(&slot);
    ax_model_free(&m);
    return st;
}

static enum ax_status run_probe(struct probe *o) {
    return ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, probe_body,
                          o, NULL);
}

static json_t *read_json(const char *path) {
    json_t *v = json_load_file(path, 0, NULL);
    assert_non_null(v);
    return v;
}

static void set_ids(struct probe *o, int32_t *ids, const json_t *list) {
    o->ids = ids;
    o->n = (int64_t)json_array_size(list);
    assert_true(o->n <= 256);
    for (int64_t i = 0; i < o->n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
}

/* The recorded scores were computed in float32; recomputed in float64 they move by 4e-7 at most. */
static void trained_folders_give_the_recorded_scores(void **state) {
    (void)state;
    static const char *const runs[][2] = {{"runs/reward/margin_trained", "texts"},
                                          {"runs/prm/prm_trained", "rows"}};
    for (int r = 0; r < 2; r++) {
        struct ax_arch arch;
        struct ax_hf hf;
        char file[600];
        must(ax_arch_load(&arch, golden_path(runs[r][0])));
        must(ax_hf_open(&hf, golden_path(runs[r][0])));
        snprintf(file, sizeof file, "%s.scores.json", golden_path(runs[r][0]));
        json_t *all = read_json(file), *rows = json_object_get(all, runs[r][1]);
        assert_true(json_array_size(rows) >= 8);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i), *at = json_object_get(row, "at");
            int32_t ids[256];
            double logits[64];
            struct probe o = {.arch = &arch, .hf = &hf, .logits = logits};
            set_ids(&o, ids, json_object_get(row, "ids"));
            o.n_at = at ? (int64_t)json_array_size(at) : 1;
            o.at[0] = o.n - 1;
            for (int64_t k = 0; at && k < o.n_at; k++)
                o.at[k] = json_integer_value(json_array_get(at, (size_t)k));
            must(run_probe(&o));
            for (int64_t k = 0; k < o.n_at * arch.n_labels; k++) {
                const json_t *list =
                    json_array_get(json_object_get(row, "logits"), (size_t)(k / arch.n_labels));
                const json_t *want = at ? json_array_get(list, (size_t)(k % arch.n_labels))
                                        : json_object_get(row, "score");
                /* what float32 may do to them (tests/goldens/README.md) */
                assert_true(fabs(logits[k] - json_number_value(want)) < 1e-5);
            }
        }
        json_decref(all);
        ax_hf_close(&hf);
        ax_arch_free(&arch);
    }
}

/* lm_head is dropped; the new rows are those of any run, of the size that config.json says. */
static void a_language_model_gets_a_new_head(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8};
    struct ax_arch arch;
    struct ax_hf hf;
    must(ax_arch_load(&arch, golden_path("models/llama")));
    must(ax_hf_open(&hf, golden_path("models/llama")));
    assert_non_null(ax_hf_find(&hf, "lm_head.weight"));
    must(ax_classifier_choose(&arch, &ax_classifier_prm));
    double logits[2], score[2 * 64], again[2 * 64], squares = 0;
    struct probe o = {.arch = &arch,
                      .hf = &hf,
                      .ids = ids,
                      .n = 4,
                      .n_at = 1,
                      .at = {3},
                      .logits = logits,
                      .score = score,
                      .bias = {9, 9}};
    must(run_probe(&o));
    for (int i = 0; i < 2 * 64; i++)
        squares += score[i] * score[i] / (2 * 64);
    assert_true(fabs(sqrt(squares) / arch.init_range - 1) < 0.2);
    assert_true(o.bias[0] == 0 && o.bias[1] == 0 && logits[0] != logits[1]);
    o.score = again;
    must(run_probe(&o));
    assert_memory_equal(score, again, sizeof score);
    arch.new_head = false; /* as if the folder were a classifier's */
    assert_int_equal(run_probe(&o), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "unexpected tensor lm_head.weight"));
    ax_hf_close(&hf);
    ax_arch_free(&arch);
}

/* ---- adapters ---- */

struct writing {
    const struct ax_arch *arch;
    const struct ax_hf *hf;
    const struct ax_peft_config *config;
    const char *dir;
    double score[64];
};

static enum ax_status write_body(struct ax_runtime *rt, void *ctx) {
    struct writing *w = ctx;
    struct ax_model m;
    const struct ax_model_options o = {
        .dtype = AX_F32, .train = true, .max_positions = 16, .adapter = w->config};
    AX_TRY(ax_model_create(&m, w->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, w->hf), st, done);
    AX_TRY_GOTO(tiny_adapters(&m, 3), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    const struct ax_tensor value = ax_model_value(&m, m.lm_head);
    AX_TRY_GOTO(ax_tensor_read(rt->q, &value, AX_F64, w->score), st, done);
    st = ax_adapter_save(&m, w->dir, AX_F32);
done:
    ax_model_free(&m);
    return st;
}

/* A new adapter of a reward model contains the head; its folder says what it is for, and brings the
 * head to a language model. */
static void an_adapter_brings_the_head(void **state) {
    (void)state;
    static char *targets[] = {"q_proj"};
    struct ax_arch arch, base;
    struct ax_hf hf;
    struct ax_peft peft;
    must(ax_arch_load(&arch, golden_path("models/llama")));
    must(ax_arch_load(&base, golden_path("models/llama")));
    must(ax_hf_open(&hf, golden_path("models/llama")));
    must(ax_classifier_choose(&arch, &ax_classifier_reward));
    struct ax_peft_config c = {.r = 2, .alpha = 4, .targets = {1, targets}};
    must(ax_classifier_adapter(&arch, &c));
    must(ax_classifier_adapter(&arch, &c)); /* once */
    assert_int_equal(c.save.n, 1);
    struct writing w = {.arch = &arch, .hf = &hf, .config = &c, .dir = in_dir("reward")};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(ax_runtime_run(&ro, write_body, &w, NULL));
    must(ax_peft_open(&peft, in_dir("reward")));
    assert_string_equal(json_string_value(json_object_get(peft.config.json, "task_type")),
                        "SEQ_CLS");
    assert_int_equal(peft.config.save.n, 1);
    assert_string_equal(peft.config.save.names[0], "score");
    assert_int_equal(peft.weights.n, 3 * 2 + 1);

    must(ax_classifier_of_adapter(&base, &peft));
    assert_true(base.classifier == &ax_classifier_reward && base.n_labels == 1 && base.new_head);
    static const int32_t ids[] = {5, 6, 7};
    double logit, score[64];
    struct probe o = {.arch = &base,
                      .hf = &hf,
                      .peft = &peft,
                      .ids = ids,
                      .n = 3,
                      .n_at = 1,
                      .at = {2},
                      .logits = &logit,
                      .score = score};
    must(run_probe(&o));
    assert_memory_equal(score, w.score, sizeof score);

    peft.config.save.names[0][0] = 'S';
    assert_int_equal(ax_classifier_adapter(&base, &peft.config), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "its modules_to_save lack \"score\""));
    ax_arch_free(&base);
    must(ax_arch_load(&base, golden_path("runs/prm/prm_trained")));
    assert_int_equal(ax_classifier_of_adapter(&base, &peft), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "the adapter is of a reward model with 1 label, but "
                                            "the base is a process reward model with 2."));
    struct ax_st_entry *head = (struct ax_st_entry *)(uintptr_t)ax_safetensors_find(
        &peft.weights, AX_PEFT_PREFIX "score.weight");
    for (int64_t rows = 0; rows <= 65537; rows += 65537) {
        head->shape[0] = rows;
        assert_int_equal(ax_classifier_of_adapter(&base, &peft), AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), "expected 1 to 65536, one for each label"));
    }
    ax_free(c.save.names[0]);
    ax_free(c.save.names);
    ax_peft_close(&peft);
    ax_hf_close(&hf);
    ax_arch_free(&arch);
    ax_arch_free(&base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_says_what_the_head_is),
        cmocka_unit_test(a_run_chooses_the_head),
        cmocka_unit_test(trained_folders_give_the_recorded_scores),
        cmocka_unit_test(a_language_model_gets_a_new_head),
        cmocka_unit_test(an_adapter_brings_the_head),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
