/* Pairs, unpaired answers, reward pairs and steps against what TRL's trainers fed their models: every
 * id, mask, label, margin, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ckpt/hf/safetensors.h"
#include "data/records/format/format.h"
#include "data/records/rows/rows.h"
#include "data/text/template/template.h"
#include "tests/data/tokenizer_case.h"
#include "tests/golden_files.h"

static const struct ax_columns columns = {.list = {{"desirable", false, AX_OF_EXAMPLE, 0},
                                                   {"margin", true, AX_OF_EXAMPLE, 0},
                                                   {"target", true, AX_OF_LABEL, 0}},
                                          .n = 3};

static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};

/* A case: its JSON, what it was fed, and its data's examples. */
struct fed {
    struct ax_json_doc doc;
    const json_t *settings;
    struct ax_safetensors tensors;
    struct ax_tokenizer *tokenizer;
    struct ax_format_chat chat;
    struct ax_format_answers answers;
    struct ax_format_steps steps;
    struct ax_example_list list;
    size_t at; /* the next example to compare */
};

static const char *text_of(const struct fed *c, const char *key) {
    return json_string_value(json_object_get(c->doc.root, key));
}

/* A path of a case: below the folder of all goldens, or of the runs. */
static const char *path_of(const char *name) {
    char path[4200];
    if (golden_find(name, path, sizeof path))
        return golden_path(name);
    snprintf(path, sizeof path, "runs/%s", name);
    return golden_path(path);
}

static int64_t setting(const struct fed *c, const char *key, int64_t otherwise) {
    const json_t *v = json_object_get(c->settings, key);
    return v ? json_integer_value(v) : otherwise;
}

/* What differs between the trainers, apart from their settings. */
static const struct trainer {
    const char *name;
    enum ax_task task;
    bool by_ids;
} trainers[] = {
    {"trl.DPOTrainer", AX_TASK_PAIR, false},
    {"trl.KTOTrainer", AX_TASK_UNPAIRED, false},
    {"trl.experimental.orpo.ORPOTrainer", AX_TASK_PAIR, true},
    {"trl.experimental.cpo.CPOTrainer", AX_TASK_PAIR, true},
    {"trl.RewardTrainer", AX_TASK_REWARD, false},
    {"trl.experimental.prm.PRMTrainer", AX_TASK_STEPS, false},
};

static const struct trainer *trainer_of(const struct fed *c) {
    for (size_t i = 0; i < sizeof trainers / sizeof *trainers; i++)
        if (strcmp(trainers[i].name, text_of(c, "trainer")) == 0)
            return &trainers[i];
    fail_msg("no trainer %s", text_of(c, "trainer"));
    return NULL;
}

static void make_examples(struct fed *c, const struct ax_format *f, int64_t max) {
    struct ax_rows *rows;
    struct ax_raw_row raw;
    struct ax_format_work w = {0};
    bool got;
    const char *data = path_of(text_of(c, "data"));
    MUST(ax_rows_open(&rows, &(struct ax_rows_options){.path = data}));
    for (;;) {
        json_t *record;
        const size_t before = c->list.n;
        MUST(ax_rows_next(rows, &raw, &got));
        if (!got)
            break;
        MUST(ax_rows_parse(rows, &raw, &record));
        MUST(ax_format_record(f, &w, record, (struct ax_origin){.line = raw.line}, &c->list));
        json_decref(record);
        /* the reward trainer drops pairs with a side that is too long */
        for (size_t i = before; i < c->list.n; i++)
            if ((int64_t)c->list.items[i].n > max) {
                assert_true(trainer_of(c)->task == AX_TASK_REWARD);
                ax_example_list_cut(&c->list, before);
            }
    }
    ax_format_work_free(&w);
    ax_rows_close(rows);
}

