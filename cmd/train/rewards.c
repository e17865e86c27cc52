/* What answers are worth: trl.reward_funcs, which are functions, programs, and models;
 * ppo.reward_model_path is one more model. A model reads answers exactly as `axtrain eval --task
 * reward|prm` does, with a tokenizer and chat template of its own; it is in the run's runtime
 * (optim/rollout/reward_model.h). */
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/hub/hub.h"
#include "cmd/api_key.h"
#include "cmd/train/rollout.h"
#include "cmd/train/setup.h"
#include "model/convert/base_model.h"

/* ---- which names are models ---- */

static bool is_model(const char *path) {
    return ax_path_exists(path) ? ax_path_has(path, "config.json") || ax_peft_is_folder(path)
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

/* True for the name of a model: a folder that has one, or a hub id. */
static bool is_reward_model(const char *name) {
    const char *by;
    if (ax_rewards_is_builtin(name) || ax_endpoint_is_url(name))
        return false;
    char *path = path_of(name, &by);
    const bool is = path && is_model(path);
    ax_free(path);
    return is;
}

/* ---- opening a model ---- */

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

/* TRL gives reward functions their tokenizer's pad token, or EOS, whatever config.json says. */
static void pad_as_trl(const struct ax_setup_reward_model *m, struct ax_text_scorer *s) {
    const int32_t pad = ax_tokenizer_pad_id(s->side.tokenizer);
    if (s->kind != &ax_classifier_reward || pad == s->arch.score_pad)
        return;
    ax_log_info("rewards: %s: scores are at the last token that is not the tokenizer's pad token, "
                "%d, as in TRL; pad_token_id in config.json, which axtrain eval goes by, is %d "
                "(-1: none)",
                m->o.name, pad, s->arch.score_pad);
    s->arch.score_pad = pad;
}

static enum ax_status open_reader(struct ax_setup_reward_model *m) {
    const struct ax_best_of_args args = {.scorer = m->path, .by = m->by};
    const struct ax_text_scorer_options o = {.read = read_logits, .ctx = m};
    struct ax_text_scorer *s = &m->reader.scorer;
    AX_TRY(ax_best_of_open(&m->reader, &args, &o));
    pad_as_trl(m, s);
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

static enum ax_status open_named(struct ax_setup_reward_model *m) {
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

static void close_reward_model(struct ax_setup_reward_model *m) {
    ax_best_of_close(&m->reader);
    ax_arch_free(&m->arch);
    ax_peft_close(&m->adapter);
    ax_free(m->path);
    *m = (struct ax_setup_reward_model){0};
}

static enum ax_status open_reward_model(struct ax_setup_reward_model *m,
                                        const struct ax_setup_reward_model_options *o) {
    *m = (struct ax_setup_reward_model){.o = *o};
    const enum ax_status st = open_named(m);
    if (st != AX_OK)
        close_reward_model(m);
    return st;
}

/* ---- answers that a model reads ---- */

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

static enum ax_status add_answer(struct ax_setup_reward_model *m, const struct ax_reward_item *x) {
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

static enum ax_status read_answers(struct ax_setup_reward_model *m, size_t n,
                                   const struct ax_reward_item *items, double *out) {
    AX_TRY(ax_best_of_clear(&m->reader));
    for (size_t i = 0; i < n; i++)
        AX_TRY(add_answer(m, &items[i]));
    AX_TRY(ax_best_of_run(&m->reader));
    memcpy(out, m->reader.scores, n * sizeof *out);
    if (m->reader.unscored > 0 && !m->told)
        ax_log_warn("rewards: %s: answers without any text, or with more than %lld of its tokens, "
                    "have no reward (this is said only once)",
                    m->o.name, (long long)m->model.max_len);
    m->told = m->told || m->reader.unscored > 0;
    return AX_OK;
}

/* struct ax_reward_function.score; ctx is the model. All ranks together. */
static enum ax_status score_answers(void *ctx, size_t n, const struct ax_reward_item *items,
                                    double *out) {
    struct ax_setup_reward_model *m = ctx;
    const enum ax_status st = read_answers(m, n, items, out);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward model \"%s\"", m->o.name);
}

/* ---- the list of rewards ---- */

#define FUNCS "trl.reward_funcs"
#define MODEL "ppo.reward_model_path"

static size_t count_listed(const struct ax_reward_keys *k) {
    return k->functions ? k->functions->n : 0;
}

static size_t count_rewards(const struct ax_reward_keys *k) {
    return count_listed(k) + (k->model != NULL);
}

static const char *name_of(const struct ax_reward_keys *k, size_t i) {
    return i < count_listed(k) ? k->functions->entries[i].value->text : k->model;
}

static double weight_of(const struct ax_reward_keys *k, size_t i) {
    return i < count_listed(k) && k->weights && k->weights->n > 0
               ? k->weights->entries[i].value->number
               : 1;
}

/* "KEY (where)" in front of what went wrong. */
static enum ax_status blame_reward(const struct ax_reward_keys *k, const struct ax_config *cfg,
                                   size_t i, enum ax_status st) {
    char where[256];
    return i < count_listed(k)
               ? ax_error_prefix(st, FUNCS " (%s)",
                                 ax_config_where(cfg, where, sizeof where, FUNCS ".%zu", i))
               : ax_error_prefix(st, MODEL " (%s)",
                                 ax_config_where(cfg, where, sizeof where, MODEL));
}

/* ---- models in the list ---- */

/* An adapter on the policy's base needs no copy of it. */
static enum ax_status find_lender(struct ax_setup_reward_model *m, const struct ax_config *cfg) {
    char *base;
    if (!m->model.adapter || ax_config_holds(cfg, "reinit_weights || set(model_revision)"))
        return AX_OK;
    AX_TRY(ax_peft_base(m->model.adapter, &base));
    if (ax_train_same_folder(base, ax_config_str(cfg, "base_model")))
        m->model.lender = AX_LENDER_POLICY;
    ax_free(base);
    return AX_OK;
}

static enum ax_status open_models(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                  const struct ax_setup_reward_model_options *each,
                                  struct ax_rollout_options *o) {
    const struct ax_reward_keys *k = &r->reward_keys;
    const size_t n = count_rewards(k);
    if (n > AX_ROLLOUT_MAX_REWARDS)
        return ax_config_error(cfg, FUNCS, "at most %d", AX_ROLLOUT_MAX_REWARDS);
    AX_TRY(ax_alloc(&r->models, n, sizeof *r->models));
    for (size_t i = 0; i < n; i++) {
        struct ax_setup_reward_model_options mo = *each;
        mo.name = name_of(k, i);
        if (i < count_listed(k) && !is_reward_model(mo.name))
            continue;
        enum ax_status st = open_reward_model(&r->models[i], &mo);
        if (st == AX_OK)
            st = find_lender(&r->models[i], cfg);
        if (st != AX_OK)
            return blame_reward(k, cfg, i, st);
        r->n_models = (int)i + 1;
        o->models[o->n_models++] = &r->models[i].model;
    }
    return AX_OK;
}

/* The title of model i; where another one has it, too, its path. */
static const char *title_of(const struct ax_setup_rollout *r, int i) {
    for (int k = 0; k < r->n_models; k++)
        if (k != i && r->models[k].path && strcmp(r->models[k].title, r->models[i].title) == 0)
            return r->models[i].o.name;
    return r->models[i].title;
}

/* ---- all ---- */

/* As in TRL, the last functions are what environments gave, with their names: one for all of the same name. */
static enum ax_status score_environment(void *ctx, size_t n, const struct ax_reward_item *items,
                                        double *out) {
    const struct ax_setup_earned *x = ctx;
    for (size_t i = 0; i < n; i++) {
        const size_t k = ax_tools_choose(x->tools, items[i].record);
        if (strcmp(ax_tools_environment(x->tools, k), x->title) == 0)
            out[i] = items[i].earned;
    }
    return AX_OK;
}

static bool is_first_of_name(const struct ax_tools *t, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (strcmp(ax_tools_environment(t, i), ax_tools_environment(t, k)) == 0)
            return false;
    return true;
}

/* Their numbers in `which`. */
static size_t list_environments(const struct ax_rollout_options *o,
                                size_t which[AX_TOOLS_MOST_ENVIRONMENTS]) {
    size_t n = 0;
    for (size_t k = 0; o->tools && k < ax_tools_environments(o->tools); k++)
        if (is_first_of_name(o->tools, k))
            which[n++] = k;
    return n;
}

static enum ax_status check_rewards(const struct ax_reward_keys *k, const struct ax_config *cfg,
                                    const struct ax_rollout_options *o) {
    const size_t n = count_listed(k), weights = k->weights ? k->weights->n : 0;
    size_t which[AX_TOOLS_MOST_ENVIRONMENTS];
    const size_t environments = list_environments(o, which);
    if (count_rewards(k) + environments > AX_ROLLOUT_MAX_REWARDS)
        return ax_config_error(cfg, FUNCS, "at most %d, those of environments included",
                               AX_ROLLOUT_MAX_REWARDS);
    if (count_rewards(k) == 0 && environments == 0)
        return ax_config_error(cfg, ax_method_of(cfg)->value ? MODEL : FUNCS,
                               "not set: what are answers worth? See docs/rewards.md");
    if (weights > 0 && weights != n)
        return ax_config_error(cfg, "trl.reward_weights", "%zu weights for %zu functions", weights,
                               n);
    return AX_OK;
}

static bool has_judge(const struct ax_rewards_options *o) {
    for (int i = 0; i < o->n; i++)
        if (ax_endpoint_is_url(o->functions[i].name))
            return true;
    return false;
}

/* *key NULL: judges need none, or there is no judge. */
static enum ax_status read_judge_key(const struct ax_config *cfg,
                                     const struct ax_rewards_options *o, char **key) {
    const char *file = ax_config_str(cfg, "judge.api_key_file");
    *key = NULL;
    if (!has_judge(o))
        return AX_OK;
    return file ? ax_api_key_read(file, key) : ax_api_key_environment("AXTRAIN_API_KEY", key);
}

static enum ax_status open_rewards(const struct ax_config *cfg, struct ax_rewards_options *o,
                                   struct ax_rewards **out) {
    char *key;
    AX_TRY(read_judge_key(cfg, o, &key));
    o->judge.server.key = key;
    const enum ax_status st = ax_rewards_open(out, o);
    ax_free(key);
    return st;
}

static enum ax_status open_functions(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_train_options *o) {
    struct ax_reward_function functions[AX_ROLLOUT_MAX_REWARDS];
    const struct ax_reward_keys *k = &r->reward_keys;
    size_t n = count_rewards(k), which[AX_TOOLS_MOST_ENVIRONMENTS];
    char *base, *cache;
    for (size_t i = 0; i < n; i++) {
        functions[i] =
            (struct ax_reward_function){.name = name_of(k, i), .weight = weight_of(k, i)};
        if (!r->models[i].path)
            continue;
        functions[i].name = title_of(r, (int)i);
        functions[i].score = score_answers;
        functions[i].ctx = &r->models[i];
    }
    for (size_t i = 0; i < list_environments(&o->rollout, which); i++) {
        r->earned[i] = (struct ax_setup_earned){o->rollout.tools,
                                                ax_tools_environment(o->rollout.tools, which[i])};
        functions[n++] = (struct ax_reward_function){.name = r->earned[i].title,
                                                     .weight = 1,
                                                     .score = score_environment,
                                                     .ctx = &r->earned[i]};
    }
    AX_TRY(ax_base_model_cache(&base));
    enum ax_status st = ax_path_join(&cache, base, "sandbox");
    ax_free(base);
    AX_TRY(st);
    struct ax_rewards_options ro = {.functions = functions,
                                    .n = (int)n,
                                    .sandbox_cache = cache,
                                    .threads = ax_runtime_threads(&o->runtime)};
    AX_FILL(cfg, "", struct ax_rewards_options, &ro);
    st = open_rewards(cfg, &ro, &r->rewards);
    ax_free(cache);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, FUNCS);
}

enum ax_status ax_setup_rewards_open(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_tokenizer *tokenizer, bool planning,
                                     struct ax_train_options *o) {
    struct ax_rollout_options *ro = &o->rollout;
    const int64_t answer = ro->max_prompt + ro->max_new;
    const struct ax_setup_reward_model_options each = {.planning = planning,
                                                       .answer = answer,
                                                       .tokens =
                                                           o->data.sequences_per_batch * answer,
                                                       .policy = tokenizer};
    AX_FILL(cfg, "", struct ax_reward_keys, &r->reward_keys);
    if (planning)
        return open_models(r, cfg, &each, ro);
    AX_TRY(check_rewards(&r->reward_keys, cfg, ro));
    AX_TRY(open_models(r, cfg, &each, ro));
    AX_TRY(open_functions(r, cfg, o));
    ro->rewards = r->rewards;
    return AX_OK;
}

void ax_setup_rewards_close(struct ax_setup_rollout *r) {
    ax_rewards_close(r->rewards);
    for (int i = 0; i < r->n_models; i++)
        close_reward_model(&r->models[i]);
    ax_free(r->models);
}
