/* `axtrain check flight DIR`: compares the flight records of a job's ranks (parallel/fabric/flight.h). */
#ifndef AX_CMD_CHECK_FLIGHT_H
#define AX_CMD_CHECK_FLIGHT_H

#include "base/status.h"

enum ax_status ax_check_flight(int argc, char **argv);

#endif
