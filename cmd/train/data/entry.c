/* One entry of datasets, test_datasets or pretraining_dataset: its records and its format. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/train/data/data.h"
#include "data/records/rows/hub_dataset.h"

/* ---- memory owned by the entry ---- */

static enum ax_status own(struct ax_setup_entry *e, void *out, size_t n, size_t size) {
    void *p;
    AX_TRY(ax_regrow(&e->owned, e->n_owned, e->n_owned + 1, sizeof *e->owned));
    AX_TRY(ax_alloc(&p, n, size));
    e->owned[e->n_owned++] = p;
    memcpy(out, &p, sizeof p);
    return AX_OK;
}

/* A list of texts: the list is owned, its texts are borrowed. `key` is where it was read. */
static enum ax_status read_texts(struct ax_setup_entry *e, const struct ax_config *cfg,
                                 const char *key, const struct ax_yaml_node *from,
                                 const char *const **out, size_t *n) {
    const char **list;
    for (*n = 0; ax_config_element(from, *n);)
        ++*n;
    AX_TRY(own(e, &list, *n, sizeof *list));
    for (size_t i = 0; i < *n; i++) {
        list[i] = ax_config_element(from, i)->text;
        if (!list[i])
            return ax_config_error(cfg, key, "expected text at index %zu", i);
    }
    *out = list;
    return AX_OK;
}

/* ---- chat ---- */

/* message_property_mappings: {property: column} */
static enum ax_status read_properties(struct ax_setup_entry *e) {
    const struct ax_yaml_node *map = e->keys.properties;
    struct ax_name_map *list;
    const size_t n = map ? map->n : 0;
    bool role = false;
    bool content = false;
    AX_TRY(own(e, &list, n + 2, sizeof *list));
    for (size_t i = 0; i < n; i++) {
        const struct ax_yaml_entry *m = &map->entries[i];
        if (!m->value->text)
            continue;
        list[e->chat.n_properties++] = (struct ax_name_map){.from = m->value->text, .to = m->key};
        role = role || strcmp(m->key, "role") == 0;
        content = content || strcmp(m->key, "content") == 0;
    }
    if (!role)
        list[e->chat.n_properties++] = (struct ax_name_map){"role", "role"};
    if (!content)
        list[e->chat.n_properties++] = (struct ax_name_map){"content", "content"};
    e->chat.properties = list;
    return AX_OK;
}

static const struct ax_name_map default_roles[] = {
    {"user", "user"},     {"human", "user"},    {"assistant", "assistant"},
    {"gpt", "assistant"}, {"system", "system"}, {"tool", "tool"},
};

/* roles: {target: [source, …]} */
static enum ax_status read_roles(struct ax_setup_entry *e, const struct ax_config *cfg) {
    const struct ax_yaml_node *map = e->keys.roles;
    e->chat.roles = default_roles;
    e->chat.n_roles = sizeof default_roles / sizeof *default_roles;
    if (!map)
        return AX_OK;
    size_t n = 0;
    struct ax_name_map *list;
    for (size_t i = 0; i < map->n; i++)
        n += map->entries[i].value->n;
    AX_TRY(own(e, &list, n, sizeof *list));
    n = 0;
    for (size_t i = 0; i < map->n; i++) {
        const struct ax_yaml_node *sources = map->entries[i].value;
        const char *to = map->entries[i].key;
        for (size_t k = 0; k < sources->n; k++)
            list[n++] = (struct ax_name_map){sources->entries[k].value->text, to};
    }
    for (size_t i = 0; i < n; i++)
        if (!list[i].from)
            return ax_config_error(cfg, e->path, "roles: expected role names");
    e->chat.roles = list;
    e->chat.n_roles = n;
    return AX_OK;
}

/* NULL: the type of the records does not ask. */
static enum ax_train_on train_on(const char *word) {
    static const char *const words[] = {[AX_TRAIN_TURN] = "turn",
                                        [AX_TRAIN_ALL] = "all",
                                        [AX_TRAIN_LAST] = "last",
                                        [AX_TRAIN_NONE] = "none"};
    for (int i = 0; word && i < 4; i++)
        if (strcmp(words[i], word) == 0)
            return (enum ax_train_on)i;
    return AX_TRAIN_TURN; /* the config's table allows only these words */
}

