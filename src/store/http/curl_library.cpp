// libcurl, loaded by the first request over HTTP, and not with this library:
//  - who reads files only needs none of it, nor of the dozen libraries that it brings along;
//  - other packages of a Python process bring another libcurl, OpenLDAP or Kerberos and show their
//    symbols to all. RTLD_DEEPBIND keeps the ones of this libcurl to themselves: without it the
//    process crashes in libldap when it ends (seen with the wheel of eccodes).
//
// A wheel brings a libcurl of its own (tools/wheel_curl), which is taken first.
//
// The functions below are those of curl.h by their own names; each goes on to the one of libcurl.

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <cstdarg>
#include <filesystem>
#include <string>
#include <system_error>
#include <type_traits>

#include "headrace/error.h"
#include "store/http/own_file.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

namespace headrace {

namespace {

#if defined(__APPLE__)
#define HEADRACE_CURL_NAME "libheadrace_curl.dylib"
constexpr const char* kNames[] = {"libcurl.4.dylib"};
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
#else
#define HEADRACE_CURL_NAME "libheadrace_curl.so"
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(RTLD_DEEPBIND)
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;  // sanitizers see nothing behind RTLD_DEEPBIND
#else
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif
#endif

// That of a wheel: beside the module, or, for the command line, in the folder of the package.
void* open_brought() {
  const std::filesystem::path file = own_file();
  if (!file.is_absolute()) return nullptr;
  for (const char* place : {".", "../headrace"}) {
    const std::filesystem::path library = file.parent_path() / place / HEADRACE_CURL_NAME;
    if (void* opened = ::dlopen(library.c_str(), kFlags)) return opened;
  }
  return nullptr;
}

// Kept until the process ends: its threads may be in it until then.
void* library() {
  static void* const handle = [] {
    if (void* opened = open_brought()) return opened;
    std::string why;
    for (const char* name : kNames) {
      if (void* opened = ::dlopen(name, kFlags)) return opened;
      const char* error = ::dlerror();
      if (why.empty() && error != nullptr) why = error;
    }
    throw Error(
        ErrorCode::unsupported,
        "stores over HTTP need libcurl (Debian, Ubuntu: libcurl4; Fedora: libcurl): " + why);
  }();
  return handle;
}

template <typename Function>
Function* find(const char* name) {
  void* const found = ::dlsym(library(), name);
  if (found == nullptr) {
    throw Error(
        ErrorCode::unsupported,
        std::string("stores over HTTP need libcurl 7.84 or newer: this one has no ") + name);
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

}  // namespace headrace

// NOLINTBEGIN
#define HEADRACE_CURL(result, name, parameters, arguments)                  \
  result name parameters {                                                  \
    static auto* const function = headrace::find<result parameters>(#name); \
    return function arguments;                                              \
  }

// What comes after the option is a pointer, a long or a curl_off_t: of one size on all systems that
// are supported, and handed over alike. The enumeration before it is libcurl's own choice.
#pragma GCC diagnostic ignored "-Wvarargs"
static_assert(sizeof(long) == sizeof(void*) && sizeof(curl_off_t) == sizeof(void*));
#define HEADRACE_CURL_OPTION(result, name, Handle, Option)                             \
  result name(Handle* handle, Option option, ...) {                                    \
    static auto* const function = headrace::find<result(Handle*, Option, ...)>(#name); \
    va_list rest;                                                                      \
    va_start(rest, option);                                                            \
    void* const value = va_arg(rest, void*);                                           \
    va_end(rest);                                                                      \
    return function(handle, option, value);                                            \
  }

// Const from libcurl 8 on.
using UrlRead = std::conditional_t<
    std::is_same_v<decltype(curl_url_get), CURLUcode(const CURLU*, CURLUPart, char**, unsigned)>,
    const CURLU,
    CURLU>;

extern "C" {

HEADRACE_CURL(CURLcode, curl_global_init, (long flags), (flags))
HEADRACE_CURL(curl_version_info_data*, curl_version_info, (CURLversion age), (age))
HEADRACE_CURL(time_t, curl_getdate, (const char* text, const time_t* now), (text, now))
HEADRACE_CURL(void, curl_free, (void* memory), (memory))

HEADRACE_CURL(CURL*, curl_easy_init, (void), ())
HEADRACE_CURL(void, curl_easy_reset, (CURL * easy), (easy))
HEADRACE_CURL(void, curl_easy_cleanup, (CURL * easy), (easy))
HEADRACE_CURL(const char*, curl_easy_strerror, (CURLcode code), (code))
HEADRACE_CURL_OPTION(CURLcode, curl_easy_setopt, CURL, CURLoption)
HEADRACE_CURL_OPTION(CURLcode, curl_easy_getinfo, CURL, CURLINFO)

HEADRACE_CURL(CURLM*, curl_multi_init, (void), ())
HEADRACE_CURL(CURLMcode, curl_multi_cleanup, (CURLM * multi), (multi))
HEADRACE_CURL(CURLMcode, curl_multi_add_handle, (CURLM * multi, CURL* easy), (multi, easy))
HEADRACE_CURL(CURLMcode, curl_multi_remove_handle, (CURLM * multi, CURL* easy), (multi, easy))
HEADRACE_CURL(CURLMcode, curl_multi_perform, (CURLM * multi, int* running), (multi, running))
HEADRACE_CURL(CURLMsg*, curl_multi_info_read, (CURLM * multi, int* left), (multi, left))
HEADRACE_CURL(CURLMcode, curl_multi_wakeup, (CURLM * multi), (multi))
HEADRACE_CURL(CURLMcode,
              curl_multi_poll,
              (CURLM * multi, curl_waitfd extra[], unsigned count, int wait_ms, int* ready),
              (multi, extra, count, wait_ms, ready))
HEADRACE_CURL_OPTION(CURLMcode, curl_multi_setopt, CURLM, CURLMoption)

HEADRACE_CURL(curl_slist*, curl_slist_append, (curl_slist * list, const char* text), (list, text))
HEADRACE_CURL(void, curl_slist_free_all, (curl_slist * list), (list))

HEADRACE_CURL(CURLU*, curl_url, (void), ())
HEADRACE_CURL(void, curl_url_cleanup, (CURLU * url), (url))
HEADRACE_CURL(CURLUcode,
              curl_url_get,
              (UrlRead * url, CURLUPart part, char** text, unsigned flags),
              (url, part, text, flags))
HEADRACE_CURL(CURLUcode,
              curl_url_set,
              (CURLU * url, CURLUPart part, const char* text, unsigned flags),
              (url, part, text, flags))

}  // extern "C"
// NOLINTEND
