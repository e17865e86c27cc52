/* Tools that answers call, and environments: the keys of data/tools/tools.h and data/tools/episode.h. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "cmd/train/rollout.h"
#include "model/text/text_tools.h"

#define KEY         "trl.tools"
#define ENVIRONMENT "trl.environment_factory"

/* ---- opening ---- */

static struct ax_tool_keys keys_of(const struct ax_config *cfg) {
    struct ax_tool_keys k = {0};
    AX_FILL(cfg, "", struct ax_tool_keys, &k);
    return k;
}

static size_t count_named(const struct ax_tool_keys *k) {
    return k->tools ? k->tools->n : 0;
}

bool ax_setup_has_turns(const struct ax_config *cfg) {
    const struct ax_tool_keys k = keys_of(cfg);
    return (count_named(&k) > 0 || k.environment) && ax_method_of(cfg)->task == AX_TASK_PROMPT;
}

/* The key that says what answers have. */
static const char *key_of(const struct ax_config *cfg) {
    const struct ax_tool_keys k = keys_of(cfg);
    return count_named(&k) > 0 ? KEY : ENVIRONMENT;
}

/* Names of environments, and the keys by which records choose them. */
static void read_environments(const struct ax_yaml_node *node, const char **names,
                              const char **keys, struct ax_tools_options *o) {
    const bool map = node && node->kind == AX_YAML_MAP;
    o->n_environments = !node ? 0 : map ? node->n : 1;
    o->environments = names;
    o->keys = map ? keys : NULL;
    for (size_t i = 0; i < o->n_environments && i < AX_TOOLS_MOST_ENVIRONMENTS; i++) {
        names[i] = map ? node->entries[i].value->text : node->text;
        keys[i] = map ? node->entries[i].key : NULL;
    }
}

static enum ax_status open_named(struct ax_tools **out, const struct ax_config *cfg,
                                 const struct ax_tool_keys *k, const char **names) {
    const char *environments[AX_TOOLS_MOST_ENVIRONMENTS], *keys[AX_TOOLS_MOST_ENVIRONMENTS];
    struct ax_tools_options o = {.names = names, .n = count_named(k)};
    for (size_t i = 0; i < o.n; i++)
        names[i] = k->tools->entries[i].value->text;
    read_environments(k->environment, environments, keys, &o);
    AX_FILL(cfg, "", struct ax_tools_options, &o);
    const enum ax_status st = ax_text_tools_start(out, &o);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "%s", key_of(cfg));
}

enum ax_status ax_setup_tools_open(struct ax_tools **out, const struct ax_config *cfg) {
    const struct ax_tool_keys k = keys_of(cfg);
    const char **names;
    *out = NULL;
    if (!ax_setup_has_turns(cfg))
        return AX_OK;
    AX_TRY(ax_alloc(&names, count_named(&k), sizeof *names));
    const enum ax_status st = open_named(out, cfg, &k, names);
    ax_free(names);
    return st;
}

/* ---- conversations ---- */

static const struct ax_template *template_of(const struct ax_setup_entry *e) {
    return e->tool_use ? e->tool_use : e->template;
}

