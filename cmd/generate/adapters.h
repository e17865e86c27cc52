/* The adapters of `--adapter [NAME=]DIR`, which may be given several times. */
#ifndef AX_CMD_GENERATE_ADAPTERS_H
#define AX_CMD_GENERATE_ADAPTERS_H

#include "cmd/args.h"
#include "model/adapter/bank.h"
#include "model/arch.h"

#define AX_BASE_NAME "base" /* the model without any */

struct ax_adapters {
    int n;
    char *names[AX_ARG_LIST_MAX]; /* as given, or the last part of DIR */
    struct ax_peft pefts[AX_ARG_LIST_MAX];
    bool grown; /* the only one has more tokens than the base: it makes the vocabulary */
};
/* Opens them; `base` is the base's folder and `arch` its shape, which gets the vocabulary of an
 * adapter that has more tokens: that one must be alone. AX_ERR_CONFIG: names that are empty, taken
 * twice, or "base"; what is merged into the base already. */
enum ax_status ax_adapters_open(struct ax_adapters *a, const struct ax_arg_list *given,
                                const char *base, struct ax_arch *arch);
void ax_adapters_close(struct ax_adapters *a); /* safe on a zeroed one */
/* Index or AX_ADAPTER_NONE of a name. AX_ERR_CONFIG lists those there are. */
enum ax_status ax_adapters_find(const struct ax_adapters *a, const char *name, int *out);
/* "base" for AX_ADAPTER_NONE. */
const char *ax_adapters_name(const struct ax_adapters *a, int which);
/* Appends "base, first, second". */
enum ax_status ax_adapters_list(const struct ax_adapters *a, struct ax_buf *out);
/* For a model with them: NULL where there are none. */
struct ax_adapter_bank *ax_adapters_bank(const struct ax_adapters *a, struct ax_adapter_bank *b);

#endif
