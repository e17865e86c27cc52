/* The table agrees with itself, and the schema and the documentation with the table. */
#include "config_case.h"

#include <jansson.h>

#include "base/io.h"
#include "cmd/config/rules.h"
#include "optim/optimizers/lr_schedule.h"
#include "optim/optimizers/optimizer.h"

/* Calls f for every row. */
static void each_key(void (*f)(const struct ax_config_key *key)) {
    for (size_t s = 0; s < ax_config_n_sections; s++)
        for (size_t i = 0; ax_config_sections[s].keys[i].path != NULL; i++)
            f(&ax_config_sections[s].keys[i]);
}

static void names_exist(const struct ax_config_key *key, const char *condition) {
    char name[AX_CONFIG_PATH], beside[2 * AX_CONFIG_PATH];
    for (size_t i = 0; ax_config_condition_key(condition, i, name, sizeof name); i++) {
        const int n = *name == '.' ? (int)(strrchr(key->path, '.') - key->path) : 0;
        snprintf(beside, sizeof beside, "%.*s%s", n, key->path, name);
        if (ax_config_find(beside) == NULL)
            fail_msg("%s: \"%s\" speaks of %s, which is no key", key->path, condition, name);
    }
}

/* What a key is put into can hold its values; a word is one of the key's choices. */
static void check_fields(const struct ax_config_key *key) {
    static const unsigned fits[] = {[AX_FIELD_BOOL] = AX_T_BOOL | AX_T_INT | AX_T_STR,
                                    [AX_FIELD_INT] = AX_T_INT,
                                    [AX_FIELD_I64] = AX_T_INT | AX_T_NUM,
                                    [AX_FIELD_U64] = AX_T_INT,
                                    [AX_FIELD_F64] = AX_T_INT | AX_T_NUM,
                                    [AX_FIELD_TEXT] = AX_T_SCALAR,
                                    [AX_FIELD_NODE] = ~0U,
                                    [AX_FIELD_WORD] = AX_T_STR};
    for (const struct ax_config_field *f = key->into; f != NULL && f->type != NULL; f++) {
        if ((key->types & (AX_T_ANY * 2 - 1) & ~fits[f->kind]) != 0)
            fail_msg("%s does not fit into its field of %s", key->path, f->type);
        assert_true(f->kind != AX_FIELD_WORD || key->choices != NULL);
        assert_int_equal(key->support, AX_SUPPORT_ACTS);
    }
}

static void check_row(const struct ax_config_key *key) {
    char parent[AX_CONFIG_PATH];
    if (ax_config_find(key->path) != key)
        fail_msg("%s stands twice in the table", key->path);
    size_t n = key->help != NULL ? strlen(key->help) : 0;
    if (key->help != NULL && (n < 5 || key->help[n - 1] != '.' || strchr(key->help, '\n') != NULL))
        fail_msg("%s: the help must be one sentence: %s", key->path, key->help);
    assert_true((key->types & (AX_T_ANY * 2 - 1)) != 0 && key->needs < AX_CAP_COUNT &&
                ax_config_range_of(key) < AX_R_COUNT);
    /* what is approximated, ignored or refused says why; what acts has help */
    assert_true((key->support != AX_SUPPORT_ACTS) == (key->note != NULL));
    assert_true(key->help != NULL || key->needs != AX_CAP_NONE || key->note != NULL);
    assert_true(ax_config_section_of(key)->brief == (key->help == NULL));
    if ((key->types & AX_T_LIST) != 0 && ax_config_elements(key) == 0)
        fail_msg("%s: a list of what?", key->path);
    if (key->choices != NULL && ((key->types | ax_config_elements(key)) & AX_T_STR) == 0)
        fail_msg("%s: choices, but no strings", key->path);
    if (key->when != NULL)
        names_exist(key, key->when);
    check_fields(key);
    /* the row of the map or list around it */
    snprintf(parent, sizeof parent, "%s", key->path);
    char *dot = strrchr(parent, '.');
    if (dot != NULL) {
        bool list = dot - parent > 2 && strncmp(dot - 2, "[]", 2) == 0;
        *(list ? dot - 2 : dot) = '\0';
        const struct ax_config_key *around = ax_config_find(parent);
        assert_non_null(around);
        assert_true(list ? (around->types & AX_T_LIST) && ax_config_elements(around) == AX_T_MAP
                         : (around->types & AX_T_MAP) != 0);
    }
}

