/* The program replay: compares our results with a folder of golden files. */
#ifndef TESTS_GOLDENS_COMMAND_H
#define TESTS_GOLDENS_COMMAND_H

#include "base/status.h"

enum ax_status golden_replay(int argc, char **argv);

#endif