/* Variables for the template: chat_template_kwargs, and over them those of prompts alone. */
static enum ax_status read_variables(struct ax_setup_entry *e, const struct ax_setup_data *d) {
    const struct ax_yaml_node *const maps[] = {d->keys.template_variables,
                                               d->keys.prompt_variables};
    const size_t n = ax_method_of(d->cfg)->task == AX_TASK_PROMPT ? 2 : 1;
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        json_t *v = maps[i] ? ax_yaml_to_json(maps[i]) : NULL;
        if (v && !e->kwargs)
            e->kwargs = json_object();
        ok = ok && (!maps[i] || (v && json_object_update(e->kwargs, v) == 0));
        json_decref(v);
    }
    return ok ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for chat_template_kwargs");
}

static enum ax_status read_chat(struct ax_setup_entry *e, const struct ax_setup_data *d) {
    const struct ax_config *cfg = d->cfg;
    const struct ax_setup_tokenizer *t = &d->tok;
    const struct ax_entry_keys *k = &e->keys;
    struct ax_format_chat *c = &e->chat;
    char path[128];
    AX_TRY(ax_setup_template(&e->template, &e->tool_use, cfg, t, e->path));
    AX_TRY(read_variables(e, d));
    c->template = e->template;
    c->tool_use = e->tool_use;
    c->tokens = t->tokens;
    c->variables = e->kwargs;
    if (json_array_size(d->tool_definitions) > 0 || json_is_object(d->tool_definitions))
        c->tools = d->tool_definitions;
    AX_FILL(cfg, e->path, struct ax_format_chat, c);
    AX_TRY(read_properties(e));
    AX_TRY(read_roles(e, cfg));
    snprintf(path, sizeof path, "%s.roles_to_train", e->path);
    AX_TRY(read_texts(e, cfg, path, k->roles_to_train, &c->roles_to_train, &c->n_roles_to_train));
    c->train_on_eos = train_on(k->train_on_eos);
    c->train_on_eot = k->train_on_eot ? train_on(k->train_on_eot) : c->train_on_eos;
    AX_TRY(read_texts(e, cfg, "eot_tokens", d->keys.eot_tokens, &c->eot_tokens, &c->n_eot_tokens));
    c->leading_system_untrained = t->named_mistral;
    c->now = (int64_t)time(NULL);
    return AX_OK;
}

/* ---- the other formats ---- */

static struct ax_format_synthetic read_synthetic(const struct ax_config *cfg, const char *entry,
                                                 const struct ax_setup_tokenizer *t) {
    struct ax_format_synthetic s = {.max_id = (int64_t)ax_tokenizer_size(t->tokenizer)};
    AX_FILL(cfg, "", struct ax_format_synthetic, &s);
    AX_FILL(cfg, entry, struct ax_format_synthetic, &s);
    return s;
}

/* The type as text; NULL if it is a map or absent. axolotl has a name of its own for chats with a
 * teacher's log-probs. */
static const char *type_of(const struct ax_entry_keys *k) {
    static const char with_logprobs[] = "axolotl.integrations.kd.chat_template";
    const char *type = k->type ? k->type->text : NULL;
    if (type && strncmp(type, with_logprobs, sizeof with_logprobs - 1) == 0)
        return "chat_template";
    return type;
}

/* A template for records that may hold messages; without one, only texts are read. */
static enum ax_status read_chat_if_any(struct ax_setup_entry *e, const struct ax_setup_data *d,
                                       const struct ax_format_chat **out) {
    struct ax_template_keys k = {0};
    AX_FILL(d->cfg, "", struct ax_template_keys, &k);
    AX_FILL(d->cfg, e->path, struct ax_template_keys, &k);
    const bool named = k.name || k.jinja;
    const enum ax_status st = read_chat(e, d);
    if (st == AX_ERR_DATA && !named) {
        ax_error_clear();
        return AX_OK;
    }
    AX_TRY(st);
    *out = &e->chat;
    return AX_OK;
}

/* ---- preferences, rated answers, labeled steps, prompts ---- */

