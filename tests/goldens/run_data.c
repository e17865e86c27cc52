/* The tokens: what the product's formats, and its packing, make of the case's records, against what
 * the reference fed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/run.h"
#include "data/records/pipeline/pack.h"
#include "data/records/rows/rows.h"
#include "data/text/template/template.h"

#define MAX_LENGTH 1024 /* TRL's default */

static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};
static const char *const roles[] = {"assistant"};

struct data {
    struct ax_run *r;
    struct ax_tokenizer *tokenizer;
    struct ax_template *template;
    json_t *special;
    struct ax_format_chat chat;
    struct ax_format_answers answers;
    struct ax_format_steps steps;
    struct ax_format_options o;
    struct ax_example_list list;
    struct ax_pack pack;
};

/* ---- the format ---- */

static enum ax_status open_tokenizer(struct data *d) {
    const struct ax_json root = ax_json_root(&d->r->doc);
    const char *model, *name;
    char *dir;
    AX_TRY(ax_json_str(ax_json_get(root, "model"), &model));
    AX_TRY(ax_json_str_or(ax_json_get(root, "tokenizer"), model, &name));
    AX_TRY(ax_run_path(d->r, name, &dir));
    enum ax_status st = ax_tokenizer_load(&d->tokenizer, dir);
    if (st == AX_OK)
        st = ax_template_folder_tokens(&d->special, dir);
    if (st == AX_OK && ax_template_from_folder(&d->template, dir, NULL, false) != AX_OK)
        ax_error_clear(); /* a tokenizer for texts */
    ax_free(dir);
    return st;
}

/* assistant_only_loss needs a template that marks the answers. The reference replaces well-known ones
 * that do not; the product then finds the turns, as it does for type chat_template. */
static enum ax_status read_settings(struct data *d) {
    bool assistant, completion, packing;
    const char *separator;
    AX_TRY(ax_json_bool_or(ax_run_setting(d->r, "assistant_only_loss"), false, &assistant));
    AX_TRY(ax_json_bool_or(ax_run_setting(d->r, "completion_only_loss"), true, &completion));
    AX_TRY(ax_json_bool_or(ax_run_setting(d->r, "packing"), false, &packing));
    AX_TRY(ax_json_str_or(ax_run_setting(d->r, "step_separator"), "\n", &separator));
    d->steps = (struct ax_format_steps){.separator = separator};
    AX_TRY(ax_json_bool_or(ax_run_setting(d->r, "train_on_last_step_only"), false,
                           &d->steps.last_only));
    d->chat = (struct ax_format_chat){.template = d->template,
                                      .tokens = d->special,
                                      .field_messages = "messages",
                                      .field_tools = "tools",
                                      .properties = properties,
                                      .n_properties = 2,
                                      .roles_to_train = roles,
                                      .n_roles_to_train = 1,
                                      .thinking_key = "reasoning_content"};
    const bool marked = d->template && ax_template_has_generation(d->template);
    d->chat.by_generation = assistant && marked;
    d->answers = (struct ax_format_answers){.field_chosen = "chosen",
                                            .field_rejected = "rejected",
                                            .framed_by_ids = d->r->family->by_ids};
    d->o = (struct ax_format_options){.task = d->r->family->task,
                                      .type = assistant && !marked ? "chat_template" : NULL,
                                      .tokenizer = d->tokenizer,
                                      .train_on_inputs = !completion,
                                      .chat = d->template ? &d->chat : NULL,
                                      .answers = &d->answers,
                                      .steps = &d->steps,
                                      .columns = d->r->objective.columns,
                                      .long_examples = packing ? AX_LONG_KEEP : AX_LONG_USUAL};
    AX_TRY(ax_run_pad(d->r, &d->o.pad));
    const struct ax_json most = ax_run_setting(d->r, "max_length");
    if (json_is_null(json_object_get(d->r->settings.v, "max_length"))) /* no limit */
        d->o.sequence_len = INT32_MAX;
    else
        AX_TRY(ax_json_i64_or(most, 1, INT32_MAX, MAX_LENGTH, &d->o.sequence_len));
    return AX_OK;
}

/* ---- examples ---- */

