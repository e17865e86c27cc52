#include "cmd/report/card.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text/yaml.h"
#include "ckpt/hub/hub.h"

/* ---- the front matter, which programs read: YAML between two lines "---" ---- */

#define MAX_CARD ((size_t)1 << 20)

/* A JSON string is also a YAML string. */
static enum ax_status put_text(struct ax_buf *out, const char *before, const char *text) {
    json_t *s = json_string(text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    json_decref(s);
    const enum ax_status st =
        quoted ? ax_buf_printf(out, "%s%s\n", before, quoted) : AX_OK; /* not UTF-8: omitted */
    ax_free(quoted);
    return st;
}

/* The front matter inside a card's text; NULL if it has none. */
static const char *front_of(const char *card, size_t *len) {
    if (strncmp(card, "---\n", 4) != 0)
        return NULL;
    const char *begin = card + 4, *end = strstr(begin, "\n---");
    *len = end ? (size_t)(end - begin) + 1 : 0;
    return end ? begin : NULL;
}

static enum ax_status put_license_of(struct ax_buf *out, const char *card) {
    static const char *const keys[] = {"license", "license_name", "license_link"};
    struct ax_yaml_doc doc;
    size_t len;
    const char *front = front_of(card, &len);
    enum ax_status st = AX_OK;
    if (!front)
        return AX_OK;
    if (ax_yaml_parse(&doc, "README.md", front, len) != AX_OK) {
        ax_error_clear(); /* a mistake in the base's card is not this run's problem */
        return AX_OK;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys && st == AX_OK; i++) {
        const struct ax_yaml_node *v = ax_yaml_get(doc.root, keys[i]);
        char before[32];
        (void)snprintf(before, sizeof before, "%s: ", keys[i]);
        if (v && v->kind == AX_YAML_STRING)
            st = put_text(out, before, v->text);
    }
    ax_yaml_free(&doc);
    return st;
}

static enum ax_status put_license(struct ax_buf *out, const char *base) {
    char *path, *card;
    size_t len;
    if (!base)
        return AX_OK;
    AX_TRY(ax_path_join(&path, base, "README.md"));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path) && ax_read_file(path, MAX_CARD, &card, &len) == AX_OK) {
        st = put_license_of(out, card);
        ax_free(card);
    }
    ax_free(path);
    ax_error_clear();
    return st;
}

static const char *string_at(const json_t *v, const char *key) {
    return json_string_value(json_object_get(v, key));
}

/* Local paths are omitted: they mean nothing elsewhere, and the hub would reject them. */
static enum ax_status put_dataset_names(struct ax_buf *out, const json_t *sets) {
    size_t i;
    json_t *set;
    bool any = false;
    json_array_foreach(sets, i, set) {
        const char *path = string_at(set, "path");
        if (!path || !ax_hub_is_id(path) || ax_path_exists(path))
            continue;
        if (!any)
            AX_TRY(ax_buf_puts(out, "datasets:\n"));
        any = true;
        AX_TRY(put_text(out, "- ", path));
    }
    return AX_OK;
}

static enum ax_status put_front(struct ax_buf *out, const struct ax_card *c,
                                const struct ax_report_run *run) {
    const char *model = json_string_value(ax_report_about(run, "model"));
    const char *method = json_string_value(ax_report_about(run, "method"));
    const bool full = !method || strcmp(method, "full") == 0;
    const bool adapter = !full && !c->merged;
    AX_TRY(ax_buf_puts(out, "---\n"));
    if (model && ax_hub_is_id(model) && !ax_path_exists(model)) {
        AX_TRY(put_text(out, "base_model: ", model));
        AX_TRY(ax_buf_printf(out, "base_model_relation: %s\n", adapter ? "adapter" : "finetune"));
    }
    AX_TRY(put_dataset_names(out, ax_report_about(run, "config.datasets")));
    AX_TRY(put_dataset_names(out, ax_report_about(run, "config.pretraining_dataset")));
    const struct ax_report_kind *kind = ax_report_kind(run);
    AX_TRY(ax_buf_printf(out, "library_name: %s\npipeline_tag: %s\n",
                         adapter ? "peft" : "transformers", kind->pipeline));
    AX_TRY(put_license(out, c->base));
    AX_TRY(ax_buf_puts(out, "tags:\n- axtrain\n"));
    AX_TRY(put_text(out, "- ", kind->tag));
    if (!full)
        AX_TRY(put_text(out, "- ", method));
    return ax_buf_puts(out, "---\n");
}

