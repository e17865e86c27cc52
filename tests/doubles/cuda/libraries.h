/* Stand-ins for NVIDIA's libraries: functions with their names and meaning, which ax_cuda_library_open
 * finds here in an emulated build. */
#ifndef AX_TESTS_DOUBLES_CUDA_LIBRARIES_H
#define AX_TESTS_DOUBLES_CUDA_LIBRARIES_H

struct ax_standin {
    const char *name; /* NULL ends a list */
    void *function;
};
extern const struct ax_standin ax_standin_cublaslt[], ax_standin_nccl[], ax_standin_cudnn[];

#endif