/* No token is trained on once the example is cut: most trainers leave it out, with its pair. */
static bool is_masked(const struct data *d, const struct ax_example *x) {
    for (size_t t = 0; t < x->n && (int64_t)t < d->o.sequence_len; t++)
        if (x->labels[t] != AX_NO_LABEL)
            return false;
    return !d->r->family->by_ids;
}

static enum ax_status add_record(struct data *d, const struct ax_format *f,
                                 struct ax_format_work *w, const struct ax_rows *rows,
                                 const struct ax_raw_row *raw) {
    const size_t before = d->list.n;
    json_t *record;
    AX_TRY(ax_rows_parse(rows, raw, &record));
    enum ax_status st = d->r->family->record ? d->r->family->record(&record) : AX_OK;
    if (st == AX_OK)
        st = ax_format_record(f, w, record, (struct ax_origin){.line = raw->line}, &d->list);
    json_decref(record);
    st = st == AX_ERR_EMPTY ? AX_OK : st; /* skipped */
    /* pairs with a side that is too long are no rewards */
    for (size_t i = before; i < d->list.n && d->o.task == AX_TASK_REWARD; i++)
        if ((int64_t)d->list.items[i].n > d->o.sequence_len)
            ax_example_list_cut(&d->list, before);
    for (size_t i = before; i < d->list.n; i++)
        if (is_masked(d, &d->list.items[i]))
            ax_example_list_cut(&d->list, before);
    return st;
}

static enum ax_status read_rows(struct data *d, const struct ax_format *f, const char *path) {
    struct ax_rows *rows;
    struct ax_raw_row raw;
    struct ax_format_work w = {0};
    bool got = true;
    AX_TRY(ax_rows_open(&rows, &(struct ax_rows_options){.path = path}));
    enum ax_status st = AX_OK;
    while (st == AX_OK && got) {
        st = ax_rows_next(rows, &raw, &got);
        if (st == AX_OK && got)
            st = add_record(d, f, &w, rows, &raw);
    }
    ax_format_work_free(&w);
    ax_rows_close(rows);
    return st;
}

/* In the order of the file, or packed. */
static enum ax_status arrange(struct data *d) {
    bool packing;
    const char *strategy;
    struct ax_corpus c = {0};
    struct ax_pack_options o = {.capacity = d->o.sequence_len, .max_docs = INT32_MAX};
    AX_TRY(ax_json_bool_or(ax_run_setting(d->r, "packing"), false, &packing));
    AX_TRY(ax_json_str_or(ax_run_setting(d->r, "packing_strategy"), "bfd", &strategy));
    if (!packing)
        return AX_OK;
    if (strcmp(strategy, "bfd") != 0 && strcmp(strategy, "bfd_split") != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "packing_strategy: \"%s\" is not supported", strategy);
    o.mode = strcmp(strategy, "bfd") == 0 ? AX_PACK_BEST : AX_PACK_BEST_SPLIT;
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < d->list.n && st == AX_OK; i++)
        st = ax_corpus_add(&c, (struct ax_example_ref){.n = (uint32_t)d->list.items[i].n});
    if (st == AX_OK)
        st = ax_pack_chunk(&d->pack, &o, &c);
    ax_corpus_free(&c);
    return st;
}

/* ---- comparing ---- */

static int column_of(const struct data *d, const char *name) {
    for (int c = 0; c < ax_columns_count(d->o.columns); c++)
        if (strcmp(d->o.columns->list[c].name, name) == 0)
            return c;
    return -1;
}