static void open_case(struct fed *c, const char *family, const char *name) {
    char file[256];
    *c = (struct fed){.list = {.columns = &columns}};
    snprintf(file, sizeof file, "%s/%s.json", family, name);
    MUST(ax_json_load(&c->doc, path_of(file), (size_t)1 << 24));
    c->settings = json_object_get(c->doc.root, "settings");
    MUST(ax_safetensors_open(&c->tensors, path_of(text_of(c, "fed"))));
    const char *folder = text_of(c, "tokenizer") ? text_of(c, "tokenizer") : text_of(c, "model");
    const char *path = path_of(folder);
    MUST(ax_tokenizer_load(&c->tokenizer, path));
    struct ax_template *template = NULL;
    json_t *tokens;
    if (ax_template_from_folder(&template, path, NULL, false) != AX_OK)
        ax_error_clear(); /* a tokenizer of texts */
    MUST(ax_template_folder_tokens(&tokens, path));
    c->chat = (struct ax_format_chat){.template = template,
                                      .tokens = tokens,
                                      .field_messages = "messages",
                                      .field_tools = "tools",
                                      .properties = properties,
                                      .n_properties = 2,
                                      .thinking_key = "reasoning_content"};
    c->answers = (struct ax_format_answers){.field_chosen = "chosen",
                                            .field_rejected = "rejected",
                                            .framed_by_ids = trainer_of(c)->by_ids};
    const char *separator = json_string_value(json_object_get(c->settings, "step_separator"));
    c->steps = (struct ax_format_steps){
        .separator = separator ? separator : "\n",
        .last_only = json_is_true(json_object_get(c->settings, "train_on_last_step_only"))};
    const struct ax_format_options o = {.task = trainer_of(c)->task,
                                        .tokenizer = c->tokenizer,
                                        .sequence_len = setting(c, "max_length", 1024),
                                        .pad = (int32_t)setting(c, "pad_token_id", AX_NO_TOKEN),
                                        .chat = template ? &c->chat : NULL,
                                        .answers = &c->answers,
                                        .steps = &c->steps,
                                        .columns = &columns};
    struct ax_format *f;
    MUST(ax_format_new(&f, &o));
    make_examples(c, f, o.sequence_len);
    ax_format_free(f);
}

static void close_case(struct fed *c) {
    ax_example_list_free(&c->list);
    ax_template_free((struct ax_template *)(uintptr_t)c->chat.template);
    json_decref((json_t *)(uintptr_t)c->chat.tokens);
    ax_tokenizer_free(c->tokenizer);
    ax_safetensors_close(&c->tensors);
    ax_json_free(&c->doc);
}

/* ---- comparing ---- */

struct grid {
    int64_t rows, width;
    const struct ax_st_entry *v; /* NULL: not there */
};

static int32_t value(const struct grid *g, int64_t i) {
    return (int32_t)ax_load(g->v->dtype, g->v->data, i);
}

static bool find(const struct fed *c, int micro, const char *name, struct grid *out) {
    char full[64];
    snprintf(full, sizeof full, "m%02d.%s", micro, name);
    const struct ax_st_entry *e = ax_safetensors_find(&c->tensors, full);
    if (e)
        *out = (struct grid){e->shape[0], e->ndim > 1 ? e->shape[1] : 1, e};
    return e != NULL;
}

/* Tensors of one side of a micro-batch; `first` is its first row. */
struct side {
    struct grid ids, mask, scored;
    int64_t first;
    bool labels; /* `scored` holds labels instead of ones */
};

static void check_row(struct fed *c, const struct side *s, int64_t row,
                      const struct ax_example *x) {
    size_t n = 0, last = x->n - 1; /* that is not the token that pads */
    while (x->tokens[last] == (int32_t)setting(c, "pad_token_id", AX_NO_TOKEN))
        last--;
    for (int64_t t = 0; t < s->ids.width; t++) {
        const int64_t at = (s->first + row) * s->ids.width + t;
        if (!value(&s->mask, at))
            continue;
        const int32_t scored = s->scored.v ? value(&s->scored, at) : 0;
        assert_true(n < x->n);
        assert_int_equal(x->tokens[n], value(&s->ids, at));
        if (s->labels)
            assert_int_equal(x->labels[n], scored);
        else if (s->scored.v)
            assert_int_equal(x->labels[n], scored ? x->tokens[n] : AX_NO_LABEL);
        else
            assert_int_equal(x->labels[n], n == last ? 0 : AX_NO_LABEL);
        n++;
    }
    assert_int_equal(n, x->n);
}

static struct side side_of(const struct fed *c, int micro, const char *prefix, const char *scored) {
    char name[64];
    struct side s = {.labels = strstr(scored, "labels") != NULL};
    snprintf(name, sizeof name, "%sinput_ids", prefix);
    assert_true(find(c, micro, name, &s.ids));
    snprintf(name, sizeof name, "%sattention_mask", prefix);
    assert_true(find(c, micro, name, &s.mask));
    snprintf(name, sizeof name, "%s%s", prefix, scored);
    (void)find(c, micro, name, &s.scored);
    return s;
}

