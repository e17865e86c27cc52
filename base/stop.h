/* Stop requests: signals are recorded here and handled where work can be interrupted.
 *
 *   SIGTERM, SIGUSR1   save and ask to be requeued (sent by schedulers; several count as one)
 *   SIGHUP             the same (the terminal is gone), unless it was ignored, as nohup has it
 *   SIGINT (Ctrl-C)    save and end; a second one ends the process immediately
 *
 * A second SIGTERM also ends the process immediately, unless it comes within a second of the first:
 * schedulers signal a job's steps and its processes separately. */
#ifndef AX_BASE_STOP_H
#define AX_BASE_STOP_H

enum ax_stop { AX_STOP_NONE, AX_STOP_REQUEUE, AX_STOP_INTERRUPT };

/* Until ax_stop_watch, and after ax_stop_unwatch, the first three end the process immediately, with the
 * exit code of AX_SAVED_REQUEUE and a line that nothing was to be saved. For a program whose state
 * is in files. */
void ax_stop_end_at_once(void);
/* Blocks the four signals and no others: they wait until ax_stop_unblock, also while the process
 * becomes another program. */
void ax_stop_block(void);
void ax_stop_unblock(void);

/* Starts recording signals and clears earlier requests. Threads may start and end later. */
void ax_stop_watch(void);
/* In place of ax_stop_watch: signals do nothing here, for a process that others tell when to end. */
void ax_stop_ignore(void);
/* Restores the signal handlers from before ax_stop_watch or ax_stop_ignore. */
void ax_stop_unwatch(void);
/* The request so far; an interrupt wins over a requeue. */
enum ax_stop ax_stop_requested(void);

#endif
