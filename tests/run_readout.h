/* Everything a person or a tool can read of a training run, as lines of text that two runs can be
 * compared by: metrics.jsonl, metrics.csv, TensorBoard's scalars, each checkpoint's files and
 * manifest, the trained model, and files that should not be there.
 *
 * Left out, since no two runs share it: times, rates, memory, the events "started", "resumed" and
 * "saved" (a save ends behind the steps; the checkpoints themselves are compared), and the
 * "stopped" of a signal. The folder's own path is written as OUT. */
#ifndef AX_TESTS_RUN_READOUT_H
#define AX_TESTS_RUN_READOUT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct run_readout {
    char **lines; /* each begins with where it is from: "metrics.jsonl: …", "checkpoint-7/…: …" */
    size_t n;
};
enum ax_status run_readout_open(struct run_readout *r, const char *folder);
void run_readout_close(struct run_readout *r);
enum ax_status run_readout_add(struct run_readout *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Removes the lines that begin with `prefix` and hold `part`; returns how many there were. */
int run_readout_drop(struct run_readout *r, const char *prefix, const char *part);
/* The first line that only one of them has, or has elsewhere, as "LINE (in the …)"; NULL: equal.
 * Static text. */
const char *run_readout_compare(const struct run_readout *straight,
                                const struct run_readout *other);

#endif