/* Eight values are listed in an error; of more, it says where they are listed. */
static void errors_list_up_to_eight_values(void **state) {
    (void)state;
    static const char *const expected[][2] = {
        {"a", "a"},
        {"a|b", "one of a, b"},
        {"a|b|c|d|e|f|g|h", "one of a, b, c, d, e, f, g, h"},
        {"a|b|c|d|e|f|g|h|i", "one of the values that `axtrain config help k` lists"}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct ax_config_key key = {
            .path = "k", .types = AX_T_STR, .choices = expected[i][0]};
        struct ax_buf text = {0};
        assert_int_equal(ax_config_expected(&key, key.types, &text), AX_OK);
        assert_string_equal(text.data, expected[i][1]);
        ax_buf_free(&text);
    }
}

static void rows(void **state) {
    (void)state;
    each_key(check_row);
    size_t n = 0;
    for (size_t s = 0; s < ax_config_n_sections; s++)
        for (size_t i = 0; ax_config_sections[s].keys[i].path != NULL; i++)
            n++;
    assert_true(n > 550);
}

static void values_and_old_names(void **state) {
    (void)state;
    for (size_t i = 0; i < ax_config_n_values; i++) {
        const struct ax_config_value *v = &ax_config_values[i];
        const struct ax_config_key *key = ax_config_find(v->path);
        assert_non_null(key);
        /* a refused value need not be a choice; an earlier row must not hide this one */
        char one[AX_CONFIG_PATH];
        for (size_t k = 0; ax_config_choice_at(v->values, k, one, sizeof one); k++) {
            struct ax_config_value first;
            assert_true(ax_config_find_value(key, one, &first));
            if (first.values != v->values && strchr(one, '*') == NULL)
                fail_msg("%s: %s is hidden by %s", v->path, one, first.values);
        }
        assert_true((v->support == AX_SUPPORT_ACTS) == (v->note == NULL));
    }
    static const struct {
        const char *value;
        enum ax_capability needs;
    } types[] = {{"alpaca.load_x", AX_CAP_PYTHON},   {"alpaca:load_x", AX_CAP_PYTHON},
                 {"zephyr.x", AX_CAP_DATASET_TYPES}, {"llama3.x", AX_CAP_NONE},
                 {"chatml.x", AX_CAP_NONE},          {"alpaca:x", AX_CAP_NONE}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct ax_config_value v;
        assert_true(ax_config_find_value(ax_config_find("datasets[].type"), types[i].value, &v));
        assert_int_equal(v.needs, types[i].needs);
    }
    for (size_t i = 0; i < ax_config_n_renamed; i++) {
        const struct ax_config_renamed *old = &ax_config_renamed[i];
        const bool any = old->from == NULL || strcmp(old->from, "{}") == 0;
        assert_true(any == (old->text == NULL));
        assert_true(old->from != NULL || ax_config_find(old->path) == NULL);
        if (ax_config_find(old->now) == NULL) {
            char around[AX_CONFIG_PATH];
            snprintf(around, sizeof around, "%.*s", (int)(strrchr(old->now, '.') - old->now),
                     old->now);
            assert_true(ax_config_elements(ax_config_find(around)) == AX_T_STR);
        }
    }
    for (size_t i = 0; i < ax_config_n_ignored; i++)
        assert_null(ax_config_find(ax_config_ignored[i].path));
    for (size_t i = 0; i < ax_config_n_other_trainers; i++) {
        assert_null(ax_config_find(ax_config_other_trainers[i].name));
        const char *ours = ax_config_other_trainers[i].ours;
        char key[AX_CONFIG_PATH];
        assert_true((ours != NULL) != (ax_config_other_trainers[i].instead != NULL));
        if (ours == NULL)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(ours, " ,"), ours);
        const struct ax_config_key *row = ax_config_find(key);
        if (row == NULL || ax_config_support_of(row->support, row->needs) > AX_SUPPORT_APPROXIMATED)
            fail_msg("%s: %s does not act", ax_config_other_trainers[i].name, key);
    }
    for (size_t i = 0; i < ax_config_n_derived; i++) {
        const struct ax_config_derived *d = &ax_config_derived[i];
        assert_non_null(ax_config_find(d->path));
        names_exist(ax_config_find(d->path), d->when);
        assert_true(d->value[0] != '=' || ax_config_find(d->value + 1) != NULL);
    }
    for (size_t i = 0; i < ax_config_n_rules; i++) {
        const struct ax_config_key *key = ax_config_find(ax_config_rules[i].path);
        assert_non_null(key);
        names_exist(key, ax_config_rules[i].when);
    }
}

