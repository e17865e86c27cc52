#include "cmd/train/reward_model.h"

#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "ckpt/hub/hub.h"
#include "model/convert/base_model.h"

/* ---- which names are models ---- */

static bool has_file(const char *folder, const char *name) {
    char *path;
    if (ax_path_join(&path, folder, name) != AX_OK)
        return false;
    const bool there = ax_path_exists(path);
    ax_free(path);
    return there;
}

static bool is_model(const char *path) {
    return ax_path_exists(path) ? has_file(path, "config.json") || ax_peft_is_folder(path)
                                : strchr(path, '/') && ax_hub_is_id(path);
}

/* "DIR:min" is DIR, unless there is such a folder. NULL: out of memory. */
static char *path_of(const char *name, const char **by) {
    const char *colon = strrchr(name, ':');
    char *path = NULL;
    *by = colon && !ax_path_exists(name) ? colon + 1 : NULL;
    const size_t n = *by ? (size_t)(colon - name) : strlen(name);
    if (ax_sprintf(&path, "%.*s", (int)n, name) != AX_OK)
        return NULL;
    for (size_t end = n; end > 1 && path[end - 1] == '/'; end--)
        path[end - 1] = '\0';
    return path;
}

bool ax_setup_is_reward_model(const char *name) {
    const char *by;
    if (ax_rewards_is_builtin(name))
        return false;
    char *path = path_of(name, &by);
    const bool is = path && is_model(path);
    ax_free(path);
    return is;
}

/* ---- opening ---- */

/* An answer may have more tokens in another vocabulary, and in another conversation's frame. */
static int64_t longest(const struct ax_setup_reward_model *m, const struct ax_arch *arch) {
    const int64_t most = 2 * m->o.answer;
    return most < arch->max_positions ? most : arch->max_positions;
}

static enum ax_status read_logits(void *ctx, int n, const struct ax_document *docs,
                                  double *logits) {
    struct ax_setup_reward_model *m = ctx;
    return ax_reward_model_read(&m->model, n, docs, logits);
}

static enum ax_status open_reader(struct ax_setup_reward_model *m) {
    const struct ax_best_of_args args = {.scorer = m->path, .by = m->by};
    const struct ax_text_scorer_options o = {.read = read_logits, .ctx = m};
    struct ax_text_scorer *s = &m->reader.scorer;
    AX_TRY(ax_best_of_open(&m->reader, &args, &o));
    s->max_len = longest(m, &s->arch);
    m->model.arch = &s->arch;
    m->model.weights = &s->hf;
    m->model.adapter = s->adapters.n > 0 ? &s->adapters.pefts[0] : NULL;
    return AX_OK;
}

static enum ax_status plan_adapter(struct ax_setup_reward_model *m) {
    char *base;
    AX_TRY(ax_peft_open(&m->adapter, m->path));
    m->model.adapter = &m->adapter;
    AX_TRY(ax_peft_base(&m->adapter, &base));
    const enum ax_status st = ax_base_model_arch(&m->arch, base, NULL, NULL);
    ax_free(base);
    return st == AX_OK ? ax_classifier_of_adapter(&m->arch, &m->adapter) : st;
}

static enum ax_status open_plan(struct ax_setup_reward_model *m) {
    AX_TRY(ax_peft_is_folder(m->path) ? plan_adapter(m)
                                      : ax_base_model_arch(&m->arch, m->path, NULL, NULL));
    m->model.arch = &m->arch;
    return ax_text_scorer_check(&m->arch, m->path);
}

