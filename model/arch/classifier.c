#include "model/arch/classifier.h"

#include <stdio.h>
#include <string.h>

#include "model/lora/match.h"
#include "model/arch/family.h"

#define MAX_LABELS 65536

const struct ax_classifier ax_classifier_reward = {.architecture = "ForSequenceClassification",
                                                   .task_type = "SEQ_CLS",
                                                   .task = "reward",
                                                   .what = "a reward model",
                                                   .n_labels = 1};
const struct ax_classifier ax_classifier_prm = {.architecture = "ForTokenClassification",
                                                .task_type = "TOKEN_CLS",
                                                .task = "prm",
                                                .what = "a process reward model",
                                                .n_labels = 2,
                                                .biased = true};
static const struct ax_classifier *const kinds[] = {&ax_classifier_reward, &ax_classifier_prm};
#define N_KINDS (sizeof kinds / sizeof *kinds)

const struct ax_classifier *ax_classifier_find(const char *task) {
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i]->task, task) == 0)
            return kinds[i];
    return NULL;
}

const char *ax_classifier_task(size_t i) {
    return i < N_KINDS ? kinds[i]->task : NULL;
}

static void set(struct ax_arch *a, const struct ax_classifier *kind, int64_t n_labels) {
    a->classifier = kind;
    a->n_labels = n_labels;
    a->tied = false;
}

/* transformers: id2label decides; without it num_labels, which is 2 if absent. */
enum ax_status ax_classifier_parse(struct ax_arch *arch, struct ax_json config) {
    const struct ax_json list = ax_json_get(config, "architectures");
    const struct ax_json names = ax_json_get(config, "id2label");
    const char *architecture = "";
    int64_t n = (int64_t)ax_json_size(names);
    if (ax_json_size(list) > 0)
        AX_TRY(ax_json_str(ax_json_at(list, 0), &architecture));
    if (n == 0)
        AX_TRY(ax_json_i64_or(ax_json_get(config, "num_labels"), 1, MAX_LABELS, 2, &n));
    if (n > MAX_LABELS)
        return ax_json_error(names, "%lld labels", (long long)n);
    for (size_t i = 0; i < N_KINDS; i++)
        if (strstr(architecture, kinds[i]->architecture))
            set(arch, kinds[i], n);
    return AX_OK;
}

static bool same(const struct ax_arch *a, const struct ax_classifier *kind, int64_t n_labels) {
    return a->classifier == kind && a->n_labels == n_labels;
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

enum ax_status ax_classifier_choose(struct ax_arch *arch, const struct ax_classifier *kind) {
    if (same(arch, kind, kind->n_labels))
        return AX_OK;
    if (arch->classifier)
        return ax_error(AX_ERR_CONFIG,
                        "the base is %s with %lld label%s, but the run trains %s with %lld. Start "
                        "from the language model instead.",
                        arch->classifier->what, (long long)arch->n_labels, plural(arch->n_labels),
                        kind->what, (long long)kind->n_labels);
    if (arch->wrapper)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the base is a %s: of models that contain a text model, %s cannot be made. "
                        "Use a %s base.",
                        arch->wrapper->model_type, kind->what, arch->family->model_type);
    set(arch, kind, kind->n_labels);
    arch->new_head = true;
    return AX_OK;
}

static const struct ax_classifier *kind_of(const struct ax_peft_config *c) {
    const char *task = json_string_value(json_object_get(c->json, "task_type"));
    for (size_t i = 0; task && i < N_KINDS; i++)
        if (strcmp(task, kinds[i]->task_type) == 0)
            return kinds[i];
    return NULL;
}

enum ax_status ax_classifier_of_adapter(struct ax_arch *arch, const struct ax_peft *peft) {
    static const char name[] = AX_PEFT_PREFIX "score.weight";
    const struct ax_classifier *kind = kind_of(&peft->config);
    if (!kind)
        return AX_OK;
    const struct ax_st_entry *e = ax_safetensors_find(&peft->weights, name);
    if (!e || e->ndim != 2)
        return ax_error(AX_ERR_DATA,
                        "%s: the adapter is of %s (task_type %s), but its tensor %s is missing",
                        peft->dir, kind->what, kind->task_type, name);
    if (e->shape[0] < 1 || e->shape[0] > MAX_LABELS)
        return ax_error(AX_ERR_DATA, "%s: %s has %lld rows: expected 1 to %d, one for each label",
                        peft->dir, name, (long long)e->shape[0], MAX_LABELS);
    if (arch->classifier && !same(arch, kind, e->shape[0]))
        return ax_error(AX_ERR_CONFIG,
                        "%s: the adapter is of %s with %lld label%s, but the base is %s with %lld. "
                        "Use the base model that it was trained on.",
                        peft->dir, kind->what, (long long)e->shape[0], plural(e->shape[0]),
                        arch->classifier->what, (long long)arch->n_labels);
    arch->new_head = !arch->classifier;
    set(arch, kind, e->shape[0]);
    return AX_OK;
}

enum ax_status ax_classifier_adapter(const struct ax_arch *arch, struct ax_peft_config *c) {
    if (!arch->classifier)
        return AX_OK;
    if (!c->json)
        c->task_type = arch->classifier->task_type;
    if (ax_adapter_saves(c, "score.weight"))
        return AX_OK;
    if (c->json)
        return ax_error(AX_ERR_CONFIG,
                        "the adapter was not trained for %s: its modules_to_save lack \"score\". "
                        "Merge it into its base first and train a new one.",
                        arch->classifier->what);
    return ax_peft_names_add(&c->save, "score");
}

/* {"0": "LABEL_0", …}, or with `reverse` {"LABEL_0": 0, …}, as transformers names labels. */
static json_t *label_names(int64_t n, bool reverse) {
    json_t *out = json_object();
    for (int64_t i = 0; out && i < n; i++) {
        char label[32], number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        snprintf(label, sizeof label, "LABEL_%s", number);
        if (reverse ? json_object_set_new(out, label, json_integer(i))
                    : json_object_set_new(out, number, json_string(label))) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

const char *ax_arch_name(const struct ax_arch *a, char *buf, size_t size) {
    const char *name = a->family->architecture, *end = strstr(name, "ForCausalLM");
    AX_ASSERT(end);
    if (a->wrapper && !a->classifier) {
        snprintf(buf, size, "%s", a->wrapper->architecture);
        return buf;
    }
    if (a->classifier && a->family->classifier)
        snprintf(buf, size, "%s%s", a->family->classifier, a->classifier->architecture);
    else
        snprintf(buf, size, "%.*s%s", (int)(end - name), name,
                 a->classifier ? a->classifier->architecture : end);
    return buf;
}

static json_t *architectures(const struct ax_arch *a) {
    char own[128];
    return json_pack("[s]", ax_arch_name(a, own, sizeof own));
}

/* Only for a new head: names that a folder gives the labels of its own stay. */
enum ax_status ax_classifier_fields(const struct ax_arch *arch, json_t *fields) {
    if (!arch->new_head)
        return AX_OK;
    if (json_object_set_new(fields, "architectures", architectures(arch)) == 0 &&
        json_object_set_new(fields, "id2label", label_names(arch->n_labels, false)) == 0 &&
        json_object_set_new(fields, "label2id", label_names(arch->n_labels, true)) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

enum ax_status ax_classifier_refuse(const struct ax_arch *arch, const char *dir, const char *what) {
    const struct ax_classifier *kind = arch->classifier;
    if (!kind)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "%s: %s, which cannot %s. It is for scoring: axtrain eval --task %s.", dir,
                    kind->what, what, kind->task);
}
