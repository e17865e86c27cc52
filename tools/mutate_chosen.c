/* Which mutant of a library with many (mutate_sites.py) a process is, and which its code has reached: tools/mutate writes
 * both answers' places into the library's file, as programs may start others with no environment. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AX_MUTANTS = 65536 };
volatile struct {
    char mark[16];
    int chosen; /* number; -1: none */
    char path
        [492]; /* of a file of AX_MUTANTS bytes, of which those of reached mutants become 1; empty: none */
} ax_mutants = {"ax_mutants here", -1, ""};

int ax_mutant = -1;
static unsigned char nowhere[AX_MUTANTS];
unsigned char *ax_mutants_reached = nowhere;

__attribute__((constructor(101))) static void begin(void) {
    char path[sizeof ax_mutants.path];
    for (unsigned i = 0; i < sizeof path; i++)
        path[i] = ax_mutants.path[i];
    ax_mutant = ax_mutants.chosen;
    const int fd = path[0] ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *file =
        fd < 0 ? MAP_FAILED : mmap(NULL, AX_MUTANTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file != MAP_FAILED)
        ax_mutants_reached = file;
    if (fd >= 0)
        close(fd);
}
