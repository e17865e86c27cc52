/* Models that classify: score.weight [n_labels][D] instead of lm_head as the last unit's matrix.
 *
 *   reward model           one score per sequence, at its last token; …ForSequenceClassification
 *   process reward model   wrong (0) or right (1) at the last token of every step;
 *                          …ForTokenClassification, which also has score.bias [n_labels]
 *
 * Names, sizes and files are those of transformers and PEFT. Transformers applies dropout (0.1 unless
 * config.json says otherwise) before a token classifier's score in training; here there is none. */
#ifndef AX_MODEL_ARCH_CLASSIFIER_H
#define AX_MODEL_ARCH_CLASSIFIER_H

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "model/arch/arch.h"

struct ax_classifier {
    const char *architecture; /* in config.json: "Llama" and this */
    const char *task_type;    /* PEFT's name, in adapter_config.json */
    const char *task;         /* name for `axtrain eval --task` */
    const char *what;         /* for messages: "a reward model" */
    int64_t n_labels;         /* labels of a new head */
    bool biased;
};
extern const struct ax_classifier ax_classifier_reward, ax_classifier_prm;
/* The classifier of a task; NULL for another name. */
const struct ax_classifier *ax_classifier_find(const char *task);
/* The i-th kind's task; NULL after the last. */
const char *ax_classifier_task(size_t i);

/* Sets arch->classifier and n_labels from architectures, id2label and num_labels of config.json. */
enum ax_status ax_classifier_parse(struct ax_arch *arch, struct ax_json config);
/* Chooses the head for a training run: a language model's head is dropped and a new one drawn
 * (arch->new_head). AX_ERR_CONFIG if the folder has another classifier's. */
enum ax_status ax_classifier_choose(struct ax_arch *arch, const struct ax_classifier *kind);
/* Uses the head that an adapter brings (modules_to_save), if its task_type is a classifier's. AX_ERR_DATA
 * if its tensor is missing or has no number of labels that may be; AX_ERR_CONFIG if the base has another. */
enum ax_status ax_classifier_of_adapter(struct ax_arch *arch, const struct ax_peft *peft);
/* Makes a new adapter of a classifier save the head in full. AX_ERR_CONFIG for an adapter from a
 * folder that does not. */
enum ax_status ax_classifier_adapter(const struct ax_arch *arch, struct ax_peft_config *c);
/* Adds the members of config.json that tell transformers about the head. */
enum ax_status ax_classifier_fields(const struct ax_arch *arch, json_t *fields);
/* The class of this model in transformers: "LlamaForCausalLM", "LlamaForSequenceClassification". */
const char *ax_arch_name(const struct ax_arch *arch, char *buf, size_t size);
/* AX_ERR_CONFIG for a classifier: says that `dir` cannot do `what` ("generate text"), and what it
 * is for. */
enum ax_status ax_classifier_refuse(const struct ax_arch *arch, const char *dir, const char *what);

#endif