#define MAX_README   ((size_t)4 << 20)
#define EVAL_ROWS    12 /* most rows in the table of evaluations */
#define LAST_STEPS   10 /* steps whose mean loss is reported */
#define MAX_DATASETS 20

/* ---- foreign text ---- */

/* Appends text to a table's cell, escaped so that nothing in it is markup. */
static enum ax_status put_cell(struct ax_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (strchr("\\|`*_<>[]~#$", c) && c != '\0')
            AX_TRY(ax_buf_append(out, "\\", 1));
        AX_TRY(ax_buf_append(out, c < ' ' ? " " : text + i, 1));
    }
    return AX_OK;
}

static enum ax_status put_row(struct ax_buf *out, const char *name, const char *text) {
    AX_TRY(ax_buf_printf(out, "| %s | ", name));
    AX_TRY(put_cell(out, text, strlen(text)));
    return ax_buf_puts(out, " |\n");
}

/* A file's name without folders; hub ids unchanged. */
static const char *short_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] && (path[0] == '/' || path[0] == '.' || ax_path_exists(path))
               ? slash + 1
               : path;
}

/* ---- parts ---- */

static enum ax_status put_usage(struct ax_buf *out, const struct ax_card *c,
                                const struct ax_report_kind *kind, bool adapter) {
    return ax_buf_printf(out, "\n## Use\n\n```sh\naxtrain %s --model %s%s%s\n```\n\n%s\n",
                         kind->command, adapter ? "BASE --adapter " : "", short_name(c->dir),
                         kind->with,
                         adapter ? "This is a PEFT adapter: other programs load it with "
                                   "`PeftModel.from_pretrained(base, folder)`."
                                 : "Other programs load it as any model of transformers.");
}

/* `untyped`: what records without a type are. */
static enum ax_status put_datasets(struct ax_buf *out, const json_t *sets, const char *untyped) {
    size_t i;
    json_t *set;
    json_array_foreach(sets, i, set) {
        const char *path = json_string_value(json_object_get(set, "path"));
        const json_t *type = json_object_get(set, "type");
        const char *split = json_string_value(json_object_get(set, "split"));
        if (i == MAX_DATASETS)
            return ax_buf_printf(out, "| and %zu more | | |\n", json_array_size(sets) - i);
        if (!path)
            continue;
        AX_TRY(ax_buf_puts(out, "| "));
        AX_TRY(put_cell(out, short_name(path), strlen(short_name(path))));
        AX_TRY(ax_buf_puts(out, " | "));
        const char *kind = json_is_string(type)          ? json_string_value(type)
                           : type && !json_is_null(type) ? "custom"
                                                         : untyped;
        AX_TRY(put_cell(out, kind, strlen(kind)));
        AX_TRY(ax_buf_puts(out, " | "));
        AX_TRY(put_cell(out, split ? split : "", split ? strlen(split) : 0));
        AX_TRY(ax_buf_puts(out, " |\n"));
    }
    return AX_OK;
}

static enum ax_status put_data(struct ax_buf *out, const struct ax_report_run *run) {
    const double documents = ax_report_number(run, "data.documents", -1);
    const double evals = ax_report_number(run, "data.eval_documents", 0);
    AX_TRY(ax_buf_puts(out, "\n## Data\n\n| set | type | split |\n|---|---|---|\n"));
    const bool answers = strcmp(ax_report_kind(run)->tag, "sft") != 0;
    const char *untyped = answers ? "columns of TRL" : "token ids";
    AX_TRY(put_datasets(out, ax_report_about(run, "config.datasets"), untyped));
    AX_TRY(put_datasets(out, ax_report_about(run, "config.pretraining_dataset"), untyped));
    if (documents >= 0)
        AX_TRY(ax_buf_printf(out, "\n%.0f examples are for training", documents));
    else
        AX_TRY(ax_buf_puts(out, "\nThe data were streamed"));
    return evals > 0 ? ax_buf_printf(out, "; %.0f were kept for evaluation.\n", evals)
                     : ax_buf_puts(out, ".\n");
}

static enum ax_status put_settings(struct ax_buf *out, const struct ax_report_run *run) {
    static const char *const keys[] = {"adapter",
                                       "lora_r",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "sequence_len",
                                       "sample_packing",
                                       "micro_batch_size",
                                       "gradient_accumulation_steps",
                                       "num_epochs",
                                       "max_steps",
                                       "optimizer",
                                       "learning_rate",
                                       "lr_scheduler",
                                       "weight_decay",
                                       "max_grad_norm",
                                       "bf16",
                                       "float32",
                                       "label_smoothing",
                                       "seed"};
    const json_t *config = ax_report_about(run, "config");
    AX_TRY(ax_buf_puts(out, "\n## Settings\n\n| key | value |\n|---|---|\n"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(config, keys[i]);
        char *text =
            v && !json_is_null(v) ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(8)) : NULL;
        const char *shown = json_is_string(v) ? json_string_value(v) : text;
        char name[64];
        (void)snprintf(name, sizeof name, "`%s`", keys[i]);
        const enum ax_status st = text ? put_row(out, name, shown) : AX_OK;
        ax_free(text);
        AX_TRY(st);
    }
    return AX_OK;
}

