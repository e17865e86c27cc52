/* The adapters of the repeatable option `--adapter [NAME=]DIR`. */
#ifndef AX_MODEL_ADAPTER_ADAPTERS_H
#define AX_MODEL_ADAPTER_ADAPTERS_H

#include "base/text/words.h"
#include "model/arch/arch.h"
#include "model/adapter/load.h"
#include "model/core/adapters.h"

#define AX_BASE_NAME "base" /* the model without an adapter */

struct ax_adapters {
    int n;
    char *names[AX_ARG_LIST_MAX]; /* names as given, or the last part of DIR */
    struct ax_peft pefts[AX_ARG_LIST_MAX];
    bool grown;  /* the only adapter has more tokens than the base: it defines the vocabulary */
    int n_slots; /* the last of n are places for adapters that come later, shaped as the first */
};
/* Opens them; `base` is the base's folder and `arch` its shape. An adapter with more tokens extends
 * the vocabulary in it and must be the only one. AX_ERR_CONFIG: names that are empty, duplicate, or
 * "base"; an adapter that is already merged into the base. */
enum ax_status ax_adapters_open(struct ax_adapters *a, const struct ax_arg_list *given,
                                const char *base, struct ax_arch *arch);
void ax_adapters_close(struct ax_adapters *a); /* safe on a zeroed one */
/* Adds n places, copies of the first adapter until they are filled. AX_ERR_CONFIG without adapters, or with too
 * many. */
enum ax_status ax_adapters_add_slots(struct ax_adapters *a, int64_t n);
/* Opens a folder as ax_adapters_open does. */
enum ax_status ax_adapter_open(struct ax_peft *peft, const char *dir, const char *base);
/* AX_ERR_CONFIG says in what `peft` differs from adapter `which`, so that its place cannot take it. */
enum ax_status ax_adapters_match(const struct ax_adapters *a, int which,
                                 const struct ax_peft *peft);
/* `peft`, which matches, becomes adapter `which` of the model created with them, and is zeroed. AX_ERR_DATA as in
 * ax_adapter_bank_fill. */
enum ax_status ax_adapters_replace(struct ax_adapters *a, struct ax_model *m, int which,
                                   struct ax_peft *peft);
/* Index of a name, or AX_ADAPTER_NONE. AX_ERR_CONFIG lists the existing ones. */
enum ax_status ax_adapters_find(const struct ax_adapters *a, const char *name, int *out);
/* "base" for AX_ADAPTER_NONE. */
const char *ax_adapters_name(const struct ax_adapters *a, int which);
/* Appends "base, first, second". */
enum ax_status ax_adapters_list(const struct ax_adapters *a, struct ax_buf *out);
/* For creating a model with them: NULL if there are none. */
struct ax_adapter_bank *ax_adapters_bank(const struct ax_adapters *a, struct ax_adapter_bank *b);

#endif
