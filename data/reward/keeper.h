/* A process between axtrain and a child of its rewards, which sees to it that nothing of the child is left: neither
 * when the child ends, nor when axtrain does, however that ends. Whatever descends from the child and loses its
 * parent becomes a child of the keeper (PR_SET_CHILD_SUBREAPER), also what has left its session or group, and the
 * keeper kills all of it before it ends. It is this program, started again by child.c. */
#ifndef AX_DATA_REWARD_KEEPER_H
#define AX_DATA_REWARD_KEEPER_H

/* The first word of its command line; the child's follow. */
#define AX_REWARD_KEEPER "reward-keeper"
/* A socket: the keeper sends an int, 0 or why the child could not be started (errno). When the other
 * end is closed, all ends. */
#define AX_REWARD_KEEPER_CONTROL 3

/* Runs argv (NULL-terminated) with this process's standard streams. Returns its exit code, or ends by
 * the signal that has ended it. */
int ax_reward_keeper(char **argv);

#endif
