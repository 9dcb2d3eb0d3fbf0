// The declarations of driver_api.h against the toolkit's, where there is one: what is passed has the same size and kind.
// driver_api.h goes first: cuda.h renames names.
#include "driver_api.h"

#if defined(QUARRY_CUDA_HEADER)

#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace quarry::gpu {
namespace {

// Numbers alike; pointers to what is alike, where what is opaque, or anything at all, is like every other such.
template <typename Ours, typename Theirs>
constexpr bool Alike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OurPointee = std::remove_pointer_t<Ours>;
    using TheirPointee = std::remove_pointer_t<Theirs>;
    constexpr bool kOurs = std::is_void_v<OurPointee> || std::is_class_v<OurPointee>;
    constexpr bool kTheirs = std::is_void_v<TheirPointee> || std::is_class_v<TheirPointee>;
    if (std::is_const_v<OurPointee> != std::is_const_v<TheirPointee>) return false;
    if constexpr (std::is_function_v<OurPointee> || std::is_function_v<TheirPointee>) {
      return std::is_same_v<OurPointee, TheirPointee>;
    } else if constexpr (kOurs || kTheirs) {
      return kOurs && kTheirs;
    } else {
      return Alike<std::remove_cv_t<OurPointee>, std::remove_cv_t<TheirPointee>>();
    }
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  } else {
    return std::is_same_v<Ours, Theirs>;
  }
}

template <typename Ours, typename Theirs>
constexpr bool kSameCall = false;
template <typename... Ours, typename... Theirs>
constexpr bool kSameCall<cuda::Error (*)(Ours...), CUresult (*)(Theirs...)> = [] {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return (Alike<Ours, Theirs>() && ...);
  } else {
    return false;
  }
}();

using cuda::Address, cuda::Context, cuda::Error, cuda::Event, cuda::Function, cuda::HostCall, cuda::Module,
    cuda::Ordinal, cuda::Stream;
#define QUARRY_SAME_CALL(name, arguments) \
  static_assert(kSameCall<Error(*) arguments, decltype(&::name)>, #name);
QUARRY_DRIVER_FUNCTIONS(QUARRY_SAME_CALL)

static_assert(cuda::kSuccess == CUDA_SUCCESS && cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              cuda::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED &&
              cuda::kNoDevice == CUDA_ERROR_NO_DEVICE &&
              cuda::kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU &&
              cuda::kInvalidPtx == CUDA_ERROR_INVALID_PTX &&
              cuda::kUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
              cuda::kNotFound == CUDA_ERROR_NOT_FOUND && cuda::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              cuda::kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              cuda::kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::kNonBlocking == CU_STREAM_NON_BLOCKING &&
              cuda::kDisableTiming == CU_EVENT_DISABLE_TIMING &&
              cuda::kPortable == CU_MEMHOSTREGISTER_PORTABLE &&
              cuda::kDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);

}  // namespace
}  // namespace quarry::gpu

#endif
