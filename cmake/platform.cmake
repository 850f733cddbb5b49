# What machines this is for, and which of two bodies a file has: NAME_linux.cpp may use all that Linux
# has, NAME_portable.cpp what POSIX.1-2008 and macOS have (src/base/system.h).

if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "headrace needs a 64-bit machine: pointers here have ${CMAKE_SIZEOF_VOID_P} bytes")
endif()
# Where the compiler does not tell (a universal build of macOS), both are little-endian.
if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "headrace needs a little-endian machine: ${CMAKE_SYSTEM_PROCESSOR} is big-endian")
endif()

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT HEADRACE_PORTABLE)
  message(STATUS "${CMAKE_SYSTEM_NAME}: HEADRACE_PORTABLE is ON")
  set(HEADRACE_PORTABLE ON CACHE BOOL "" FORCE)
endif()
if(HEADRACE_PORTABLE)
  if(HEADRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HEADRACE_PORTABLE has no GPU code: HEADRACE_CUDA=OFF")
  endif()
  set(HEADRACE_CUDA OFF)
endif()

# Of a list of files leaves the bodies of this build.
function(headrace_platform_sources list)
  if(HEADRACE_PORTABLE)
    list(FILTER ${list} EXCLUDE REGEX "_linux\\.cpp$")
  else()
    list(FILTER ${list} EXCLUDE REGEX "_portable\\.cpp$")
  endif()
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()
