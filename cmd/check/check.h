/* The kinds of `axtrain check`, each with its own arguments: argv[0] is its name. */
#ifndef AX_CMD_CHECK_CHECK_H
#define AX_CMD_CHECK_CHECK_H

#include "optim/check/report.h"

enum ax_status ax_check_mesh(int argc, char **argv);
enum ax_status ax_check_self(int argc, char **argv);
/* The i-th of its lines, as --only names them; NULL after the last. */
const char *ax_check_self_name(size_t i);
/* Compares the flight records of a job's ranks (parallel/fabric/flight.h). */
enum ax_status ax_check_flight(int argc, char **argv);

/* AX_ERR_UNSUPPORTED: this machine or build has it not. AX_ERR_CONFIG lists the backends. */
enum ax_status ax_check_backend(const char *name);
/* Prints the groups collected under `title` to stdout and clears them. */
void ax_golden_flush(struct ax_golden_report *r);

#endif
