#include "data/reward/sandbox/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define MACHINE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define MACHINE AUDIT_ARCH_AARCH64
#endif

static const int allowed[] = {
    SYS_read,         SYS_write,          SYS_pread64,
    SYS_futex,        SYS_madvise,        SYS_munmap,
    SYS_brk,          SYS_mremap,         SYS_close,
    SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction,
    SYS_tgkill,       SYS_gettid,         SYS_getpid,
    SYS_sigaltstack,  SYS_exit,           SYS_exit_group,
    SYS_sched_yield,  SYS_clock_gettime,  SYS_restart_syscall,
    SYS_getrandom,
};
enum { N_ALLOWED = sizeof allowed / sizeof *allowed };

/* Calls whose third argument must not make memory executable. */
static const int guarded[] = {SYS_mmap, SYS_mprotect};
enum { N_GUARDED = sizeof guarded / sizeof *guarded };

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(what)          BPF_STMT(BPF_RET | BPF_K, what)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), yes, no)
#define HAS(bits, yes, no)    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(bits), yes, no)

enum ax_status ax_seccomp_enter(void) {
#ifdef MACHINE
    struct sock_filter code[4 + 2 * N_ALLOWED + 5 * N_GUARDED + 4 + 1];
    size_t n = 0;
    code[n++] = (struct sock_filter)LOAD(arch);
    code[n++] = (struct sock_filter)EQUAL(MACHINE, 1, 0);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)LOAD(nr);
    for (int i = 0; i < N_ALLOWED; i++) {
        code[n++] = (struct sock_filter)EQUAL(allowed[i], 0, 1);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    for (int i = 0; i < N_GUARDED; i++) {
        code[n++] = (struct sock_filter)EQUAL(guarded[i], 0, 4);
        code[n++] = (struct sock_filter)LOAD(args[2]);
        code[n++] = (struct sock_filter)HAS(PROT_EXEC, 0, 1);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)EQUAL(SYS_ioctl, 0, 3);
    code[n++] = (struct sock_filter)LOAD(args[1]);
    code[n++] = (struct sock_filter)EQUAL(AX_PAGEMAP_SCAN, 0, 1);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    const struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "the kernel refuses to confine the sandbox: %s",
                        strerror(errno));
    return AX_OK;
#else
    return ax_error(AX_ERR_UNSUPPORTED, "the sandbox supports only x86-64 and aarch64");
#endif
}
