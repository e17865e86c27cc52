/* How rank 0 of a mesh of processes reports those that failed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "optim/check/mesh.h"

enum { WORLD = 4, KILLED = -1, NONE = -2 };

static pid_t child(int code) {
    const pid_t pid = code == NONE ? 0 : fork();
    if (pid != 0 || code == NONE)
        return pid;
    if (code == KILLED)
        raise(SIGKILL);
    _exit(code);
}

static void the_first_failure_is_named(void **state) {
    (void)state;
    static const struct {
        int codes[WORLD]; /* of ranks 1 to 3 */
        enum ax_status before, after;
        const char *text;
    } cases[] = {
        {{0, 0, 0, 0}, AX_OK, AX_OK, ""},
        {{0, 3, 0, 0}, AX_OK, AX_ERR_PEER, "rank 1: its process exited with code 3"},
        {{0, 0, 0, 4}, AX_OK, AX_ERR_PEER, "rank 3: its process exited with code 4"},
        {{0, 0, KILLED, 0}, AX_OK, AX_ERR_PEER, "rank 2: its process exited with code 137"},
        {{0, NONE, 0, 5}, AX_OK, AX_ERR_PEER, "rank 3: its process exited with code 5"},
        {{0, 0, 3, 5}, AX_OK, AX_ERR_PEER, "rank 2: its process exited with code 3"},
        {{0, 3, 0, 0}, AX_ERR_DATA, AX_ERR_DATA, "our own"}, /* takes precedence */
        {{0, NONE, NONE, NONE}, AX_OK, AX_OK, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_mesh_launch l = {.world = WORLD, .processes = true, .listening = -1};
        assert_int_equal(ax_alloc(&l.children, WORLD, sizeof *l.children), AX_OK);
        for (int r = 1; r < WORLD; r++)
            l.children[r] = child(cases[i].codes[r]);
        ax_error_clear();
        if (cases[i].before != AX_OK)
            (void)ax_error(cases[i].before, "our own");
        assert_int_equal(ax_mesh_launch_end(&l, cases[i].before), cases[i].after);
        assert_string_equal(ax_error_text(), cases[i].text);
        assert_null(l.children);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_failure_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
