/* What a data set's records become, and the keys of records that are not texts: preferences, rated
 * answers, labeled steps, prompts. */
#include <string.h>

#include "cmd/train/data.h"

enum ax_status ax_setup_check_prompts(const struct ax_setup_data *d) {
    const struct ax_config *cfg = d->cfg;
    if (ax_method_of(cfg)->task != AX_TASK_PROMPT)
        return AX_OK;
    for (int eval = 0; eval < 2; eval++) {
        const struct ax_length_rule r = ax_setup_length_rule(d, eval);
        const int64_t length = r.max + r.reserved;
        if (r.max < 1)
            return ax_config_error(cfg, ax_method_of(cfg)->answer_key,
                                   "%lld leaves no room for a prompt in %s: %lld",
                                   (long long)r.reserved,
                                   eval ? "eval_sequence_len" : "sequence_len", (long long)length);
        if (r.excess == AX_EXCESS_TRUNCATE)
            return ax_config_error(cfg, "excess_length_strategy",
                                   "truncate would remove the end of prompts, where completions "
                                   "begin; use drop or raise");
    }
    return AX_OK;
}

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
    if (type && type->kind == AX_YAML_MAP) {
        AX_FILL(cfg, e->path, struct ax_format_answer_map, &e->answer_map);
        e->answers.map = &e->answer_map;
    }
}

void ax_setup_entry_answers(struct ax_setup_entry *e, const struct ax_config *cfg,
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

enum ax_setup_chat ax_setup_entry_chat(enum ax_task task, const char *type, bool is_map) {
    static const char *const families[] = {"chat_template", "bradley_terry"};
    const size_t n = type ? strcspn(type, ".") : 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (n == strlen(families[i]) && memcmp(type, families[i], n) == 0)
            return AX_SETUP_CHAT;
    const bool own = task != AX_TASK_STEPS && !type && !is_map;
    return own ? AX_SETUP_CHAT_IF_ANY : AX_SETUP_NO_CHAT;
}

/* ---- all labels the same ---- */

/* Does any example of the corpus have something that is wanted: a desirable answer, a right step? */
static bool is_wanted(const struct ax_examples *set, const struct ax_example_ref *ref,
                      enum ax_task task, int desirable) {
    const struct ax_stored *x = &set->list[ref->index];
    const uint32_t *words = ax_examples_words(set, ref->index);
    if (task == AX_TASK_UNPAIRED)
        return ax_examples_column(set, ref->index, desirable)[0] != 0;
    for (uint32_t t = 0; t < ref->n; t++)
        if (ax_word_label(x, words, t) == 1)
            return true;
    return false;
}

enum ax_status ax_setup_require_labels(const struct ax_setup_data *d,
                                       const struct ax_example_ref *first) {
    const enum ax_task task = ax_method_of(d->cfg)->task;
    const struct ax_columns *columns = d->method.objective.columns;
    const struct ax_corpus *c = &d->train;
    char where[512];
    int desirable = ax_columns_count(columns) - 1;
    while (desirable >= 0 && strcmp(columns->list[desirable].name, "desirable") != 0)
        desirable--;
    if (c->n == 0 || (task != AX_TASK_STEPS && (task != AX_TASK_UNPAIRED || desirable < 0)))
        return AX_OK;
    for (size_t i = 0; i < c->n; i++)
        if (is_wanted(&c->sets[c->refs[i].set], &c->refs[i], task, desirable))
            return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: %s",
                    ax_examples_where(&c->sets[first->set], first->index, where, sizeof where),
                    task == AX_TASK_STEPS
                        ? "no step of this or any other document is right (labels)"
                        : "the answer of this and every other document is undesirable (label)");
}
