#include "curl_library.h"

#include <dlfcn.h>

namespace quarry {
namespace {

constexpr const char* kCurlName = "libcurl.so.4";
constexpr unsigned kCurlVersionMin = 0x074b00;  // 7.75.0: CURLOPT_AWS_SIGV4

struct LoadedCurl {
  CurlLibrary library;
  Status status;
};

LoadedCurl OpenCurl() {
  LoadedCurl loaded;
  void* const handle = dlopen(kCurlName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    loaded.status = MakeStatus(Code::kUnsupported, "object stores need libcurl (Debian's libcurl4): {}",
                               reason != nullptr ? reason : kCurlName);
    return loaded;
  }
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  CurlLibrary& curl = loaded.library;
#define QUARRY_CURL_FIND(name) find(curl.name, #name);
  QUARRY_CURL_FUNCTIONS(QUARRY_CURL_FIND)
#undef QUARRY_CURL_FIND
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_getinfo, "curl_easy_getinfo");
  find(curl.multi_setopt, "curl_multi_setopt");
  if (missing != nullptr) {
    loaded.status = MakeStatus(Code::kUnsupported, "{} has no {}: object stores need libcurl 7.75 or later",
                               kCurlName, missing);
    return loaded;
  }
  const curl_version_info_data* const version = curl.curl_version_info(CURLVERSION_NOW);
  if (version->version_num < kCurlVersionMin) {
    loaded.status = MakeStatus(Code::kUnsupported, "{} is libcurl {}: object stores need 7.75 or later",
                               kCurlName, version->version);
    return loaded;
  }
  if (const CURLcode code = curl.curl_global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK) {
    loaded.status =
        MakeStatus(Code::kUnsupported, "{} does not start: {}", kCurlName, curl.curl_easy_strerror(code));
  }
  return loaded;
}

}  // namespace

Result<const CurlLibrary*> LoadCurl() {
  static const LoadedCurl loaded = OpenCurl();
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.library;
}

}  // namespace quarry