static bool same_source(const struct ax_template *a, const struct ax_template *b) {
    size_t n, m;
    const char *x = ax_template_source(a, &n), *y = ax_template_source(b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

static enum ax_status check_form(const struct ax_setup_entry *e, const struct ax_setup_entry *first,
                                 const char *why) {
    json_t *a = NULL, *b = NULL;
    enum ax_status st = ax_format_describe(e->format, &a);
    if (st == AX_OK)
        st = ax_format_describe(first->format, &b);
    if (st == AX_OK && !json_equal(a, b))
        st = ax_error(AX_ERR_CONFIG,
                      "%s is read otherwise than %s: with %s, all data sets need the same type, "
                      "columns and template",
                      e->path, first->path, why);
    json_decref(a);
    json_decref(b);
    return st;
}

enum ax_status ax_setup_check_alike(const struct ax_setup_data *d, const char *why) {
    const struct ax_setup_sets *const sets[] = {&d->train_sets, &d->eval_sets};
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < sets[s]->n; i++)
            AX_TRY(check_form(&sets[s]->entries[i], &d->train_sets.entries[0], why));
    return AX_OK;
}

/* All data sets must be written alike: what comes between turns is the same for all. */
static enum ax_status check_entries(const struct ax_setup_data *d) {
    const struct ax_setup_sets *const sets[] = {&d->train_sets, &d->eval_sets};
    const struct ax_setup_entry *first = &d->train_sets.entries[0];
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < sets[s]->n; i++) {
            const struct ax_setup_entry *e = &sets[s]->entries[i];
            if (!template_of(e))
                return ax_error(AX_ERR_CONFIG,
                                "%s has no chat template, which writes turns: set chat_template, "
                                "and a type that uses it",
                                e->path);
            if (!same_source(template_of(e), template_of(first)))
                return ax_error(AX_ERR_CONFIG,
                                "%s has another chat template than %s: with turns, all data sets "
                                "need the same",
                                e->path, first->path);
        }
    /* prompts are rendered again with what an environment begins with, by the format of the first data set */
    return d->tools && ax_tools_environments(d->tools) > 0
               ? ax_setup_check_alike(d, "an environment")
               : AX_OK;
}

static enum ax_status open_chat(struct ax_tool_chat *c, const struct ax_setup_data *d, size_t k,
                                const char *format, struct ax_stop_tokens *stop) {
    const struct ax_setup_entry *e = &d->train_sets.entries[0];
    *c = (struct ax_tool_chat){.template = template_of(e),
                               .tokens = d->tok.tokens,
                               .variables = e->kwargs,
                               .tokenizer = d->tok.tokenizer,
                               .tools = d->tools ? ax_tools_definitions_of(d->tools, k)
                                                 : d->tool_definitions,
                               .answered = d->tools && ax_tools_answer_turns(d->tools, k),
                               .n_stop = stop->n,
                               .stop = stop->ids,
                               .now = (int64_t)time(NULL)};
    AX_TRY(ax_tool_chat_open(c, format));
    if (c->format)
        ax_tool_chat_add_stops(c, stop);
    if (d->tools && ax_tools_environments(d->tools) > 0)
        ax_log_info("environment: %s has your rights", ax_tools_environment(d->tools, k));
    return AX_OK;
}

static size_t count_chats(const struct ax_setup_data *d) {
    const size_t n = d->tools ? ax_tools_environments(d->tools) : 0;
    return n > 0 ? n : 1;
}

enum ax_status ax_setup_chats_open(struct ax_tool_chat *chats, const struct ax_setup_data *d,
                                   const char *format, struct ax_stop_tokens *stop) {
    const struct ax_tool_format *found = NULL;
    AX_TRY(check_entries(d));
    for (size_t k = 0; k < count_chats(d); k++) {
        AX_TRY(open_chat(&chats[k], d, k, format, stop));
        found = chats[k].format ? chats[k].format : found;
    }
    if (found)
        ax_text_tools_tell(found);
    return AX_OK;
}

enum ax_status ax_setup_turns_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                   const struct ax_setup_data *d, bool planning,
                                   struct ax_rollout_options *o) {
    if (!ax_setup_has_turns(cfg))
        return AX_OK;
    if (o->n_stop_strings > 0)
        return ax_config_error(
            cfg, "trl.generation_kwargs",
            "stop_strings end an answer within a turn, which then has no end token: "
            "remove them, or %s",
            key_of(cfg));
    r->turns[0] = (struct ax_episode_rules){.max_rounds = -1};
    AX_FILL(cfg, "", struct ax_episode_rules, &r->turns[0]);
    o->turns = r->turns;
    o->observes = keys_of(cfg).environment != NULL;
    if (planning)
        return AX_OK;
    enum ax_status st = ax_setup_chats_open(r->chats, d, keys_of(cfg).format, &r->stop);
    for (size_t k = 0; k < count_chats(d); k++) {
        r->turns[k] = r->turns[0];
        r->turns[k].chat = &r->chats[k];
        r->turns[k].answered = r->chats[k].answered;
    }
    o->n_stop = r->stop.n;
    o->tools = d->tools;
    o->format = d->train_sets.entries[0].format;
    if (st == AX_OK)
        st = ax_tools_start(d->tools);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "%s", key_of(cfg));
}