static void capabilities(void **state) {
    (void)state;
    for (int c = 0; c < AX_CAP_COUNT; c++) {
        const struct ax_capability_info *info = ax_capability_info((enum ax_capability)c);
        assert_true(strlen(info->name) > 2 && strlen(info->meaning) > 2);
        for (int d = 0; d < c; d++)
            assert_string_not_equal(info->name, ax_capability_info((enum ax_capability)d)->name);
        assert_int_equal(ax_config_support_of(AX_SUPPORT_ACTS, (enum ax_capability)c),
                         c == AX_CAP_NONE ? AX_SUPPORT_ACTS : AX_SUPPORT_NOT_YET);
    }
}

static void conditions(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nmax_steps: "
            "5\nplugins: [a.KDPlugin, b.c]\nfp8: false\n",
            NULL);
    static const struct {
        const char *condition;
        bool holds;
    } cases[] = {
        {"adapter", true},
        {"!adapter", false},
        {"fp8", false},
        {"set(fp8) && !fp8", true},
        {"set(seed)", false},
        {"seed", true}, /* by its default */
        {"adapter == lora,qlora", true},
        {"adapter == q*", false},
        {"adapter != qlora", true},
        {"rl != dpo", true},
        {"rl == dpo", false},
        {"max_steps > 4", true},
        {"max_steps > 5", false},
        {"(rl || adapter) && max_steps > 4", true},
        {"(adapter || rl) && fp8", false},
        {"adapter && (rl || fp8 || max_steps == 5)", true},
        {"(rl || fp8) && adapter", false},
        {"plugins == *KDPlugin", true},
        {"plugins == *LigerPlugin", false},
        {"!rl && !fp8", true},
        /* as in C: && binds tighter than || */
        {"adapter || rl && fp8", true},
        {"(adapter || rl) && fp8", false},
        {"rl && fp8 || (fp8 || adapter)", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ax_config_holds(&cfg, cases[i].condition) != cases[i].holds)
            fail_msg("\"%s\"", cases[i].condition);
    struct ax_buf text = {0};
    assert_int_equal(
        ax_config_condition_text("(!rl || adapter == lora,qlora) && max_steps > 4", &text), AX_OK);
    assert_string_equal(text.data, "(no rl or adapter: lora or qlora) and max_steps above 4");
    ax_buf_free(&text);
    ax_config_free(&cfg);
}

