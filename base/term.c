#include "base/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool ax_term_is_tty(int fd) {
    return isatty(fd) == 1;
}

int ax_term_width(int fd) {
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) {
        return w.ws_col;
    }
    return 80;
}

bool ax_term_has_cursor(int fd) {
    const char *term = getenv("TERM");
    return term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0 && ax_term_is_tty(fd);
}

bool ax_term_use_color(int fd, enum ax_color_mode mode) {
    if (mode != AX_COLOR_AUTO) {
        return mode == AX_COLOR_ALWAYS;
    }
    const char *no_color = getenv("NO_COLOR");
    if (no_color != NULL && no_color[0] != '\0') {
        return false;
    }
    return ax_term_has_cursor(fd);
}