static enum ax_status open_all(struct ax_setup_reward_model *m) {
    enum ax_score_by by;
    size_t len;
    m->path = path_of(m->o.name, &m->by);
    if (!m->path)
        return ax_error(AX_ERR_NOMEM, "out of memory for the name of a reward model");
    m->title = ax_path_last(m->path, &len);
    m->model.name = m->path;
    if (m->by)
        AX_TRY(ax_score_by_parse(m->o.name, m->by, &by));
    AX_TRY(m->o.planning ? open_plan(m) : open_reader(m));
    m->model.max_len = longest(m, m->model.arch);
    m->model.tokens = m->model.max_len > m->o.tokens ? m->model.max_len : m->o.tokens;
    return AX_OK;
}

enum ax_status ax_setup_reward_model_open(struct ax_setup_reward_model *m,
                                          const struct ax_setup_reward_model_options *o) {
    *m = (struct ax_setup_reward_model){.o = *o};
    const enum ax_status st = open_all(m);
    if (st != AX_OK)
        ax_setup_reward_model_close(m);
    return st;
}

void ax_setup_reward_model_close(struct ax_setup_reward_model *m) {
    ax_best_of_close(&m->reader);
    ax_arch_free(&m->arch);
    ax_peft_close(&m->adapter);
    ax_free(m->path);
    *m = (struct ax_setup_reward_model){0};
}

/* ---- answers ---- */

/* The tokenizer has put BOS in front of a text that columns were made into. */
static const char *without_bos(const struct ax_tokenizer *t, const char *text) {
    const int32_t id = ax_tokenizer_special_id(t, AX_BOS);
    size_t n = 0;
    const char *bos = id < 0 ? NULL : ax_tokenizer_token(t, id, &n);
    return bos && strncmp(text, bos, n) == 0 ? text + n : text;
}

/* The prompt as the record has it, without an answer at the end; a new reference. */
static json_t *prompt_of(const struct ax_setup_reward_model *m, const struct ax_reward_item *x) {
    json_t *own = json_object_get(x->record, "prompt");
    json_t *messages = own ? own : json_object_get(x->record, "messages");
    if (!x->chat)
        return json_is_string(own) ? json_incref(own)
                                   : json_string(without_bos(m->o.policy, x->prompt));
    json_t *list = json_copy(messages);
    for (size_t n = json_array_size(list); n > 0; n--) {
        const json_t *role = json_object_get(json_array_get(list, n - 1), "role");
        if (!json_is_string(role) || strcmp(json_string_value(role), "assistant") != 0)
            break;
        json_array_remove(list, n - 1);
    }
    return list;
}

static enum ax_status add(struct ax_setup_reward_model *m, const struct ax_reward_item *x) {
    json_t *prompt = prompt_of(m, x), *asked = NULL;
    enum ax_status st;
    if (!prompt)
        return ax_error(AX_ERR_NOMEM, "out of memory for a prompt");
    AX_TRY_GOTO(ax_best_of_prompt(&m->reader, prompt, json_object_get(x->record, "tools"), &asked),
                st, done);
    st = ax_best_of_add(&m->reader, asked, x->completion, x->n);
done:
    json_decref(asked);
    json_decref(prompt);
    return st;
}

static enum ax_status score(struct ax_setup_reward_model *m, size_t n,
                            const struct ax_reward_item *items, double *out) {
    AX_TRY(ax_best_of_clear(&m->reader));
    for (size_t i = 0; i < n; i++)
        AX_TRY(add(m, &items[i]));
    AX_TRY(ax_best_of_run(&m->reader));
    memcpy(out, m->reader.scores, n * sizeof *out);
    if (m->reader.unscored > 0 && !m->told)
        ax_log_warn("rewards: %s: answers without any text, or with more than %lld of its tokens, "
                    "have no reward (this is said only once)",
                    m->title, (long long)m->model.max_len);
    m->told = m->told || m->reader.unscored > 0;
    return AX_OK;
}

enum ax_status ax_setup_reward_model_score(void *ctx, size_t n, const struct ax_reward_item *items,
                                           double *out) {
    struct ax_setup_reward_model *m = ctx;
    const enum ax_status st = score(m, n, items, out);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward model \"%s\"", m->o.name);
}
