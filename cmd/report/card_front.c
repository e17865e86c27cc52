/* The front matter of a model card, which programs read: YAML between two lines "---". */
#include "cmd/report/card_front.h"

#include <string.h>

#include "base/io.h"
#include "base/text/yaml.h"
#include "ckpt/hub/hub.h"

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

/* ---- the base's license ---- */

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

/* ---- all ---- */

static const char *string_at(const json_t *v, const char *key) {
    return json_string_value(json_object_get(v, key));
}

/* Local paths are omitted: they mean nothing elsewhere, and the hub would reject them. */
static enum ax_status put_datasets(struct ax_buf *out, const json_t *sets) {
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

const struct ax_card_kind *ax_card_kind_of(const struct ax_report_run *run) {
    static const struct ax_card_kind kinds[] = {
        {"config.reward_model", "reward-model", "text-classification", "eval",
         " --task reward --data FILE", "pair"},
        {"config.process_reward_model", "process-reward-model", "token-classification", "eval",
         " --task prm --data FILE", "labeled step"},
        {NULL, NULL, "text-generation", "chat", "", "trained token"},
    };
    const struct ax_card_kind *k = kinds;
    while (k->key && !json_is_true(ax_report_about(run, k->key)))
        k++;
    return k;
}

enum ax_status ax_card_put_front(struct ax_buf *out, const struct ax_card *c,
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
    AX_TRY(put_datasets(out, ax_report_about(run, "config.datasets")));
    AX_TRY(put_datasets(out, ax_report_about(run, "config.pretraining_dataset")));
    const struct ax_card_kind *kind = ax_card_kind_of(run);
    AX_TRY(ax_buf_printf(out, "library_name: %s\npipeline_tag: %s\n",
                         adapter ? "peft" : "transformers", kind->pipeline));
    AX_TRY(put_license(out, c->base));
    const char *rl = json_string_value(ax_report_about(run, "config.rl"));
    AX_TRY(ax_buf_puts(out, "tags:\n- axtrain\n"));
    AX_TRY(put_text(out, "- ", kind->tag ? kind->tag : rl ? rl : "sft"));
    if (!full)
        AX_TRY(put_text(out, "- ", method));
    return ax_buf_puts(out, "---\n");
}
