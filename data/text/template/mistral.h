/* The chat format of a tokenizer of Mistral's own, which depends on its version. */
#ifndef AX_DATA_TEXT_TEMPLATE_MISTRAL_H
#define AX_DATA_TEXT_TEMPLATE_MISTRAL_H

#include "data/text/template/template.h"

/* `path` is one that ax_mistral_tokenizer_in finds. AX_ERR_UNSUPPORTED: of another version than v1, v2,
 * v3, v7, v11, v13 and v15. */
enum ax_status ax_template_mistral(struct ax_template **out, const char *path);

#endif
