/* The key that requests to an endpoint carry: in a file or the environment, so that it is in no command line and no
 * log. */
#ifndef AX_CMD_API_KEY_H
#define AX_CMD_API_KEY_H

#include "base/status.h"

/* The only line of a file; AX_ERR_CONFIG if that is not one word of visible ASCII. Free it with ax_free. */
enum ax_status ax_api_key_read(const char *path, char **key);
/* The key in a variable of the environment; *key stays as it is without one. */
enum ax_status ax_api_key_environment(const char *name, char **key);

#endif
