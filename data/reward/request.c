#include "data/reward/request.h"

#include <string.h>

#include "base/text/unicode.h"

static int append(const char *data, size_t n, void *to) {
    return ax_buf_append(to, data, n) == AX_OK ? 0 : -1;
}

enum ax_status ax_reward_put_json(struct ax_buf *out, const json_t *v) {
    if (json_dump_callback(v, append, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

enum ax_status ax_reward_put_string(struct ax_buf *out, const char *s, size_t n) {
    struct ax_buf valid = {0};
    AX_TRY(ax_utf8_repair(&valid, s, n));
    json_t *v = json_stringn(valid.data ? valid.data : "", valid.len);
    ax_buf_free(&valid);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
    const enum ax_status st = ax_reward_put_json(out, v);
    json_decref(v);
    return st;
}

/* ---- what an item is in each list ---- */

static enum ax_status put_prompt(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *prompt = json_object_get(item->record, "prompt");
    (void)key;
    return prompt ? ax_reward_put_json(out, prompt)
                  : ax_reward_put_string(out, item->prompt, strlen(item->prompt));
}

static enum ax_status put_completion(struct ax_buf *out, const struct ax_reward_item *item,
                                     const char *key) {
    (void)key;
    if (item->chat)
        AX_TRY(ax_buf_puts(out, "[{\"role\":\"assistant\",\"content\":"));
    AX_TRY(ax_reward_put_string(out, item->completion, item->n));
    return item->chat ? ax_buf_puts(out, "}]") : AX_OK;
}

static enum ax_status put_ids(struct ax_buf *out, const struct ax_reward_item *item,
                              const char *key) {
    (void)key;
    AX_TRY(ax_buf_puts(out, "["));
    for (int64_t i = 0; i < item->n_ids; i++)
        AX_TRY(ax_buf_printf(out, i ? ",%d" : "%d", item->ids[i]));
    return ax_buf_puts(out, "]");
}

static enum ax_status put_column(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *v = json_object_get(item->record, key);
    return v ? ax_reward_put_json(out, v) : ax_buf_puts(out, "null");
}

typedef enum ax_status put_one(struct ax_buf *out, const struct ax_reward_item *item,
                               const char *key);

static enum ax_status put_list(struct ax_buf *out, const struct ax_reward_call *call, put_one *put,
                               const char *key) {
    AX_TRY(ax_buf_puts(out, "["));
    for (size_t i = 0; i < call->n; i++) {
        AX_TRY(ax_buf_puts(out, i ? "," : ""));
        AX_TRY(put(out, &call->items[i], key));
    }
    return ax_buf_puts(out, "]");
}

/* ---- columns ---- */

/* TRL passes these in lists of their own. */
static bool is_own(const char *key) {
    return strcmp(key, "prompt") == 0 || strcmp(key, "completion") == 0 ||
           strcmp(key, "completion_ids") == 0;
}

/* An object whose keys are those of all records. */
static enum ax_status collect_keys(json_t **out, const struct ax_reward_call *call) {
    json_t *keys = json_object();
    bool ok = keys != NULL;
    for (size_t i = 0; i < call->n && ok; i++) {
        json_t *record = (json_t *)(uintptr_t)call->items[i].record; /* for the iterator */
        const char *key;
        json_t *v;
        json_object_foreach(record, key, v) {
            if (!is_own(key) && !json_object_get(keys, key))
                ok = ok && json_object_set_new(keys, key, json_null()) == 0;
        }
    }
    if (ok) {
        *out = keys;
        return AX_OK;
    }
    json_decref(keys);
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

static enum ax_status put_columns(struct ax_buf *out, const struct ax_reward_call *call) {
    json_t *keys, *v;
    const char *key, *separator = "";
    enum ax_status st = AX_OK;
    AX_TRY(collect_keys(&keys, call));
    json_object_foreach(keys, key, v) {
        AX_TRY_GOTO(ax_buf_puts(out, separator), st, done);
        AX_TRY_GOTO(ax_reward_put_string(out, key, strlen(key)), st, done);
        AX_TRY_GOTO(ax_buf_puts(out, ":"), st, done);
        AX_TRY_GOTO(put_list(out, call, put_column, key), st, done);
        separator = ",";
    }
done:
    json_decref(keys);
    return st;
}

/* ---- the line ---- */

static enum ax_status build(struct ax_buf *out, const struct ax_reward_call *call) {
    AX_TRY(ax_buf_puts(out, ",\"prompts\":"));
    AX_TRY(put_list(out, call, put_prompt, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completions\":"));
    AX_TRY(put_list(out, call, put_completion, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completion_ids\":"));
    AX_TRY(put_list(out, call, put_ids, NULL));
    AX_TRY(ax_buf_puts(out, ",\"columns\":{"));
    AX_TRY(put_columns(out, call));
    return ax_buf_puts(out, "}}\n");
}

enum ax_status ax_reward_request_put(struct ax_buf *out, const char *function,
                                     const struct ax_reward_call *call) {
    struct ax_buf *body = &call->request->body;
    if (body->len == 0)
        AX_TRY(build(body, call));
    AX_TRY(ax_buf_puts(out, "{\"function\":"));
    AX_TRY(ax_reward_put_string(out, function, strlen(function)));
    return ax_buf_append(out, body->data, body->len);
}

void ax_reward_request_free(struct ax_reward_request *r) {
    ax_buf_free(&r->body);
}
