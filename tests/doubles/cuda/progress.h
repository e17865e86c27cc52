/* How far the stand-in for NCCL is with a group's last call, and how soon its rank looks. */
#ifndef AX_TESTS_DOUBLES_CUDA_PROGRESS_H
#define AX_TESTS_DOUBLES_CUDA_PROGRESS_H

#include <chrono>
#include <mutex>

class ax_progress {
  public:
    void begin();      /* ends the program if the call before is in progress */
    bool is_through(); /* a look: from the second on it is */

  private:
    std::mutex lock; /* the watch of a fabric looks as well */
    int looks = 2;
    std::chrono::steady_clock::time_point since;
};

#endif