/* A rule for lengths that the user chose also holds for answers; by default, their types cut. */
static enum ax_long long_examples(const struct ax_config *cfg) {
    return ax_config_holds(cfg, "!set(excess_length_strategy)")         ? AX_LONG_USUAL
           : ax_config_holds(cfg, "excess_length_strategy == truncate") ? AX_LONG_CUT
                                                                        : AX_LONG_KEEP;
}

static void read_answers(struct ax_setup_entry *e, const struct ax_config *cfg) {
    const struct ax_yaml_node *type = e->keys.type;
    e->answers = (struct ax_format_answers){.framed_by_ids = ax_method_of(cfg)->framed_by_ids,
                                            .tail_share = 1};
    AX_FILL(cfg, "", struct ax_format_answers, &e->answers);
    AX_FILL(cfg, e->path, struct ax_format_answers, &e->answers);
    e->answers.turns = ax_setup_has_turns(cfg);
    e->answers.own = ax_config_holds(cfg, "rl == distill") && ax_config_f64(cfg, "trl.lmbda") < 1;
    if (type && type->kind == AX_YAML_MAP) {
        AX_FILL(cfg, e->path, struct ax_format_answer_map, &e->answer_map);
        e->answers.map = &e->answer_map;
    }
}

static void read_records(struct ax_setup_entry *e, const struct ax_config *cfg,
                         struct ax_format_options *o) {
    o->long_examples = o->task == AX_TASK_TEXT ? AX_LONG_KEEP : long_examples(cfg);
    if (o->task == AX_TASK_STEPS) {
        e->steps = (struct ax_format_steps){.separator = "\n"};
        AX_FILL(cfg, e->path, struct ax_format_steps, &e->steps);
        o->steps = &e->steps;
    } else {
        read_answers(e, cfg);
        o->answers = &e->answers;
    }
}

/* ---- any format ---- */

/* Whether records of this type are rendered by a chat template: always, or if they hold messages. */
enum chat_use { NO_CHAT, CHAT, CHAT_IF_ANY };

static enum chat_use chat_use_of(enum ax_task task, const char *type, bool is_map) {
    static const char *const families[] = {"chat_template", "bradley_terry"};
    const size_t n = type ? strcspn(type, ".") : 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (n == strlen(families[i]) && memcmp(type, families[i], n) == 0)
            return CHAT;
    const bool own = task != AX_TASK_STEPS && !type && !is_map;
    return own ? CHAT_IF_ANY : NO_CHAT;
}

static enum ax_status open_format(struct ax_setup_entry *e, const struct ax_setup_data *d,
                                  bool pretraining) {
    const struct ax_config *cfg = d->cfg;
    const struct ax_setup_tokenizer *t = &d->tok;
    const char *type = type_of(&e->keys);
    const bool is_map = e->keys.type && e->keys.type->kind == AX_YAML_MAP;
    struct ax_format_options o = {.task = ax_method_of(cfg)->task,
                                  .type = type,
                                  .tokenizer = t->tokenizer,
                                  .pad = t->pad,
                                  .pretrain = ax_setup_pretrain_mode(&d->keys),
                                  .columns = d->method.objective.columns};
    AX_FILL(cfg, "", struct ax_format_options, &o);
    AX_FILL(cfg, e->path, struct ax_format_options, &o);
    AX_FILL(cfg, e->path, struct ax_format_topk, &o.topk);
    if (o.task == AX_TASK_PROMPT || d->method.distill.asked)
        o.columns = NULL; /* they are those of completions, or come from a server */
    const enum chat_use chat = chat_use_of(o.task, type, is_map);
    if (o.task != AX_TASK_TEXT || (!type && !is_map && !pretraining))
        read_records(e, cfg, &o);
    if (chat == CHAT) {
        AX_TRY(read_chat(e, d));
        o.chat = &e->chat;
    } else if (chat == CHAT_IF_ANY) {
        AX_TRY(read_chat_if_any(e, d, &o.chat));
    }
    if (is_map && o.task == AX_TASK_TEXT) {
        e->user.system_prompt = "";
        AX_FILL(cfg, e->path, struct ax_format_user, &e->user);
        o.user = &e->user;
    } else if (type && strcmp(type, "_synthetic") == 0) {
        o.synthetic = read_synthetic(cfg, e->path, t);
    }
    return ax_format_new(&e->format, &o);
}