static void check_pairs(struct fed *c, const struct side *sides, int64_t rows,
                        const float *margins) {
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < 2; k++) {
            const struct ax_example *x = &c->list.items[c->at++];
            assert_true(c->at <= c->list.n);
            assert_int_equal(x->joined, k);
            check_row(c, &sides[k], i, x);
            float margin;
            memcpy(&margin, x->columns[1], sizeof margin);
            assert_true(margin == (margins ? margins[i] : 0.0F));
        }
}

/* False after the last micro-batch. */
static bool check_micro(struct fed *c, int micro) {
    const enum ax_task task = trainer_of(c)->task;
    struct grid any;
    if (trainer_of(c)->by_ids && find(c, micro, "chosen_input_ids", &any)) {
        const struct side sides[] = {side_of(c, micro, "chosen_", "labels"),
                                     side_of(c, micro, "rejected_", "labels")};
        check_pairs(c, sides, any.rows, NULL);
        return true;
    }
    if (!find(c, micro, "input_ids", &any))
        return false;
    if (task == AX_TASK_PAIR || task == AX_TASK_REWARD) {
        struct side sides[2];
        struct grid margin = {0};
        sides[0] = sides[1] = side_of(c, micro, "", "completion_mask");
        sides[1].first = any.rows / 2;
        (void)find(c, micro, "margin", &margin);
        check_pairs(c, sides, any.rows / 2, margin.v ? (const float *)margin.v->data : NULL);
        return true;
    }
    const struct side s =
        side_of(c, micro, "", task == AX_TASK_STEPS ? "labels" : "completion_mask");
    struct grid label = {0};
    (void)find(c, micro, "label", &label);
    assert_true((label.v != NULL) == (task == AX_TASK_UNPAIRED));
    for (int64_t i = 0; i < any.rows; i++) {
        const struct ax_example *x = &c->list.items[c->at++];
        assert_true(c->at <= c->list.n);
        assert_int_equal(x->joined, 0);
        check_row(c, &s, i, x);
        assert_int_equal(x->columns[0][0], label.v ? (uint32_t)value(&label, i) : 0);
        for (size_t t = 0; t < x->n; t++) {
            float target;
            memcpy(&target, &x->columns[2][t], sizeof target);
            assert_true(target == (task == AX_TASK_STEPS && x->labels[t] == 1 ? 1.0F : 0.0F));
        }
    }
    return true;
}

static void check_case(const char *family, const char *name) {
    struct fed c;
    int micro = 0;
    open_case(&c, family, name);
    while (check_micro(&c, micro))
        micro++;
    assert_true(micro >= 10);
    assert_true(c.at >= c.list.n - 2); /* a run may end before its data do */
    close_case(&c);
}

static void check_family(const char *family, const char *const *names) {
    for (int i = 0; names[i]; i++)
        check_case(family, names[i]);
}

static void dpo(void **state) {
    (void)state;
    check_family("dpo", (const char *const[]){"sigmoid", "sigmoid_text", "tail", "qwen3", "mixtral",
                                              "lora", NULL});
}

static void kto(void **state) {
    (void)state;
    check_family("kto", (const char *const[]){"kto", "kto_weights", "apo_zero_unpaired", NULL});
}

static void orpo(void **state) {
    (void)state;
    check_family("orpo", (const char *const[]){"orpo", "orpo_text", "orpo_qwen3", NULL});
}

static void cpo(void **state) {
    (void)state;
    check_family("cpo", (const char *const[]){"cpo", "simpo", NULL});
}

static void reward(void **state) {
    (void)state;
    check_family("reward", (const char *const[]){"margin", "plain", "pad_is_eos", NULL});
}

static void prm(void **state) {
    (void)state;
    check_family("prm", (const char *const[]){"prm", "last_step", NULL});
}

int main(void) {
    ax_log_set_level(AX_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dpo), cmocka_unit_test(kto),    cmocka_unit_test(orpo),
        cmocka_unit_test(cpo), cmocka_unit_test(reward), cmocka_unit_test(prm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
