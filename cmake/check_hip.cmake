# The target check_hip: kernels compile for a GPU of AMD, to assembly that nobody runs. It keeps
# them free of what one vendor alone has (src/simt/hip.h); docs/devices.md says what it does not
# show.
set(HEADRACE_HIP_ARCHITECTURE gfx90a CACHE STRING "The GPU that check_hip generates code for")
find_program(HEADRACE_HIPCC hipcc)
mark_as_advanced(HEADRACE_HIPCC)
if(NOT HEADRACE_HIPCC)
  add_custom_target(check_hip
    COMMAND ${CMAKE_COMMAND} -E echo
      "check_hip: no hipcc (a package of Debian), not checked" VERBATIM)
  return()
endif()

file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS
  RELATIVE ${PROJECT_SOURCE_DIR} src/kernels/*.cpp)
set(assembly "")
foreach(source IN LISTS kernel_sources)
  string(MAKE_C_IDENTIFIER ${source} stem)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/check_hip/${stem}.s)
  # kMinCtas bounds registers by CUDA's rule; HIP counts otherwise and does not look at it. A loop
  # that is not unrolled is slower, not wrong. hipcc says by itself what to link with.
  add_custom_command(OUTPUT ${output}
    COMMAND ${HEADRACE_HIPCC} -x hip --cuda-device-only --offload-arch=${HEADRACE_HIP_ARCHITECTURE}
      -std=c++20 -O2 -S -Wall -Wextra -Werror -Wno-unused-const-variable
      -Wno-pass-failed -Wno-unused-command-line-argument
      -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
      -MD -MT ${output} -MF ${output}.d -o ${output} ${PROJECT_SOURCE_DIR}/${source}
    DEPENDS ${source} DEPFILE ${output}.d
    COMMENT "Compiling ${source} for ${HEADRACE_HIP_ARCHITECTURE}" VERBATIM)
  list(APPEND assembly ${output})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/check_hip)
add_custom_target(check_hip DEPENDS ${assembly})