/* Tokens that differ, and ones that are trained on in one of them alone. */
static void compare_document(struct data *d, int k, int i, const struct ax_example *x, size_t from,
                             size_t n) {
    const struct ax_run_micro *m = &d->r->micro[k];
    const struct ax_document *doc = &m->docs[i];
    const float *share = m->share + ax_run_micro_first(m, i);
    double ids =
        (double)doc->n > (double)n ? (double)doc->n - (double)n : (double)n - (double)doc->n;
    double labels = 0;
    char where[64];
    for (int64_t t = 0; t < doc->n && t < (int64_t)n; t++) {
        ids += doc->tokens[t] != x->tokens[from + (size_t)t];
        const int32_t label = x->labels[from + (size_t)t];
        if (d->r->objective.labels_in_place)
            labels +=
                (label == AX_NO_LABEL ? -1 : label) != (doc->labels[t] < 0 ? -1 : doc->labels[t]);
        else if (t > 0)
            labels += (label != AX_NO_LABEL) != (share[t - 1] != 0);
    }
    const int rated = column_of(d, "desirable"), margin = column_of(d, "margin");
    snprintf(where, sizeof where, "micro-batch %d of the run, document %d", k + 1, i + 1);
    if (margin >= 0 && n > 0) {
        float value;
        memcpy(&value, x->columns[margin], sizeof value);
        ax_golden_note(d->r->report, "margins that differ", value != m->margin[i], 0, where);
    }
    if (rated >= 0)
        ax_golden_note(d->r->report, "ratings that differ",
                       n == 0 || (x->columns[rated][0] != 0) != m->desirable[i], 0, where);
    ax_golden_note(d->r->report, "tokens of the data that differ", ids, 0, where);
    ax_golden_note(d->r->report, "trained tokens that differ", labels, 0, where);
}

/* Of completions only the prompts come from the data's texts. */
static void compare_prompts(struct data *d) {
    char where[64];
    for (int k = 0; k < d->r->n_micro; k++)
        for (int i = 0; i < d->r->micro[k].n; i++) {
            const struct ax_run_micro *m = &d->r->micro[k];
            const size_t at = (size_t)ax_run_prompt_of(d->r, k, i);
            const struct ax_example none = {0}, *x = at < d->list.n ? &d->list.items[at] : &none;
            int64_t n = 0;
            double differ = 0;
            while ((size_t)n < x->n && x->labels[n] == AX_NO_LABEL)
                n++;
            for (int64_t t = 0; t < n && t < m->prompt[i]; t++)
                differ += x->tokens[t] != m->docs[i].tokens[t];
            snprintf(where, sizeof where, "micro-batch %d of the run, document %d", k + 1, i + 1);
            ax_golden_note(d->r->report, "tokens of prompts that differ",
                           differ + fabs((double)(n - m->prompt[i])), 0, where);
        }
}

static void compare(struct data *d) {
    const bool packed = d->pack.firsts != NULL;
    const size_t total = packed ? d->pack.n_pieces : d->list.n;
    size_t at = 0;
    for (int k = 0; k < d->r->n_micro; k++) {
        for (int i = 0; i < d->r->micro[k].n; i++, at++) {
            static const struct ax_example none = {0};
            const struct ax_pack_piece *piece = packed && at < total ? &d->pack.pieces[at] : NULL;
            const struct ax_example *x = at >= total ? &none
                                         : piece     ? &d->list.items[piece->example]
                                                     : &d->list.items[at];
            compare_document(d, k, i, x, piece ? piece->from : 0, piece ? piece->n : x->n);
        }
    }
}

static enum ax_status make(struct data *d) {
    const char *name;
    char *path = NULL;
    struct ax_format *f = NULL;
    enum ax_status st;
    AX_TRY(ax_json_str(ax_json_get(ax_json_root(&d->r->doc), "data"), &name));
    AX_TRY(open_tokenizer(d));
    AX_TRY(read_settings(d));
    d->list.columns = d->o.columns;
    AX_TRY_GOTO(ax_run_path(d->r, name, &path), st, done);
    AX_TRY_GOTO(ax_format_new(&f, &d->o), st, done);
    AX_TRY_GOTO(read_rows(d, f, path), st, done);
    AX_TRY_GOTO(arrange(d), st, done);
    if (d->r->rollouts.batches > 0)
        compare_prompts(d);
    else
        compare(d);
done:
    ax_format_free(f);
    ax_free(path);
    return st;
}

enum ax_status ax_run_compare_data(struct ax_run *r) {
    struct data d = {.r = r};
    const enum ax_status st = make(&d);
    ax_example_list_free(&d.list);
    ax_pack_free(&d.pack);
    ax_template_free(d.template);
    json_decref(d.special);
    ax_tokenizer_free(d.tokenizer);
    return st;
}