/* A row in a table of another module is a choice of its key, and acts, without further lines. */
static void names_from_other_rooms(void **state) {
    (void)state;
    struct ax_config_value v;
    const struct ax_config_key *schedule = ax_config_find("lr_scheduler");
    for (size_t i = 0; ax_lr_kind_name(i) != NULL; i++) {
        assert_true(ax_config_choice(schedule->choices, ax_lr_kind_name(i)));
        assert_true(ax_config_find_value(schedule, ax_lr_kind_name(i), &v));
        assert_true(v.support == AX_SUPPORT_ACTS && v.needs == AX_CAP_NONE);
    }
    const struct ax_config_key *optimizer = ax_config_find("optimizer");
    char name[64];
    size_t known = 0;
    for (size_t i = 0; ax_config_choice_at(optimizer->choices, i, name, sizeof name); i++) {
        const struct ax_optimizer *found;
        struct ax_optimizer_options o;
        assert_true(ax_config_find_value(optimizer, name, &v));
        const bool acts = ax_config_support_of(v.support, v.needs) <= AX_SUPPORT_APPROXIMATED;
        assert_int_equal(ax_optimizer_find(name, &found, &o) == AX_OK, acts);
        known += acts;
    }
    assert_true(known > 15);
    assert_false(ax_config_choice(optimizer->choices, "adamw")); /* our own commands' */
}

/* The node of a row in the schema. */
static const json_t *in_schema(const json_t *root, const char *path) {
    const json_t *node = root;
    char part[AX_CONFIG_PATH];
    for (const char *s = path; *s != '\0';) {
        size_t len = strcspn(s, ".");
        bool list = len > 2 && strncmp(s + len - 2, "[]", 2) == 0;
        snprintf(part, sizeof part, "%.*s", (int)(list ? len - 2 : len), s);
        s += len + (s[len] == '.');
        node = json_object_get(json_object_get(node, "properties"), part);
        if (*s == '\0')
            return node;
        size_t i;
        const json_t *or_;
        const json_t *found = NULL;
        json_array_foreach(json_object_get(node, "anyOf"), i, or_) {
            const json_t *inside = list ? json_object_get(or_, "items") : or_;
            found = json_object_get(inside, "properties") != NULL ? inside : found;
        }
        node = found;
    }
    return node;
}

static json_t *schema;

/* What a choice is in the schema: itself, or a pattern in which * is anything and . itself. */
static void put_choice(char *out, const char *choice) {
    if (strchr(choice, '*') == NULL) {
        sprintf(out, "\"%s\"", choice);
        return;
    }
    out = stpcpy(out, "\"pattern\":\"^");
    for (; *choice != '\0'; choice++) {
        const char one[] = {*choice, '\0'};
        out = stpcpy(out, *choice == '*' ? ".*" : *choice == '.' ? "\\\\." : one);
    }
    strcpy(out, "$\"");
}

static void check_choices(const struct ax_config_key *key, const json_t *node) {
    char choice[128], want[300];
    char *text = json_dumps(node, JSON_COMPACT);
    for (size_t i = 0; ax_config_choice_at(key->choices, i, choice, sizeof choice); i++) {
        put_choice(want, choice);
        expect_text(text, want);
    }
    ax_free(text);
}

static void check_schema_row(const struct ax_config_key *key) {
    const json_t *node = in_schema(schema, key->path);
    if (node == NULL)
        fail_msg("%s is not in the schema", key->path);
    if (key->choices != NULL)
        check_choices(key, node);
    const char *description = json_string_value(json_object_get(node, "description"));
    expect_text(description,
                key->help != NULL
                    ? key->help
                    : ax_config_support_name(ax_config_support_of(key->support, key->needs)));
}

/* A former spelling of a value, if it is one of a key with choices, is still a choice. */
static bool has_old_value(const struct ax_config_renamed *r) {
    if (r->from == NULL || strchr(r->from, '*') != NULL)
        return false;
    size_t i, k;
    const json_t *or_, *value;
    bool found = false, any = false;
    json_array_foreach(json_object_get(in_schema(schema, r->path), "anyOf"), i, or_) {
        json_array_foreach(json_object_get(or_, "enum"), k, value) {
            any = true;
            found = found || strcmp(json_string_value(value), r->from) == 0;
        }
    }
    if (any && !found)
        fail_msg("%s: %s is not in the schema", r->path, r->from);
    return found;
}

