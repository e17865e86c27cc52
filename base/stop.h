/* Stop requests: signals are recorded here and acted on where work can be interrupted.
 *
 *   SIGTERM, SIGUSR1   save and ask to be queued again (schedulers send these; several count as
 * one) SIGINT (Ctrl-C)    save and end; the second one ends the process at once
 *
 * A second SIGTERM, too, ends the process at once, unless it comes within a second of the first:
 * schedulers signal a job's steps and its processes separately. */
#ifndef AX_BASE_STOP_H
#define AX_BASE_STOP_H

enum ax_stop { AX_STOP_NONE, AX_STOP_REQUEUE, AX_STOP_INTERRUPT };

/* From now on signals are noted; a request of before is forgotten. Threads may come and go. */
void ax_stop_watch(void);
/* Signals do again what they did before ax_stop_watch. */
void ax_stop_unwatch(void);
/* What was asked for; an interrupt wins. */
enum ax_stop ax_stop_requested(void);

#endif
