/* The commit that a program was built from. */
#ifndef AX_CMD_COMMIT_H
#define AX_CMD_COMMIT_H

/* NULL in tests, which are linked without it. */
extern const char ax_commit[] __attribute__((weak));

#endif
