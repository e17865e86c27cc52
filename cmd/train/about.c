/* Contents of run.json: configuration with origins, environment, data. See docs/run.md. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text/unicode.h"
#include "cmd/config/build.h"
#include "cmd/train/env.h"
#include "cmd/train/setup.h"

/* {"file", "config", "origins", "notes"}, as `config show --json` prints it. */
static enum ax_status read_config(struct ax_train_setup *s, struct ax_json_doc *doc) {
    struct ax_buf text = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_config_show_json(s->cfg, &text), st, done);
    AX_TRY_GOTO(ax_json_parse(doc, "configuration", text.data, text.len), st, done);
    s->config = json_incref(json_object_get(doc->root, "config"));
done:
    ax_buf_free(&text);
    return st;
}

/* Counts of the first epoch; unknown for streams. */
static enum ax_status read_data(const struct ax_train_setup *s, json_t **out) {
    const struct ax_setup_data *d = &s->data;
    struct ax_loader_count n = {0};
    if (!d->stream)
        AX_TRY(ax_loader_count_epoch(d->train_loader, 0, 1, &n));
    *out = json_pack("{sb sI sI sI sI sI sI sI}", "packing", d->keys.packs[false], "documents",
                     d->stream ? (json_int_t)-1 : (json_int_t)d->train.n, "tokens",
                     d->stream ? (json_int_t)-1 : (json_int_t)n.tokens, "rows",
                     d->stream ? (json_int_t)-1 : (json_int_t)n.sequences, "row_tokens",
                     (json_int_t)d->sequence_tokens, "rows_per_step",
                     (json_int_t)d->sequences_per_step, "rows_per_batch",
                     (json_int_t)d->sequences_per_batch, "eval_documents", (json_int_t)d->eval.n);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for run.json");
}

static const char *method(const struct ax_train_setup *s) {
    return s->adapter ? s->adapter_name : "full";
}

enum ax_status ax_train_about_read(struct ax_train_setup *s) {
    struct ax_json_doc doc = {0};
    json_t *environment = NULL, *data = NULL;
    char started[32];
    const time_t now = time(NULL);
    struct tm utc;
    enum ax_status st;
    AX_TRY_GOTO(read_config(s, &doc), st, done);
    AX_TRY_GOTO(ax_env_facts(&environment), st, done);
    AX_TRY_GOTO(read_data(s, &data), st, done);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    s->about = json_pack(
        "{si ss ss ss ss sO sO sO sO sO}", "format", 1, "started", started, "model", s->base_name,
        "architecture", s->arch.family->model_type, "method", method(s), "config",
        json_object_get(doc.root, "config"), "origins", json_object_get(doc.root, "origins"),
        "notes", json_object_get(doc.root, "notes"), "environment", environment, "data", data);
    st = s->about ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for run.json");
done:
    json_decref(environment);
    json_decref(data);
    ax_json_free(&doc);
    return st;
}

/* Appends a word of the command, without the value if its key is a secret; *hide: the next word is
 * that value. */
static enum ax_status put_command_word(json_t *words, const char *word, bool *hide) {
    const bool dashes = strncmp(word, "--", 2) == 0;
    const size_t n = strcspn(word, "=");
    char path[AX_CONFIG_PATH];
    snprintf(path, sizeof path, "%.*s", (int)(n - (dashes ? 2 : 0)), word + (dashes ? 2 : 0));
    for (char *c = path; *c; c++)
        *c = *c == '-' ? '_' : *c;
    const struct ax_config_key *key = ax_config_find(path);
    const bool secret = key && key->secret;
    struct ax_buf text = {0};
    enum ax_status st;
    if (*hide)
        st = ax_buf_puts(&text, AX_CONFIG_HIDDEN);
    else if (secret && word[n] == '=')
        st = ax_buf_printf(&text, "%.*s=%s", (int)n, word, AX_CONFIG_HIDDEN);
    else
        st = ax_utf8_repair(&text, word, strlen(word));
    *hide = !*hide && secret && dashes && word[n] == '\0';
    if (st == AX_OK && json_array_append_new(words, json_string(text.data ? text.data : "")) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for run.json");
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_train_about_command(const struct ax_train_setup *s, int argc, char **argv) {
    json_t *words = json_pack("[s]", "axtrain");
    bool hide = false;
    enum ax_status st = words ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for run.json");
    for (int i = 0; i < argc && st == AX_OK; i++)
        st = put_command_word(words, argv[i], &hide);
    if (st == AX_OK && json_object_set(s->about, "command", words) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for run.json");
    json_decref(words);
    return st;
}
