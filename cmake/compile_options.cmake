set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ${HEADRACE_LTO})

# x * scale + offset is rounded twice, as NumPy does and as x86-64 without FMA has to.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
endif()

# ccache hashes paths relative to the source folder, so presets and worktrees share one cache.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# Reading the standard library is half of the time a source takes: headrace_precompile(TARGET HEADER...)
# has it read once, with what else most of the target's sources include. For the tests, and for all in
# the builds with sanitizers; the library of the others shows that every source includes what it uses.
function(headrace_precompile target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <atomic> <bit> <charconv> <chrono> <condition_variable> <cstring> <functional>
    <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread>
    <unordered_map> <utility> <vector> ${ARGN})
  # Without it ccache would take what the preprocessor leaves of a precompiled header for the header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# Programs with this property are compiled without the sanitizer that their libraries have: with the
# very commands of the preset dev, whose objects ccache then has.
define_property(TARGET PROPERTY HEADRACE_PLAIN BRIEF_DOCS "Sources without HEADRACE_SANITIZE")
set(is_plain $<BOOL:$<TARGET_PROPERTY:HEADRACE_PLAIN>>)

add_library(headrace_options INTERFACE)
target_compile_options(headrace_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
  $<$<OR:$<BOOL:${HEADRACE_WERROR}>,${is_plain}>:-Werror>)

# GCC 12 warns of overlapping copies inside std::string (gcc.gnu.org/PR105329) and of writes past
# the end inside fmt.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(headrace_options INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()

# A debug build has them of itself. For all targets: what is inline in headers is checked alike.
if(HEADRACE_ASSERTIONS OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

if(HEADRACE_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(HEADRACE_SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread)
  # For what is on a fiber's stack when simt goes on with another one (simt/fiber.h). ThreadSanitizer
  # then sees one thread of execution, which the fibers of a block are; were each a thread of its
  # own, every switch would compare the times of a thousand. Reports name the innermost call of
  # these sources, and who launched the kernel.
  set(untraced_calls -DHEADRACE_UNTRACED_CALLS)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND untraced_calls --param=tsan-instrument-func-entry-exit=0)
  else()
    list(APPEND untraced_calls "SHELL:-mllvm -tsan-instrument-func-entry-exit=0")
  endif()
elseif(HEADRACE_SANITIZE)
  message(FATAL_ERROR "HEADRACE_SANITIZE: expected address or thread, got ${HEADRACE_SANITIZE}")
endif()
if(HEADRACE_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HEADRACE_BUILD_FUZZ needs clang, got ${CMAKE_CXX_COMPILER_ID}")
  endif()
  set(sanitize_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
endif()
if(sanitize_flags)
  add_compile_options(
    "$<$<NOT:${is_plain}>:${sanitize_flags};-fno-omit-frame-pointer;$<$<CONFIG:Release>:-O1>>")
  add_link_options(${sanitize_flags})
endif()
