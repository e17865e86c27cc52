/* The terminal while a reply comes: Ctrl-C, and what is printed. */
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/term.h"
#include "cmd/chat/chat.h"

static _Atomic bool interrupted; /* without a lock, so a signal may set it */

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = true;
}

/* Not SA_RESTART: Ctrl-C must also interrupt waiting for a line. */
void ax_chat_catch_interrupts(struct sigaction *old) {
    struct sigaction now = {.sa_handler = on_interrupt};
    sigemptyset(&now.sa_mask);
    sigaction(SIGINT, &now, old);
}

bool ax_chat_interrupted(void *ctx) {
    (void)ctx;
    return interrupted;
}

const _Atomic bool *ax_chat_interrupt_flag(void) {
    return &interrupted;
}

void ax_chat_forget_interrupt(void) {
    interrupted = false;
}

enum ax_status ax_chat_show(struct ax_chat *c) {
    if (c->reply.len > c->printed)
        AX_TRY(ax_term_print(c->reply.data + c->printed, c->reply.len - c->printed));
    c->printed = c->reply.len;
    if (fflush(stdout) != 0 || ferror(stdout))
        return ax_error(AX_ERR_IO, "standard output: %m");
    return AX_OK;
}

void ax_chat_tell_error(const struct ax_chat *c) {
    fflush(stdout);
    if (ax_ranks_lead(&c->ranks))
        ax_log_error("%s", ax_error_text());
    ax_error_clear();
}
