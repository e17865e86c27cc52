/* What run.json says of a run, and so which kind of training it was. */
#include <string.h>

#include "cmd/report/report.h"

const json_t *ax_report_about(const struct ax_report_run *run, const char *path) {
    const json_t *v = run->about.root;
    while (v && *path) {
        char part[64];
        const size_t n = strcspn(path, ".");
        if (n >= sizeof part)
            return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        v = json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

double ax_report_number(const struct ax_report_run *run, const char *path, double otherwise) {
    const json_t *v = ax_report_about(run, path);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

#define ANSWERS   "text-generation", "chat", "", AX_EVAL_FIGURE_ACCURACY
#define PER_TOKEN "nats per trained token"
#define PER_PAIR  "nats per pair"
#define POLICY    "the policy's objective, whose level says little"

static const struct ax_report_kind kinds[] = {
    {"reward_model", NULL, "reward model", PER_PAIR, "reward-model", "text-classification", "eval",
     " --task reward --data FILE", AX_EVAL_FIGURE_PREFERRED},
    {"process_reward_model", NULL, "process reward model", "nats per labeled step",
     "process-reward-model", "token-classification", "eval", " --task prm --data FILE",
     AX_EVAL_FIGURE_JUDGED},
    {NULL, "dpo", "DPO", PER_PAIR, "dpo", ANSWERS},
    {NULL, "orpo", "ORPO", PER_PAIR, "orpo", ANSWERS},
    {NULL, "cpo", "CPO", PER_PAIR, "cpo", ANSWERS},
    {NULL, "simpo", "SimPO", PER_PAIR, "simpo", ANSWERS},
    {NULL, "kto", "KTO", "per answer, from 0 to its weight", "kto", ANSWERS},
    {NULL, "grpo", "GRPO", POLICY, "grpo", ANSWERS},
    {NULL, "gdpo", "GDPO", POLICY, "gdpo", ANSWERS},
    {NULL, "ppo", "PPO", POLICY, "ppo", ANSWERS},
    {NULL, "distill", "on-policy distillation", PER_TOKEN, "distill", ANSWERS},
    {"kd_teacher", NULL, "distillation", PER_TOKEN, "sft", ANSWERS},
    {"kd_trainer", NULL, "distillation", PER_TOKEN, "sft", ANSWERS},
    {"qat", NULL, "quantization-aware training", PER_TOKEN, "sft", ANSWERS},
    {NULL, NULL, "supervised fine-tuning", PER_TOKEN, "sft", ANSWERS},
};

static bool is_kind(const struct ax_report_run *run, const struct ax_report_kind *k) {
    const json_t *config = ax_report_about(run, "config");
    const char *rl = json_string_value(json_object_get(config, "rl"));
    const json_t *v = k->key ? json_object_get(config, k->key) : NULL;
    if (k->key)
        return json_is_true(v) || json_is_string(v) || json_is_object(v);
    return !k->rl || (rl && strcmp(rl, k->rl) == 0);
}

const struct ax_report_kind *ax_report_kind(const struct ax_report_run *run) {
    const struct ax_report_kind *k = kinds;
    while (!is_kind(run, k))
        k++;
    return k;
}