/* ---- results ---- */

static double last_loss(const struct ax_report_run *run) {
    double sum = 0;
    int n = 0;
    for (size_t i = run->n_steps; i-- > 0 && n < LAST_STEPS;) {
        const double loss = run->steps[i].figures[AX_FIGURE_LOSS];
        if (isfinite(loss)) {
            sum += loss;
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

static double trained_tokens(const struct ax_report_run *run) {
    double sum = 0;
    for (size_t i = 0; i < run->n_steps; i++)
        if (isfinite(run->steps[i].figures[AX_FIGURE_TRAINED]))
            sum += run->steps[i].figures[AX_FIGURE_TRAINED];
    return sum;
}

static enum ax_status put_evals(struct ax_buf *out, const struct ax_report_run *run) {
    const size_t n = run->n_evals, rows = n < EVAL_ROWS ? n : EVAL_ROWS;
    if (n == 0)
        return AX_OK;
    const bool reward = isfinite(run->evals[0].figures[AX_EVAL_FIGURE_REWARD]);
    static const char *const names[] = {[AX_EVAL_FIGURE_ACCURACY] = "token accuracy",
                                        [AX_EVAL_FIGURE_PREFERRED] = "preferred answers",
                                        [AX_EVAL_FIGURE_JUDGED] = "right judgements"};
    const enum ax_report_eval_figure accuracy = ax_report_kind(run)->accuracy;
    if (reward)
        AX_TRY(ax_buf_puts(out, "\n| step | evaluation reward |\n|---|---|\n"));
    else
        AX_TRY(ax_buf_printf(out, "\n| step | evaluation loss | %s |\n|---|---|---|\n",
                             names[accuracy]));
    for (size_t r = 0; r < rows; r++) { /* the first, the last, and evenly spaced ones */
        const struct ax_report_eval *e = &run->evals[rows > 1 ? r * (n - 1) / (rows - 1) : 0];
        const double *f = e->figures;
        char value[32];
        ax_report_value(value, f[reward ? AX_EVAL_FIGURE_REWARD : AX_EVAL_FIGURE_LOSS]);
        AX_TRY(ax_buf_printf(out, "| %lld | %s |", (long long)e->step, value));
        AX_TRY(reward ? ax_buf_puts(out, "\n")
                      : ax_buf_printf(out, " %s |\n", ax_report_value(value, f[accuracy])));
    }
    return AX_OK;
}

static enum ax_status put_results(struct ax_buf *out, const struct ax_report_run *run) {
    AX_TRY(ax_buf_puts(out, "\n## Results\n\n"));
    if (run->n_steps == 0)
        return ax_buf_puts(out, "No step is recorded.\n");
    const struct ax_report_step *last = &run->steps[run->n_steps - 1];
    char epochs[32] = "", first[32], mean[32];
    if (isfinite(last->figures[AX_FIGURE_EPOCH]))
        snprintf(epochs, sizeof epochs, " (%.3g epochs)", last->figures[AX_FIGURE_EPOCH]);
    const struct ax_report_eval *best = ax_report_best(run);
    AX_TRY(ax_buf_printf(
        out,
        "%lld steps%s, %.0f trained tokens; training loss %s in the "
        "first step, %s as the mean of the last %d. Losses are %s.\n",
        (long long)last->step, epochs, trained_tokens(run),
        ax_report_value(first, ax_report_loss(run, false)), ax_report_value(mean, last_loss(run)),
        (int)(run->n_steps < LAST_STEPS ? run->n_steps : LAST_STEPS), ax_report_kind(run)->loss));
    if (best && best->step != last->step)
        AX_TRY(ax_buf_printf(out, "\nThe weights are those of step %lld, the best evaluation.\n",
                             (long long)best->step));
    return put_evals(out, run);
}

static enum ax_status put_limits(struct ax_buf *out, const struct ax_report_run *run) {
    const size_t n = run->n_evals;
    const struct ax_report_eval *best = ax_report_best(run),
                                *of = n > 0 && !best ? &run->evals[n - 1] : best;
    const double loss[] = {n ? run->evals[0].figures[AX_EVAL_FIGURE_LOSS] : NAN,
                           of ? of->figures[AX_EVAL_FIGURE_LOSS] : NAN};
    const bool own_part = ax_report_number(run, "config.val_set_size", 0) > 0;
    AX_TRY(ax_buf_puts(out, "\n## Limits\n\n"));
    if (n == 0)
        AX_TRY(ax_buf_puts(out, "- Nothing was evaluated: the training loss alone does not show "
                                "what the model does with other text.\n"));
    else if (own_part)
        AX_TRY(ax_buf_puts(out, "- The evaluation set is a part of the same data: it shows nothing "
                                "about text of other kinds.\n"));
    if (n > 1 && loss[1] > loss[0])
        AX_TRY(ax_buf_printf(out,
                             "- The evaluation loss rose from %.4f to %.4f: on that data the model "
                             "is worse than at the beginning.\n",
                             loss[0], loss[1]));
    return ax_buf_puts(out, "- Loss and token accuracy do not measure whether answers are right, "
                            "safe or free of bias; none of that was tested.\n"
                            "- The limits and the license of the base model apply, and those of "
                            "the data.\n");
}

static enum ax_status put_versions(struct ax_buf *out, const struct ax_report_run *run) {
    static const struct {
        const char *name, *path;
    } all[] = {{"axtrain", "environment.axtrain"},
               {"commit", "environment.commit"},
               {"started", "started"},
               {"processor", "environment.cpu"},
               {"instruction set", "environment.instruction_set"}};
    AX_TRY(ax_buf_puts(out, "\n## Versions\n\n| | |\n|---|---|\n"));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *text = json_string_value(ax_report_about(run, all[i].path));
        if (text)
            AX_TRY(put_row(out, all[i].name, text));
    }
    return AX_OK;
}

/* ---- all ---- */

enum ax_status ax_card_put(struct ax_buf *out, const struct ax_card *c,
                           const struct ax_report_run *run) {
    const char *model = json_string_value(ax_report_about(run, "model"));
    const char *method = json_string_value(ax_report_about(run, "method"));
    const char *id = json_string_value(ax_report_about(run, "config.hub_model_id"));
    const bool full = !method || strcmp(method, "full") == 0;
    const char *title = id ? id : short_name(c->dir), *base = model ? short_name(model) : "a model";
    AX_TRY(put_front(out, c, run));
    AX_TRY(ax_buf_puts(out, AX_CARD_MARK "\n\n# "));
    AX_TRY(put_cell(out, title, strlen(title)));
    AX_TRY(ax_buf_puts(out, "\n\n"));
    AX_TRY(put_cell(out, base, strlen(base)));
    AX_TRY(ax_buf_printf(out, ", fine-tuned with axtrain: %s.\n",
                         full        ? "all weights were trained"
                         : c->merged ? "an adapter, merged into the base"
                                     : "an adapter"));
    AX_TRY(put_usage(out, c, ax_report_kind(run), !full && !c->merged));
    AX_TRY(put_data(out, run));
    AX_TRY(put_settings(out, run));
    AX_TRY(put_results(out, run));
    AX_TRY(put_limits(out, run));
    return put_versions(out, run);
}

/* True if the card may be written: it must not replace a README.md by someone else. */
static enum ax_status is_free(const struct ax_card *c, const char *path, bool *yes) {
    char *text;
    size_t len;
    *yes = true;
    if (!ax_path_exists(path))
        return AX_OK;
    *yes = false;
    if (c->keep)
        return AX_OK;
    AX_TRY(ax_read_file(path, MAX_README, &text, &len));
    *yes = strstr(text, AX_CARD_MARK) != NULL;
    ax_free(text);
    return AX_OK;
}

static enum ax_status write_card(const struct ax_card *c, const char *path) {
    struct ax_report_run run;
    struct ax_buf text = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_report_read(&run, c->run), st, done);
    AX_TRY_GOTO(ax_card_put(&text, c, &run), st, done);
    st = ax_write_file_atomic(path, text.data, text.len);
done:
    ax_buf_free(&text);
    ax_report_close(&run);
    return st;
}

void ax_card_write(const struct ax_card *c) {
    char *path;
    bool yes = false;
    enum ax_status st = ax_path_join(&path, c->dir, "README.md");
    if (st == AX_OK) {
        st = is_free(c, path, &yes);
        if (st == AX_OK && yes)
            st = write_card(c, path);
        ax_free(path);
    }
    if (st != AX_OK)
        ax_log_warn("the model has no card: %s", ax_error_text());
    ax_error_clear();
}
