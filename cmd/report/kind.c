/* What a run trained. */
#include <string.h>

#include "cmd/report/report.h"

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
    {NULL, NULL, "supervised fine-tuning", PER_TOKEN, "sft", ANSWERS},
};

static bool is_kind(const struct ax_report_run *run, const struct ax_report_kind *k) {
    const json_t *config = ax_report_about(run, "config");
    const char *rl = json_string_value(json_object_get(config, "rl"));
    const json_t *v = k->key ? json_object_get(config, k->key) : NULL;
    if (k->key)
        return json_is_true(v) || json_is_string(v);
    return !k->rl || (rl && strcmp(rl, k->rl) == 0);
}

const struct ax_report_kind *ax_report_kind(const struct ax_report_run *run) {
    const struct ax_report_kind *k = kinds;
    while (!is_kind(run, k))
        k++;
    return k;
}