/* Each line is two columns to the right for every list of properties that it is in. */
static void check_indentation(const char *text) {
    static const char opens[] = "\"properties\": {";
    bool list[64];
    size_t depth = 0, lists = 0, lines = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1, lines++) {
        bool quoted = false;
        if (strspn(line, " ") != 2 * lists)
            fail_msg("in %zu lists: %.60s", lists, line);
        for (const char *c = line; *c && *c != '\n'; c++) {
            quoted ^= *c == '"' && (c == text || c[-1] != '\\');
            if (!quoted && (*c == '{' || *c == '[')) {
                assert_true(depth < 64);
                const size_t n = sizeof opens - 2;
                list[depth] = (size_t)(c - text) > n && strncmp(c - n, opens, n + 1) == 0;
                lists += list[depth++];
            } else if (!quoted && (*c == '}' || *c == ']')) {
                lists -= list[--depth];
            }
        }
    }
    assert_true(depth == 0 && lines > 300);
}

static void schema_covers_all_keys(void **state) {
    (void)state;
    struct ax_buf text = {0};
    json_error_t error;
    assert_int_equal(ax_config_schema(&text), AX_OK);
    schema = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &error);
    if (schema == NULL)
        fail_msg("line %d: %s", error.line, error.text);
    each_key(check_schema_row);
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    assert_non_null(in_schema(schema, "test_datasets[].field_messages"));
    assert_non_null(in_schema(schema, "pretraining_dataset[].type.format"));
    for (size_t i = 0; i < ax_config_n_renamed; i++) {
        assert_true(strchr(ax_config_renamed[i].path, '.') != NULL ||
                    in_schema(schema, ax_config_renamed[i].path) != NULL);
    }
    size_t old_values = 0;
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        old_values += has_old_value(&ax_config_renamed[i]);
    assert_true(old_values > 3);
    check_indentation(text.data);
    const json_t *debug = in_schema(schema, "debug");
    assert_true(json_is_true(json_object_get(debug, "deprecated")));
    json_decref(schema);
    ax_buf_free(&text);
}

static const char *docs;

static void check_docs_row(const struct ax_config_key *key) {
    char cell[AX_CONFIG_PATH];
    snprintf(cell, sizeof cell, key->help != NULL ? "\n| `%s` |" : " `%s` ", key->path);
    expect_text(docs, cell);
}

static void docs_cover_all_keys(void **state) {
    (void)state;
    struct ax_buf text = {0};
    assert_int_equal(ax_config_docs(&text), AX_OK);
    docs = text.data;
    char *kept;
    size_t len;
    assert_int_equal(ax_read_file("docs/config.md", 1 << 20, &kept, &len), AX_OK);
    if (strcmp(docs, kept) != 0)
        fail_msg("docs/config.md is stale: make docs");
    ax_free(kept);
    each_key(check_docs_row);
    for (int c = AX_CAP_NONE + 1; c < AX_CAP_COUNT; c++)
        expect_text(docs, ax_capability_info((enum ax_capability)c)->meaning);
    for (size_t i = 0; i < ax_config_n_ignored; i++) {
        char row[512];
        const struct ax_config_ignored *key = &ax_config_ignored[i];
        snprintf(row, sizeof row, "\n| `%s` | %s |\n", key->path, key->instead ? key->instead : "");
        expect_text(docs, row);
    }
    /* every row of a key table has its five cells */
    size_t in_table = 0;
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "## ", 3) == 0)
            in_table = 0;
        in_table += strncmp(line, "| key | type |", 14) == 0;
        if (in_table > 0 && line[0] == '|') {
            size_t bars = 0;
            for (const char *c = line; *c != '\0'; c++)
                bars += *c == '|' && (c == line || c[-1] != '\\');
            if (bars != 6)
                fail_msg("%zu bars: %s", bars, line);
        }
    }
    ax_buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(errors_list_up_to_eight_values),
        cmocka_unit_test(values_and_old_names),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(conditions),
        cmocka_unit_test(names_from_other_rooms),
        cmocka_unit_test(schema_covers_all_keys),
        cmocka_unit_test(docs_cover_all_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
