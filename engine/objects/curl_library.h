// libcurl as a table of functions. It is opened when an object store is asked for: it brings thirty libraries with it
// (TLS, Kerberos, LDAP), which no other command shall wait for and no wheel shall carry. Private to this room.
#pragma once

#include <curl/curl.h>

#include "quarry/base/status.h"

namespace quarry {

// decltype of a function of the header: types are the compiler's to check.
#define QUARRY_CURL_FUNCTIONS(apply)                                                                     \
  apply(curl_global_init) apply(curl_version_info) apply(curl_easy_init) apply(curl_easy_cleanup)        \
      apply(curl_easy_perform) apply(curl_easy_reset) apply(curl_easy_strerror) apply(curl_slist_append) \
          apply(curl_slist_free_all) apply(curl_multi_init) apply(curl_multi_cleanup)                    \
              apply(curl_multi_add_handle) apply(curl_multi_remove_handle) apply(curl_multi_perform)     \
                  apply(curl_multi_poll) apply(curl_multi_wakeup) apply(curl_multi_info_read)

struct CurlLibrary {
#define QUARRY_CURL_MEMBER(name) decltype(&::name) name = nullptr;
  QUARRY_CURL_FUNCTIONS(QUARRY_CURL_MEMBER)
#undef QUARRY_CURL_MEMBER
  // The header makes macros of these, which check their arguments in C alone.
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...) = nullptr;
  CURLcode (*easy_getinfo)(CURL*, CURLINFO, ...) = nullptr;
  CURLMcode (*multi_setopt)(CURLM*, CURLMoption, ...) = nullptr;
};

// Opened once for the process, and never closed: libcurl starts its TLS library for the whole process. Thread-safe.
// kUnsupported, where it is missing or older than signatures of version 4 (7.75), with what to install.
Result<const CurlLibrary*> LoadCurl();

}  // namespace quarry