/* ---- records ---- */

/* One character; a tab may be written in words, as YAML knows "\t" in double quotes alone. */
static enum ax_status read_delimiter(const struct ax_setup_entry *e, const struct ax_config *cfg,
                                     char *out) {
    const char *s = e->keys.delimiter;
    char path[128];
    if (!s)
        return AX_OK;
    if (strcmp(s, "\\t") == 0 || strcmp(s, "tab") == 0)
        s = "\t";
    *out = *s;
    if (strlen(s) == 1 && (unsigned char)*s < 0x80 && !strchr("\"\r\n", *s))
        return AX_OK;
    snprintf(path, sizeof path, "%s.delimiter", e->path);
    return ax_config_error(cfg, path,
                           "expected one character between fields, such as \";\" or \"\\t\", "
                           "other than a quote or a line end");
}

enum ax_status ax_setup_entry_rows(struct ax_setup_entry *e, const struct ax_config *cfg,
                                   struct ax_rows_options *out) {
    char path[128];
    AX_FILL(cfg, e->path, struct ax_entry_keys, &e->keys);
    const char *type = type_of(&e->keys);
    struct ax_rows_options o = {.default_split =
                                    strncmp(e->path, "test_", 5) == 0 ? "test" : "train"};
    AX_FILL(cfg, "", struct ax_rows_options, &o);
    AX_FILL(cfg, e->path, struct ax_rows_options, &o);
    if (ax_config_is_set(cfg, "%s.split", e->path))
        o.split = ax_config_str(cfg, "%s.split", e->path);
    if (type && strcmp(type, "_synthetic") == 0)
        o.empty_rows = e->keys.length;
    else if (!o.path || !*o.path)
        return ax_config_error(cfg, e->path, "expected a path: a file, a folder, a glob or -");
    AX_TRY(read_delimiter(e, cfg, &o.delimiter));
    o.sample_by_set = ax_config_is_set(cfg, "%s.sample_by", e->path);
    snprintf(path, sizeof path, "%s.data_files", e->path);
    AX_TRY(read_texts(e, cfg, path, e->keys.data_files, &o.data_files, &o.n_data_files));
    *out = o;
    return AX_OK;
}

/* Downloads a data set of the hub into the cache first, unless it is there. */
static enum ax_status open_rows(struct ax_setup_entry *e, const struct ax_config *cfg) {
    struct ax_rows_options o = {0};
    struct ax_hub hub;
    struct ax_hub_report report;
    AX_TRY(ax_setup_entry_rows(e, cfg, &o));
    if (o.empty_rows == 0 && ax_hub_dataset_is(o.path)) {
        AX_TRY(ax_hub_open(&hub));
        const enum ax_status st = ax_hub_dataset_get(&hub, &o, &report);
        ax_hub_close(&hub);
        AX_TRY(st);
    }
    return ax_rows_open(&e->rows, &o);
}

enum ax_status ax_setup_entry_open(struct ax_setup_entry *e, const struct ax_setup_data *d,
                                   const char *list, size_t index) {
    *e = (struct ax_setup_entry){0};
    snprintf(e->path, sizeof e->path, "%s.%zu", list, index);
    AX_FILL(d->cfg, e->path, struct ax_entry_keys, &e->keys);
    const bool pretraining = strcmp(list, "pretraining_dataset") == 0;
    enum ax_status st = open_format(e, d, pretraining);
    if (st == AX_OK)
        st = open_rows(e, d->cfg);
    if (st != AX_OK) {
        if (strncmp(ax_error_text(), e->path, strlen(e->path)) != 0)
            st = ax_error_prefix(st, "%s", e->path);
        ax_setup_entry_close(e);
    }
    return st;
}

void ax_setup_entry_close(struct ax_setup_entry *e) {
    ax_rows_close(e->rows);
    ax_format_free(e->format);
    ax_template_free(e->template);
    ax_template_free(e->tool_use);
    json_decref(e->kwargs);
    for (size_t i = 0; i < e->n_owned; i++)
        ax_free(e->owned[i]);
    ax_free(e->owned);
    *e = (struct ax_setup_entry){0};
}
