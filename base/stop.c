#include "base/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

static const int watched[] = {SIGTERM, SIGUSR1, SIGHUP, SIGINT};
enum { WATCHED = sizeof watched / sizeof *watched };

static struct sigaction before[WATCHED];
static int requeue_code; /* an exit code */
static _Atomic bool watching, interrupt, requeue;
static _Atomic long long first_term; /* nanoseconds; 0 = none yet */

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Confirms the signal, because the current step may still take a while. */
static void acknowledge(void) {
    static const char text[] =
        "\nstopping at the next safe point; press Ctrl-C again to quit immediately\n";
    if (isatty(STDERR_FILENO) && write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return; /* nothing depends on it */
}

/* Only atomics, clock_gettime, raise, isatty's ioctl and write: all async-signal-safe. */
static void note(int sig) {
    const int saved = errno;
    bool again = sig == SIGINT && atomic_exchange(&interrupt, true);
    if (sig == SIGTERM) {
        const long long now = now_ns();
        long long first = 0;
        again =
            !atomic_compare_exchange_strong(&first_term, &first, now) && now - first > 1000000000LL;
    }
    if (sig == SIGINT && !again)
        acknowledge();
    if (sig != SIGINT)
        atomic_store(&requeue, true);
    if (again) {
        signal(sig, SIG_DFL);
        raise(sig); /* delivered when this handler returns */
    }
    errno = saved;
}

static void set_handler(int sig, void (*handler)(int), struct sigaction *old) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(sig, NULL, old);
    if (sig != SIGHUP || old->sa_handler != SIG_IGN) /* as nohup starts it */
        sigaction(sig, &action, NULL);
}

/* Only write and _exit. */
static void end_now(int sig) {
    static const char text[] = "error asked to stop while no step was running: nothing was to be "
                               "saved. Run the same command again\n";
    (void)sig;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(requeue_code);
}

void ax_stop_end_at_once(void) {
    struct sigaction old;
    requeue_code = ax_status_info(AX_SAVED_REQUEUE)->exit_code;
    for (int i = 0; i < WATCHED; i++)
        if (watched[i] != SIGINT)
            set_handler(watched[i], end_now, &old);
}

static void mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < WATCHED; i++)
        sigaddset(&set, watched[i]);
    sigprocmask(how, &set, NULL);
}

void ax_stop_block(void) {
    mask(SIG_SETMASK);
}

void ax_stop_unblock(void) {
    mask(SIG_UNBLOCK);
}

static void install(void (*handler)(int)) {
    atomic_store(&interrupt, false);
    atomic_store(&requeue, false);
    atomic_store(&first_term, 0);
    if (atomic_exchange(&watching, true))
        return;
    for (int i = 0; i < WATCHED; i++)
        set_handler(watched[i], handler, &before[i]);
}

void ax_stop_watch(void) {
    install(note);
}

/* A handler, and not SIG_IGN, which programs that this process runs would keep. */
static void drop(int sig) {
    (void)sig;
}

void ax_stop_ignore(void) {
    install(drop);
}

void ax_stop_unwatch(void) {
    if (!atomic_exchange(&watching, false))
        return;
    for (int i = 0; i < WATCHED; i++)
        sigaction(watched[i], &before[i], NULL);
}

enum ax_stop ax_stop_requested(void) {
    if (atomic_load(&interrupt))
        return AX_STOP_INTERRUPT;
    return atomic_load(&requeue) ? AX_STOP_REQUEUE : AX_STOP_NONE;
}
