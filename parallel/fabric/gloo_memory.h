/* gloo/common/memory.h, for comm_gloo.cpp: Gloo's own headers of pairs and contexts include it, and its
 * installations lack it. Only the layout of these classes matters here, since Gloo's library alone
 * calls into them. It has not changed since 2019; an installed one takes precedence (Makefile). */
#ifndef AX_PARALLEL_FABRIC_GLOO_MEMORY_H
#define AX_PARALLEL_FABRIC_GLOO_MEMORY_H

#include <memory>

namespace gloo {

template <typename T> class NonOwningPtr final {
  private:
    std::shared_ptr<T> ptr_;
};

template <typename T> class WeakNonOwningPtr final {
  protected:
    std::weak_ptr<T> ptr_;
};

template <typename T> class ShareableNonOwningPtr final {
  protected:
    std::shared_ptr<T> ptr_;
};

} // namespace gloo

#endif
