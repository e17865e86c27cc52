/* The chat format of a tekken.json, which depends on its version. */
#ifndef AX_DATA_TEMPLATE_TEKKEN_H
#define AX_DATA_TEMPLATE_TEKKEN_H

#include "data/template/template.h"

/* AX_ERR_UNSUPPORTED: another version than v3, v7, v11 and v13. */
enum ax_status ax_template_tekken(struct ax_template **out, const char *path);

#endif
